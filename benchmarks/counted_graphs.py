"""TASO's own count (sections 2.2 and 4, Table 3): all graphs of up to N operators, and which of them have equal fingerprints.

A graph is a set of applications, each of whose arguments is an input or a result in the set: acyclic, without duplicated computation.
Its outputs are the tensors that nothing in it consumes; its fingerprint is symmetric in them. A candidate is a graph together with the
first one that has its fingerprint. Each graph is made once: its applications are added in the order of their numbers, which is an
order of evaluation (TASO's depth-first search makes it once for every such order).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from dslc.generate.enumeration.levels import Enumerator
from dslc.generate.enumeration.mappers import in_ranges
from dslc.generate.enumeration.space import Reader, TermTable, TypeNumbers, in_first_order, joined_orders
from dslc.generate.terms.inputs import Family
from dslc.generate.terms.term import Conjecture, Term
from dslc.interpret.domain import Array
from dslc.interpret.field import mixed as mix
from dslc.semantics.library import Rules


@dataclass(frozen=True, slots=True)
class _Tuning:
    """Numbers that decide how much is counted at once.

    Attributes:
        rows: graphs that are held at once.
    """

    rows: int = 1 << 17


_TUNING = _Tuning()


@dataclass(frozen=True)
class _Nodes:
    """Applications: the operators that each needs below it, the rows of its results and of its arguments (-1 where there are fewer)."""

    needs: Array
    results: Array
    args: Array

    @property
    def count(self) -> int:
        return len(self.needs)


@dataclass(frozen=True)
class Counted:
    """`graphs` by number of operators; `classes` of equal fingerprints; `again`, the graphs whose fingerprint an earlier one has, and
    `first`, that earlier one. Graphs are numbered: the leaves, then those of one operator, of two, ..."""

    graphs: tuple[int, ...]
    classes: int
    again: Array
    first: Array
    _levels: tuple[Array, ...]
    _leaves: Array
    _nodes: _Nodes
    _hashes: Array
    _table: TermTable
    _reader: Reader

    @property
    def candidates(self) -> int:
        return len(self.again)

    def candidate(self, k: int) -> Conjecture:
        """The larger graph as the source; outputs that have the same fingerprint correspond."""
        first, other = (self._outputs(self._graph(int(side[k]))) for side in (self.first, self.again))
        return Conjecture(other, first)

    def _outputs(self, graph: Array) -> tuple[Term, ...]:
        rows = _outputs(self._nodes, graph[None])[0]
        listed = sorted((int(row) for row in rows if row >= 0), key=lambda row: int(self._hashes[row]))
        return tuple(self._reader.term(row) for row in listed)

    def _graph(self, number: int) -> Array:
        if number < len(self._leaves):
            return np.array([-1 - self._leaves[number]])
        number -= len(self._leaves)
        for level in self._levels:
            if number < len(level):
                found: Array = level[number]
                return found
            number -= len(level)
        raise IndexError(number)

    def kinds(self, family: Family) -> dict[str, int]:
        """How many of the graphs in `again` have several outputs, apply something to constants, or name inputs out of order."""
        out = {"several outputs": 0, "with constants": 0, "inputs out of order": 0, "none of these": 0}
        start = len(self._leaves)
        for level in self._levels:
            mine = self.again[(self.again >= start) & (self.again < start + len(level))] - start
            start += len(level)
            for low in range(0, len(mine), _TUNING.rows):
                graphs = level[mine[low : low + _TUNING.rows]]
                outputs = _outputs(self._nodes, graphs)
                args = self._nodes.args[graphs].reshape(len(graphs), -1)
                several = (outputs >= 0).sum(axis=1) > 1
                constant = (self._table.item[args] >= len(family.items)) & (args >= 0)
                orders = [np.where(column >= 0, self._table.order[np.maximum(column, 0)], 0) for column in outputs.T]
                renamed = ~in_first_order(joined_orders(orders), family)
                constants = constant.any(axis=1)
                out["several outputs"] += int(several.sum())
                out["with constants"] += int(constants.sum())
                out["inputs out of order"] += int(renamed.sum())
                out["none of these"] += int((~several & ~constants & ~renamed).sum())
        return out


def all_terms(
    rules: Rules, libraries: tuple[str, ...], family: Family, operators: int, seed: int = 0
) -> tuple[TermTable, Array, TypeNumbers]:
    """Every term of up to so many operators, whether or not another has its value, and the terms' fingerprints (for counting)."""
    run = Enumerator(rules, libraries, family, operators, seed, operators, operators, mirrors=True)
    hashes = [run.leaves(every=True)]
    for size in range(1, operators + 1):
        level = run.evaluated(size)
        hashes.append(level.hashes)
        rows = np.arange(len(level.types)) + len(run.table)
        run.table = run.table.plus(run.rows(level, np.arange(len(level.types))))
        if size < operators:
            run.values.add(run.table, rows)
    return run.table, np.concatenate(hashes), run.types


