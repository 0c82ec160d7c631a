"""Views: places of a value's elements in a buffer, by one stride for each axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any

import numpy as np

from dslc.analysis.numeric import DataDependent, interval, vector
from dslc.analysis.poly import NotIntegral, polynomial
from dslc.ir.dtype import DType
from dslc.ir.graph import Scope
from dslc.ir.scalar import Iter, Read, Scalar, apply, as_scalar, num
from dslc.records import record

CHUNK = 1 << 18  #: positions at once
POSITIONS = 1 << 24  #: positions in all


@record
class StridedView:
    """Elements of a buffer: the first one's place and the distance of neighbours along each axis, both in elements."""

    buffer: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.bytes

    @property
    def span(self) -> tuple[int, int]:
        """The first element that is touched and the one behind the last; equal where there is none."""
        if not self.elements:
            return self.offset, self.offset
        ends = [(size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)]
        return self.offset + sum(min(0, end) for end in ends), self.offset + sum(max(0, end) for end in ends) + 1

    @property
    def plain(self) -> bool:
        """True where the elements lie one after the other in row-major order."""
        wanted = row_major(self.shape)
        return all(size == 1 or a == b for size, a, b in zip(self.shape, self.strides, wanted, strict=True))


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of elements one after the other; the last axis is the fastest."""
    steps = accumulate((max(size, 1) for size in reversed(shape[1:])), mul, initial=1)
    return tuple(steps)[::-1] if shape else ()


def plain(buffer: int, dtype: DType, shape: Sequence[int]) -> StridedView:
    """All of a buffer, in row-major order."""
    return StridedView(buffer, dtype, tuple(shape), row_major(shape))


def ranges(scope: Scope) -> dict[Scalar, tuple[int, int]]:
    """The positions of a scope's iterators; its sizes are numbers."""
    return {it: (0, int(str(extent)) - 1) for it, extent in scope.ranges}


def looked_at(scope: Scope, below: StridedView) -> StridedView | None:
    """The result of a scope as a view of its one operand; None where it computes something, or no strides say it.

    `{[i, j] $0[j, i]}` is the transpose, `{[i, j] $0[i]}` repeats what it reads at a stride of 0.
    """
    read = scope.body
    if not isinstance(read, Read) or scope.dtype != below.dtype or len(read.index) != len(below.shape):
        return None
    within = ranges(scope)
    if any(high < 0 for _, high in within.values()):
        return None
    if read.other and not inside(read.index, below.shape, within):
        return None
    place = address(read.index, below)
    extents = tuple(high + 1 for _, high in within.values())
    strides = slopes(place, scope.iters)
    if strides is None:
        strides = _by_positions(place, scope.iters, extents)
    if strides is None:
        return None
    *steps, start = strides
    view = replace(below, shape=extents, strides=tuple(steps), offset=below.offset + start)
    return view if scope.groups is None else _merged(view, scope)


def inside(index: Sequence[Scalar], shape: Sequence[int], within: Mapping[Scalar, tuple[int, int]]) -> bool:
    """Return whether every position is known to lie within a tensor."""
    try:
        ends = [interval(at, within) for at in index]
    except DataDependent:
        return False
    return all(low >= 0 and high < size for (low, high), size in zip(ends, shape, strict=True))


def address(index: Sequence[Scalar], view: StridedView) -> Scalar:
    """The place of an element behind the view's first one, in elements."""
    place: Scalar = num(0)
    for at, stride in zip(index, view.strides, strict=True):
        place = apply("+", place, apply("*", as_scalar(stride), at))
    return place


def slopes(place: Scalar, iters: Sequence[Iter]) -> tuple[int, ...] | None:
    """The coefficient of each iterator and then the constant of an affine expression; None where it is none."""
    try:
        rest = polynomial(place)
    except NotIntegral:
        return None
    found: list[int] = []
    for it in iters:
        slope, rest = rest.split(it) if rest.degree_in(it) <= 1 else (rest, rest)
        if not slope.is_constant:
            return None
        found.append(slope.constant)
    return (*found, rest.constant) if rest.is_constant else None


def _by_positions(place: Scalar, iters: Sequence[Iter], extents: tuple[int, ...]) -> tuple[int, ...] | None:
    """As `slopes`, for places that are affine though they are not written so (a reshape), by looking at each of them."""
    total = prod(extents)
    if not 0 < total <= POSITIONS:
        return None

    def at(flat: Any) -> tuple[Any, Any]:
        where = np.unravel_index(flat, extents) if extents else ()
        return where, np.broadcast_to(vector(place, dict(zip(iters, where, strict=True))), np.shape(flat))

    try:
        start = int(at(np.zeros(1, np.int64))[1][0])
        steps: list[int] = []
        for stride, extent in zip(row_major(extents), extents, strict=True):
            steps.append(int(at(np.array([stride], np.int64))[1][0]) - start if extent > 1 else 0)
        for first in range(0, total, CHUNK):
            where, found = at(np.arange(first, min(total, first + CHUNK), dtype=np.int64))
            if not np.array_equal(
                found, sum((w * s for w, s in zip(where, steps, strict=True)), start=np.int64(start))
            ):
                return None
    except DataDependent:
        return None
    return (*steps, start)


def _merged(view: StridedView, scope: Scope) -> StridedView | None:
    """A view with neighbouring axes made one each; None where no one stride says it."""
    axes = list(zip(view.shape, view.strides, strict=True))
    found = [one for dimension in scope.dimensions if (one := joined([axes[k] for k in dimension])) is not None]
    shape, strides = (tuple(one[k] for one in found) for k in (0, 1))
    return replace(view, shape=shape, strides=strides) if len(found) == len(scope.dimensions) else None


def joined(axes: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """Sizes and strides of axes, the slowest one first, as those of one axis; None where there is no such one."""
    size, stride = 1, 0
    for extent, step in reversed(axes):
        if extent == 1:
            continue
        if size > 1 and step != size * stride:
            return None
        size, stride = size * extent, stride if size > 1 else step
    return size, stride
