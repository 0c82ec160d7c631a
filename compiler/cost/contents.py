"""Contents of a model to be measured: weights inside, and inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx


def filled(model: bytes, weights: Sequence[str], copies: int, like: bytes = b"") -> tuple[bytes, Mapping[str, Any]]:
    """So many copies of a model side by side, the named inputs as random weights inside, and random values for the other inputs.

    The same for the same arguments. `like` is a model with the same inputs, whose nodes say which integers they may be.
    """
    from dslc.onnx.inputs import draw, input_specs
    from dslc.onnx.microbenchmarks import beside, with_weights

    random = np.random.default_rng(0)
    parts = [with_weights(model, weights, lambda dtype, shape: _drawn(random, dtype, shape)) for _ in range(copies)]
    whole = beside(parts)
    limits = beside([onnx.ModelProto.FromString(like)] * copies) if like else whole
    names = {end.name for end in whole.graph.input}
    specs = [spec for spec in input_specs(limits, {})[0] if spec.name in names]
    return whole.SerializeToString(), draw(specs, 0)


def _drawn(random: np.random.Generator, dtype: np.dtype[Any], shape: Iterable[int]) -> Any:
    """Weights: positive numbers (square roots and logarithms are taken of some); integers are 0, a valid index anywhere."""
    if dtype.kind in "iub":
        return np.zeros(tuple(shape), dtype)
    return random.random(tuple(shape), np.float32).astype(dtype) + dtype.type(0.1)
