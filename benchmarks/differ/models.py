"""Random models: idioms of exporters put one behind the other, from inputs of any rank and type."""

from __future__ import annotations

import math

import numpy as np
from onnx import ModelProto

from benchmarks.differ.builder import BOOL, DOUBLE, FLOAT, HALF, INT32, INT64, Builder, Tensor
from benchmarks.differ.idioms import IDIOMS, LARGE

#: mostly those that exporters write today
OPSETS = (11, 12, 13, 13, 14, 15, 16, 17, 17, 17, 18, 18, 19, 20, 21, 21, 22, 23)


def random_model(rng: np.random.Generator, newest: int = 23) -> tuple[ModelProto, dict[str, int]]:
    """A model, and the sizes that its symbolic dimensions have where it is run."""
    b = Builder(min(newest, OPSETS[int(rng.integers(len(OPSETS)))]), rng)
    x = _input(b)
    if b.chance(0.35):
        _input(b, like=x)
    if b.chance(0.1) and x.shape and x.shape[0] > 0:
        # a size that is nowhere else, so that only the batch is left open
        b.open_sizes["N"] = x.shape[0]
    length = b.whole(2, 9)
    made: list[Tensor] = []
    for _ in range(6 * length):
        if len(made) == length:
            break
        start = x if b.chance(0.75) else b.pick([v for v in b.values if v.size <= LARGE])
        found = b.pick(IDIOMS)(b, start)
        if found is None or found.size > LARGE or (found.size == 0 and start.size):
            continue
        made.append(found)
        x = found
    used = {name for node in b.nodes for name in node.input}
    ends = [value for value in b.values if value.name not in used and value not in b.inputs] or [x]
    outputs = [*ends[-3:], *([b.pick(made)] if made and b.chance(0.2) else [])]
    return b.model(list(dict.fromkeys(outputs))), dict(b.open_sizes)


def _input(b: Builder, like: Tensor | None = None) -> Tensor:
    dtype = b.pick([FLOAT] * 8 + [DOUBLE, HALF, INT64, INT64, INT32, BOOL])
    if like is not None and b.chance(0.7):
        return b.input(like.shape, like.dtype)
    kind = b.whole(0, 9)
    if kind <= 3:  # images
        shape: tuple[int, ...] = (
            b.pick([1, 1, 2]),
            b.pick([1, 2, 3, 4, 8]),
            *[b.whole(3, 8) for _ in range(b.pick([1, 2, 2, 2]))],
        )
    elif kind <= 5:  # sequences
        shape = (b.pick([1, 2]), b.whole(2, 6), b.pick([4, 6, 8]))
    elif kind <= 7:  # rows
        shape = (b.whole(1, 5), b.whole(1, 8))
    else:
        shape = tuple(b.pick([1, 2, 3, 4, 5]) for _ in range(b.pick([0, 1, 1, 3, 5])))
        if shape and b.chance(0.3):
            shape = (*shape[:-1], 0)
    return b.input(shape if math.prod(shape) <= LARGE else shape[:2], dtype)
