"""Operators on single elements: activations in one node or in pieces, arithmetic of floats and integers, conditions, casts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from benchmarks.differ.builder import BOOL, DOUBLE, FLOAT, HALF, INT32, INT64, Builder, Tensor


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
    op = b.pick(
        ["Neg", "Abs", "Sqrt", "Exp", "Log", "Reciprocal", "Floor", "Erf", "Sign", "Sin", "Cos", "Identity", "Square"]
    )
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
        other = (
            b.noise(*_below(b, x.shape), dtype=x.dtype)
            if b.chance(0.6)
            else b.weight(np.array(b.pick([0, 1, -1, 2, 0.5, -0.25, 1e-3]), x.dtype))
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
    other = b.weight(
        np.array(b.pick([2, 3, 4, -3, 5]) if op in {"Div", "Mod"} else b.pick([0, 1, -1, 2, -5, 7]), x.dtype)
    )
    return b.node(op, [x, other], x.shape)
