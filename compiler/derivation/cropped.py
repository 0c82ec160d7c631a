"""Operators that pad by themselves, for data that go on there: computed with a margin, of which the result has nothing.

`[h: 6] sum[r: 3] A[h + r] * B[r]` by an operator of `X[h + r - 1, other=0]` → that of `A` at eight positions, of which the first and
the last go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dslc.derivation.pieces import Box, Operands, ScopeView
from dslc.ir.graph import Value
from dslc.ir.scalar import Iter, Num, Scalar, apply, num, read
from dslc.ir.scopes import substitute


@dataclass(frozen=True, slots=True)
class Margin:
    """Positions before and behind those of the result along one of its iterators."""

    before: int
    behind: int


def enlarged(view: ScopeView, margins: Mapping[Iter, Margin]) -> ScopeView:
    """A view that begins so many positions earlier along some iterators, and ends later; positions are counted from its first ones."""
    moved: dict[Iter, Scalar] = {it: apply("-", it, num(margin.before)) for it, margin in margins.items()}
    extents = [
        apply("+", extent, num(margins[it].before + margins[it].behind)) if it in margins else extent
        for it, extent in zip(view.iters, view.box.extents, strict=True)
    ]
    return replace(view, box=Box(view.box.low, tuple(extents)), body=substitute(view.body, moved))


def cropped(made: Value, view: ScopeView, margins: Mapping[Iter, Margin], operands: Operands) -> Value:
    """What was computed of an enlarged view, at the positions of the view itself."""
    at = tuple(apply("+", it, num(margins[it].before)) if it in margins else it for it in view.iters)
    return operands.scope(view.iters, view.box, read(operands.number(made), at), view.dtype)


def margins_of(
    reaches: Sequence[tuple[Sequence[tuple[Iter, int]], int, int, int]], view: ScopeView
) -> Mapping[Iter, Margin] | None:
    """The margins that keep windows inside of their data; None where there are none to keep, or no single iterator moves a window.

    Args:
        reaches: of each window what moves it, and by how much; its least and its greatest position, and how many there are.
    """
    found: dict[Iter, Margin] = {}
    for terms, low, high, count in reaches:
        before, behind = max(0, -low), max(0, high - count + 1)
        if not before and not behind:
            continue
        along = [(it, slope) for it, slope in terms if it in view.iters]
        if len(along) != 1 or along[0][1] < 1 or along[0][0] in found:
            return None
        ((it, slope),) = along
        found[it] = Margin(-(-before // slope), -(-behind // slope))
    known = dict(zip(view.iters, view.box.extents, strict=True))
    return found if found and all(isinstance(known[it], Num) for it in found) else None
