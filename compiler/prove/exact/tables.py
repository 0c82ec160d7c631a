"""Constant tables, contracted before products are expanded: `sum[a] A[u, a] * B[a, r] * C[a, i]` is one table over u, r and i.

Minimal filtering (Winograd's) sums over the points at which polynomials are interpolated: each term of the expanded product has a
factor of its own, and thousands of them cancel. The contracted table is nearly empty, mostly `[i == u + r]`, and then a condition on
positions.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from fractions import Fraction
from itertools import product
from math import prod
from operator import mul
from typing import Any

import numpy as np

from dslc.analysis.poly import NotIntegral, polynomial, scalar_of
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
    conjuncts,
    iterator,
    num,
    rebuild,
    reduce,
    rewrite,
    scalars,
    substitute,
    table,
    walk,
)
from dslc.prove.exact.coefficient import NotRational, from_number
from dslc.prove.exact.inline import nested

#: functions of elements that are defined everywhere
_TOTAL = frozenset({"+", "*", "select"})


ELEMENTS = 20_000  #: elements of a table; a larger one is not written out


#: the positions at which a table is read, and its elements
_Dense = tuple[tuple[Scalar, ...], np.ndarray]


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
        if not (isinstance(node, Reduce) and node.kind == "sum" and _total(node)):
            return None
        read = {each.operand for each in scalars(Read, node)}
        return _Flat(extents).contracted(node) if read <= real else None

    return [rebuild(root, leaf, memo) for root in roots]


def _total(node: Scalar) -> bool:
    """Return whether an expression has a value whatever is read: where a table is 0 nothing is left of what must not be 0."""
    return all(each.name in _TOTAL for each in scalars(Apply, node) if each.reads)


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
            tables = [each for each in own if isinstance(each, Table)]
            if (
                len(own) < 2
                or any([at for at in each.index if it in at.free] != [it] for each in tables)
                or tables != own
            ):
                continue
            found = _sum_over(tables, it, int(extent.value))
            if found is None:
                continue
            self.factors = [each for each in self.factors if it not in each.free]
            self.factors.append(self._scalar(*found))
            del self.iters[it]
            contracted = True
        if not contracted:
            return None
        where: Scalar | None = None
        for each in self.wheres:
            where = apply("and", where, each) if where else each
        # an extent may use the iterators before it, whose order stays
        return reduce("sum", tuple(self.iters), tuple(self.iters.values()), apply("*", num(1), *self.factors), where)

    def _take(self, node: Scalar) -> None:
        if node.op == "*":
            for factor in node.args:
                self._take(factor)
        elif isinstance(node, Reduce) and node.kind == "sum":
            put: dict[Scalar, Scalar] = {}
            for it, extent in node.ranges:
                new = it
                if it in self.iters:
                    new = iterator(f"t{len(self.iters)}:{extent}")
                    put[it] = new
                    self._ranges[new] = extent
                self.iters[new] = substitute(extent, put)
            if node.where:
                self.wheres.append(substitute(node.where, put))
            self._take(substitute(node.body, put))
        else:
            self.factors.append(node)

    def _scalar(self, index: tuple[Scalar, ...], array: np.ndarray) -> Scalar:
        """A contracted table as a condition on an iterator of the sum, where it is one; else as a table."""
        numbers = {each for each in array.flat if each}
        if len(numbers) < 2:
            for at, place in enumerate(index):
                if isinstance(place, Iter) and place in self.iters and (solved := _solved(index, array, at)):
                    chosen = apply("select", apply("==", place, solved), num(1), num(0))
                    return apply("*", num(next(iter(numbers), Fraction(0))), chosen)
        return table(nested(array.tolist()), index)


_exact = np.frompyfunc(lambda number: from_number(number).number, 1, 1)


def _sum_over(tables: Sequence[Table], it: Iter, extent: int) -> _Dense | None:
    """The sum over an iterator of the product of tables; equal positions are one."""
    try:
        arrays = [_exact(np.array(each.values, dtype=object)) for each in tables]
    except NotRational:
        return None
    sizes: dict[Scalar, int] = {it: extent}
    for each, array in zip(tables, arrays, strict=True):
        for place, size in zip(each.index, array.shape, strict=True):
            if place is it and size < extent:
                return None
            sizes[place] = min(size, sizes.get(place, size))
    places = tuple(sizes)
    if prod(sizes.values()) > ELEMENTS * extent:
        return None
    operands: list[Any] = []
    for each, array in zip(tables, arrays, strict=True):
        operands += [array[tuple(slice(sizes[at]) for at in each.index)], [places.index(at) for at in each.index]]
    found = np.einsum(*operands, list(range(1, len(places))))
    return places[1:], np.asarray(found, dtype=object)


def _solved(index: tuple[Scalar, ...], array: np.ndarray, at: int) -> Scalar | None:
    """The position at which an element of a table is not 0: linear in the other positions, and just there."""
    places = np.argwhere(array != 0)
    seen = {
        tuple(map(int, others)): int(place)
        for others, place in zip(np.delete(places, at, 1), places[:, at], strict=True)
    }
    others = np.delete(np.arange(len(index)), at)
    sizes = [array.shape[k] for k in others]
    base = seen.get((0,) * len(others))
    if len(seen) < len(places) or base is None:
        return None
    slopes = []
    for n, size in enumerate(sizes):
        unit = tuple(int(n == k) for k in range(len(others)))
        if size > 1 and unit not in seen:
            return None
        slopes.append(seen[unit] - base if unit in seen else 0)
    for place in product(*map(range, sizes)):
        value = base + sum(map(mul, slopes, place))
        if seen.get(place) != (value if 0 <= value < array.shape[at] else None):
            return None
    terms = (apply("*", num(slope), index[k]) for slope, k in zip(slopes, others, strict=True))
    return apply("+", num(base), *terms)


def without_onehots(roots: Sequence[Scalar]) -> list[Scalar]:
    """The same expressions, with every sum over an iterator that a factor of its body equates with something taken at that.

    What is equated with a position is the identity matrix, and the kernel of an identity: nothing is left of them then.
    """
    memo: dict[Scalar, Scalar] = {}

    def after(node: Scalar) -> Scalar:
        while isinstance(node, Reduce) and node.kind == "sum" and (shorter := _shorter(node)):
            node = shorter
        return node

    return [rewrite(root, after, memo) for root in roots]


def _shorter(node: Reduce) -> Scalar | None:
    ranges = {size for part in scalars(Reduce, node) for size in part.extents}
    for at, (it, extent) in enumerate(node.ranges):
        if any(it in size.free for size in ranges):
            continue
        value = next(_values(node, it), None)
        if not value:
            continue
        put: dict[Scalar, Scalar] = {it: value}
        inside = apply("and", apply("<=", num(0), value), apply("<", value, extent))
        body = apply("select", inside, substitute(node.body, put), num(0))
        where = substitute(node.where, put) if node.where else None
        iters = (*node.iters[:at], *node.iters[at + 1 :])
        extents = (*node.extents[:at], *node.extents[at + 1 :])
        if iters:
            return reduce(node.kind, iters, extents, body, where)
        return apply("select", where, body, num(0)) if where else body
    return None


def _values(node: Reduce, it: Iter) -> Iterator[Scalar]:
    """The value that an iterator must have for a member of the sum not to be 0."""
    held = [*([node.where] if node.where else []), *_needed(node.body)]
    for condition in conjuncts(*held):
        if condition.op != "==" or condition.reads:
            continue
        try:
            slope, rest = (polynomial(condition.args[0]) - polynomial(condition.args[1])).split(it)
        except NotIntegral:
            continue
        if slope.is_constant and abs(slope.constant) == 1 and not any(it in factor.free for factor in rest.atoms):
            yield scalar_of(rest * -slope.constant)


def _needed(node: Scalar) -> Iterator[Scalar]:
    """Conditions without which an expression is 0."""
    match node:
        case Apply(name="*"):
            for part in node.args:
                yield from _needed(part)
        case Apply(name="select", args=(condition, then, Num(value=int() | Fraction() | float() as other))):
            if other == 0 and other is not False:
                yield condition
                yield from _needed(then)