def count_graphs(rules: Rules, libraries: tuple[str, ...], family: Family, operators: int, seed: int = 0) -> Counted:
    """All graphs of 1 to `operators` operators over a family. Memory and time grow with their number: some 100 bytes a graph."""
    table, hashes, types = all_terms(rules, libraries, family, operators, seed)
    nodes = _nodes(table)
    levels: list[Array] = [np.zeros((1, 0), dtype=np.int32)]
    prints: list[Array] = []
    for _ in range(operators):
        larger = np.concatenate(list(_extended(levels[-1], nodes)))
        levels.append(larger)
        prints.append(_fingerprints(larger, nodes, hashes))
    # inputs alone are graphs too: an identity is a candidate
    leaves = np.flatnonzero(table.size == 0)
    every = np.concatenate([second_hash(hashes[leaves][:, None]), *prints])
    _, first, inverse = np.unique(every, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[inverse] != np.arange(len(every)))
    graphs = tuple(len(level) for level in levels[1:])
    reader = Reader(family, types, table)
    return Counted(
        graphs, len(first), again, first[inverse[again]], tuple(levels[1:]), leaves, nodes, hashes, table, reader
    )


def _nodes(table: TermTable) -> _Nodes:
    """The applications in the order of their numbers: those of fewer operators first."""
    rows = np.flatnonzero(table.size > 0)
    own = table.ops[rows].max(axis=1)
    count = int(own.max(initial=-1)) + 1
    results = np.full((count, int(table.output.max(initial=0)) + 1), -1, dtype=np.int64)
    results[own, table.output[rows]] = rows
    needs = np.full((count, table.ops.shape[1]), -1, dtype=np.int32)
    below = table.ops[rows].copy()
    below[below == own[:, None]] = -1
    needs[own] = -np.sort(-below, axis=1)
    args = np.full((count, table.args.shape[1]), -1, dtype=np.int64)
    args[own] = table.args[rows]
    return _Nodes(needs, results, args)


def _set_keys(sets: Array) -> Array:
    """One word for each set (the columns' order does not matter; -1 stands for none)."""
    mixed = np.where(sets < 0, np.uint64(0), mix(sets.astype(np.uint64) + np.uint64(1)))
    with np.errstate(over="ignore"):
        return np.asarray(mixed.sum(axis=1, dtype=np.uint64))


def _extended(graphs: Array, nodes: _Nodes) -> Iterator[Array]:
    """Each graph with one more application, of a larger number, that has all it needs."""
    needed = (nodes.needs >= 0).sum(axis=1)
    keys = _set_keys(nodes.needs)
    width = graphs.shape[1]
    last = graphs.max(axis=1, initial=-1)
    yield np.zeros((0, width + 1), dtype=np.int32)
    for size in range(width + 1):
        mine = np.flatnonzero(needed == size)
        mine = mine[np.argsort(keys[mine], kind="stable")]
        listed = keys[mine]
        for columns in combinations(range(width), size):
            wanted = _set_keys(graphs[:, columns]) if size else np.zeros(len(graphs), dtype=np.uint64)
            low, high = np.searchsorted(listed, wanted, side="left"), np.searchsorted(listed, wanted, side="right")
            for rows, places in in_ranges(low, high - low, _TUNING.rows):
                added = mine[places]
                keep = added > last[rows]
                if keep.any():
                    yield np.concatenate([graphs[rows[keep]], added[keep, None].astype(np.int32)], axis=1)


def _outputs(nodes: _Nodes, graphs: Array) -> Array:
    """The rows of the tensors that nothing in the graph consumes, -1 elsewhere; a leaf stands as -1 - row."""
    if graphs.shape[1] == 1 and (graphs < 0).all():
        return -1 - graphs
    results = nodes.results[graphs].reshape(len(graphs), -1)
    args = nodes.args[graphs].reshape(len(graphs), -1)
    consumed = np.zeros(results.shape, dtype=bool)
    for column in range(args.shape[1]):
        consumed |= results == args[:, column : column + 1]
    return np.where(consumed, -1, results)


def _fingerprints(graphs: Array, nodes: _Nodes, hashes: Array) -> Array:
    out = np.zeros(len(graphs), dtype=np.uint64)
    for start in range(0, len(graphs), _TUNING.rows):
        rows = _outputs(nodes, graphs[start : start + _TUNING.rows])
        out[start : start + _TUNING.rows] = second_hash(np.where(rows >= 0, hashes[np.maximum(rows, 0)], np.uint64(0)))
    return out


def second_hash(hashes: Array) -> Array:
    """A hash of sets: [..., outputs] to [...], the same for every order of the outputs; 0 stands for no output."""
    mixed = np.where(hashes == 0, np.uint64(0), mix(hashes))
    with np.errstate(over="ignore"):
        return mix(mixed.sum(axis=-1, dtype=np.uint64))
