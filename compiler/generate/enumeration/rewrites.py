"""Rewriting of a level by smaller equations at one step: of its equations one is left for each group that this connects.

A term is rewritten at its root by an equation of a lower level, in either direction; its arguments are representatives, so that
everything below is rewritten already. A result of fewer operators is connected with its representative by the lower levels; one of
as many is another term of this level, and the two stand in one group. Matching is by columns: an equation is compared with all
terms of its root at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from dslc.generate.enumeration.space import TermTable
from dslc.generate.terms.term import Equation, Item, Term, inputs
from dslc.interpret.domain import Array
from dslc.interpret.field import mixed
from dslc.records import record

RULES = 4000  #: equations that are used to rewrite, at most, the smallest first


@record
class TermPattern:
    """A term, its arguments in one of the orders that commutative items allow."""

    term: Term
    args: tuple[TermPattern, ...] = ()


@dataclass(frozen=True)
class Applications:
    """Terms by what they apply: item, output and rows of the arguments, in columns."""

    item: Array
    output: Array
    args: Array

    def keys(self, commutative: frozenset[int]) -> Array:
        """One word for each application, the same for both orders of the arguments of commutative items."""
        args = self.args.astype(np.int64)
        if commutative and args.shape[1] >= 2:
            turned = np.isin(self.item, sorted(commutative)) & (args[:, 0] > args[:, 1])
            args[turned, :2] = args[turned, 1::-1]
        key = mixed(self.item.astype(np.uint64) * np.uint64(64) + self.output.astype(np.uint64))
        for column in args.T:
            with np.errstate(over="ignore"):
                key = mixed(key + (column + 2).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
        return key


@dataclass(frozen=True)
class KeyIndex:
    """Words in order, and a number for each: a row of the table, or a position of a level.

    `starts`: the places of the first keys whose upper bits are 0, 1, ...; keys are spread evenly, so that there are few of each.
    """

    keys: Array
    numbers: Array
    starts: Array

    @staticmethod
    def of(keys: Sequence[int] | Array = (), numbers: Sequence[int] | Array = ()) -> KeyIndex:
        words, values = np.asarray(keys, np.uint64), np.asarray(numbers, np.int64)
        order = np.argsort(words, kind="stable")
        words, bits = words[order], max(1, len(words).bit_length())
        firsts = np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits)
        return KeyIndex(words, values[order], np.append(np.searchsorted(words, firsts), len(words)).astype(np.int32))

    def find(self, keys: Array) -> Array:
        out = np.full(len(keys), -1, dtype=np.int64)
        bits = (len(self.starts) - 1).bit_length() - 1
        bucket = (keys >> np.uint64(64 - bits)).astype(np.int64)
        at, end = self.starts[bucket], self.starts[bucket + 1]
        left = np.flatnonzero(at < end)
        at, end, wanted = at[left], end[left], keys[left]
        while len(left):
            hit = self.keys[at] == wanted
            out[left[hit]] = self.numbers[at[hit]]
            at += 1
            more = np.flatnonzero(~hit & (at < end))
            left, at, end, wanted = left[more], at[more], end[more], wanted[more]
        return out

    def plus(self, keys: Array, numbers: Array) -> KeyIndex:
        return KeyIndex.of(np.concatenate([self.keys, keys]), np.concatenate([self.numbers, numbers]))

    def with_new(self, keys: Array, numbers: Array) -> KeyIndex:
        """With the first of each key that it lacks."""
        new = np.flatnonzero(self.find(keys) < 0)
        unique, first = np.unique(keys[new], return_index=True)
        return self.plus(unique, numbers[new][first])


@dataclass(frozen=True)
class LowerLevels:
    """The levels below.

    `table`: the representatives; `lower`: every term; `known`: the fingerprints; `classes`: the first row of each row's value; `rules`:
    for each size the equations kept that may rewrite a term of this level; `numbers`: of the items and constants; `commutative`: those
    of them that are.
    """

    table: TermTable
    lower: KeyIndex
    known: KeyIndex
    classes: Array
    rules: tuple[tuple[Equation, ...], ...]
    numbers: dict[Item, int]
    commutative: frozenset[int]


class _PositionIndex:
    """Positions of a level by their item and output, and by those of their arguments; each list is made once."""

    def __init__(self, level: Applications, codes: Array, wanted: Array) -> None:
        """`codes`: of the rows of the table, see `_code`."""
        self._level, self._codes = level, codes
        own = level.item[wanted] * _OUTPUTS + level.output[wanted]
        self._lists: dict[tuple[int | None, ...], dict[int, Array]] = {(): _grouped(own, wanted)}
        self._none = np.zeros(0, dtype=np.int64)

    def find(self, codes: tuple[int | None, ...]) -> Array:
        """The positions of a root's code whose arguments have the codes that follow; None for any."""
        *before, last = codes
        if last is None:
            return self.find(tuple(before))
        found = self._lists.get(tuple(before))
        if found is None:
            positions = self.find(tuple(before))
            kinds = self._codes[self._level.args[positions, len(before) - 1]]
            found = self._lists[tuple(before)] = _grouped(kinds, positions)
        return found.get(last, self._none)


#: operators have fewer results
_OUTPUTS = 64


