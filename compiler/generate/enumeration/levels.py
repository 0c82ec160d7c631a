"""Level-wise enumeration (TASO, section 2.2): all terms of one, two, ... operators over representatives of value classes.

The size of a term is the number of operators of its graph: shared subterms count once, the parts of one cut tensor are one operator.
Larger terms are built from one representative of every value class (and of every way to cut it) only; each further term that has the
value of an old class is an equation. What is not built so follows from a smaller equation: replace the subterm by its representative.
(One thing is lost: a graph that is this small only because it shares a subterm that is no representative.)

Of all renamings of an equation's larger side one is kept: that whose inputs of a type occur in the order of their numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dslc.generate.enumeration.arguments import Arguments, Batch
from dslc.generate.enumeration.checkpoints import Blocks
from dslc.generate.enumeration.evaluation import EnumerationState, Planner, TermValues, hold_on_floats
from dslc.generate.enumeration.fingerprint import first_hash
from dslc.generate.enumeration.mappers import Mapper, distinct, serial
from dslc.generate.enumeration.rewrites import Applications, KeyIndex, LowerLevels, Rewriting, components
from dslc.generate.enumeration.space import Reader, TermTable, TypeNumbers, in_first_order, joined_orders, leaves
from dslc.generate.terms.inputs import CONSTANTS, VARIED, Family
from dslc.generate.terms.term import Equation, inputs, subterms
from dslc.interpret.domain import Array
from dslc.interpret.field import mixed
from dslc.records import record
from dslc.semantics.library import Rules

# ---- The terms of a level that are equations and don't follow from smaller ones: found for parts of a level,--------

PART = 1 << 21  #: terms of a part, about
PAIRS = 1 << 21  #: connected pairs of terms that are held at once


@dataclass(frozen=True)
class LevelPart:
    """Some terms of a level: all that have certain fingerprints, in order."""

    hashes: Array
    terms: Applications


@dataclass(frozen=True)
class OpenTerms:
    """The rest of a part, or of all parts.

    `at`: the terms' places; `left`, the other side of each: a row of the table, or -1 - k for the k-th of these; `groups`: for terms
    that rewriting connects the number of one of them, -1 for settled ones.
    """

    classes: int
    equations: int
    at: Array
    left: Array
    groups: Array

    @property
    def heads(self) -> Array:
        """True where a term is compared with itself."""
        heads: Array = self.left == -1 - np.arange(len(self.left))
        return heads


def part_of(hashes: Array, parts: int) -> Array:
    """The part of each fingerprint."""
    return (mixed(hashes) % np.uint64(parts)).astype(np.int16)


def settled(below: LowerLevels, part: LevelPart) -> OpenTerms:
    """The terms that do not follow at one step from the smallest equations."""
    left = below.known.find(part.hashes)
    new = np.flatnonzero(left < 0)
    _, first, inverse = np.unique(part.hashes[new], return_index=True, return_inverse=True)
    left[new] = -1 - new[first][inverse]
    equations = np.flatnonzero(left != -1 - np.arange(len(left)))
    # only what has the value of another term is looked at, in whose numbers most of this is
    members = np.union1d(equations, -1 - left[equations][left[equations] < 0])
    own = _within(left[members], members)
    mine = Applications(part.terms.item[members], part.terms.output[members], part.terms.args[members])
    wanted, rewriting, groups = np.searchsorted(members, equations), Rewriting(below, mine), np.arange(len(members))
    # most follows from all but those of the level just below; of which there are most
    for rules in below.rules[:-1]:
        wanted = wanted[groups[wanted] >= 0]
        groups = grouped(below, rewriting, rules, wanted, part.hashes[members], own, None, groups)
    kept = groups >= 0
    kept[-1 - own[kept & (own < 0)]] = True
    at = np.flatnonzero(kept)
    # the first place of each one's group
    _, firsts, group = np.unique(groups[at], return_index=True, return_inverse=True)
    places = np.where(groups[at] < 0, -1, firsts[group])
    return OpenTerms(len(first), len(equations), members[at], _within(own[at], at), places)


def further(below: LowerLevels, level: Applications, hashes: Array, left: OpenTerms) -> OpenTerms:
    """The rest that does not follow from the equations of the level just below either, as far as the rest itself shows it."""
    if not below.rules:
        return left
    equations = np.flatnonzero((left.groups >= 0) & ~left.heads)
    groups = grouped(below, Rewriting(below, level), below.rules[-1], equations, hashes, left.left, None, left.groups)
    return replace(left, groups=groups)


def together(parts: Sequence[tuple[Array, OpenTerms]]) -> OpenTerms:
    """The rest of all parts; with each the positions of its terms in the level."""
    places = np.concatenate([positions[part.at] for positions, part in parts])
    order = np.argsort(places, kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    left, groups, start = [], [], 0
    for _, part in parts:
        own = part.left.copy()
        own[own < 0] = -1 - rank[start - 1 - own[own < 0]]
        left.append(own)
        groups.append(np.where(part.groups < 0, -1, rank[start + part.groups]))
        start += len(part.at)
    classes, equations = sum(part.classes for _, part in parts), sum(part.equations for _, part in parts)
    return OpenTerms(classes, equations, places[order], np.concatenate(left)[order], np.concatenate(groups)[order])


def _within(left: Array, members: Array) -> Array:
    """The sides of some members, with heads numbered within them."""
    own = left.copy()
    own[own < 0] = -1 - np.searchsorted(members, -1 - own[own < 0])
    return own


def grouped(
    below: LowerLevels, rewriting: Rewriting, rules: Sequence[Equation], equations: Array, hashes: Array, left: Array,
    ranks: tuple[Array, Array] | None, groups: Array | None = None,
) -> Array:  # fmt: skip
    """For each position the group of terms that rewriting connects, -1 for groups that are settled.

    These are connected with the other side of their class. `ranks`: of positions and of rules; a rule rewrites terms of a higher rank
    only. `groups`: of an earlier call.
    """
    before = np.arange(len(hashes)) if groups is None else groups
    follows = before < 0
    groups = np.where(follows, np.arange(len(hashes)), before)
    pairs: list[Array] = []
    held = 0
    for number, positions, rows, others in rewriting.steps(rules, equations):
        if ranks is not None:
            allowed = ranks[0][positions] > ranks[1][number]
            positions, rows, others = positions[allowed], rows[allowed], others[allowed]
        lower = (rows >= 0) & (left[positions] >= 0)
        lower[lower] = below.classes[rows[lower]] == left[positions[lower]]
        follows[positions[lower]] = True
        beside = others >= 0
        beside[beside] = (hashes[others[beside]] == hashes[positions[beside]]) & (others[beside] != positions[beside])
        if beside.any():
            pairs.append(np.stack([positions[beside], others[beside]]))
            held += pairs[-1].shape[1]
        if held > PAIRS:
            groups, pairs, held = _connected(groups, pairs), [], 0
    groups = _connected(groups, pairs)
    done = np.zeros(len(hashes), dtype=bool)
    done[groups[follows]] = True
    done[groups[-1 - left[left < 0]]] = True
    return np.where(done[groups], -1, groups)


def _connected(groups: Array, pairs: Sequence[Array]) -> Array:
    """The smallest member of each one's group, where `pairs` [2, pairs] are connected as well."""
    if not pairs:
        return groups
    left, right = np.concatenate(pairs, axis=1)
    return components(len(groups), groups[left], groups[right])[groups]


