"""Level-wise enumeration (TASO, section 2.2): all terms of one, two, ... operators over representatives of value classes.

The size of a term is the number of operators of its graph: shared subterms count once, the parts of one cut tensor are one operator.
Larger terms are built from one representative of every value class (and of every way to cut it) only; each further term that has the
value of an old class is an equation. What is not built so follows from a smaller equation: replace the subterm by its representative.
(One thing is lost: a graph that is this small only because it shares a subterm that is no representative.)

Of all renamings of an equation's larger side one is kept: that whose inputs of a type occur in the order of their numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from dslc.generate.enumeration.arguments import Arguments, Batch
from dslc.generate.enumeration.equations import FloatTest
from dslc.generate.enumeration.evaluate import EnumerationState
from dslc.generate.enumeration.fingerprint import first_hash, mix
from dslc.generate.enumeration.plan import Planner
from dslc.generate.enumeration.resume import Blocks
from dslc.generate.enumeration.rewriting import Applications, FoundApplications
from dslc.generate.enumeration.settle import PART as SETTLE_PART
from dslc.generate.enumeration.settle import (
    Below,
    KnownFingerprints,
    LevelPart,
    OpenTerms,
    further,
    grouped,
    part_of,
    settled,
    together,
)
from dslc.generate.enumeration.space import Reader, TermTable, TypeNumbers, in_first_order, joined_orders, leaves
from dslc.generate.enumeration.values import TermValues
from dslc.generate.enumeration.workers import Mapper, serial
from dslc.generate.terms.inputs import CONSTANTS as INPUTS_CONSTANTS
from dslc.generate.terms.inputs import VARIED as INPUTS_VARIED
from dslc.generate.terms.inputs import Family
from dslc.generate.terms.term import Equation, inputs, subterms
from dslc.interpret.domain import Array
from dslc.semantics.library import Rules


@dataclass(frozen=True, slots=True)
class Level:
    """What one level gave: `terms` tried, new value `classes`, `equations` found and `kept` (one of all renamings)."""

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
    #: what held over the field and did not on floats
    fallen: tuple[Equation, ...] = ()
    _reader: Reader | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.left)

    @property
    def reader(self) -> Reader:
        if self._reader is None:
            self._reader = Reader(self.family, self.types, self.table)
        return self._reader

    def equation(self, k: int) -> Equation:
        type = self.types.types[int(self.right.type[k])]
        item = int(self.right.item[k])
        if not (self.right.args[k] >= 0).any():
            right = self.reader.constant(item, type)
        else:
            right = self.reader.applied(item, self.right.args[k], int(self.right.output[k]), type)
        return Equation(self.reader.term(int(self.left[k])), right)

    def equations(self) -> Iterator[Equation]:
        """The kept equations, smaller ones first; the right side was found later and has no fewer operators."""
        return (self.equation(k) for k in range(len(self.left)))


def _cut_key(hashes: Array, types: Array) -> Array:
    """Of terms of one value those of different split trees are kept apart."""
    return mix(hashes ^ mix(types.astype(np.uint64) + np.uint64(1)))


def enumerate_family(
    rules: Rules, libraries: tuple[str, ...], family: Family, operators: int, seed: int = 0,
    varied: int = INPUTS_VARIED, constants: int = INPUTS_CONSTANTS, mapper: Mapper = serial,
    store: Blocks | None = None, progress: Progress | None = None,
) -> Enumeration:  # fmt: skip
    """All equations between terms of up to so many operators, as far as they don't follow from smaller ones by replacing subterms.

    Args:
        libraries: what workers load to have the same rules.
        varied: terms of more operators have no attribute off its default.
        constants: terms of more operators have no constant among their leaves.
        mapper: evaluates chunks, in order; `dslc.generate.enumeration.workers` has one for this process and one for several.
        store: keeps what is finished, so that an interrupted enumeration goes on where it was.
    """
    return _Run(rules, libraries, family, operators, seed, varied, constants, mapper, store, progress).run()


def all_terms(
    rules: Rules, libraries: tuple[str, ...], family: Family, operators: int, seed: int = 0
) -> tuple[TermTable, Array, TypeNumbers]:
    """Every term of up to so many operators, whether or not another has its value, and the terms' fingerprints (for counting)."""
    run = _Run(rules, libraries, family, operators, seed, operators, operators, serial, None, None)
    run.mirrors = True
    hashes = [run.leaves(every=True)]
    for size in range(1, operators + 1):
        found, types, batches = run.evaluated(size)
        hashes.append(found)
        run.take_all(size, types, batches)
    return run.table, np.concatenate(hashes), run.types


