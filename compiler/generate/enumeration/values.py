"""The values of an enumeration's terms, in arrays by shape: each term from those of its arguments, many at once."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from dslc.generate.enumeration.evaluation import ELEMENTS, applied_values, random_values
from dslc.generate.enumeration.space import INPUT, TermTable, TypeNumbers, item_of
from dslc.generate.terms.inputs import Family
from dslc.generate.terms.term import parts
from dslc.interpret.domain import Array, Domain
from dslc.interpret.floats import Floats
from dslc.ir.dtype import TensorType
from dslc.semantics.library import Rules


class TermValues:
    """`arrays`: for each shape's number [terms, *shape]; `places`: where each row's value is among those of its shape."""

    def __init__(self, rules: Rules, family: Family, types: TypeNumbers, domain: Domain, real: bool = False) -> None:
        """`real`: floats between -1 and 1, and no operator stands in for another; else elements of the field."""
        self._rules, self._family, self._types, self._domain, self._real = rules, family, types, domain, real
        self.arrays: dict[int, Array] = {}
        self.places = np.zeros(0, dtype=np.int64)

    def leaf(self, table: TermTable, row: int, rng: np.random.Generator) -> Array:
        """A random value for an input, a constant's own value: [1, *shape]."""
        type = self._types.types[int(table.type[row])].tensor
        if table.item[row] == INPUT:
            return self._stored(random_values(type, 1, rng, self._real), type)
        item = item_of(self._family, int(table.item[row]))
        return self._stored(applied_values(self._rules, item, None, (), (), self._domain, self._real)[0][None], type)

    def put(self, table: TermTable, rows: Array, values: Array) -> None:
        """Values of terms of one shape."""
        shape = self._types.shape_of[int(table.type[rows[0]])]
        old = self.arrays.get(shape)
        if len(self.places) < len(table):
            self.places = np.concatenate([self.places, np.full(len(table) - len(self.places), -1, dtype=np.int64)])
        self.places[rows] = np.arange(len(rows)) + (0 if old is None else len(old))
        self.arrays[shape] = values if old is None else np.concatenate([old, values])

    def get(self, table: TermTable, rows: Array) -> Array:
        """The values of terms of one shape."""
        found: Array = self.arrays[self._types.shape_of[int(table.type[rows[0]])]][self.places[rows]]
        return found

    def add(self, table: TermTable, rows: Array) -> None:
        """Computes and keeps the values of terms whose arguments are known."""
        for mine, values in self.computed(table, table, rows):
            self.put(table, mine, values)

    def computed(self, terms: TermTable, table: TermTable, rows: Array) -> Iterator[tuple[Array, Array]]:
        """The values of rows of `terms`, whose arguments are rows of `table`, in groups of one shape."""
        if not len(rows):
            return
        types = self._types
        columns = [terms.item[rows]]
        for j in range(terms.args.shape[1]):
            columns.append(np.where(terms.args[rows, j] >= 0, table.type[terms.args[rows, j]], -1))
        distinct, inverse = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        order = np.argsort(inverse.reshape(-1), kind="stable")
        bounds = np.searchsorted(inverse.reshape(-1)[order], np.arange(len(distinct) + 1))
        for k, entry in enumerate(distinct):
            mine = rows[order[bounds[k] : bounds[k + 1]]]
            item = item_of(self._family, int(entry[0]))
            own = [types.types[int(kind)] for kind in entry[1:] if kind >= 0]
            cut = parts(item, own[0]) if item.cut is not None else None
            step = max(1, ELEMENTS // max((prod(type.shape) for type in own), default=1))
            for start in range(0, len(mine), step):
                part = mine[start : start + step]
                args = [self._widened(self.get(table, terms.args[part, j])) for j in range(len(own))]
                results = applied_values(
                    self._rules, item, cut, tuple(t.tensor for t in own), args, self._domain, self._real
                )
                outputs = terms.output[part]
                for output in np.unique(outputs):
                    chosen = outputs == output
                    type = types.types[int(terms.type[part[chosen][0]])].tensor
                    # a constant's value is one for all
                    values = results[int(output)] if own else results[int(output)][None].repeat(len(part), axis=0)
                    yield part[chosen], self._stored(values[chosen], type)

    def _stored(self, array: Array, type: TensorType) -> Array:
        """In as few bytes as hold it: elements of the field (and the two infinities) fit 32 bits."""
        return array.astype(np.float32 if self._real else np.uint32) if type.dtype.is_float else array

    @staticmethod
    def _widened(array: Array) -> Array:
        return array.astype(np.int64) if array.dtype == np.uint32 else array


THRESHOLD = 1e-5  #: TASO's; for results above 1 in size it is relative


def hold_on_floats(
    rules: Rules, family: Family, types: TypeNumbers, seed: int, table: TermTable, left: Array, right: TermTable
) -> Array:
    """True where row k of `right` has the value of row `left[k]` of the table on floats (TASO, section 2.2).

    Inputs are between -1 and 1, and every operator is itself: a stand-in for an operator over the field falls here, and so does what
    a coincidence of the field made equal.
    """
    values = TermValues(rules, family, types, Floats(), real=True)
    # the values of these terms and of all below them
    wanted = np.zeros(len(table), dtype=bool)
    wanted[left] = True
    wanted[right.args[right.args >= 0]] = True
    sizes = range(1, int(table.size.max(initial=0)) + 1)
    for size in reversed(sizes):
        args = table.args[wanted & (table.size == size)]
        wanted[args[args >= 0]] = True
    rng = np.random.default_rng((seed, 1))
    out = np.ones(len(left), dtype=bool)
    with np.errstate(all="ignore"):
        for row in np.flatnonzero(table.size == 0).tolist():
            values.put(table, np.array([row]), values.leaf(table, row, rng))
        for size in sizes:
            values.add(table, np.flatnonzero(wanted & (table.size == size)))
        for rows, found in values.computed(right, table, np.arange(len(left))):
            # one shape, but maybe in different roles, whose values are kept apart
            kinds = table.type[left[rows]]
            for kind in np.unique(kinds):
                mine = np.flatnonzero(kinds == kind)
                out[rows[mine]] = _close(values.get(table, left[rows[mine]]), found[mine])
    return out


def _close(a: Array, b: Array) -> Array:
    same = a == b
    if a.dtype.kind == "f":
        scale = np.maximum(1, np.maximum(np.abs(a), np.abs(b)))
        same |= (np.abs(a - b) <= THRESHOLD * scale) | (np.isnan(a) & np.isnan(b))
    return np.asarray(same.reshape(len(a), -1).all(axis=1))