# ---- Level-wise enumeration (TASO, section 2.2): all terms of one, two, ... operators over representatives o--------


@record
class Level:
    """The counts of one level: `terms` tried, new value `classes`, `equations` found and `kept` (one of all renamings)."""

    size: int
    terms: int
    classes: int
    equations: int
    kept: int
    seconds: float


#: called with the level and the number of terms evaluated so far
Progress = Callable[[int, int], None]


@dataclass
class Enumeration:
    """`table` holds the representatives; row k of `right` is a term that has the value of row `left[k]` of the table."""

    family: Family
    types: TypeNumbers
    table: TermTable
    left: Array
    right: TermTable
    levels: tuple[Level, ...] = ()
    #: equations that held over the field and did not on floats
    fallen: tuple[Equation, ...] = ()

    def __len__(self) -> int:
        return len(self.left)

    @cached_property
    def reader(self) -> Reader:
        return Reader(self.family, self.types, self.table)

    def equation(self, k: int) -> Equation:
        own, type = self.right, self.types.types[int(self.right.type[k])]
        right = self.reader.applied(int(own.item[k]), own.args[k], int(own.output[k]), type)
        return Equation(self.reader.term(int(self.left[k])), right)

    def equations(self) -> Iterator[Equation]:
        """The kept equations, smaller ones first; the right side was found later and has no fewer operators."""
        return map(self.equation, range(len(self.left)))


