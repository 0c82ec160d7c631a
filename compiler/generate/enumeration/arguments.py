"""The argument tuples of one level: which terms an operator may be applied to so that the graph has a given number of operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress
from math import prod
from operator import not_

import numpy as np

from dslc.generate.enumeration.evaluation import ELEMENTS, Planner, Shapes, Steps, TupleChunk, combined
from dslc.generate.enumeration.mappers import TermsByOperators, disjoint, sharing, union
from dslc.generate.enumeration.space import INPUT, TermTable
from dslc.interpret.domain import Array

CHUNK = 20_000  #: argument tuples in a chunk


@dataclass(frozen=True)
class Batch:
    """The work of a chunk: `args`, the terms of every argument; `kinds`, the combination of types of each tuple."""

    steps: Steps
    shapes: Shapes
    args: tuple[Array, ...]
    kinds: Array
    combinations: tuple[Shapes, ...]

    @property
    def count(self) -> int:
        return len(self.args[0])

    @property
    def results(self) -> list[int]:
        return [step.results for step in self.steps]

    @property
    def terms(self) -> int:
        return sum(self.results) * self.count

    def chunk(self, places: Array) -> TupleChunk:
        return TupleChunk(self.steps, self.shapes, np.stack([places[arg] for arg in self.args]).astype(np.int32))


@dataclass(frozen=True)
class _Rows:
    """Tuples of equal shapes: their terms, and the operators that they have together."""

    shapes: Shapes
    args: tuple[Array, ...]
    ops: Array
    size: int


class Arguments:
    """The batches of a level over the terms found so far."""

    def __init__(
        self, planner: Planner, table: TermTable, level: int, varied: int, constants: int, mirrors: bool = False
    ) -> None:
        """Prepares the terms of each size below a level.

        Args:
            varied: up to this level items with an attribute off its default are used, and terms that have one.
            constants: up to this level terms that have a constant.
            mirrors: both orders of the arguments of items for which one is enough.
        """
        self._planner, self._table, self._level = planner, table, level
        self._varied, self._constants = level <= varied, level <= constants
        self._mirrors = mirrors
        self._shape = np.array(planner.types.shape_of, dtype=np.int32)[table.type]
        self._lists: dict[int, dict[int, Array]] = {}
        self._indexes: dict[int, TermsByOperators] = {}
        for size in range(level):
            mine = (table.size == size) & (~table.varied | self._varied) & (~table.constant | self._constants)
            terms = np.flatnonzero(mine).astype(np.int32)
            kinds = self._shape[terms]
            self._lists[size] = {int(kind): terms[kinds == kind] for kind in np.unique(kinds)}
            self._indexes[size] = TermsByOperators(terms, table.ops)

    def batches(self) -> Iterator[Batch]:
        """Terms without constants come first: the first term of a value represents it, and larger ones are built without constants."""
        arities = sorted({count for count in self._planner.arities if count > 0})
        for constant in (False, True) if self._constants else (False,):
            for count in arities:
                yield from self._of(count, constant)

    def _of(self, count: int, constant: bool) -> Iterator[Batch]:
        level = self._level
        for found in self._tuples(count, level - 1):
            rows = self._with(found, constant)
            yield from self._emit(rows, self._planner.plan(rows.shapes, False, self._varied))
            if level == 1 and self._planner.of_inputs:
                inputs = np.logical_and.reduce([self._table.item[arg] == INPUT for arg in rows.args])
                yield from self._emit(_taken(rows, inputs), self._planner.plan(rows.shapes, True, self._varied))
        if count == 1:
            yield from self._cuts(constant)

    def _with(self, rows: _Rows, constant: bool) -> _Rows:
        """The tuples that have a constant somewhere, or those that have none."""
        if not self._constants:
            return rows
        return _taken(rows, np.logical_or.reduce([self._table.constant[arg] for arg in rows.args]) == constant)

    def _cuts(self, constant: bool) -> Iterator[Batch]:
        for shape, terms in self._lists[self._level - 1].items():
            for type in np.unique(self._table.type[terms]):
                mine = terms[self._table.type[terms] == type]
                rows = _Rows((shape,), (mine,), self._table.ops[mine], self._level - 1)
                yield from self._emit(self._with(rows, constant), self._planner.cuts(int(type)))

    # ---- tuples ------------------------------------------------------------------------------------------------

    def _tuples(self, count: int, together: int) -> Iterator[_Rows]:
        """Tuples that have exactly `together` operators, of shapes to which something applies, in blocks."""
        if count == 1:
            for shape, terms in self._lists[together].items() if together in self._lists else ():
                yield _Rows((shape,), (terms,), self._table.ops[terms], together)
            return
        for size in range(together + 1):
            for rows in self._tuples(count - 1, size):
                for other in range(together + 1):
                    shared = size + other - together
                    if 0 <= shared <= min(size, other):
                        yield from self._joined(rows, other, shared, count)

    def _joined(self, rows: _Rows, other: int, shared: int, count: int) -> Iterator[_Rows]:
        ops = self._table.ops
        if shared == 0:
            for shape, terms in self._lists[other].items():
                if self._wanted((*rows.shapes, shape), count):
                    own = rows.ops if rows.size and other else None
                    for left, right in disjoint(own, len(rows.ops), terms, ops):
                        yield self._extended(rows, shape, left, right)
            return
        for left, right in sharing(rows.ops, self._indexes[other], shared):
            kinds = self._shape[right]
            for kind in np.unique(kinds):
                if self._wanted((*rows.shapes, int(kind)), count):
                    mine = kinds == kind
                    yield self._extended(rows, int(kind), left[mine], right[mine])

    def _extended(self, rows: _Rows, shape: int, left: Array, right: Array) -> _Rows:
        both = self._table.ops[right] if rows.size == 0 else union(rows.ops[left], self._table.ops[right])
        size = int((both[0] >= 0).sum()) if len(both) else 0
        return _Rows((*rows.shapes, shape), (*(arg[left] for arg in rows.args), right.astype(np.int32)), both, size)

    def _wanted(self, shapes: Shapes, count: int) -> bool:
        """Return whether an item takes arguments of these shapes, or of these and some more."""
        if len(shapes) < count:
            kinds = {kind for lists in self._lists.values() for kind in lists}
            return any(self._wanted((*shapes, kind), count) for kind in kinds)
        return any(
            self._planner.plan(shapes, inputs_only, self._varied)
            for inputs_only in (False, True)[: 1 + (self._level == 1)]
        )

    # ---- batches -----------------------------------------------------------------------------------------------

    def _emit(self, rows: _Rows, steps: Steps) -> Iterator[Batch]:
        if len(rows.args) == 2 and not self._mirrors:
            once = [s.mirrored and (self._level > 1 or self._planner.declared_commutative(s.item)) for s in steps]
            if any(once):
                ordered = rows.args[0] <= rows.args[1]
                yield from self._cut_up(_taken(rows, ordered), steps)
                rows, steps = _taken(rows, ~ordered), tuple(compress(steps, map(not_, once)))
        yield from self._cut_up(rows, steps)

    def _cut_up(self, rows: _Rows, steps: Steps) -> Iterator[Batch]:
        if not steps:
            return
        shapes = self._planner.types.shapes
        largest = max(prod(int(str(size)) for size in shapes[kind].shape) for kind in rows.shapes)
        step = min(CHUNK, max(64, ELEMENTS // (2 * largest)))
        for start in range(0, len(rows.args[0]), step):
            args = tuple(arg[start : start + step] for arg in rows.args)
            kinds, combinations = combined(self._table.type, list(args))
            yield Batch(steps, rows.shapes, args, kinds, tuple(combinations))


def _taken(rows: _Rows, mask: Array) -> _Rows:
    return _Rows(rows.shapes, tuple(arg[mask] for arg in rows.args), rows.ops[mask], rows.size)
