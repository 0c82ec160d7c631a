"""Pieces of models as exporters write them: each takes a value and gives the next one, or None where it does not fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.differ.builder import DOUBLE, FLOAT, INT32, INT64, Builder, Tensor
from benchmarks.differ.elementwise import activation, binary, cast, compared, integer, unary
from benchmarks.differ.layers import attention, convolved, enlarged, linear, multiplied, normalized, pooled

Idiom = Callable[[Builder, Tensor], Tensor | None]
#: elements of a value at most
LARGE = 4096


# ---- layouts ---------------------------------------------------------------------------------------------------------------


def moved(b: Builder, x: Tensor) -> Tensor | None:
    """Chains of reshapes and transposes, with what is computed at run time in some."""
    which = b.whole(0, 6)
    if which == 0 or x.rank < 2:
        return reshaped(b, x)
    if which <= 2:
        perm = [int(k) for k in b.rng.permutation(x.rank)]
        return b.node("Transpose", [x], [x.shape[k] for k in perm], perm=perm)
    if which == 3:
        axis = b.whole(0, x.rank)
        return b.node("Flatten", [x], [math.prod(x.shape[:axis]), math.prod(x.shape[axis:])], axis=axis)
    if which == 4:
        axis = b.whole(0, x.rank)
        return _axes(b, "Unsqueeze", x, [axis], (*x.shape[:axis], 1, *x.shape[axis:]))
    if which == 5:
        ones = [k for k, size in enumerate(x.shape) if size == 1]
        if not ones:
            return None
        axis = b.pick(ones)
        return _axes(b, "Squeeze", x, [axis], (*x.shape[:axis], *x.shape[axis + 1 :]))
    target = tuple(b.whole(2, 3) if size == 1 else size for size in x.shape)
    return b.node("Expand", [x, b.longs(*target)], target) if math.prod(target) <= LARGE else None


def _axes(b: Builder, op: str, x: Tensor, axes: Sequence[int], shape: Sequence[int]) -> Tensor:
    if b.opset >= 13:
        return b.node(op, [x, b.longs(*axes)], shape)
    return b.node(op, [x], shape, axes=list(axes))


def reshaped(b: Builder, x: Tensor) -> Tensor:
    """To a list, a matrix, or with one axis split or two merged; -1 and 0 as exporters use them."""
    way = b.whole(0, 4)
    shape = list(x.shape)
    if way == 0 or not shape:
        wanted, shape = [-1] if x.size else [0], [x.size]
        if not x.size:
            return b.node("Flatten", [x], [1, 0], axis=0) if x.rank else x
    elif way == 1 and len(shape) >= 2:
        k = b.whole(0, len(shape) - 2)
        shape = [*shape[:k], shape[k] * shape[k + 1], *shape[k + 2 :]]
        wanted = list(shape)
    elif way == 2:
        k = b.whole(0, len(shape) - 1)
        parts = [d for d in range(1, shape[k] + 1) if shape[k] % d == 0] if shape[k] else [1]
        d = b.pick(parts)
        shape = [*shape[:k], d, shape[k] // d, *shape[k + 1 :]]
        wanted = list(shape)
    else:
        shape = [*shape, 1] if b.chance(0.5) else [1, *shape]
        wanted = list(shape)
    if x.size and b.chance(0.4) and -1 not in wanted:
        wanted[b.whole(0, len(wanted) - 1)] = -1
    if shape and x.shape and x.size and shape[0] == x.shape[0] and wanted[0] > 0 and b.chance(0.3):
        wanted[0] = 0
    if x.rank and x.size and shape[0] == x.shape[0] and b.chance(0.2):  # x.view(x.size(0), ...)
        sizes = b.node("Shape", [x], [x.rank], INT64)
        batch = b.node("Gather", [sizes, b.longs(0)], [1], INT64, axis=0)
        if len(shape) == 1:
            return b.node("Reshape", [x, batch], shape)
        rest = [-1 if k == 1 else size for k, size in enumerate(shape) if k]
        whole = b.node("Concat", [batch, b.longs(*rest)], [len(shape)], INT64, axis=0)
        return b.node("Reshape", [x, whole], shape)
    allow = {"allowzero": 1} if 0 in shape and b.opset >= 14 and -1 not in wanted else {}
    if 0 in shape and not allow:
        return b.node("Identity", [x], x.shape)
    return b.node("Reshape", [x, b.longs(*wanted)], shape, **allow)


def cut(b: Builder, x: Tensor) -> Tensor | None:
    """A slice, one part of a split, or all parts put together in some order."""
    axes = [k for k, size in enumerate(x.shape) if size >= 2]
    if not axes:
        return None
    axis = b.pick(axes)
    size = x.shape[axis]
    if b.chance(0.4):
        start, step = b.whole(0, size - 1), b.pick([1, 1, 2])
        end = b.whole(start + 1, size)
        taken = -(-(end - start) // step)
        shape = (*x.shape[:axis], taken, *x.shape[axis + 1 :])
        stop = end if end < size or b.chance(0.5) else np.iinfo(np.int64).max
        return b.node("Slice", [x, b.longs(start), b.longs(int(stop)), b.longs(axis), b.longs(step)], shape)
    first = b.whole(1, size - 1)
    sizes = [first, size - first]
    shapes = [(*x.shape[:axis], part, *x.shape[axis + 1 :]) for part in sizes]
    if b.opset >= 13:
        parts = b.several("Split", [x, b.longs(*sizes)], shapes, axis=axis)
    else:
        parts = b.several("Split", [x], shapes, axis=axis, split=sizes)
    if b.chance(0.5):
        parts = [
            found if (found := activation(b, part)) is not None and found.shape == part.shape else part
            for part in parts
        ]
    if b.chance(0.3):
        return b.pick(parts)
    if parts[0].dtype != parts[1].dtype:
        return None
    if b.chance(0.3):
        parts = parts[::-1]
    return b.node("Concat", parts, x.shape, axis=axis)


def joined(b: Builder, x: Tensor) -> Tensor | None:
    if not x.rank or 2 * x.size > LARGE:
        return None
    axis = b.whole(0, x.rank - 1)
    same = [
        v for v in b.values
        if v.dtype == x.dtype and v.rank == x.rank and all(k == axis or v.shape[k] == x.shape[k] for k in range(x.rank))
        and v.size + x.size <= LARGE
    ]  # fmt: skip
    other = b.pick(same)
    shape = (*x.shape[:axis], x.shape[axis] + other.shape[axis], *x.shape[axis + 1 :])
    return b.node("Concat", [x, other], shape, axis=axis if b.chance(0.7) else axis - x.rank)


def looked_up(b: Builder, x: Tensor) -> Tensor | None:
    """Rows of a value by constant positions, or by positions that are an input."""
    axes = [k for k, size in enumerate(x.shape) if size]
    if not axes:
        return None
    axis = b.pick(axes)
    if b.chance(0.3) and b.opset >= 11:
        at = b.input(_shape(b, b.whole(0, 1)), INT64)
    else:
        at = b.weight(
            b.rng.integers(-x.shape[axis] if b.chance(0.3) else 0, x.shape[axis], _shape(b, b.whole(0, 2))).astype(
                np.int64
            )
        )
    shape = (*x.shape[:axis], *at.shape, *x.shape[axis + 1 :])
    return b.node("Gather", [x, at], shape, axis=axis) if math.prod(shape) <= LARGE else None


def padded(b: Builder, x: Tensor) -> Tensor | None:
    if not x.rank or not x.floating:
        return None
    before = [b.whole(0, 2) if b.chance(0.4) else 0 for _ in x.shape]
    after = [b.whole(0, 2) if b.chance(0.4) else 0 for _ in x.shape]
    shape = [low + size + high for low, size, high in zip(before, x.shape, after, strict=True)]
    if math.prod(shape) > LARGE:
        return None
    value = [] if b.chance(0.5) else [b.weight(np.array(b.pick([0, 1, -2]), x.dtype))]
    return b.node("Pad", [x, b.longs(*before, *after), *value], shape)


def tiled(b: Builder, x: Tensor) -> Tensor | None:
    if not x.rank or 2 * x.size > LARGE:
        return None
    times = [1] * x.rank
    times[b.whole(0, x.rank - 1)] = 2
    return b.node("Tile", [x, b.longs(*times)], [size * n for size, n in zip(x.shape, times, strict=True)])


def _shape(b: Builder, rank: int) -> tuple[int, ...]:
    return tuple(b.whole(1, 4) for _ in range(rank))


# ---- reductions ----------------------------------------------------------------------------------------------------------------


def reduced(b: Builder, x: Tensor) -> Tensor | None:
    if x.dtype not in (FLOAT, DOUBLE, INT32, INT64) or (0 in x.shape):
        return None
    op = b.pick(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"] + (
        ["ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "ReduceProd"] if x.floating else []))  # fmt: skip
    if not x.floating and op == "ReduceMean":
        op = "ReduceSum"
    axes = sorted(int(k) for k in b.rng.permutation(x.rank)[: b.whole(1, max(1, x.rank))]) if x.rank else []
    keep = b.chance(0.6)
    gone = set(axes) or set(range(x.rank))
    shape = [1 if k in gone else size for k, size in enumerate(x.shape) if keep or k not in gone]
    by_input = b.opset >= 18 or (op == "ReduceSum" and b.opset >= 13)
    if not axes:
        return b.node(op, [x], shape, keepdims=int(keep))
    if b.chance(0.3):
        axes = [k - x.rank for k in axes]
    if by_input:
        return b.node(op, [x, b.longs(*axes)], shape, keepdims=int(keep))
    return b.node(op, [x], shape, axes=axes, keepdims=int(keep))


def ordered(b: Builder, x: Tensor) -> Tensor | None:
    if x.dtype not in (FLOAT, INT64, INT32) or not x.rank or 0 in x.shape:
        return None
    axis = b.whole(0, x.rank - 1)
    if b.chance(0.4) and x.dtype != INT64:
        shape = [1 if k == axis else size for k, size in enumerate(x.shape)]
        return b.node(b.pick(["ArgMax", "ArgMin"]), [x], shape, INT64, axis=axis, keepdims=1)
    return b.node(
        "CumSum", [x, b.weight(np.array(axis, np.int64))], x.shape, exclusive=b.whole(0, 1), reverse=b.whole(0, 1)
    )


IDIOMS: tuple[Idiom, ...] = (
    activation, activation, unary, binary, binary, compared, cast, integer, integer, moved, moved, moved, cut, joined, looked_up,
    padded, tiled, reduced, reduced, ordered, linear, linear, multiplied, attention, attention, normalized, normalized,
    convolved, convolved, convolved, convolved, pooled, pooled, pooled, enlarged,
)  # fmt: skip