@dataclass(frozen=True)
class _LevelTerms:
    """All terms of a size, their fingerprints and types: batch after batch, [results of all steps, tuples] in row-major order."""

    size: int
    hashes: Array
    types: Array
    batches: list[Batch]
    widest: int

    def applications(self, positions: Array | None = None) -> Applications:
        """The terms, all, or those at some positions (in order)."""
        return self.numbered(positions)[0]

    def numbered(self, positions: Array | None = None) -> tuple[Applications, Array]:
        """The terms, and for each a number that is equal for the results of one application."""
        starts = np.cumsum([0, *(batch.terms for batch in self.batches)])
        bounds = starts if positions is None else np.searchsorted(positions, starts)
        count = int(bounds[-1])
        item, output, node = np.zeros(count, np.int32), np.zeros(count, np.int32), np.zeros(count, np.int64)
        args = np.full((count, self.widest), -1, np.int32)
        for batch, start, low, high in zip(self.batches, starts, bounds, bounds[1:], strict=False):
            own = np.arange(batch.terms) if positions is None else positions[low:high] - start
            slot, row = np.divmod(own, batch.count)
            base = np.cumsum([0, *batch.results])
            step = np.searchsorted(base, slot, side="right") - 1
            item[low:high] = np.array([s.item for s in batch.steps])[step]
            output[low:high] = slot - base[step]
            node[low:high] = start + base[step] * batch.count + row
            for j, arg in enumerate(batch.args):
                args[low:high, j] = arg[row]
        return Applications(item, output, args), node


def _cut_key(hashes: Array, types: Array) -> Array:
    """Of terms of one value those of different split trees are kept apart."""
    return mixed(hashes ^ mixed(types.astype(np.uint64) + np.uint64(1)))


