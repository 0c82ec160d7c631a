"""Boxes (PET, section 5): what an output region reads of each operand, and where the set of summands is uniform."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod

import numpy as np

from dslc.analysis.numeric import DataDependent, Interval, interval, vector
from dslc.analysis.reads import Access, ReadLoop, accesses, intervals, output_loops
from dslc.ir.graph import Scope
from dslc.ir.scalar import Iter, Num, Read, Scalar, apply, num

MOST_POINTS = 1 << 20  #: positions that are looked at one by one


@dataclass(frozen=True)
class ReadBox:
    """The axis-aligned box of operand `operand` that is read: an interval [low, high] per dimension; None: nothing is read."""

    operand: int
    box: tuple[Interval, ...] | None


def read_boxes(
    scope: Scope, shapes: Sequence[tuple[int, ...]], region: Sequence[Interval] | None = None
) -> tuple[ReadBox, ...]:
    """Per operand the box that an output region reads, cut off at the operand's bounds.

    Args:
        shapes: of the operands.
        region: an interval per output iterator; everything by default.
    """
    found: dict[int, list[Interval] | None] = dict.fromkeys(range(len(shapes)))
    for access in accesses(scope):
        if not isinstance(access.node, Read):
            continue
        shape = shapes[access.node.operand]
        at = intervals(access.loops, region or ())
        if at is None:
            continue
        box = []
        for index, size in zip(access.node.index, shape, strict=True):
            low, high = 0, size - 1
            with suppress(DataDependent):
                low, high = interval(index, at)
            box.append((max(low, 0), min(high, size - 1)))
        if any(low > high for low, high in box):
            continue
        old = found[access.node.operand]
        found[access.node.operand] = (
            box if old is None else [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(old, box, strict=True)]
        )
    return tuple(ReadBox(k, None if box is None else tuple(box)) for k, box in found.items())


@dataclass(frozen=True)
class Split:
    """Per output iterator the points where the set of summands changes; `exact` is False where it also changes elsewhere."""

    points: tuple[tuple[int, ...], ...]
    exact: bool

    def boxes(self, extents: Sequence[int]) -> int:
        """The number of boxes that the output is cut into."""
        return prod(len(points) + 1 if extent else 0 for points, extent in zip(self.points, extents, strict=True))


def splits(scope: Scope, shapes: Sequence[tuple[int, ...]]) -> Split:
    """Cuts the output so that in each box every position takes the same summands, choices and values outside bounds.

    A condition that depends on several output iterators (a triangle) can't be cut into boxes: then `exact` is False.
    """
    iters = scope.iters
    extents = [int(e) for e in scope.extents if isinstance(e, int)]
    if len(extents) != len(iters):
        raise DataDependent("symbolic extents")
    changes: list[set[int]] = [set() for _ in iters]
    exact = True
    for condition, loops in dict.fromkeys(_conditions(scope, shapes)):
        own = [k for k, i in enumerate(iters) if i in condition.free]
        if not own:
            continue
        if len(own) > 1:
            exact = False
            continue
        try:
            changes[own[0]] |= _changes(condition, iters[own[0]], extents[own[0]], loops)
        except DataDependent:
            exact = False
    for k, loop in enumerate(output_loops(scope)):
        # a reduction whose length depends on the output position
        if any(loop.iterator in inner.extent.free for access in accesses(scope) for inner in access.loops):
            changes[k] |= set(range(1, extents[k]))
    return Split(tuple(tuple(sorted(points)) for points in changes), exact)


def _conditions(scope: Scope, shapes: Sequence[tuple[int, ...]]) -> list[tuple[Scalar, tuple[ReadLoop, ...]]]:
    out: list[tuple[Scalar, tuple[ReadLoop, ...]]] = []
    for access in accesses(scope):
        parts = [part for guard in access.guards for part in _atomic(guard)]
        if isinstance(access.node, Read) and access.node.other:
            parts += _inside(access, shapes[access.node.operand])
        out += [(part, access.loops) for part in parts]
    return out


def _inside(access: Access, shape: tuple[int, ...]) -> list[Scalar]:
    pairs = zip(access.node.index, shape, strict=True)
    return [apply("and", apply("<=", num(0), at), apply("<", at, num(size))) for at, size in pairs if at.free]


def _atomic(condition: Scalar) -> list[Scalar]:
    if condition.op in {"and", "or", "not"}:
        return [part for arg in condition.args for part in _atomic(arg)]
    return [] if isinstance(condition, Num) else [condition]


def _changes(condition: Scalar, iterator: Iter, extent: int, loops: tuple[ReadLoop, ...]) -> set[int]:
    """Positions where the truth of the condition, as a set of reduction positions, differs from the position before."""
    others = [loop for loop in loops if loop.iterator in condition.free and loop.iterator is not iterator]
    numbers = [loop.extent.value if isinstance(loop.extent, Num) else None for loop in others]
    sizes = [number for number in numbers if isinstance(number, int)]
    if len(sizes) < len(numbers):
        raise DataDependent("an extent that is no number")
    if extent * int(np.prod(sizes, dtype=np.int64)) > MOST_POINTS:
        raise DataDependent("too many positions")
    grid = np.ogrid[tuple(slice(0, size) for size in (extent, *sizes))]
    at: dict[Scalar, object] = dict(zip([iterator, *(loop.iterator for loop in others)], grid, strict=True))
    held = np.broadcast_to(vector(condition, at), (extent, *sizes)).reshape(extent, -1)
    if held.shape[1] == 0 or extent < 2:
        return set()
    return {int(k) + 1 for k in np.nonzero((held[1:] != held[:-1]).any(axis=1))[0]}