def _grouped(kinds: Array, positions: Array) -> dict[int, Array]:
    order = np.argsort(kinds, kind="stable")
    distinct, starts = np.unique(kinds[order], return_index=True)
    parts = np.split(positions[order], starts[1:]) if len(distinct) else []
    return {int(kind): part for kind, part in zip(distinct, parts, strict=True)}


class Rewriting:
    """Rewrites the terms of a level."""

    def __init__(self, below: LowerLevels, level: Applications) -> None:
        """`level`: all terms of the level."""
        table = self._table = below.table
        self._numbers, self._lower, self._commutative, self._level = (
            below.numbers,
            below.lower,
            below.commutative,
            level,
        )
        self._here = KeyIndex.of(level.keys(below.commutative), np.arange(len(level.item)))
        self._rows_of = {int(table.item[row]): int(row) for row in np.flatnonzero((table.args < 0).all(axis=1))}

    def steps(self, equations: Sequence[Equation], wanted: Array) -> Iterator[tuple[int, Array, Array, Array]]:
        """One step of terms of the level at the positions `wanted`.

        Yields the number of the equation, positions, the rows of the table that they become and the positions of this level that they
        become (-1 for none).
        """
        narrowed = _PositionIndex(self._level, self._table.item * _OUTPUTS + self._table.output, wanted)
        for number, equation in enumerate(equations[:RULES]):
            for source, target in ((equation.right, equation.left), (equation.left, equation.right)):
                if not source.args or not set(inputs((target,))) <= set(inputs((source,))):
                    continue
                for pattern in self._orders(source):
                    codes = (self._code(pattern.term), *(self._code(arg.term) for arg in pattern.args))
                    positions, bound = self._matches(pattern, narrowed.find(codes))
                    if len(positions):
                        yield (number, positions, *self._built(target, bound, len(positions)))

    def _orders(self, term: Term) -> Iterator[TermPattern]:
        if not term.args:
            yield TermPattern(term)
            return
        assert term.item
        for args in product(*(list(self._orders(arg)) for arg in term.args)):
            yield TermPattern(term, args)
            if len(args) == 2 and self._numbers[term.item] in self._commutative and args[0] != args[1]:
                yield TermPattern(term, args[::-1])

    def _code(self, term: Term) -> int | None:
        """A number for the item and output of a term; None for an input, which stands for anything."""
        return self._numbers[term.item] * _OUTPUTS + term.output if term.item else None

    def _matches(self, pattern: TermPattern, positions: Array) -> tuple[Array, dict[Term, Array]]:
        """The positions that match, of those where the root and what is just below it do; and what inputs stand for."""
        bound: dict[Term, Array] = {}
        todo = [(arg, self._level.args[positions, k], True) for k, arg in enumerate(pattern.args)]
        while todo and len(positions):
            part, rows, checked = todo.pop()
            term = part.term
            keep: Array | None = None
            if not term.item:
                if term in bound:
                    keep = bound[term] == rows
                else:
                    bound[term] = rows
            elif not checked:
                keep = (self._table.item[rows] == self._numbers[term.item]) & (self._table.output[rows] == term.output)
            if keep is not None and not keep.all():
                positions, rows = positions[keep], rows[keep]
                bound = {name: column[keep] for name, column in bound.items()}
                todo = [(other, column[keep], known) for other, column, known in todo]
            todo += [(arg, self._table.args[rows, k], False) for k, arg in enumerate(part.args)]
        return positions, bound

    def _built(self, target: Term, bound: dict[Term, Array], count: int) -> tuple[Array, Array]:
        """The instances of the target: rows of the table where they have fewer operators, else positions of the level."""
        done = dict(bound)

        def rows(term: Term) -> Array:
            if term not in done:
                assert term.item
                if not term.args:
                    done[term] = np.full(count, self._rows_of.get(self._numbers[term.item], -1))
                else:
                    keys, known = application(term)
                    done[term] = np.where(known, self._lower.find(keys), -1)
            return done[term]

        def application(term: Term) -> tuple[Array, Array]:
            assert term.item
            args = np.full((count, self._table.args.shape[1]), -1)
            for k, arg in enumerate(term.args):
                args[:, k] = rows(arg)
            item = np.full(count, self._numbers[term.item])
            known = np.asarray((args[:, : len(term.args)] >= 0).all(axis=1))
            return Applications(item, np.full(count, term.output), args).keys(self._commutative), known

        below = rows(target)
        if target.is_leaf:
            return below, np.full(count, -1)
        keys, known = application(target)
        return below, np.where(known & (below < 0), self._here.find(keys), -1)


def components(count: int, left: Array, right: Array) -> Array:
    """The smallest member of each node's connected component."""
    labels = np.arange(count)
    nodes, places = np.unique(np.concatenate([left, right]), return_inverse=True)
    labels[nodes] = nodes[_components(len(nodes), places[: len(left)], places[len(left) :])]
    return labels


def _components(count: int, left: Array, right: Array) -> Array:
    labels = np.arange(count)
    while len(left):
        low = np.minimum(labels[left], labels[right])
        before = labels.copy()
        np.minimum.at(labels, labels[left], low)
        np.minimum.at(labels, labels[right], low)
        while not np.array_equal(labels, jumped := labels[labels]):
            labels = jumped
        if np.array_equal(before, labels):
            break
    return labels