@dataclass
class Enumerator:
    """All equations between terms of up to so many operators, as far as they don't follow from smaller ones by replacing subterms.

    Args:
        libraries: the libraries that workers load to have the same rules.
        varied: terms of more operators have no attribute off its default.
        constants: terms of more operators have no constant among their leaves.
        mapper: evaluates chunks, in order; `dslc.generate.enumeration.mappers` has one for this process and one for several.
        store: keeps finished levels, so that an interrupted enumeration goes on where it was.
        mirrors: both orders of a commutative item's arguments are made.
    """

    rules: Rules
    libraries: tuple[str, ...]
    family: Family
    operators: int
    seed: int = 0
    varied: int = VARIED
    constants: int = CONSTANTS
    mapper: Mapper = serial
    store: Blocks | None = None
    progress: Progress | None = None
    mirrors: bool = False

    def __post_init__(self) -> None:
        self.types = TypeNumbers()
        self.planner = Planner(self.rules, self.family, self.types, self.seed)
        self.state = EnumerationState(self.libraries, self.family, self.seed, self.types.shapes, _rules=self.rules)
        self.table = leaves(self.family, self.types, self.planner.widest, self.operators)
        self.values = TermValues(self.rules, self.family, self.types, self.state.domain)
        self.state.values = self.values.arrays
        self.left: list[Array] = []
        self.right: list[TermTable] = []
        self.levels: list[Level] = []
        self.fallen: list[Equation] = []
        #: rows by fingerprints, and by fingerprints with split trees; every term of the levels below
        self.known = self.cut_known = self.lower = KeyIndex.of()
        self.nodes = 0

    def run(self) -> Enumeration:
        self.leaves()
        for size in range(1, self.operators + 1):
            start = time.process_time()
            level = self.evaluated(size)
            open_ = self._open(level)
            kept = self._independent(level, open_)
            self._take(level, open_, kept)
            seconds = time.process_time() - start
            self.levels.append(Level(size, len(level.hashes), open_.classes, open_.equations, len(kept), seconds))
        return self._found()

    def _found(self) -> Enumeration:
        left, right = np.concatenate(self.left), self.right[0].plus(*self.right[1:])
        return Enumeration(self.family, self.types, self.table, left, right, tuple(self.levels), tuple(self.fallen))

    # ---- leaves ------------------------------------------------------------------------------------------------

    def leaves(self, every: bool = False) -> Array:
        """Values of inputs and constants, and their fingerprints.

        A constant that equals an earlier leaf is an equation and no leaf unless `every` one is.
        """
        rng, table = np.random.default_rng(self.state.seed), self.table
        found = [self.values.leaf(table, row, rng) for row in range(len(table))]
        tensors = [self.types.types[type].tensor for type in table.type.tolist()]
        hashes = np.concatenate([first_hash(*each, self.state.seed) for each in zip(found, tensors, strict=True)])
        _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        earliest = first[inverse]
        keep = (earliest == np.arange(len(hashes))) | every
        self.left.append((np.cumsum(keep) - 1)[earliest[~keep]])
        self.right.append(table.rows(~keep))
        self.table = table.rows(keep)
        for row, old in enumerate(np.flatnonzero(keep).tolist()):
            self.values.put(self.table, np.array([row]), found[old])
        self._know(hashes[keep], np.arange(len(self.table)), self.table.type)
        #: the first row of each row's value class
        self.classes = self.known.find(hashes[keep])
        return np.asarray(hashes[keep])

    def _know(self, hashes: Array, rows: Array, types: Array) -> None:
        self.known = self.known.with_new(hashes, rows)
        self.cut_known = self.cut_known.with_new(_cut_key(hashes, types), rows)

    # ---- one level ---------------------------------------------------------------------------------------------

    def evaluated(self, size: int) -> _LevelTerms:
        batches = list(Arguments(self.planner, self.table, size, self.varied, self.constants, self.mirrors).batches())
        hashes = self.store.parts(size, [batch.terms for batch in batches]) if self.store else []
        done, kept = sum(part.size for part in hashes), len(hashes)
        try:
            for array in self.mapper(self.state, (batch.chunk(self.values.places) for batch in batches[len(hashes) :])):
                hashes.append(array)
                done += array.size
                if self.store and self.store.due():
                    self.store.add(size, hashes[kept:])
                    kept = len(hashes)
                if self.progress is not None:
                    self.progress(size, done)
        finally:
            if self.store and len(hashes) > kept:
                self.store.add(size, hashes[kept:])
        flat = np.concatenate([np.zeros(0, np.uint64), *(part.reshape(-1) for part in hashes)])
        types = np.concatenate([np.zeros(0, np.int32), *(own for batch in batches for own in self._types(batch))])
        return _LevelTerms(size, flat, types, batches, self.planner.widest)

    def _types(self, batch: Batch) -> Iterator[Array]:
        for step in batch.steps:
            found = np.array([self.planner.result_types(step.item, kinds) for kinds in batch.combinations], np.int32)
            yield from found.T[:, batch.kinds]

    def _take(self, level: _LevelTerms, open_: OpenTerms, kept: Array) -> None:
        """The kept equations; and the new terms become representatives."""
        last, sides = level.size == self.operators, open_.left[kept]
        if last:
            wanted = np.unique(open_.at[-1 - sides[sides < 0]])
        else:
            unseen = np.flatnonzero(self.cut_known.find(keys := _cut_key(level.hashes, level.types)) < 0)
            _, one = np.unique(keys[unseen], return_index=True)
            wanted = np.sort(unseen[one])
        self.right.append(self.rows(level, open_.at[kept]))
        rows = np.arange(len(wanted)) + len(self.table)
        self.table = self.table.plus(self.rows(level, wanted))
        sides[sides < 0] = rows[np.searchsorted(wanted, open_.at[-1 - sides[sides < 0]])]
        self.left.append(sides)
        if not last:
            self.values.add(self.table, rows)
            self._know(level.hashes[wanted], rows, level.types[wanted])
            self.classes = np.concatenate([self.classes, self.known.find(level.hashes[wanted])])
            self.lower = self.lower.plus(
                level.applications().keys(frozenset(self.planner.commutative)), self.cut_known.find(keys)
            )

    def _below(self, size: int) -> LowerLevels:
        numbers = {item: k for k, item in enumerate((*self.family.items, *(item for item, _ in self.family.constants)))}
        smaller: dict[int, list[Equation]] = {}
        for equation in self._found().equations():
            leaves = subterms((equation.left, equation.right))
            if equation.right.args and (size <= self.constants or not any(leaf.is_constant for leaf in leaves)):
                smaller.setdefault(equation.right.size, []).append(equation)
        rules = tuple(tuple(smaller.get(k, ())) for k in range(1, size))
        return LowerLevels(
            self.table, self.lower, self.known, self.classes, rules, numbers, frozenset(self.planner.commutative)
        )

    def _open(self, level: _LevelTerms) -> OpenTerms:
        """The terms that do not follow at one step from smaller equations: in parts where a level is large."""
        below, hashes = self._below(level.size), level.hashes
        parts = 1 + len(hashes) // PART
        if parts == 1:
            found = settled(below, LevelPart(hashes, level.applications()))
        else:
            numbers = part_of(hashes, parts)
            order = np.argsort(numbers, kind="stable")
            positions = np.split(order, np.cumsum(np.bincount(numbers, minlength=parts))[:-1])
            tasks = (LevelPart(hashes[mine], level.applications(mine)) for mine in positions)
            found = together(list(zip(positions, self.mapper(below, tasks, settled), strict=True)))
        return further(below, level.applications(found.at), hashes[found.at], found)

    def _independent(self, level: _LevelTerms, left: OpenTerms) -> Array:
        """The open terms that are kept: of the renamings of an equation one, and none that is an instance of a more general one."""
        open_ = np.flatnonzero((left.groups >= 0) & ~left.heads)
        good = self._in_order(level, open_, left)
        open_, good = open_[good > 0], good[good > 0]
        # of a group one with its inputs in order
        open_ = open_[np.lexsort((open_, -good, left.groups[open_]))]
        _, one = np.unique(left.groups[open_], return_index=True)
        open_ = np.sort(open_[one])
        found = self._among(level, open_, left)
        holds = hold_on_floats(self.rules, self.family, self.types, self.seed, found.table, found.left, found.right)
        self.fallen += [found.equation(int(k)) for k in np.flatnonzero(~holds)]
        open_ = open_[holds]
        # then the more general ones of this level: more inputs and fewer constants
        terms = list(self._among(level, open_, left).equations())
        rank = np.array([_generality(equation) for equation in terms], dtype=np.int64)
        order = np.argsort(rank, kind="stable")
        ranks = np.full(len(left.at), -1, dtype=np.int64)
        ranks[open_] = rank
        below = self._below(level.size)
        rewriting = Rewriting(below, level.applications(left.at))
        general = [terms[k] for k in order]
        groups = grouped(below, rewriting, general, open_, level.hashes[left.at], left.left, (ranks, rank[order]))
        open_ = open_[groups[open_] >= 0]
        _, one = np.unique(groups[open_], return_index=True)
        return np.asarray(open_[np.sort(one)])

    def _among(self, level: _LevelTerms, at: Array, left: OpenTerms) -> Enumeration:
        """The equations of some of the open terms."""
        sides = left.left[at]
        heads = np.unique(-1 - sides[sides < 0])
        table = self.table.plus(self.rows(level, left.at[heads]))
        sides[sides < 0] = len(self.table) + np.searchsorted(heads, -1 - sides[sides < 0])
        return Enumeration(self.family, self.types, table, sides, self.rows(level, left.at[at]))

    def _in_order(self, level: _LevelTerms, at: Array, left: OpenTerms) -> Array:
        """2 where the inputs of an equation's right side occur in the order of their numbers.

        Else 1 where the left side is as large and its inputs do (the right side's renaming may be a left side then), else 0.
        """

        def ordered(positions: Array) -> Array:
            return in_first_order(self.rows(level, left.at[positions]).order, self.family)

        sides = left.left[at]
        known = sides >= 0
        rows = sides[known]
        second = np.zeros(len(at), dtype=bool)
        second[known] = (self.table.size[rows] == level.size) & in_first_order(self.table.order[rows], self.family)
        heads, inverse = np.unique(-1 - sides[~known], return_inverse=True)
        second[~known] = ordered(heads)[inverse]
        return np.where(ordered(at), 2, second.astype(np.int64))

    def rows(self, level: _LevelTerms, positions: Array) -> TermTable:
        """The terms at some positions (in order) of a level as rows of a table."""
        mine, node = level.numbered(positions)
        used = [column for column in mine.args.T if (column >= 0).any()]
        order = np.zeros(len(positions), dtype=np.int64)
        if used:
            order = joined_orders([np.where(column >= 0, self.table.order[column], 0) for column in used])
        varied = np.isin(mine.item, sorted(self.family.varied))
        constant = np.zeros(len(positions), dtype=bool)
        for column in used:
            varied |= (column >= 0) & self.table.varied[column]
            constant |= (column >= 0) & self.table.constant[column]
        # the operators of the arguments, and one of its own
        _, inverse = np.unique(node, return_inverse=True)
        below = [np.where((column >= 0)[:, None], self.table.ops[column], -1) for column in mine.args.T]
        ops = distinct(np.column_stack([*below, inverse + self.nodes]).astype(np.int32), self.operators)
        self.nodes += int(inverse.max(initial=-1)) + 1
        sizes = np.full(len(positions), level.size, dtype=np.int32)
        types = level.types[positions]
        return TermTable(mine.item, mine.output, mine.args, types, sizes, ops, order, varied, constant)


def _generality(equation: Equation) -> int:
    """Small for what says most: many inputs, few constants."""
    roots = (equation.left, equation.right)
    return sum(term.is_constant for term in subterms(roots)) - len(inputs(roots))
