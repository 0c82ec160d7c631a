"""Changes of layout that stand behind functions of elements and of rows: what is computed in the new layout needs no copy.

`[p, q, w] R[2 * q + p, w]` over `R = {[m, w] exp(D[m % 2, m // 2, w])}` → `[p, q, w] exp(D[p, q, w])` (EinNet, Figure 14d).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

from dslc.derivation.pieces import Box, Operands, Unfit, Vector, product_of, view_of
from dslc.derivation.programs import calls_of, elements
from dslc.ir.graph import (
    Call,
    Node,
    Scope,
    ScopeNode,
    Value,
    Values,
    rebuild,
    replace,
    scope_value,
    topological,
    with_args,
)
from dslc.ir.scalar import Iter, Read, Scalar, apply, as_scalar, num, read, reduce, traversal
from dslc.ir.scalar import rebuild as rebuild_scalar
from dslc.ir.scopes import substitute
from dslc.semantics.apply import apply as call
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules


def carried(value: Value) -> Value:
    """An expression in which what was computed and then brought into another layout is computed in that one, as far as that is one."""
    carrying = _LayoutChanges()

    def moved(node: Node, args: Values) -> Values:
        values = with_args(node, args)
        return (carrying.in_layout(values[0]),) if len(values) == 1 else values

    return rebuild((value,), moved)[0]


class _LayoutChanges:
    """One expression: what was brought into which layout, each once."""

    def __init__(self) -> None:
        self._at = cache(self._computed)

    def in_layout(self, value: Value) -> Value:
        """A computed scope in the layout in which another one looks it up; that one itself where it is no change of layout."""
        node = value.node
        if not isinstance(node, ScopeNode) or node.constant:
            return value
        body = node.scope.body
        if not isinstance(body, Read) or body.other or not _is_computed(node.args[body.operand]):
            return value
        source = node.args[body.operand]
        if source.type.dtype is not value.type.dtype or not value.type.is_static or elements(value) != elements(source):
            return value
        try:
            return self._at(source, body.index, Box.of(node.scope.extents).extents, node.scope.groups)
        except Unfit:
            return value

    def _computed(self, value: Value, index: Vector, extents: Vector, groups: tuple[int, ...] | None = None) -> Value:
        """A computed scope at an index of iterators `i0, i1, ...`, as many as there are extents; `groups`: those that are merged."""
        operands = Operands()
        view = view_of(value, operands)
        if not view or view.body.binds:
            raise Unfit("more than one reduction")
        places = operands.fresh(len(extents))
        named: dict[Iter, Scalar] = {traversal(k): place for k, place in enumerate(places)}
        at = [substitute(each, named) for each in index]
        body = substitute(view.body, dict(zip(view.iters, at, strict=True)))
        sizes = dict(zip((*places, *view.sums), (*extents, *view.sum_extents), strict=True))

        def leaf(node: Scalar) -> Scalar | None:
            if not isinstance(node, Read) or node.other:
                return None
            arg = operands.values[node.operand]
            # in the order of the dimensions that they stand in
            own = tuple(dict.fromkeys(it for part in node.index for it in sizes if it in part.free))
            count = Box.of([sizes[it] for it in own]).extents
            if (
                not _is_computed(arg)
                or node.index == own
                or not arg.type.is_static
                or product_of(count) is not num(elements(arg))
            ):
                return None
            renamed: dict[Iter, Scalar] = {it: traversal(k) for k, it in enumerate(own)}
            try:
                new = self._at(arg, tuple(substitute(part, renamed) for part in node.index), count)
            except Unfit:
                return None
            return read(operands.number(new), own)

        body = rebuild_scalar(body, leaf)
        if view.kind is not None:
            body = reduce(view.kind, view.sums, view.sum_extents, body)
        return operands.scope(places, Box.of(extents), body, view.dtype, groups)


def _is_computed(value: Value) -> bool:
    """Return whether a value is more than a lookup of another one."""
    node = value.node
    return (
        isinstance(node, ScopeNode)
        and not isinstance(node.scope.body, Read)
        and node.scope.groups is None
        and not node.constant
    )


def merged(rules: Rules, first: Value, second: Value) -> Iterator[tuple[Value, Value]]:
    """Two values of static sizes with a call of one in the place of one of the other too, in every way that has the right sizes."""
    left, right = map(calls_of, (first, second))
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
        if not both:
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
    """Return whether two shapes side by side along a dimension have the third one."""
    if len(set(map(len, sizes))) != 1 or len({each[:along] + each[along + 1 :] for each in sizes}) != 1:
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
    at = tuple(map(traversal, range(len(x))))
    behind = (*at[:axis], apply("-", at[axis], num(one)), *at[axis + 1 :])
    body = apply("select", apply("<", at[axis], num(one)), read(0, at, num(0)), read(1, behind, num(0)))
    shape = (*x[:axis], one + other, *x[axis + 1 :])
    return scope_value(Scope(shape, body, a.type.dtype), (a, b))


def _part(whole: Value, like: Value, along: int, first: int | Scalar) -> Value:
    index = tuple(
        apply("+", traversal(d), as_scalar(first)) if d == along else traversal(d) for d in range(len(like.type.shape))
    )
    return scope_value(Scope(like.type.shape, read(0, index), like.type.dtype), (whole,))
