"""What a model to be measured is filled with: weights inside, and inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np


def filled(model: bytes, weights: Sequence[str], copies: int) -> tuple[bytes, Mapping[str, Any]]:
    """So many copies of a model side by side, the named inputs as random weights inside, and random values for the other inputs.

    The same for the same arguments.
    """
    from dslc.onnx.inputs import draw, input_specs
    from dslc.onnx.small import beside, with_weights

    random = np.random.default_rng(0)
    parts = [with_weights(model, weights, lambda dtype, shape: _drawn(random, dtype, shape)) for _ in range(copies)]
    whole = beside(parts)
    specs, _, _ = input_specs(whole, {})
    return whole.SerializeToString(), draw(specs, 0)


def _drawn(random: np.random.Generator, dtype: np.dtype[Any], shape: Iterable[int]) -> Any:
    """Weights: positive numbers (square roots and logarithms are taken of some); integers are 0, a valid index anywhere."""
    if dtype.kind in "iub":
        return np.zeros(tuple(shape), dtype)
    return random.random(tuple(shape), np.float32).astype(dtype) + dtype.type(0.1)
