"""The node cases of ONNX's backend suite, loaded in a second: its definition of a pool takes three for three of them."""

from __future__ import annotations

import contextlib
import functools
import io
import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

#: elements from which a pool of all windows is computed at once
LARGE = 1 << 16


def pooled(x: np.ndarray, kernel: Sequence[int], kind: str, p: int) -> np.ndarray:
    """The pool of each window, where the windows begin at each element and are never cut off."""
    axes = tuple(range(2, x.ndim))
    windows = np.lib.stride_tricks.sliding_window_view(x, tuple(kernel), axes)
    inner = tuple(-1 - axis for axis in range(len(kernel)))
    if kind == "LPPOOL":
        return np.sum(np.abs(windows) ** p, axis=inner) ** (1 / p)
    return windows.max(axis=inner) if kind == "MAX" else windows.mean(axis=inner)


@functools.cache
def node_cases() -> list[Any]:
    """All cases of one node. What they expect is computed as their modules are imported."""
    from onnx.backend.test.loader import load_model_tests
    from onnx.reference.ops import op_pool_common

    slow = op_pool_common.pool

    def pool(
        x: np.ndarray, shape: Sequence[int], kernel: Sequence[int], strides: Sequence[int], out: Sequence[int],
        kind: str, *more: Any, p: int = 1, **named: Any,
    ) -> np.ndarray:  # fmt: skip
        plain = not more and all(one is None for one in named.values()) and {*strides} == {1}
        if math.prod(shape) < LARGE or not plain:
            return slow(x, shape, kernel, strides, out, kind, *more, p=p, **named)
        return pooled(x, kernel, kind, p).astype(x.dtype)

    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        op_pool_common.pool = pool
        try:
            return list(load_model_tests(kind="node"))
        finally:
            op_pool_common.pool = slow
