"""Pieces of models as exporters write them: each takes a value and gives the next one, or None where it does not fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.differ.builder import BOOL, DOUBLE, FLOAT, HALF, INT32, INT64, Builder, Tensor

Idiom = Callable[[Builder, Tensor], Tensor | None]
#: elements of a value at most
LARGE = 4096


# ---- elementwise -------------------------------------------------------------------------------------------------------


def activation(b: Builder, x: Tensor) -> Tensor | None:
    """One node, or the nodes that exporters write where an opset has no node."""
    if not x.floating:
        return None
    which = b.whole(0, 12)
    if which == 0:
        return b.node("Relu", [x], x.shape)
    if which == 1:
        return b.node("LeakyRelu", [x], x.shape, alpha=b.pick([0.01, 0.2, 0.1]))
    if which == 2:
        return b.node("Clip", [x, b.weight(np.array(0, x.dtype)), b.weight(np.array(6, x.dtype))], x.shape)
    if which == 3:
        return b.node("Mul", [x, b.node("Sigmoid", [x], x.shape)], x.shape)
    if which == 4:  # hard swish
        moved = b.node("Add", [x, b.number(3, x.dtype)], _with(x.shape))
        cut = b.node("Clip", [moved, b.weight(np.array(0, x.dtype)), b.weight(np.array(6, x.dtype))], moved.shape)
        return b.node("Div", [b.node("Mul", [x, cut], cut.shape), b.number(6, x.dtype)], cut.shape)
    if which == 5:  # gelu
        inner = b.node("Erf", [b.node("Div", [x, b.number(math.sqrt(2), x.dtype)], _with(x.shape))], _with(x.shape))
        total = b.node("Add", [inner, b.number(1, x.dtype)], inner.shape)
        return b.node("Mul", [b.node("Mul", [x, total], total.shape), b.number(0.5, x.dtype)], total.shape)
    if which == 6:
        return b.node("Tanh", [x], x.shape)
    if which == 7:
        return b.node("Softplus", [x], x.shape)
    if which == 8 and x.rank:
        return b.node("PRelu", [x, b.noise(*_below(b, x.shape), dtype=x.dtype)], x.shape)
    if which == 9:
        return b.node("Elu", [x], x.shape, alpha=1.0)
    if which == 10:
        return b.node("HardSigmoid", [x], x.shape, alpha=b.pick([0.2, 1 / 6]), beta=0.5)
    if which == 11:
        return b.node("Sigmoid", [x], x.shape)
    return b.node("Relu", [b.node("Sigmoid" if b.chance(0.3) else "Relu", [x], x.shape)], x.shape)


def _with(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(shape)


def _below(b: Builder, shape: Sequence[int]) -> tuple[int, ...]:
    """A shape that broadcasts to one, as weights have it."""
    kept = shape[b.whole(0, len(shape)) :]
    return tuple(1 if b.chance(0.3) else size for size in kept)


def unary(b: Builder, x: Tensor) -> Tensor | None:
    if x.dtype == BOOL:
        return b.node("Not", [x], x.shape)
    if not x.floating:
        if x.dtype.kind == "u":
            return None
        return b.node(b.pick(["Neg", "Abs", "Sign"]), [x], x.shape)
    op = b.pick(["Neg", "Abs", "Sqrt", "Exp", "Log", "Reciprocal", "Floor", "Erf", "Sign", "Sin", "Cos", "Identity", "Square"])
    if op == "Square":
        return b.node("Pow", [x, b.number(2, x.dtype)], x.shape) if b.chance(0.5) else b.node("Mul", [x, x], x.shape)
    if op in {"Sqrt", "Log", "Reciprocal"}:
        positive = b.node("Add", [b.node("Abs", [x], x.shape), b.weight(np.array(0.5, x.dtype))], x.shape)
        return b.node(op, [positive], x.shape)
    if op == "Exp":
        return b.node("Exp", [b.node("Tanh", [x], x.shape)], x.shape)
    return b.node(op, [x], x.shape)


def binary(b: Builder, x: Tensor) -> Tensor | None:
    """With a weight, a number, or another value of the model that broadcasts."""
    if x.dtype == BOOL:
        return b.node(b.pick(["And", "Or", "Xor"]), [x, b.weight(b.rng.random(_below(b, x.shape)) < 0.5)], x.shape)
    others = [v for v in b.values if v.dtype == x.dtype and _broadcast(v.shape, x.shape) and v != x]
    if others and b.chance(0.6):
        other = b.pick(others)
    elif x.floating:
        other = b.noise(*_below(b, x.shape), dtype=x.dtype) if b.chance(0.6) else b.weight(
            np.array(b.pick([0, 1, -1, 2, 0.5, -0.25, 1e-3]), x.dtype)
        )
    else:
        other = b.weight(b.rng.integers(1, 7, _below(b, x.shape)).astype(x.dtype))
    shape = np.broadcast_shapes(x.shape, other.shape)
    if x.floating:
        op = b.pick(["Add", "Sub", "Mul", "Add", "Mul", "Max", "Min", "Div"])
        if op == "Div":
            other = b.node("Add", [b.node("Abs", [other], other.shape), b.weight(np.array(0.5, x.dtype))], other.shape)
    else:
        op = b.pick(["Add", "Sub", "Mul", "Max", "Min"])
        if op in {"Max", "Min"} and x.dtype not in (INT64, INT32):
            op = "Add"
    pair = [x, other] if b.chance(0.6) else [other, x]
    return b.node(op, pair if op != "Div" else [x, other], shape)


def _broadcast(small: Sequence[int], large: Sequence[int]) -> bool:
    try:
        return np.broadcast_shapes(tuple(small), tuple(large)) == tuple(large)
    except ValueError:
        return False


def compared(b: Builder, x: Tensor) -> Tensor | None:
    """A condition, and what is chosen by it."""
    if x.dtype == BOOL or x.dtype == HALF:
        return None
    other = b.weight(np.array(b.pick([0, 1]), x.dtype))
    condition = b.node(b.pick(["Greater", "Less", "Equal"] + (["GreaterOrEqual", "LessOrEqual"] if b.opset >= 12 else [])),
                       [x, other], x.shape, BOOL)  # fmt: skip
    if b.chance(0.3):
        condition = b.node("Not", [condition], x.shape)
    if b.chance(0.3):
        return condition
    other = b.weight(np.array(b.pick([0, 1, -1]), x.dtype))
    return b.node("Where", [condition, x, other], x.shape, x.dtype)


def cast(b: Builder, x: Tensor) -> Tensor | None:
    from onnx import helper

    to = b.pick([FLOAT, FLOAT, DOUBLE, INT64, INT32, BOOL, HALF])
    if x.floating and to in (INT64, INT32):
        x = b.node("Mul", [x, b.weight(np.array(7, x.dtype))], x.shape)
    return b.node("Cast", [x], x.shape, to, to=helper.np_dtype_to_tensor_dtype(to))


def integer(b: Builder, x: Tensor) -> Tensor | None:
    """Arithmetic of integers, divisions included."""
    if not x.integral or x.dtype not in (INT64, INT32):
        return None
    op = b.pick(["Div", "Mod", "Mul", "Add", "Sub", "Neg"])
    if op == "Neg":
        return b.node("Neg", [x], x.shape)
    other = b.weight(np.array(b.pick([2, 3, 4, -3, 5]) if op in {"Div", "Mod"} else b.pick([0, 1, -1, 2, -5, 7]), x.dtype))
    return b.node(op, [x, other], x.shape)


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
        parts = [found if (found := activation(b, part)) is not None and found.shape == part.shape else part for part in parts]
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
        at = b.weight(b.rng.integers(-x.shape[axis] if b.chance(0.3) else 0, x.shape[axis], _shape(b, b.whole(0, 2))).astype(np.int64))
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
    return b.node("CumSum", [x, b.weight(np.array(axis, np.int64))], x.shape, exclusive=b.whole(0, 1), reverse=b.whole(0, 1))


# ---- layers --------------------------------------------------------------------------------------------------------------------


def linear(b: Builder, x: Tensor) -> Tensor | None:
    """MatMul and Add, or Gemm; sometimes two or three that read the same input."""
    if x.dtype not in (FLOAT, DOUBLE) or x.rank < 2 or x.size == 0:
        return None
    width = x.shape[-1]
    outs = []
    for _ in range(b.pick([1, 1, 2, 3])):
        wide = b.pick([width, 2, 3, 4, 8])
        if x.rank == 2 and b.chance(0.5):
            turned = b.chance(0.5)
            weight = b.noise(wide, width, dtype=x.dtype) if turned else b.noise(width, wide, dtype=x.dtype)
            bias = [b.noise(wide, dtype=x.dtype)] if b.chance(0.8) else []
            scales = {"alpha": 0.5, "beta": 2.0} if b.chance(0.15) else {}
            outs.append(b.node("Gemm", [x, weight, *bias], (x.shape[0], wide), transB=int(turned), **scales))
            continue
        product = b.node("MatMul", [x, b.noise(width, wide, dtype=x.dtype)], (*x.shape[:-1], wide))
        if b.chance(0.7):
            pair = [product, b.noise(wide, dtype=x.dtype)]
            product = b.node("Add", pair if b.chance(0.5) else pair[::-1], product.shape)
        outs.append(product)
    return outs[0] if len(outs) == 1 else b.node("Concat", outs, (*x.shape[:-1], sum(out.shape[-1] for out in outs)), axis=x.rank - 1)


def multiplied(b: Builder, x: Tensor) -> Tensor | None:
    """A product with its own transpose, with another value, or a chain of three."""
    if x.dtype not in (FLOAT, DOUBLE) or x.rank < 2 or x.size == 0:
        return None
    perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    turned = b.node("Transpose", [x], [x.shape[k] for k in perm], perm=perm)
    square = b.node("MatMul", [x, turned], (*x.shape[:-1], x.shape[-2]))
    scaled = b.node("Mul", [square, b.number(1 / math.sqrt(x.shape[-1]), x.dtype)], square.shape) if b.chance(0.5) else square
    return b.node("MatMul", [scaled, x], x.shape) if b.chance(0.5) else scaled


def attention(b: Builder, x: Tensor) -> Tensor | None:
    if x.dtype != FLOAT or x.rank != 3 or x.size == 0 or x.shape[-1] % 2:
        return None
    n, s, width = x.shape
    heads = 2
    d = width // heads
    parts = []
    for k in range(3):
        wide = b.node("MatMul", [x, b.noise(width, width)], x.shape)
        wide = b.node("Add", [wide, b.noise(width)], x.shape) if b.chance(0.6) else wide
        split = b.node("Reshape", [wide, b.longs(0, -1, heads, d)], (n, s, heads, d))
        perm = [0, 2, 3, 1] if k == 1 and b.chance(0.4) else [0, 2, 1, 3]
        parts.append(b.node("Transpose", [split], [split.shape[j] for j in perm], perm=perm))
    q, key, v = parts
    if key.shape != (n, heads, d, s) or (d == s and b.nodes[-2].op_type != "Transpose"):
        key = b.node("Transpose", [key], (n, heads, d, s), perm=[0, 1, 3, 2]) if key.shape == (n, heads, s, d) else key
    if key.shape != (n, heads, d, s):
        return None
    scores = b.node("MatMul", [q, key], (n, heads, s, s))
    if b.chance(0.5):
        scores = b.node("Div", [scores, b.number(math.sqrt(d))], scores.shape)
    else:
        scores = b.node("Mul", [scores, b.number(b.pick([1 / math.sqrt(d), -0.5]))], scores.shape)
    if b.chance(0.5):
        shape = b.pick([(n, 1, 1, s), (s, s), (1, s), (s,), (s, 1), (), (n, 1, s, s), (1, 1, s, s)])
        scores = b.node("Add", [scores, b.noise(*shape)], scores.shape)
    weights = b.node("Softmax", [scores], scores.shape, axis=3)
    mixed = b.node("MatMul", [weights, v], (n, heads, s, d))
    back = b.node("Transpose", [mixed], (n, s, heads, d), perm=[0, 2, 1, 3])
    flat = b.node("Reshape", [back, b.longs(0, 0, width)], x.shape)
    out = b.node("Add", [b.node("MatMul", [flat, b.noise(width, width)], x.shape), b.noise(width)], x.shape)
    return b.node("Add", [out, x], x.shape)


def normalized(b: Builder, x: Tensor) -> Tensor | None:
    """Layer norm and root mean square norm in their pieces, softmax, batch and instance norm."""
    if x.dtype not in (FLOAT, DOUBLE) or not x.rank or 0 in x.shape:
        return None
    which = b.whole(0, 6)
    last = x.rank - 1
    rows = (*x.shape[:-1], 1)
    if which == 0:
        return b.node(b.pick(["Softmax", "LogSoftmax"]), [x], x.shape, axis=b.whole(0, last))
    if which in (1, 2):

        def mean(value: Tensor) -> Tensor:
            if b.opset >= 18:
                return b.node("ReduceMean", [value, b.longs(-1)], rows, keepdims=1)
            return b.node("ReduceMean", [value], rows, axes=[-1], keepdims=1)

        centred = b.node("Sub", [x, mean(x)], x.shape) if which == 1 else x
        squared = (
            b.node("Pow", [centred, b.number(2, x.dtype)], x.shape)
            if b.chance(0.6)
            else b.node("Mul", [centred, centred], x.shape)
        )
        under = b.node("Add", [mean(squared), b.weight(np.array(1e-3, x.dtype))], rows)
        root = b.node("Sqrt", [under], rows)
        if b.chance(0.6):
            out = b.node("Div", [centred, root], x.shape)
        else:
            out = b.node("Mul", [centred, b.node("Reciprocal", [root], rows)], x.shape)
        out = b.node("Mul", [out, b.noise(x.shape[-1], dtype=x.dtype, positive=True)], x.shape)
        return b.node("Add", [out, b.noise(x.shape[-1], dtype=x.dtype)], x.shape) if which == 1 else out
    if x.dtype != FLOAT:
        return None
    if which == 3 and b.opset >= 17:
        return b.node("LayerNormalization", [x, b.noise(x.shape[-1]), b.noise(x.shape[-1])], x.shape, axis=-1)
    if x.rank < 2:
        return None
    c = x.shape[1]
    if which == 4 and x.rank >= 3:
        return b.node("InstanceNormalization", [x, b.noise(c, positive=True), b.noise(c)], x.shape)
    return b.node(
        "BatchNormalization", [x, b.noise(c, positive=True), b.noise(c), b.noise(c), b.noise(c, positive=True)], x.shape,
        epsilon=b.pick([1e-5, 1e-3]),
    )  # fmt: skip


def convolved(b: Builder, x: Tensor) -> Tensor | None:
    """Convolution, batch norm and activation; sometimes two branches of one input."""
    if x.dtype != FLOAT or not 3 <= x.rank <= 4 or x.size == 0:
        return None
    branches = []
    for _ in range(b.pick([1, 1, 2])):
        out = _conv(b, x)
        if out is None:
            return None
        if b.chance(0.5):
            c = out.shape[1]
            known = [b.noise(c, positive=True), b.noise(c), b.noise(c), b.noise(c, positive=True)]
            out = b.node("BatchNormalization", [out, *known], out.shape)
        elif b.chance(0.3):
            out = b.node(b.pick(["Mul", "Add"]), [out, b.noise(*[out.shape[1]], *[1] * (x.rank - 2))], out.shape)
        if b.chance(0.6):
            out = activation(b, out) or out
        branches.append(out)
    if len(branches) == 1:
        if branches[0].shape == x.shape and b.chance(0.5):
            return b.node("Add", [branches[0], x], x.shape)
        return branches[0]
    if branches[0].shape == branches[1].shape and b.chance(0.5):
        return b.node("Add", branches, branches[0].shape)
    if branches[0].shape[2:] == branches[1].shape[2:]:
        shape = (x.shape[0], branches[0].shape[1] + branches[1].shape[1], *branches[0].shape[2:])
        return b.node("Concat", branches, shape, axis=1)
    return branches[0]


def _conv(b: Builder, x: Tensor) -> Tensor | None:
    n, c, *sizes = x.shape
    groups = b.pick([1, 1, 1, c]) if c > 1 else 1
    filters = groups * b.whole(1, 3)
    kernel = [b.pick([1, 1, 2, 3]) for _ in sizes]
    stride = [b.pick([1, 1, 1, 2, 3])] * len(sizes)
    dilation = [b.pick([1, 1, 1, 2])] * len(sizes)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    bias = [b.noise(filters)] if b.chance(0.5) else []
    weight = b.noise(filters, c // groups, *kernel)
    attrs: dict[str, object] = {"strides": stride, "dilations": dilation, "group": groups, "kernel_shape": kernel}
    if b.chance(0.25) and dilation[0] == 1:
        out = [-(-size // s) for size, s in zip(sizes, stride, strict=True)]
        return b.node("Conv", [x, weight, *bias], (n, filters, *out), **attrs, auto_pad=b.pick(["SAME_UPPER", "SAME_LOWER"]))
    pads = [b.whole(0, r // 2) for r in reach] * 2
    out = [(size + 2 * p - r) // s + 1 for size, p, r, s in zip(sizes, pads, reach, stride, strict=False)]
    if min(out) < 1:
        return None
    return b.node("Conv", [x, weight, *bias], (n, filters, *out), **attrs, pads=pads)


def pooled(b: Builder, x: Tensor) -> Tensor | None:
    if x.dtype != FLOAT or not 3 <= x.rank <= 4 or x.size == 0:
        return None
    n, c, *sizes = x.shape
    if b.chance(0.25):
        return b.node(b.pick(["GlobalAveragePool", "GlobalMaxPool"]), [x], (n, c, *[1] * len(sizes)))
    op = b.pick(["MaxPool", "AveragePool", "LpPool", "MaxPool", "AveragePool"])
    kernel = [b.whole(1, min(3, size)) for size in sizes]
    stride = [b.pick([1, 1, 2, 3])] * len(sizes)
    attrs: dict[str, object] = {"kernel_shape": kernel, "strides": stride}
    if op == "AveragePool" and b.chance(0.5):
        attrs["count_include_pad"] = 1
    if b.chance(0.2):
        out = [-(-size // s) for size, s in zip(sizes, stride, strict=True)]
        return b.node(op, [x], (n, c, *out), **attrs, auto_pad=b.pick(["SAME_UPPER", "SAME_LOWER"]))
    pads = [b.whole(0, k // 2) for k in kernel] * 2
    out = [(size + 2 * p - k) // s + 1 for size, p, k, s in zip(sizes, pads, kernel, stride, strict=False)]
    return b.node(op, [x], (n, c, *out), **attrs, pads=pads) if min(out) >= 1 else None


def enlarged(b: Builder, x: Tensor) -> Tensor | None:
    """Channels into space, by a node or by reshapes and a transpose."""
    if x.rank != 4 or x.shape[1] % 4 or 0 in x.shape or x.dtype != FLOAT:
        return None
    n, c, h, w = x.shape
    shape = (n, c // 4, 2 * h, 2 * w)
    if b.chance(0.5):
        return b.node("DepthToSpace", [x], shape, blocksize=2, mode=b.pick(["DCR", "CRD"]))
    split = b.node("Reshape", [x, b.longs(n, c // 4, 2, 2, h, w)], (n, c // 4, 2, 2, h, w))
    turned = b.node("Transpose", [split], (n, c // 4, h, 2, w, 2), perm=[0, 1, 4, 2, 5, 3])
    return b.node("Reshape", [turned, b.longs(*shape)], shape)


IDIOMS: tuple[Idiom, ...] = (
    activation, activation, unary, binary, binary, compared, cast, integer, integer, moved, moved, moved, cut, joined, looked_up,
    padded, tiled, reduced, reduced, ordered, linear, linear, multiplied, attention, attention, normalized, normalized,
    convolved, convolved, convolved, convolved, pooled, pooled, pooled, enlarged,
)  # fmt: skip
