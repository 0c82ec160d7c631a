"""Chunks of an enumeration: some menu items over many argument tuples, to fingerprints. A pure function of a state and a chunk.

The state is what a worker must know: the libraries, the family, the values of the representatives found so far. It pickles without
the loaded libraries, which a worker loads by name once. A chunk is a few hundred kilobytes, its result 8 bytes a term.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import Any

import numpy as np

from dslc.generate.enumeration.batch import ItemProgram, heaviest, program
from dslc.generate.enumeration.fingerprint import first_hash
from dslc.generate.enumeration.space import INPUT, TermTable, TypeNumbers, item_of
from dslc.generate.terms.inputs import Family, arity
from dslc.generate.terms.term import Item, TermType, output_types, parts, shapes
from dslc.interpret.domain import Array, Domain
from dslc.interpret.field import Field, P
from dslc.interpret.floats import Floats
from dslc.ir.dtype import DType, TensorType
from dslc.records import record
from dslc.semantics.library import Rules, load_many

# ---- Chunks of an enumeration: some menu items over many argument tuples, to fingerprints. A pure function o--------

ELEMENTS = 1 << 22  #: elements of one intermediate of an evaluation


@record
class ItemStep:
    """A menu item as a chunk applies it: its number, and the sizes of the parts where it cuts.

    `results`: the number of them; `mirrored`: the reversed arguments give the same, so that of both orders one is enough.
    """

    item: int
    parts: tuple[int, int] | None = None
    results: int = 1
    mirrored: bool = False


@record
class TupleChunk:
    """`shapes`: the number of each argument's shape; `rows` [arguments, tuples]: which value of that shape."""

    steps: tuple[ItemStep, ...]
    shapes: Shapes
    rows: Array


@functools.lru_cache(maxsize=4)
def _loaded(libraries: tuple[str, ...]) -> Rules:
    return load_many(libraries)


@dataclass
class EnumerationState:
    """`values`: for each shape's number the values of its representatives, [representatives, *shape]."""

    libraries: tuple[str, ...]
    family: Family
    seed: int
    shapes: list[TensorType]
    values: dict[int, Array] = field(default_factory=dict)
    _rules: Rules | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {name: None if name == "_rules" else getattr(self, name) for name in self.__dataclass_fields__}

    @property
    def rules(self) -> Rules:
        if not self._rules:
            self._rules = _loaded(self.libraries)
        return self._rules

    @functools.cached_property
    def domain(self) -> Field:
        return Field(self.seed)


_PROGRAMS: dict[tuple[Any, ...], tuple[ItemProgram, int]] = {}


def meaning(
    rules: Rules, item: Item, types: tuple[TensorType, ...], parts: tuple[int, int] | None, real: bool = False
) -> tuple[ItemProgram, int]:
    """The program of an application and the elements that one evaluation needs. `real`: nothing stands in for anything."""
    key = (rules.digest, item, types, parts, real)
    found = _PROGRAMS.get(key)
    if found is None:
        attrs = dict(item.attrs) if item.cut is None else {**dict(item.attrs), item.cut: parts}
        made = program(rules, item, types, attrs, stand_in=not real)
        found = _PROGRAMS[key] = (made, heaviest(made.results))
    return found


