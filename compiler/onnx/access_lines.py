"""Reads of a tensor at positions that are known when a model is written: which axes are cut, merged, padded and looked up for them.

Axes whose positions depend on common iterators belong together. As one axis, most of them are read in steps: `[h // 2, h % 2]` is all
of both, `[32 * h + w]` a part of one axis that becomes two.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslc.analysis.numeric import DataDependent, vector
from dslc.ir.dtype import Dim
from dslc.ir.scalar import Iter, Scalar
from dslc.records import record

POSITIONS = 1 << 22  #: of one line, that are computed
LISTED = 1 << 14  #: of one line, that a model holds as a list
TOGETHER = 4  #: axes, and iterators, that are put into another order
#: how many times as long it takes to copy elements one by one as in blocks; profiles of ONNX Runtime on two
#: processors
SCATTERED = 4.0
BLOCK = 8  #: elements that lie side by side in a block, at least


@record
class AxisLine:
    """Positions in some axes of a tensor as one axis, for every value of some iterators, the first one the slowest.

    `count` positions from `start` on in steps of `step`, and so many `before` and `after` these that are outside; or the ones `listed`,
    of which those outside are the axis' size.
    """

    axes: tuple[int, ...]
    size: Dim
    iters: tuple[Iter, ...]
    extents: tuple[Dim, ...]
    start: int = 0
    step: int = 1
    count: Dim = 0
    before: int = 0
    after: int = 0
    listed: tuple[int, ...] = ()

    @property
    def whole(self) -> bool:
        """Return whether it is all of its axis, in order."""
        return not self.listed and (self.start, self.step, self.count) == (0, 1, self.size)

    @property
    def outside(self) -> tuple[int, int]:
        """Elements that are added before and after the axis: a place for what is outside, where positions are listed."""
        return (0, int(self.size in self.listed)) if self.listed else (self.before, self.after)


def lines_of(
    index: Sequence[Scalar], shape: Sequence[Dim], extents: Mapping[Iter, Dim], order: Sequence[Iter], free: bool
) -> list[AxisLine] | None:
    """The lines of a read, those first whose iterators come first in the order.

    None where its positions are not known, or too many. Only a whole axis may be of unknown size.

    Args:
        index: one position for each axis of the tensor.
        shape: of the tensor.
        extents: of the iterators.
        order: of the iterators in the result.
        free: whether it does not matter what is read outside of the tensor.
    """
    found: list[AxisLine] = []
    sizes = {one: extent for one, extent in extents.items() if isinstance(extent, int)}
    for axes, iters in _together(index, order):
        if len(axes) == len(iters) == 1 and index[axes[0]] is iters[0] and extents[iters[0]] == shape[axes[0]]:
            size = shape[axes[0]]
            found.append(AxisLine(axes, size, iters, (size,), count=size))
            continue
        static = [size for axis in axes if isinstance(size := shape[axis], int)]
        if any(one not in sizes for one in iters) or len(static) < len(axes) or max(len(axes), len(iters)) > TOGETHER:
            return None
        if math.prod(sizes[one] for one in iters) > POSITIONS:
            return None
        try:
            line = _line(index, dict(zip(axes, static, strict=True)), sizes, axes, iters, free)
        except DataDependent:
            return None
        if not line:
            return None
        found.append(line)
    place = {one: k for k, one in enumerate(order)}
    return sorted(found, key=lambda line: min((place[one] for one in line.iters), default=-1))


def _together(index: Sequence[Scalar], order: Sequence[Iter]) -> list[tuple[tuple[int, ...], tuple[Iter, ...]]]:
    """Axes whose positions depend on common iterators, with these."""
    groups: list[tuple[set[int], set[Scalar]]] = []
    for axis, one in enumerate(index):
        axes, iters = {axis}, set[Scalar](one.free)
        for other in [each for each in groups if each[1] & iters]:
            groups.remove(other)
            axes, iters = axes | other[0], iters | other[1]
        groups.append((axes, iters))
    return [(tuple(sorted(axes)), tuple(one for one in order if one in iters)) for axes, iters in groups]


def _line(
    index: Sequence[Scalar], shape: Mapping[int, int], extents: Mapping[Iter, int], axes: Sequence[int], iters: Sequence[Iter],
    free: bool,
) -> AxisLine | None:  # fmt: skip
    """The line of some axes: in an order of axes and iterators in which it goes in steps, if there is one."""
    sizes = [extents[one] for one in iters]
    if any(one not in iters for axis in axes for one in index[axis].free):
        return None
    grid: dict[Scalar, Any] = dict(zip(iters, np.ix_(*map(np.arange, sizes)), strict=True))
    at = {axis: np.broadcast_to(vector(index[axis], grid), sizes).astype(np.int64) for axis in axes}
    inside = np.ones(sizes, bool)
    for axis in axes:
        inside &= (at[axis] >= 0) & (at[axis] < shape[axis])
    if not inside.any():
        return None
    size = math.prod(shape[axis] for axis in axes)
    first: AxisLine | None = None
    for some in itertools.permutations(axes):
        flat = np.zeros(sizes, np.int64)
        for axis in some:
            flat = flat * shape[axis] + at[axis]
        for turned in itertools.permutations(range(len(iters))):
            where, there = np.transpose(flat, turned).reshape(-1), np.transpose(inside, turned).reshape(-1)
            own, counts = tuple(iters[k] for k in turned), tuple(sizes[k] for k in turned)
            steps = _steps(where, there)
            if steps is not None:
                return AxisLine(some, size, own, counts, *steps)
            if not first and len(where) <= LISTED:
                listed = np.where(there, where, 0 if free else size)
                first = AxisLine(some, size, own, counts, listed=tuple(listed.tolist()))
    return first


def _steps(where: NDArray[np.int64], there: NDArray[np.bool_]) -> tuple[int, int, int, int, int] | None:
    """Start, step and count of positions that go in steps, and how many are outside before and after; None where they do not."""
    (known,) = np.nonzero(there)
    begin, end = int(known[0]), int(known[-1]) + 1
    if end - begin != len(known):
        return None
    inside = where[begin:end]
    step = int(inside[1] - inside[0]) if len(inside) > 1 else 1
    if step == 0 or np.any(np.diff(inside) != step):
        return None
    return int(inside[0]), step, end - begin, begin, len(where) - end


def effort(lines: Sequence[AxisLine], shape: Sequence[Dim], order: Sequence[Iter]) -> float:
    """The cost of reading some lines of a tensor, in elements that are copied in blocks."""
    own = list(in_order(lines))
    volume = math.prod(size if isinstance(size := line.count, int) and size else BLOCK for line in own)
    last = own[-1]
    blocks = last.whole or (last.step == 1 and not last.listed and isinstance(last.count, int) and last.count >= BLOCK)
    cut = sum(not line.whole for line in own)
    iters = [one for line in (own if transposition(own, len(shape)) is None else lines) for one in line.iters]
    turned = (iters != sorted(iters, key=order.index)) + (transposition(own, len(shape)) is not None)
    return volume * (cut * (1.0 if blocks else SCATTERED) + turned * SCATTERED)


def transposition(lines: Iterable[AxisLine], rank: int) -> tuple[int, ...] | None:
    """The order in which the axes of each line stand together; None where they do already."""
    own = list(lines)
    if all(line.axes == tuple(range(line.axes[0], line.axes[0] + len(line.axes))) for line in own):
        return None
    found = tuple(axis for line in own for axis in line.axes)
    assert len(found) == rank
    return found


def in_order(lines: Iterable[AxisLine]) -> Iterator[AxisLine]:
    """Lines by where their axes stand in the tensor."""
    return iter(sorted(lines, key=lambda line: line.axes[0]))
