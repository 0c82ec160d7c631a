"""Factors of products in panels: what many positions share is brought into the order in which a block of them reads it.

`{[i, j] sum[k] A[i, k] * B[k, j]}` becomes `P = {[p, k, l: 64] B[k, 64 p + l]}` and `{[i, j] sum[k] A[i, k] * P[j // 64, k, j % 64]}`:
a panel lies side by side, and stays in a cache while every block of rows meets it. Whatever the factor is, an element of a tensor at
any positions or an expression of several, it is computed once for a panel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dslc.codegen.arithmetic import ceiling, count, over, plus, rest, times
from dslc.codegen.functions import computed
from dslc.codegen.group import Part
from dslc.codegen.split_reductions import by_part, factors_of, outermost, part_of
from dslc.ir.dtype import Dim, DType
from dslc.ir.element import element_type
from dslc.ir.graph import Scope, Values
from dslc.ir.scalar import (
    Iter,
    Reduce,
    Scalar,
    apply,
    as_scalar,
    iterator,
    num,
    raw_apply,
    read,
    reduce,
    replaced,
    walk,
)
from dslc.ir.scopes import substitute
from dslc.records import record
from dslc.semantics.lists import plain

SHARED = 8  #: positions that share a factor
TERMS = 8  #: terms of a sum


@record
class Packed:
    """A factor of a reduction: `lane` runs along a panel, `outer` are the other iterators that it needs, `summed` those of the sum."""

    node: Reduce
    factor: Scalar
    lane: Iter
    outer: tuple[Iter, ...]
    summed: tuple[Iter, ...]


@by_part
def panelled(part: Part, args: Values, width: int) -> list[Part]:
    """The same with a factor of every product of two as a part of its own, in panels of `width` elements."""
    scope = part.scope
    found = next(packed_factors(scope), None)
    if not found:
        return [part_of(scope, args, part.alone)]
    panel, body = _panel(found, scope, args, width)
    return [panel, part_of(replace(scope, body=body), (*args, panel.value), part.alone)]


def packed_factors(scope: Scope) -> Iterator[Packed]:
    """Factors that positions along another loop share, those along the last loop first."""
    sizes = dict(scope.ranges)
    for node in outermost(scope.body):
        if node.kind != "sum" or node.where or any(extent.free for extent in node.extents):
            continue
        factors = factors_of(node)
        if not factors or count(node.extents) < TERMS:
            continue
        for lane in reversed(scope.iters):
            own = [each for each in factors if lane in each.free and not each.free.isdisjoint(node.iters)]
            if len(own) != 1 or any(lane in each.free for each in factors if each is not own[0]):
                continue
            (factor,) = own
            outer = tuple(it for it in scope.iters if it in factor.free and it is not lane)
            sharing = [it for it in scope.iters if it not in factor.free and it in node.free]
            if count(sizes[it] for it in sharing) < SHARED or count([sizes[lane]]) < SHARED:
                continue
            yield Packed(node, factor, lane, outer, tuple(it for it in node.iters if it in factor.free))


def is_product(scope: Scope) -> bool:
    """Return whether there is a sum of products of which a factor is shared by many positions."""
    return next(packed_factors(scope), None) is not None


def _panel(found: Packed, scope: Scope, args: Values, width: int) -> tuple[Part, Scalar]:
    """The part of a factor, and the body that reads it as the next argument."""
    sizes: dict[Iter, Dim] = dict(scope.ranges)
    sizes.update(found.node.ranges)
    size = sizes[found.lane]
    extents = (*(sizes[it] for it in found.outer), ceiling(size, width), *(sizes[it] for it in found.summed), width)
    places = [iterator(f"i{k}") for k in range(len(extents))]
    here: dict[Iter, Scalar] = dict(zip(found.outer, places, strict=False))
    panel = len(found.outer)
    here.update(zip(found.summed, places[panel + 1 :], strict=False))
    here[found.lane] = at = plus(times(width, places[panel]), places[-1])
    element: Scalar = substitute(found.factor, here)
    if not (isinstance(size, int) and size % width == 0):
        element = raw_apply("select", apply("<", at, as_scalar(size)), element, num(0))
    dtypes = tuple(arg.type.dtype for arg in args)
    dtype = element_type(found.factor, dtypes) or DType.F32
    made = part_of(Scope(tuple(plain(each) for each in extents), element, computed(dtype)), args)
    index = (*found.outer, over(found.lane, width), *found.summed, rest(found.lane, width))
    factors = [each for each in found.node.body.children if each is not found.factor]
    node = reduce("sum", found.node.iters, found.node.extents, raw_apply("*", *factors, read(len(args), index)))
    return made, replaced(scope.body, found.node, node)


def is_packed(body: Scalar, lane: Iter, width: int) -> bool:
    """Return whether an expression reads panels along an iterator."""
    place = raw_apply("//", lane, num(width))
    return any(each is place for each in walk(body))
