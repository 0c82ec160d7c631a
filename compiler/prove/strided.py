"""Sets of positions as few disjoint strided boxes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, product, starmap
from math import prod
from typing import Any

import numpy as np

from dslc.records import record

#: a set of positions: a boolean array of the shape that they are in
Mask = np.ndarray[Any, np.dtype[np.bool_]]
#: `start, stop, step` of one axis
Progression = tuple[int, int, int]


FEW = 64  #: sets that differ along an axis; with more no order of axes is tried but the first


class TooManyPieces(Exception):
    """A set that is no union of so few boxes as are allowed."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the set has more than {limit} pieces")
        self.limit = limit


@record
class Box:
    """The positions `start + k * step < stop` of every axis, k = 0, 1, ...; a scalar's only position is the box of no axes.

    The last position of an axis is `stop - 1`, so equal sets are equal boxes.
    """

    start: tuple[int, ...]
    stop: tuple[int, ...]
    step: tuple[int, ...]

    @property
    def axes(self) -> list[Progression]:
        """The positions along each axis."""
        return list(zip(self.start, self.stop, self.step, strict=True))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of positions along each axis."""
        return tuple(len(range(*axis)) for axis in self.axes)

    @property
    def count(self) -> int:
        return prod(self.sizes)

    @property
    def slices(self) -> tuple[slice, ...]:
        """The slices that pick the box out of an array."""
        return tuple(slice(*axis) for axis in self.axes)

    def __str__(self) -> str:
        return "[" + ", ".join(starmap(_axis, self.axes)) + "]"


def _axis(start: int, stop: int, step: int) -> str:
    if stop - start == 1:
        return str(start)
    return f"{start}:{stop}" + (f":{step}" if step > 1 else "")


def mask_of(boxes: Sequence[Box], shape: Sequence[int]) -> Mask:
    """The positions of boxes as a mask."""
    out = np.zeros(tuple(shape), dtype=np.bool_)
    for box in boxes:
        out[box.slices] = True
    return out


def strided_boxes(mask: Mask, limit: int = 1000) -> tuple[Box, ...]:
    """Disjoint boxes whose union is the set; few, though not always as few as there could be.

    Raises:
        TooManyPieces: more than `limit` were needed.
    """
    if not mask.any():
        return ()
    found = _Cover(limit).boxes(mask, tuple([(k,) for k in range(size)] for size in mask.shape))
    boxes = [Box(*map(tuple, zip(*axes, strict=True))) if axes else Box((), (), ()) for axes in found]
    return tuple(sorted(boxes, key=lambda box: (box.start, box.stop, box.step)))


#: which positions of an axis each place along the axis of a smaller mask stands for
_Members = tuple[list[tuple[int, ...]], ...]


class _Cover:
    """The search for few boxes: along one axis after the other, places where the set is the same are taken together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: dict[tuple[int, ...], tuple[Progression, ...]] = {}

    def boxes(self, mask: Mask, members: _Members) -> list[tuple[Progression, ...]]:
        """The boxes of a set, by their axes."""
        mask, members = _condensed(mask, members)
        wide = [axis for axis, size in enumerate(mask.shape) if size > 1]
        if not wide:
            parts = [self.progressions(places) for (places,) in members]
            if prod(len(each) for each in parts) > self._limit:
                raise TooManyPieces(self._limit)
            return list(product(*parts))
        if prod(mask.shape) > FEW:
            wide = [min(wide, key=lambda axis: mask.shape[axis])]
        ways = [found for axis in wide if (found := self._along(axis, mask, members)) is not None]
        if not ways:
            raise TooManyPieces(self._limit)
        return min(ways, key=len)

    def _along(self, axis: int, mask: Mask, members: _Members) -> list[tuple[Progression, ...]] | None:
        """The boxes of the parts that differ along an axis; None where they are too many."""
        out: list[tuple[Progression, ...]] = []
        for place, stands_for in enumerate(members[axis]):
            part = tuple([stands_for] if k == axis else each for k, each in enumerate(members))
            try:
                out += self.boxes(np.take(mask, [place], axis=axis), part)
            except TooManyPieces:
                return None
            if len(out) > self._limit:
                return None
        return out

    def progressions(self, places: tuple[int, ...]) -> tuple[Progression, ...]:
        """Positions in order as few disjoint progressions: the longest from the first position, and so on with what is left."""
        found = self._known.get(places)
        if found is None:
            forward, turned = _progressions(places), _progressions(tuple(-k for k in reversed(places)))
            backward = [(1 - stop, 1 - start, step) for start, stop, step in turned]
            found = self._known[places] = tuple(backward if len(backward) < len(forward) else forward)
        return found


def _progressions(places: tuple[int, ...]) -> list[Progression]:
    left = dict.fromkeys(places)
    out: list[Progression] = []
    while left:
        first = next(iter(left))
        length, step = _run(first, 1, left), 1
        last = next(reversed(left))
        for other in left:
            if other > first and (last - first) // (other - first) + 1 > length:
                here = _run(first, other - first, left)
                if here > length:
                    length, step = here, other - first
        out.append((first, first + (length - 1) * step + 1, step if length > 1 else 1))
        for k in range(length):
            del left[first + k * step]
    return out


def _run(first: int, step: int, places: dict[int, None]) -> int:
    """The number of the positions that follow each other from the first one."""
    return next(k for k in count() if first + k * step not in places)


def _condensed(mask: Mask, members: _Members) -> tuple[Mask, _Members]:
    """A smaller mask: along each axis one place for all at which the set is the same, and none where it is empty."""
    new: list[list[tuple[int, ...]]] = []
    for axis, own in enumerate(members):
        rows = np.packbits(np.moveaxis(mask, axis, 0).reshape(mask.shape[axis], -1), axis=1)
        classes: dict[bytes, list[int]] = {}
        for place, row in enumerate(rows):
            if row.any():
                classes.setdefault(row.tobytes(), []).append(place)
        mask = np.take(mask, [places[0] for places in classes.values()], axis=axis)
        new.append([tuple(sorted(k for place in places for k in own[place])) for places in classes.values()])
    return mask, tuple(new)
