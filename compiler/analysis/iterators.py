"""The iterator table (EinNet, section 5.1): where each iterator occurs, and with which coefficient."""

from __future__ import annotations

from dataclasses import dataclass

from dslc.analysis.poly import NotIntegral, polynomial
from dslc.analysis.reads import ReadLoop, accesses, output_loops
from dslc.ir.graph import Scope
from dslc.ir.scalar import Read, Reduce, Scalar, walk


@dataclass(frozen=True)
class Occurrence:
    """An iterator in the index of dimension `dim` of an operand (-1: the output); coefficient None where it is not affine."""

    operand: int
    dim: int
    coefficient: int | None


@dataclass(frozen=True)
class IteratorRow:
    """One iterator: `kind` is traversal, sum, max, ..."""

    name: str
    extent: Scalar
    kind: str
    occurrences: tuple[Occurrence, ...]


def iterator_table(scope: Scope) -> tuple[IteratorRow, ...]:
    """A row for every output iterator, then for every reduction iterator in the order of the expression.

    Equal names in sibling reductions are different iterators; an occurrence is listed once even if several reads have it.
    """
    rows: dict[ReadLoop, dict[Occurrence, None]] = {loop: {} for loop in output_loops(scope)}
    dims = [dim for dim, axis in enumerate(scope.dimensions) for _ in axis]
    for at, loop in enumerate(output_loops(scope)):
        stride = 1
        for later in range(at + 1, len(dims)):
            extent = scope.extents[later]
            if dims[later] == dims[at]:
                stride = stride * extent if isinstance(extent, int) and stride else 0
        rows[loop][Occurrence(-1, dims[at], stride or None)] = None
    for node in walk(scope.body):
        if isinstance(node, Reduce):
            for iterator, extent in node.ranges:
                rows.setdefault(ReadLoop(iterator, extent, node.kind), {})
    for access in accesses(scope):
        if not isinstance(access.node, Read):
            continue
        for dim, index in enumerate(access.node.index):
            for loop in access.loops:
                if loop.iterator in index.free:
                    place = Occurrence(access.node.operand, dim, coefficient_of(index, loop.iterator))
                    rows.setdefault(loop, {})[place] = None
    return tuple(
        IteratorRow(loop.iterator.name, loop.extent, loop.kind, tuple(sorted(found, key=_place)))
        for loop, found in rows.items()
    )


def _place(each: Occurrence) -> tuple[int, int, int]:
    return each.operand, each.dim, each.coefficient or 0


def coefficient_of(index: Scalar, iterator: Scalar) -> int | None:
    """The integer coefficient of an iterator in an affine index; None where it occurs in another way."""
    try:
        poly = polynomial(index)
    except NotIntegral:
        return None
    inside = any(iterator in factor.free for factor in poly.atoms if factor is not iterator)
    if inside or poly.degree_in(iterator) > 1:
        return None
    slope, _ = poly.split(iterator)
    return slope.constant if slope.is_constant else None
