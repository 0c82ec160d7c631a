"""PET's boxes (section 5): an output is cut where what a position sums changes, and m + 1 positions of a box decide for all of it.

Split points go through a program from its inputs to its outputs. In a box every position reads the same boxes of each operand for the
same summands, no condition changes, and along an axis every tensor is read at positions that move by one vector, the same for all
summands (theorem 1 asks for that: a sum of terms that move differently may agree at m + 1 positions and nowhere else). So a reshape
cuts where its quotients and remainders break. What cannot be cut by axes is cut to single positions.

Then a step along an axis renames the elements that are read, by a shift of each tensor. Where two programs agree at a position and at
the next one, the shifts of one undone by those of the other leave what is computed as it is; no shift but none does that to finitely
many elements, so they agree everywhere. This holds of functions as well, as long as nothing is known of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from dslc.analysis.numeric import DataDependent, vector
from dslc.interpret.domain import Array
from dslc.ir.constants import FillRef
from dslc.ir.graph import Constant, Input, ScopeNode, Value, nodes_of
from dslc.ir.scalar import Read, Reduce, Scalar, scalars
from dslc.prove.strided import Mask
from dslc.records import record

MOST_POINTS = 1 << 22  #: positions and summands that one index or condition is looked at for

# functions of few values, or of truth values: that two of them are equal says little of their arguments
_COARSE = frozenset("== != < <= > >= and or not sign isnan isinf // %".split())

#: per axis the positions at which a new box begins, without 0
Points = tuple[tuple[int, ...], ...]
#: the values of iterators, each along a dimension of its own
_At = Mapping[Scalar, Any]


class NoBoxes(Exception):
    """A program to which theorem 1 does not apply."""


@record
class _Cut:
    """The split points of a tensor, and the vector by which the position of every leaf below it moves in a box.

    `moves`: per axis an array [position, axis of the leaf]. A number that is NaN is not known as nothing is read there.
    """

    points: Points
    moves: Mapping[Value, tuple[Array, ...]]


def split_points(outputs: Sequence[Value]) -> tuple[Points, ...]:
    """The split points of every output of a program without calls, at static sizes.

    Raises:
        NoBoxes: integers, conditions or positions that depend on elements, or too many positions.
    """
    known: dict[Value, _Cut] = {}
    for node in nodes_of(outputs):
        value = Value(node)
        shape = value.type.sizes
        if isinstance(node, Input) and not value.type.dtype.is_float:
            raise NoBoxes("elements that are no elements of the field")
        if isinstance(node, Input) or (isinstance(node, Constant) and not isinstance(node.data, FillRef)):
            known[value] = _Cut(
                ((),) * len(shape),
                {value: tuple(np.tile(unit, (size, 1)) for unit, size in zip(np.eye(len(shape)), shape, strict=True))},
            )
        elif isinstance(node, Constant):
            known[value] = _Cut(((),) * len(shape), {})
        elif isinstance(node, ScopeNode):
            known[value] = _Scope(node, [known[arg] for arg in node.args]).cut()
        else:
            raise NoBoxes("a node without a definition in the language")
    return tuple(known[value].points for value in outputs)


def joined(one: Points, other: Points) -> Points:
    """The split points of all boxes that two programs share."""
    return tuple(tuple(sorted({*a, *b})) for a, b in zip(one, other, strict=True))


def failing(differs: Mask, points: Points) -> tuple[Mask, int]:
    """The boxes of which one of m + 1 positions differs, as a mask, and how many positions were looked at.

    In a dimension of width 1 there is one position only.
    """
    starts = [np.array([0, *each], dtype=np.int64) for each in points]
    widths = [np.diff([*start, size]) for start, size in zip(starts, differs.shape, strict=True)]
    if differs.ndim == 0:
        return differs.copy(), 1
    found = differs[np.ix_(*starts)]
    looked = found.size
    for axis, width in enumerate(widths):
        beside = [start + (width > 1) if k == axis else start for k, start in enumerate(starts)]
        found = found | differs[np.ix_(*beside)]
        looked += int((width > 1).sum()) * prod(len(start) for k, start in enumerate(starts) if k != axis)
    for axis, width in enumerate(widths):
        found = np.repeat(found, width, axis=axis)
    return found, looked


class _Scope:
    """One expression, on its way to its split points."""

    def __init__(self, node: ScopeNode, operands: Sequence[_Cut]) -> None:
        self._node = node
        self._operands = operands
        self._shapes = [arg.type.sizes for arg in node.args]
        self._shape = Value(node).type.sizes
        # a dimension for each axis, and for each iterator of reductions that stand in each other
        self._rank = len(self._shape) + sum(len(part.iters) for part in scalars(Reduce, node.scope.body))
        self._points: list[set[int]] = [set() for _ in self._shape]
        self._moves: dict[Value, list[Array]] = {}

    def cut(self) -> _Cut:
        if 0 in self._shape:
            raise NoBoxes("a tensor without elements")
        self._visit(self._node.scope.body, self._positions())
        for axis in range(len(self._shape)):
            self._settle(axis)
        return _Cut(
            tuple(tuple(sorted(each)) for each in self._points),
            {leaf: tuple(each) for leaf, each in self._moves.items()},
        )

    def _positions(self) -> dict[Scalar, Any]:
        """The iterators at every position of the output; those of a merged dimension are digits of it."""
        scope = self._node.scope
        groups = scope.counts
        sizes = [int(str(size)) for size in scope.extents]
        at: dict[Scalar, Any] = {}
        first = 0
        for axis, count in enumerate(groups):
            below = self._shape[axis]
            for it, size in zip(scope.iters[first : first + count], sizes[first : first + count], strict=True):
                below //= size
                at[it] = self._along(axis, np.arange(self._shape[axis]) // below % size)
            first += count
        return at

    def _along(self, axis: int, values: Array) -> Array:
        """Numbers along one dimension."""
        return values.reshape(tuple(-1 if k == axis else 1 for k in range(self._rank)))

    # ---- what the body says ----------------------------------------------------------------------------------------

    def _visit(self, node: Scalar, at: _At, depth: int = 0) -> None:
        """Cuts where a part of the body changes."""
        if not node.reads:
            self._position_only(node, at, depth)
        elif isinstance(node, Read):
            self._read(node, at, depth)
        elif isinstance(node, Reduce) and node.kind not in {"any", "all"}:
            inner, depth = self._inside(node, at, depth)
            if node.where:
                self._without_reads(node.where, inner, depth)
            self._visit(node.body, inner, depth)
        elif node.op and node.op not in _COARSE and not node.op.startswith("convert:"):
            if node.op == "select":
                self._without_reads(node.args[0], at, depth)
            for arg in node.args:
                self._visit(arg, at, depth)
        else:
            raise NoBoxes(node.op or type(node).__name__)

    def _inside(self, node: Reduce, at: _At, depth: int) -> tuple[_At, int]:
        """The iterators of a reduction as well; where its ranges depend on positions, it is cut."""
        inner = dict(at)
        for it, extent in node.ranges:
            self._without_reads(extent, inner, depth)
            inner[it] = self._along(len(self._shape) + depth, np.arange(int(np.max(self._values(extent, inner)))))
            depth += 1
        return inner, depth

    def _without_reads(self, node: Scalar, at: _At, depth: int) -> None:
        if node.reads:
            raise NoBoxes("a condition on elements")
        self._position_only(node, at, depth)

    def _position_only(self, node: Scalar, at: _At, depth: int) -> None:
        """Cuts where a number or a truth value that depends on positions changes."""
        if isinstance(node, Reduce):
            inner, depth = self._inside(node, at, depth)
            for part in (node.body, *((node.where,) if node.where else ())):
                self._position_only(part, inner, depth)
            return
        try:
            self._cut_where_changes(self._values(node, at))
        except DataDependent:
            for child in node.children:
                self._position_only(child, at, depth)

    def _values(self, node: Scalar, at: _At) -> Array:
        if prod(np.size(at[it]) for it in node.free if it in at) > MOST_POINTS:
            raise NoBoxes("too many positions")
        found = np.asarray(vector(node, at))
        return found if found.ndim else found.reshape((1,) * self._rank)

    def _cut_where_changes(self, values: Array) -> None:
        for axis in range(len(self._shape)):
            if values.shape[axis] > 1:
                self._cut(axis, np.diff(values.astype(np.int64), axis=axis) != 0)

    def _cut(self, axis: int, where: Mask) -> None:
        """A new box begins at the positions after those (along the axis) at which something holds."""
        others = tuple(k for k in range(where.ndim) if k != axis)
        self._points[axis].update(int(k) + 1 for k in np.flatnonzero(where.any(axis=others)))

    # ---- reads -----------------------------------------------------------------------------------------------------

    def _read(self, node: Read, at: _At, depth: int) -> None:
        shape, operand = self._shapes[node.operand], self._operands[node.operand]
        if any(index.reads for index in node.index):
            raise NoBoxes("a position that depends on elements")
        if node.other:
            self._visit(node.other, at, depth)
        try:
            places = [self._values(index, at).astype(np.int64) for index in node.index]
        except DataDependent as problem:
            raise NoBoxes(f"the position {problem}") from None
        for place, points, size in zip(places, operand.points, shape, strict=True):
            box = np.searchsorted(np.array(points), place, side="right")
            self._cut_where_changes(np.where(place < 0, -1, np.where(place >= size, len(points) + 1, box)))
        for leaf, moves in operand.moves.items():
            # of a tensor without elements nothing is read
            for axis in range(len(self._shape) if 0 not in shape else 0):
                self._moved(leaf, axis, places, moves, shape)

    def _moved(
        self, leaf: Value, axis: int, places: list[Array], moves: tuple[Array, ...], shape: Sequence[int]
    ) -> None:
        """By which vector a leaf's position moves from each position of an axis to the next: the same for all summands, else a cut."""
        size = self._shape[axis]
        rank = len(leaf.type.shape)
        total: Any = np.zeros((1,) * (self._rank + 1))
        for place, own, bound in zip(places, moves, shape, strict=True):
            if place.shape[axis] == 1:
                continue
            step = np.diff(place, axis=axis)
            first = np.take(place, range(size - 1), axis=axis)
            inside = (first >= 0) & (first < bound) & (first + step >= 0) & (first + step < bound)
            here = np.where((step == 0)[..., None], 0.0, step[..., None] * own[np.clip(first, 0, bound - 1)])
            total = total + np.where(inside[..., None], here, np.nan)
            if total.size > MOST_POINTS:
                raise NoBoxes("too many positions")
        before = self._moves.setdefault(leaf, [np.full((each, rank), np.nan) for each in self._shape])
        if size == 1:
            return
        total = np.broadcast_to(total, (*total.shape[:-1], rank))
        if total.shape[axis] == 1:
            total = np.repeat(total, size - 1, axis=axis)
        flat = np.moveaxis(total, axis, 0).reshape(size - 1, prod(total.shape[:-1]) // (size - 1), rank)
        unread = np.isnan(flat)
        least, most = np.where(unread, np.inf, flat).min(axis=1), np.where(unread, -np.inf, flat).max(axis=1)
        differs = (least < most).any(axis=1)
        if isinstance(leaf.node, Constant):
            # the numbers of a constant are no unknowns: a position reads others
            differs |= ((least != 0) & (least < np.inf)).any(axis=1)
        own = np.where(np.isinf(least), np.nan, least)
        earlier = before[axis][: size - 1]
        differs |= (~np.isnan(own) & ~np.isnan(earlier) & (own != earlier)).any(axis=1)
        before[axis][: size - 1] = np.where(np.isnan(earlier), own, earlier)
        self._points[axis].update(int(k) + 1 for k in np.flatnonzero(differs))

    def _settle(self, axis: int) -> None:
        """Cuts where the vectors change, and keeps for each box the one that it has."""
        size = self._shape[axis]
        every = np.concatenate([np.zeros((size, 0)), *(each[axis] for each in self._moves.values())], axis=1)
        start, current = 0, np.full(every.shape[1], np.nan)
        for place in range(1, size + 1):
            step = every[place - 1]
            known = ~np.isnan(step) & ~np.isnan(current)
            if place < size and place not in self._points[axis] and (step[known] == current[known]).all():
                current = np.where(np.isnan(current), step, current)
                continue
            if place < size:
                self._points[axis].add(place)
            every[start:place] = current
            start, current = place, np.full(every.shape[1], np.nan)
        at = 0
        for each in self._moves.values():
            each[axis] = every[:, at : at + each[axis].shape[1]]
            at += each[axis].shape[1]