class _Run:
    def __init__(
        self, rules: Rules, libraries: tuple[str, ...], family: Family, operators: int, seed: int, varied: int, constants: int,
        mapper: Mapper, store: Blocks | None, progress: Progress | None,
    ) -> None:  # fmt: skip
        self.family, self.operators, self.mapper, self.store, self.progress = family, operators, mapper, store, progress
        self.varied, self.constants = varied, constants
        #: whether both orders of a commutative item's arguments are made
        self.mirrors = False
        self.types = TypeNumbers()
        self.planner = Planner(rules, family, self.types, seed)
        self.state = EnumerationState(libraries, family, seed, self.types.shapes, _rules=rules)
        self.table = leaves(family, self.types, self.planner.widest, operators)
        self.values = TermValues(rules, family, self.types, self.state.domain)
        self.state.values = self.values.arrays
        self.left: list[Array] = []
        self.right: list[TermTable] = []
        self.levels: list[Level] = []
        self.fallen: list[Equation] = []
        self.known = KnownFingerprints(np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64))
        self.cut_known = self.known
        self.nodes = 0
        #: the first row of each row's value class
        self.classes = np.zeros(0, dtype=np.int64)
        #: every term of the levels below
        self.lower = FoundApplications.of(np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64))

    def run(self) -> Enumeration:
        self.leaves()
        for size in range(1, self.operators + 1):
            start = time.process_time()
            hashes, types, batches = self.evaluated(size)
            level = self._settled(size, hashes, types, batches)
            self.levels.append(Level(*level, time.process_time() - start))
        right = self.right[0]
        for more in self.right[1:]:
            right = right.plus(more)
        left, levels, fallen = np.concatenate(self.left), tuple(self.levels), tuple(self.fallen)
        return Enumeration(self.family, self.types, self.table, left, right, levels, fallen)

    # ---- leaves ------------------------------------------------------------------------------------------------

    def leaves(self, every: bool = False) -> Array:
        """Values of inputs and constants, and their fingerprints; a constant that equals an earlier leaf is an equation and no leaf
        unless `every` one is."""
        rng = np.random.default_rng(self.state.seed)
        hashes = np.zeros(len(self.table), dtype=np.uint64)
        found = []
        for row in range(len(self.table)):
            found.append(self.values.leaf(self.table, row, rng))
            hashes[row] = first_hash(found[-1], self.types.types[int(self.table.type[row])].tensor, self.state.seed)[0]
        _, first = np.unique(hashes, return_index=True)
        keep = np.zeros(len(hashes), dtype=bool)
        keep[first] = True
        keep |= every
        earliest = {int(hashes[row]): int(row) for row in sorted(first.tolist(), reverse=True)}
        rows = np.cumsum(keep) - 1
        self.left.append(np.array([rows[earliest[int(hashes[row])]] for row in np.flatnonzero(~keep)], dtype=np.int64))
        self.right.append(_selected(self.table, np.flatnonzero(~keep)))
        self.table = _selected(self.table, np.flatnonzero(keep))
        for row, old in enumerate(np.flatnonzero(keep).tolist()):
            self.values.put(self.table, np.array([row]), found[old])
        self._know(hashes[keep], np.arange(len(self.table)), self.table.type)
        self.classes = self.known.find(hashes[keep])
        return hashes[keep]

    def take_all(self, size: int, types: Array, batches: list[Batch]) -> None:
        """Every term of a level becomes a row of the table."""
        rows = np.arange(len(types)) + len(self.table)
        self.table = self.table.plus(self._rows(np.arange(len(types)), types, batches, size))
        if size < self.operators:
            self.values.add(self.table, rows)

    def _know(self, hashes: Array, rows: Array, types: Array) -> None:
        self.known = self.known.plus(*_first(hashes, rows, self.known))
        keys = _cut_key(hashes, types)
        self.cut_known = self.cut_known.plus(*_first(keys, rows, self.cut_known))

    # ---- one level ---------------------------------------------------------------------------------------------

    def evaluated(self, size: int) -> tuple[Array, Array, list[Batch]]:
        """Fingerprints and types of all terms of a size, batch after batch: [results of all steps, tuples] in row-major order."""
        batches = list(Arguments(self.planner, self.table, size, self.varied, self.constants, self.mirrors).batches())
        hashes = self.store.parts(size, [batch.terms for batch in batches]) if self.store is not None else []
        done, kept = sum(part.size for part in hashes), len(hashes)
        try:
            for array in self.mapper(self.state, (batch.chunk(self.values.places) for batch in batches[len(hashes) :])):
                hashes.append(array)
                done += array.size
                if self.store is not None and self.store.due():
                    self.store.add(size, hashes[kept:])
                    kept = len(hashes)
                if self.progress is not None:
                    self.progress(size, done)
        finally:
            if self.store is not None and len(hashes) > kept:
                self.store.add(size, hashes[kept:])
        types = [own for batch in batches for own in self._types(batch)]
        flat = np.concatenate([part.reshape(-1) for part in hashes]) if hashes else np.zeros(0, dtype=np.uint64)
        return flat, np.concatenate(types) if types else np.zeros(0, dtype=np.int32), batches

    def _types(self, batch: Batch) -> Iterator[Array]:
        for step in batch.steps:
            found = [self.planner.result_types(step.item, kinds) for kinds in batch.combinations]
            for output in range(len(found[0])):
                yield np.array([kinds[output] for kinds in found], dtype=np.int32)[batch.kinds]

    def _settled(self, size: int, hashes: Array, types: Array, batches: list[Batch]) -> tuple[int, int, int, int, int]:
        """Which terms are new, which are equations; the new ones become representatives."""
        last = size == self.operators
        open_ = self._open(size, hashes, batches)
        kept = self._independent(size, hashes, types, batches, open_)
        sides = open_.left[kept]
        if last:
            wanted = np.unique(open_.at[-1 - sides[sides < 0]])
        else:
            unseen = np.flatnonzero(self.cut_known.find(keys := _cut_key(hashes, types)) < 0)
            _, one = np.unique(keys[unseen], return_index=True)
            wanted = np.sort(unseen[one])
        self.right.append(self._rows(open_.at[kept], types, batches, size))
        rows = np.arange(len(wanted)) + len(self.table)
        self.table = self.table.plus(self._rows(wanted, types, batches, size))
        sides[sides < 0] = rows[np.searchsorted(wanted, open_.at[-1 - sides[sides < 0]])]
        self.left.append(sides)
        if not last:
            self.values.add(self.table, rows)
            self._know(hashes[wanted], rows, types[wanted])
            self.classes = np.concatenate([self.classes, self.known.find(hashes[wanted])])
            mine = self._applications(batches)
            self.lower = self.lower.plus(
                FoundApplications.of(mine.keys(self.planner.commutative), self.cut_known.find(_cut_key(hashes, types)))
            )
        return size, len(hashes), open_.classes, open_.equations, len(kept)

    def _below(self, size: int) -> Below:
        numbers = {item: k for k, item in enumerate((*self.family.items, *(item for item, _ in self.family.constants)))}
        smaller: dict[int, list[Equation]] = {}
        for equation in self._equations():
            leaves = subterms((equation.left, equation.right))
            if equation.right.args and (size <= self.constants or not any(leaf.is_constant for leaf in leaves)):
                smaller.setdefault(equation.right.size, []).append(equation)
        rules = tuple(tuple(smaller.get(k, ())) for k in range(1, size))
        return Below(self.table, self.lower, self.known, self.classes, rules, numbers, self.planner.commutative)

    def _open(self, size: int, hashes: Array, batches: list[Batch]) -> OpenTerms:
        """What does not follow at one step from smaller equations: in parts where a level is large."""
        below, parts = self._below(size), 1 + len(hashes) // SETTLE_PART
        if parts == 1:
            found = settled(below, LevelPart(hashes, self._applications(batches)))
        else:
            numbers = part_of(hashes, parts)
            order = np.argsort(numbers, kind="stable")
            positions = np.split(order, np.cumsum(np.bincount(numbers, minlength=parts))[:-1])
            tasks = (LevelPart(hashes[mine], self._applications(batches, mine)) for mine in positions)
            found = together(list(zip(positions, self.mapper(below, tasks, settled), strict=True)))
        return further(below, self._applications(batches, found.at), hashes[found.at], found)

    def _independent(self, size: int, hashes: Array, types: Array, batches: list[Batch], left: OpenTerms) -> Array:
        """Which of what is open is kept: of the renamings of an equation one, and none that is an instance of a more general one."""
        open_ = np.flatnonzero((left.groups >= 0) & ~left.heads)
        good = self._in_order(open_, left, size, types, batches)
        open_, good = open_[good > 0], good[good > 0]
        # of a group one with its inputs in order
        open_ = open_[np.lexsort((open_, -good, left.groups[open_]))]
        _, one = np.unique(left.groups[open_], return_index=True)
        open_ = np.sort(open_[one])
        # then the more general ones of this level: more inputs and fewer constants
        open_ = open_[self._on_floats(open_, left, types, batches, size)]
        terms = list(self._among(open_, left, types, batches, size).equations())
        rank = np.array([_generality(equation) for equation in terms], dtype=np.int64)
        order = np.argsort(rank, kind="stable")
        ranks = np.full(len(left.at), -1, dtype=np.int64)
        ranks[open_] = rank
        below = self._below(size)
        rewriting = below.rewriting(self._applications(batches, left.at))
        general = [terms[k] for k in order]
        groups = grouped(below, rewriting, general, open_, hashes[left.at], left.left, (ranks, rank[order]))
        open_ = open_[groups[open_] >= 0]
        _, one = np.unique(groups[open_], return_index=True)
        return np.asarray(open_[np.sort(one)])

    def _among(self, at: Array, left: OpenTerms, types: Array, batches: list[Batch], size: int) -> Enumeration:
        """The equations of some of what is open."""
        sides = left.left[at]
        heads = np.unique(-1 - sides[sides < 0])
        table = self.table.plus(self._rows(left.at[heads], types, batches, size))
        sides[sides < 0] = len(self.table) + np.searchsorted(heads, -1 - sides[sides < 0])
        return Enumeration(self.family, self.types, table, sides, self._rows(left.at[at], types, batches, size))

    def _on_floats(self, at: Array, left: OpenTerms, types: Array, batches: list[Batch], size: int) -> Array:
        """Which equations hold on floats too; the others are listed."""
        found = self._among(at, left, types, batches, size)
        holds = FloatTest(self.state.rules, self.family, self.types, self.state.seed).holds(
            found.table, found.left, found.right
        )
        self.fallen += [found.equation(int(k)) for k in np.flatnonzero(~holds)]
        return holds

    def _in_order(self, at: Array, left: OpenTerms, size: int, types: Array, batches: list[Batch]) -> Array:
        """2 where the inputs of an equation's right side occur in the order of their numbers, else 1 where the left side is as large
        and its inputs do (the right side's renaming may be a left side then), else 0."""
        out = 2 * in_first_order(self._rows(left.at[at], types, batches, size).order, self.family).astype(np.int64)
        sides = left.left[at]
        known = sides >= 0
        rows = sides[known]
        second = np.zeros(len(at), dtype=bool)
        second[known] = (self.table.size[rows] == size) & in_first_order(self.table.order[rows], self.family)
        heads, inverse = np.unique(-1 - sides[~known], return_inverse=True)
        second[~known] = in_first_order(self._rows(left.at[heads], types, batches, size).order, self.family)[inverse]
        return np.where((out == 0) & second, 1, out)

    def _equations(self) -> Iterator[Equation]:
        """The equations kept so far."""
        right = self.right[0]
        for more in self.right[1:]:
            right = right.plus(more)
        return Enumeration(self.family, self.types, self.table, np.concatenate(self.left), right).equations()

    def _applications(self, batches: list[Batch], positions: Array | None = None) -> Applications:
        """The terms of a level: all, or those at some positions (in order)."""
        widest = self.table.args.shape[1]
        starts = np.cumsum([0, *(batch.terms for batch in batches)])
        bounds = starts if positions is None else np.searchsorted(positions, starts)
        item = np.zeros(int(bounds[-1]), dtype=np.int32)
        output = np.zeros(len(item), dtype=np.int32)
        args = np.full((len(item), widest), -1, dtype=np.int32)
        for k, batch in enumerate(batches):
            low, high = int(bounds[k]), int(bounds[k + 1])
            own = np.arange(batch.terms) if positions is None else positions[low:high] - starts[k]
            slot, row = np.divmod(own, batch.count)
            base = np.cumsum([0, *batch.results])
            step = np.searchsorted(base, slot, side="right") - 1
            item[low:high] = np.array([s.item for s in batch.steps])[step]
            output[low:high] = slot - base[step]
            for j, arg in enumerate(batch.args):
                args[low:high, j] = arg[row]
        return Applications(item, output, args)

    def _rows(self, positions: Array, types: Array, batches: list[Batch], size: int) -> TermTable:
        """The terms at some positions (in order) of a level as rows of a table."""
        starts = np.cumsum([0, *(batch.terms for batch in batches)])
        widest = self.table.args.shape[1]
        mine = self._applications(batches, positions)
        item, output, args = mine.item, mine.output, mine.args
        node = np.zeros(len(positions), dtype=np.int64)
        order = np.zeros(len(positions), dtype=np.int64)
        bounds = np.searchsorted(positions, starts)
        for k, batch in enumerate(batches):
            low, high = int(bounds[k]), int(bounds[k + 1])
            slot, row = np.divmod(positions[low:high] - starts[k], batch.count)
            base = np.cumsum([0, *batch.results])
            node[low:high] = starts[k] + base[np.searchsorted(base, slot, side="right") - 1] * batch.count + row
        used = [column for column in range(widest) if (args[:, column] >= 0).any()]
        if used:
            order = joined_orders([np.where(args[:, j] >= 0, self.table.order[args[:, j]], 0) for j in used])
        ops = self._operators(args, node)
        varied = np.isin(item, sorted(self.family.varied))
        constant = np.zeros(len(item), dtype=bool)
        for j in used:
            varied |= (args[:, j] >= 0) & self.table.varied[args[:, j]]
            constant |= (args[:, j] >= 0) & self.table.constant[args[:, j]]
        sizes = np.full(len(positions), size, dtype=np.int32)
        return TermTable(item, output, args, types[positions], sizes, ops, order, varied, constant)

    def _operators(self, args: Array, node: Array) -> Array:
        """The operators of new terms: those of their arguments and one of their own, equal for the results of one application."""
        width = self.table.ops.shape[1]
        both = np.full((len(args), width * args.shape[1] + 1), np.iinfo(np.int32).max, dtype=np.int32)
        for j in range(args.shape[1]):
            own = np.where((args[:, j] >= 0)[:, None], self.table.ops[args[:, j]], -1)
            both[:, j * width : (j + 1) * width] = np.where(own < 0, np.iinfo(np.int32).max, own)
        _, inverse = np.unique(node, return_inverse=True)
        both[:, -1] = inverse + self.nodes
        self.nodes += int(inverse.max(initial=-1)) + 1
        both.sort(axis=1)
        both[:, 1:][both[:, 1:] == both[:, :-1]] = np.iinfo(np.int32).max
        both.sort(axis=1)
        out = both[:, :width]
        return np.where(out == np.iinfo(np.int32).max, -1, out)


def _generality(equation: Equation) -> int:
    """Small for what says most: many inputs, few constants."""
    roots = (equation.left, equation.right)
    return sum(term.is_constant for term in subterms(roots)) - len(inputs(roots))


def _first(keys: Array, rows: Array, known: KnownFingerprints) -> tuple[Array, Array]:
    """The first of each new key."""
    new = np.flatnonzero(known.find(keys) < 0)
    unique, first = np.unique(keys[new], return_index=True)
    return unique, rows[new][first]


def _selected(table: TermTable, rows: Array) -> TermTable:
    return TermTable(**{name: value[rows] for name, value in table.arrays().items()})
