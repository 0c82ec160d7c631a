"""Chunks of an enumeration: some menu items over many argument tuples, to fingerprints. A pure function of a state and a chunk.

The state is what a worker must know: the libraries, the family, the values of the representatives found so far. It pickles without
the loaded libraries, which a worker loads by name once. A chunk is a few hundred kilobytes, its result 8 bytes a term.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dslc.generate.enumeration.batch import ItemProgram, heaviest, program
from dslc.generate.enumeration.fingerprint import first_hash
from dslc.generate.enumeration.space import item_of
from dslc.generate.terms.inputs import Family
from dslc.generate.terms.term import Item
from dslc.interpret.domain import Array, Domain
from dslc.interpret.field import Field, P
from dslc.ir.dtype import DType, TensorType
from dslc.semantics.library import Rules, load_many

ELEMENTS = 1 << 22  #: elements of one intermediate of an evaluation


@dataclass(frozen=True, slots=True)
class ItemStep:
    """A menu item as a chunk applies it: its number, and the sizes of the parts where it cuts.

    `results`: the number of them; `mirrored`: the reversed arguments give the same, so that of both orders one is enough.
    """

    item: int
    parts: tuple[int, int] | None = None
    results: int = 1
    mirrored: bool = False


@dataclass(frozen=True, slots=True)
class TupleChunk:
    """`shapes`: the number of each argument's shape; `rows` [arguments, tuples]: which value of that shape."""

    steps: tuple[ItemStep, ...]
    shapes: tuple[int, ...]
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
        if self._rules is None:
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
