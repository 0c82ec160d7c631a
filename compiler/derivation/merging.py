"""Calls of one operator on a common operand as one call: what differs stands next to each other (EinNet, Figures 3a and 15).

Along which dimensions is tried: the result's sizes say what may be right, and whoever uses it proves that it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from dslc.ir.graph import Call, Scope, Value, replace, scope_value, topological
from dslc.ir.scalar import Scalar, apply, num, read, traversal
from dslc.semantics.apply import apply as call
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules


def merged(rules: Rules, first: Value, second: Value) -> Iterator[tuple[Value, Value]]:
    """Two values of static sizes with a call of one in the place of one of the other too, in every way that has the right sizes."""
    left, right = ([node for node in topological([value.node]) if isinstance(node, Call)] for value in (first, second))
    for a, b in product(left, right):
        if (
            a is b
            or (a.op, a.tag) != (b.op, b.tag)
            or len(a.args) != len(b.args)
            or len(a.types) != 1
            or len(b.types) != 1
        ):
            continue
        differ = [k for k, (x, y) in enumerate(zip(a.args, b.args, strict=True)) if x != y]
        if len(differ) == 1 and b not in topological([a]) and a not in topological([b]):
            for parts in _as_one(rules, a, b, differ[0]):
                one, two = replace((first, second), dict(zip((a.values[0], b.values[0]), parts, strict=True)))
                yield one, two


def _as_one(rules: Rules, a: Call, b: Call, k: int) -> Iterator[tuple[Value, Value]]:
    for axis in range(len(a.args[k].type.shape)):
        both = _next_to(a.args[k], b.args[k], axis)
        if both is None:
            continue
        try:
            (whole,) = call(rules, a.op, [*a.args[:k], both, *a.args[k + 1 :]], dict(a.attrs))
        except (Mismatch, EvalError):
            continue
        if not whole.known or whole.type.dtype is not a.values[0].type.dtype:
            continue
        sizes = [value.type.shape for value in (a.values[0], b.values[0], whole)]
        for along in range(len(whole.type.shape)):
            if _adds_up(sizes, along):
                yield (
                    _part(whole, a.values[0], along, 0),
                    _part(whole, b.values[0], along, a.values[0].type.shape[along]),
                )


def _adds_up(sizes: list[tuple[int | Scalar, ...]], along: int) -> bool:
    """Whether two shapes side by side along a dimension have the third one."""
    if len({len(each) for each in sizes}) != 1 or len({each[:along] + each[along + 1 :] for each in sizes}) != 1:
        return False
    one, other, whole = (each[along] for each in sizes)
    return isinstance(one, int) and isinstance(other, int) and whole == one + other


def _next_to(a: Value, b: Value, axis: int) -> Value | None:
    """Two tensors side by side along a dimension; None where their other sizes differ."""
    x, y = a.type.shape, b.type.shape
    if len(x) != len(y) or a.type.dtype is not b.type.dtype or x[:axis] + x[axis + 1 :] != y[:axis] + y[axis + 1 :]:
        return None
    one, other = x[axis], y[axis]
    if not isinstance(one, int) or not isinstance(other, int):
        return None
    at = tuple(traversal(d) for d in range(len(x)))
    behind = (*at[:axis], apply("-", at[axis], num(one)), *at[axis + 1 :])
    body = apply("select", apply("<", at[axis], num(one)), read(0, at, num(0)), read(1, behind, num(0)))
    shape = (*x[:axis], one + other, *x[axis + 1 :])
    return scope_value(Scope(shape, body, a.type.dtype), (a, b))


def _part(whole: Value, like: Value, along: int, first: int | Scalar) -> Value:
    index = tuple(
        apply("+", traversal(d), num(first)) if d == along and isinstance(first, int) else traversal(d)
        for d in range(len(like.type.shape))
    )
    return scope_value(Scope(like.type.shape, read(0, index), like.type.dtype), (whole,))
