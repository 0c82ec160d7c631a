"""Equations tested again, on floats (TASO, section 2.2): inputs between -1 and 1, a threshold of 1e-5, every operator as it is.

What stood in for an operator over the field, and what a coincidence of the field made equal, falls here.
"""

from __future__ import annotations

import numpy as np

from dslc.generate.enumeration.space import TermTable, TypeNumbers
from dslc.generate.enumeration.values import TermValues
from dslc.generate.terms.inputs import Family
from dslc.interpret.domain import Array
from dslc.interpret.floats import Floats
from dslc.semantics.library import Rules

THRESHOLD = 1e-5  #: TASO's; for results above 1 in size it is relative


class FloatTest:
    """Keeps the float values of the terms that it has seen, so that levels may come one after the other."""

    def __init__(
        self, rules: Rules, family: Family, types: TypeNumbers, seed: int, threshold: float = THRESHOLD
    ) -> None:
        self._values = TermValues(rules, family, types, Floats(), real=True)
        self._seed, self._threshold = seed, threshold

    def holds(self, table: TermTable, left: Array, right: TermTable) -> Array:
        """Whether row k of `right` has the value of row `left[k]` of the table, for each k."""
        self._know(table, np.unique(np.concatenate([left, right.args[right.args >= 0]])))
        out = np.ones(len(left), dtype=bool)
        with np.errstate(all="ignore"):
            for rows, values in self._values.computed(right, table, np.arange(len(left))):
                # one shape, but maybe in different roles, whose values are kept apart
                kinds = table.type[left[rows]]
                for kind in np.unique(kinds):
                    mine = np.flatnonzero(kinds == kind)
                    out[rows[mine]] = self._close(self._values.get(table, left[rows[mine]]), values[mine])
        return out

    def _close(self, a: Array, b: Array) -> Array:
        if a.dtype.kind != "f":
            same = a == b
        else:
            scale = np.maximum(1, np.maximum(np.abs(a), np.abs(b)))
            same = (np.abs(a - b) <= self._threshold * scale) | (a == b) | (np.isnan(a) & np.isnan(b))
        return np.asarray(same.reshape(len(a), -1).all(axis=1))

    def _know(self, table: TermTable, rows: Array) -> None:
        """Values of these terms and of all below them."""
        wanted = np.zeros(len(table), dtype=bool)
        wanted[rows] = True
        for size in range(int(table.size.max(initial=0)), 0, -1):
            here = np.flatnonzero(wanted & (table.size == size))
            args = table.args[here]
            wanted[args[args >= 0]] = True
        known = np.zeros(len(table), dtype=bool)
        known[: len(self._values.places)] = self._values.places >= 0
        rng = np.random.default_rng((self._seed, 1))
        leaves = np.flatnonzero(table.size == 0)
        for row in leaves.tolist():
            value = self._values.leaf(table, row, rng)
            if not known[row]:
                self._values.put(table, np.array([row]), value)
        for size in range(1, int(table.size.max(initial=0)) + 1):
            with np.errstate(all="ignore"):
                self._values.add(table, np.flatnonzero(wanted & ~known & (table.size == size)))
