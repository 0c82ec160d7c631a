"""Constant tables, contracted before products are expanded: `sum[a] A[u, a] * B[a, r] * C[a, i]` is one table over u, r and i.

Minimal filtering (Winograd's) sums over the points at which polynomials are interpolated: each term of the expanded product has a
factor of its own, and thousands of them cancel. The contracted table is nearly empty, mostly `[i == u + r]`, and then a condition on
positions.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

from dslc.ir.graph import Value
from dslc.ir.scalar import (
    Apply,
    Iter,
    Num,
    Read,
    Reduce,
    Scalar,
    Table,
    apply,
    iterator,
    num,
    rebuild,
    reduce,
    substitute,
    table,
    walk,
)
from dslc.prove.exact.coefficient import NotRational, from_number

#: functions of elements that are defined everywhere
_TOTAL = frozenset({"+", "*", "select"})


ELEMENTS = 20_000  #: elements of a table; a larger one is not written out


@dataclass(frozen=True, slots=True)
class _Dense:
    """A table over positions `index`, each of a range `sizes`; what is not among `values` is 0."""

    index: tuple[Scalar, ...]
    sizes: tuple[int, ...]
    values: dict[tuple[int, ...], Fraction]


def without_tables(
    roots: Sequence[Scalar], extents: MutableMapping[Iter, Scalar], inputs: Sequence[Value]
) -> list[Scalar]:
    """The same expressions over real numbers, without iterators of sums that occur in tables alone.

    Sums inside of products are taken out of them where that brings tables together. `extents` gets the ranges of new iterators.
    """
    if not any(isinstance(node, Table) for root in roots for node in walk(root)):
        return list(roots)
    real = frozenset(k for k, value in enumerate(inputs) if value.type.dtype.is_float)
    memo: dict[Scalar, Scalar] = {}

    def leaf(node: Scalar) -> Scalar | None:
        if isinstance(node, Reduce) and node.kind == "sum" and _operands(node) <= real and _total(node):
            return _Flat(extents).contracted(node)
        return None

    return [rebuild(root, leaf, memo) for root in roots]


def _operands(node: Scalar) -> set[int]:
    return {each.operand for each in walk(node) if isinstance(each, Read)}


def _total(node: Scalar) -> bool:
    """Whether an expression has a value whatever is read: where a table is 0 nothing is left of what must not be 0."""
    return all(each.name in _TOTAL for each in walk(node) if isinstance(each, Apply) and each.reads)


class _Flat:
    """A sum of one product: the sums among its factors taken out of it."""

    def __init__(self, extents: MutableMapping[Iter, Scalar]) -> None:
        self._ranges = extents
        self.iters: dict[Iter, Scalar] = {}
        self.factors: list[Scalar] = []
        self.wheres: list[Scalar] = []

    def contracted(self, node: Reduce) -> Scalar | None:
        """The sum without iterators of tables; None where there are none."""
        self._take(node)
        contracted = False
        for it, extent in list(self.iters.items()):
            if not isinstance(extent, Num) or any(it in each.free for each in (*self.wheres, *self.iters.values())):
                continue
            own = [factor for factor in self.factors if it in factor.free]
            if len(own) < 2 or not all(isinstance(each, Table) and _once(each, it) for each in own):
                continue
            found = _sum_over([_dense(each) for each in own if isinstance(each, Table)], it, int(extent.value))
            if found is None:
                continue
            self.factors = [each for each in self.factors if it not in each.free]
            self.factors.append(self._scalar(found))
            del self.iters[it]
            contracted = True
        if not contracted:
            return None
        where: Scalar | None = None
        for each in self.wheres:
            where = each if where is None else apply("and", where, each)
        # an extent may use the iterators before it, whose order stays
        return reduce("sum", tuple(self.iters), tuple(self.iters.values()), apply("*", num(1), *self.factors), where)

    def _take(self, node: Scalar) -> None:
        if isinstance(node, Apply) and node.name == "*":
            for factor in node.args:
                self._take(factor)
        elif isinstance(node, Reduce) and node.kind == "sum":
            put: dict[Scalar, Scalar] = {}
            for it, extent in zip(node.iters, node.extents, strict=True):
                new = it
                if it in self.iters:
                    new = iterator(f"t{len(self.iters)}:{extent}")
                    put[it] = new
                    self._ranges[new] = extent
                self.iters[new] = substitute(extent, put)
            if node.where is not None:
                self.wheres.append(substitute(node.where, put))
            self._take(substitute(node.body, put))
        else:
            self.factors.append(node)

    def _scalar(self, found: _Dense) -> Scalar:
        """A contracted table as a condition on an iterator of the sum, where it is one; else as a table."""
        value = next(iter(found.values.values()), Fraction(0))
        if all(each == value for each in found.values.values()):
            for at, place in enumerate(found.index):
                if isinstance(place, Iter) and place in self.iters:
                    solved = _solved(found, at)
                    if solved is not None:
                        return apply("*", num(value), apply("select", apply("==", place, solved), num(1), num(0)))
        return table(_nested(found, ()), found.index)


def _once(node: Table, it: Iter) -> bool:
    return [place for place in node.index if it in place.free] == [it]


def _dense(node: Table) -> _Dense | None:
    sizes: list[int] = []
    values: Any = node.values
    for _ in node.index:
        sizes.append(len(values))
        values = values[0]
    found: dict[tuple[int, ...], Fraction] = {}
    for at, value in _elements(node.values, len(sizes)):
        try:
            number = from_number(value).number
        except NotRational:
            return None
        if number is None:
            return None
        if number:
            found[at] = number
    return _Dense(node.index, tuple(sizes), found)


def _elements(values: Any, depth: int, at: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    if len(at) == depth:
        yield at, values
        return
    for k, each in enumerate(values):
        yield from _elements(each, depth, (*at, k))


def _sum_over(tables: Sequence[_Dense | None], it: Iter, extent: int) -> _Dense | None:
    """The sum over an iterator of the product of tables; equal positions are one."""
    known = [each for each in tables if each is not None]
    index: dict[Scalar, int] = {}
    for each in known:
        for place, size in zip(each.index, each.sizes, strict=True):
            if place is it and size < extent:
                return None
            if place is not it:
                index[place] = min(size, index.get(place, size))
    total = 1
    for size in index.values():
        total *= size
    if len(known) < len(tables) or total > ELEMENTS:
        return None
    found: dict[tuple[int, ...], Fraction] = {}
    order = tuple(index)
    for at in product(*(range(size) for size in index.values())):
        where = dict(zip(order, at, strict=True))
        value = Fraction(0)
        for k in range(extent):
            term = Fraction(1)
            for each in known:
                term *= each.values.get(tuple(k if place is it else where[place] for place in each.index), Fraction(0))
                if not term:
                    break
            value += term
        if value:
            found[at] = value
    return _Dense(order, tuple(index.values()), found)


def _solved(found: _Dense, at: int) -> Scalar | None:
    """What a position must be for an element of a table not to be 0: linear in the other positions, and just then."""
    others = [k for k in range(len(found.index)) if k != at]
    seen = {tuple(place[k] for k in others): place[at] for place in found.values}
    if len(seen) < len(found.values):
        return None
    base = seen.get((0,) * len(others))
    if base is None:
        return None
    slopes = []
    for n in range(len(others)):
        unit = tuple(int(n == k) for k in range(len(others)))
        if found.sizes[others[n]] > 1 and unit not in seen:
            return None
        slopes.append(seen[unit] - base if unit in seen else 0)
    for place in product(*(range(found.sizes[k]) for k in others)):
        value = base + sum(slope * k for slope, k in zip(slopes, place, strict=True))
        if seen.get(place) != (value if 0 <= value < found.sizes[at] else None):
            return None
    total: Scalar = num(base)
    for slope, k in zip(slopes, others, strict=True):
        total = apply("+", total, apply("*", num(slope), found.index[k]))
    return total


def _nested(found: _Dense, at: tuple[int, ...]) -> Any:
    if len(at) == len(found.sizes):
        return found.values.get(at, Fraction(0))
    return tuple(_nested(found, (*at, k)) for k in range(found.sizes[len(at)]))
