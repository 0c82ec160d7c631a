"""Sums of which one member at most is not 0: `sum[b] [b == e] * f(b)` is `f(e)` where `0 <= e` lies in the range of `b`, else 0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dslc.analysis.poly import NotIntegral, polynomial, scalar_of
from dslc.ir.scalar import Apply, Iter, Num, Reduce, Scalar, apply, num, reduce, rewrite, substitute, walk
from dslc.prove.exact.equations import conjuncts


def without_onehots(roots: Sequence[Scalar]) -> list[Scalar]:
    """The same expressions, with every sum over an iterator that a factor of its body equates with something taken at that.

    What is equated with a position is the identity matrix, and the kernel of an identity: nothing is left of them then.
    """
    memo: dict[Scalar, Scalar] = {}

    def after(node: Scalar) -> Scalar:
        while isinstance(node, Reduce) and node.kind == "sum" and (shorter := _shorter(node)) is not None:
            node = shorter
        return node

    return [rewrite(root, after, memo) for root in roots]


def _shorter(node: Reduce) -> Scalar | None:
    ranges = {size for part in walk(node) if isinstance(part, Reduce) for size in part.extents}
    for at, (it, extent) in enumerate(zip(node.iters, node.extents, strict=True)):
        if any(it in size.free for size in ranges):
            continue
        value = next(_values(node, it), None)
        if value is None:
            continue
        put: dict[Scalar, Scalar] = {it: value}
        inside = apply("and", apply("<=", num(0), value), apply("<", value, extent))
        body = apply("select", inside, substitute(node.body, put), num(0))
        where = None if node.where is None else substitute(node.where, put)
        iters = (*node.iters[:at], *node.iters[at + 1 :])
        extents = (*node.extents[:at], *node.extents[at + 1 :])
        if iters:
            return reduce(node.kind, iters, extents, body, where)
        return body if where is None else apply("select", where, body, num(0))
    return None


def _values(node: Reduce, it: Iter) -> Iterator[Scalar]:
    """What an iterator must be for a member of the sum not to be 0."""
    held = [*([] if node.where is None else [node.where]), *_needed(node.body)]
    for condition in conjuncts(held):
        if not (isinstance(condition, Apply) and condition.name == "==") or condition.reads:
            continue
        try:
            slope, rest = (polynomial(condition.args[0]) - polynomial(condition.args[1])).split(it)
        except NotIntegral:
            continue
        if slope.is_constant and abs(slope.constant) == 1 and not any(it in factor.free for factor in rest.atoms):
            yield scalar_of(rest * -slope.constant)


def _needed(node: Scalar) -> Iterator[Scalar]:
    """Conditions without which an expression is 0."""
    if isinstance(node, Apply) and node.name == "*":
        for part in node.args:
            yield from _needed(part)
    elif isinstance(node, Apply) and node.name == "select" and _is_zero(node.args[2]):
        yield node.args[0]
        yield from _needed(node.args[1])


def _is_zero(node: Scalar) -> bool:
    return isinstance(node, Num) and not isinstance(node.value, bool) and node.value == 0