def applied_values(
    rules: Rules, item: Item, parts: tuple[int, int] | None, types: tuple[TensorType, ...], args: Sequence[Array], domain: Domain,
    real: bool = False,
) -> list[Array]:  # fmt: skip
    """All results of an item for batches of arguments; in pieces where an intermediate would be too large."""
    made, weight = meaning(rules, item, types, parts, real)
    if not args:
        return made.run(args, domain)
    count, step = len(args[0]), max(1, ELEMENTS // weight)
    pieces = [made.run([arg[start : start + step] for arg in args], domain) for start in range(0, count, step)]
    if len(pieces) == 1:
        return pieces[0]
    return [np.concatenate(results) for results in zip(*pieces, strict=True)]


def evaluate_chunk(state: EnumerationState, chunk: TupleChunk) -> Array:
    """Fingerprints uint64 [results of all steps, argument tuples]."""
    types = tuple(state.shapes[number] for number in chunk.shapes)
    args = []
    for number, rows in zip(chunk.shapes, chunk.rows, strict=True):
        taken = state.values[number][rows]
        args.append(taken.astype(np.int64) if state.shapes[number].dtype.is_float else taken)
    out = []
    for step in chunk.steps:
        item = item_of(state.family, step.item)
        results = applied_values(state.rules, item, step.parts, types, args, state.domain)
        made, _ = meaning(state.rules, item, types, step.parts)
        out += [first_hash(array, value.type, state.seed) for array, value in zip(results, made.results, strict=True)]
    return np.stack(out)


def random_values(type: TensorType, count: int, rng: np.random.Generator, real: bool = False) -> Array:
    """Random inputs [count, *shape]: elements of the field, or floats in [-1, 1]; small integers, booleans."""
    shape = (count, *(int(str(size)) for size in type.shape))
    if type.dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if not type.dtype.is_float:
        return rng.integers(-8, 8, shape)
    return rng.uniform(-1, 1, shape) if real else rng.integers(1, P, shape)


# ---- Menu items by the shapes that they apply to, and their types: asked of the declarations once for every --------

#: numbers of shapes, or of types
Shapes = tuple[int, ...]
Steps = tuple[ItemStep, ...]


class Planner:
    """Menu items by the shapes and types that they apply to, asked of the declarations once each."""

    def __init__(self, rules: Rules, family: Family, types: TypeNumbers, seed: int) -> None:
        self.rules, self.family, self.types, self.seed = rules, family, types, seed
        #: only inputs may be arguments of these
        self.of_inputs = {k for k, item in enumerate(family.items) if "operand_of" in rules.traits_of(item.op).named}
        self.arities = tuple(arity(rules, item) for item in family.items)
        #: the items that give the same for both orders of their arguments, as far as was asked
        self.commutative: set[int] = set()
        self._steps = cache(self._planned)
        #: the cutting steps on a tensor of a type
        self.cuts = cache(self._cutting)
        #: the types' numbers of the results of an item on arguments of some types
        self.result_types = cache(self._types_of)

    @property
    def widest(self) -> int:
        return max((count for count in self.arities if count > 0), default=1)

    def plan(self, wanted: Shapes, inputs_only: bool, varied: bool) -> Steps:
        """The steps on arguments of the given shapes but for cutting ones; those of `of_inputs` if `inputs_only`, else the others.

        `varied`: items with an attribute off its default too.
        """
        return tuple(
            step
            for step in self._steps(wanted)
            if (step.item in self.of_inputs) == inputs_only and (varied or step.item not in self.family.varied)
        )

    def _planned(self, wanted: Shapes) -> Steps:
        tensors = [self.types.shapes[n] for n in wanted]
        args = [TermType(tensor.dtype, tuple(int(str(s)) for s in tensor.shape)) for tensor in tensors]
        steps = []
        for k, item in enumerate(self.family.items):
            if self.arities[k] != len(wanted) or item.cut is not None:
                continue
            if any(place != self.types.roles[n] for place, n in zip(self.family.places[k], wanted, strict=False)):
                continue
            found = shapes(self.rules, item, args)
            if found is not None:
                commutes = len(wanted) == 2 and self._commutes(k, args)
                self.commutative |= {k} if commutes else set()
                steps.append(ItemStep(k, None, len(found), commutes))
        return tuple(steps)

    def _commutes(self, number: int, args: list[TermType]) -> bool:
        """Return whether the item gives the same for both orders of its arguments: declared, or found on random values."""
        item = self.family.items[number]
        if self.declared_commutative(number):
            return True
        reverse = shapes(self.rules, item, args[::-1])
        if reverse is None or reverse != shapes(self.rules, item, args):
            return False
        rng, domain = np.random.default_rng(self.seed), Field(self.seed)
        values = [random_values(arg.tensor, 2, rng) for arg in args]
        types = tuple(arg.tensor for arg in args)
        one = applied_values(self.rules, item, None, types, values, domain)
        other = applied_values(self.rules, item, None, types[::-1], values[::-1], domain)
        return all(map(np.array_equal, one, other))

    def declared_commutative(self, number: int) -> bool:
        return self.rules.traits_of(self.family.items[number].op).commutative

    def _cutting(self, type: int) -> Steps:
        own, steps = self.types.types[type], []
        for k, item in enumerate(self.family.items):
            if item.cut is not None and item.axis is not None and item.axis < len(own.dims):
                sizes, results = parts(item, own), shapes(self.rules, item, (own,))
                if sizes is not None and results is not None:
                    steps.append(ItemStep(k, sizes, len(results)))
        return tuple(steps)

    def _types_of(self, item: int, args: Shapes) -> Shapes:
        made = output_types(self.rules, self.family.items[item], [self.types.types[n] for n in args])
        assert made is not None
        role = self.types.roles[self.types.shape_of[args[0]]] if args else 0
        return tuple(self.types.number(type, role) for type in made)


def combined(types: Array, rows: list[Array]) -> tuple[Array, list[Shapes]]:
    """The type numbers of argument tuples: the distinct combinations, and which one each tuple has."""
    columns = np.stack([types[row] for row in rows], axis=1)
    base = int(columns.max(initial=0)) + 1
    code = np.zeros(len(columns), dtype=np.int64)
    for k in range(columns.shape[1]):
        code = code * base + columns[:, k]
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    return inverse.astype(np.int32), [tuple(map(int, columns[at])) for at in first]


# ---- The values of an enumeration's terms, in arrays by shape: each term from those of its arguments, many a--------


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
