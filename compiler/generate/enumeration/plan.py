"""Which menu items apply to which shapes, and what types they give: asked of the declarations once for every combination."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dslc.generate.enumeration.evaluate import ItemStep, applied_values, random_values
from dslc.generate.enumeration.space import TypeNumbers
from dslc.generate.terms.inputs import Family, arity
from dslc.generate.terms.term import TermType, parts
from dslc.generate.terms.trees import output_types, shapes
from dslc.interpret.domain import Array
from dslc.interpret.field import Field
from dslc.semantics.library import Rules

Shapes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MenuPlan:
    """The steps for arguments of some shapes. `mirrored`: the steps for which the reversed arguments give the same, so that of
    both orders one is enough."""

    steps: tuple[ItemStep, ...]
    mirrored: frozenset[ItemStep]
    results: tuple[int, ...]


@dataclass
class Planner:
    rules: Rules
    family: Family
    types: TypeNumbers
    seed: int
    #: only inputs may be arguments of these
    of_inputs: frozenset[int] = field(init=False)
    arities: tuple[int, ...] = field(init=False)
    _plans: dict[Shapes, MenuPlan] = field(default_factory=dict)
    _commutative: set[int] = field(default_factory=set)
    _cuts: dict[int, tuple[tuple[ItemStep, int], ...]] = field(default_factory=dict)
    _results: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        traits = [self.rules.traits_of(item.op) for item in self.family.items]
        self.of_inputs = frozenset(k for k, trait in enumerate(traits) if "operand_of" in trait.named)
        self.arities = tuple(arity(self.rules, item) for item in self.family.items)

    @property
    def commutative(self) -> frozenset[int]:
        """The items that give the same for both orders of their arguments, as far as was asked."""
        return frozenset(self._commutative)

    @property
    def widest(self) -> int:
        return max((count for count in self.arities if count > 0), default=1)

    def plan(self, wanted: Shapes, inputs_only: bool, varied: bool) -> MenuPlan:
        """The steps on arguments of the given shapes but for cutting ones; those of `of_inputs` if `inputs_only`, else the others.

        `varied`: items with an attribute off its default too.
        """
        found = self._plans.get(wanted)
        if found is None:
            found = self._plans[wanted] = self._plan(wanted)
        steps = tuple(
            (step, count)
            for step, count in zip(found.steps, found.results, strict=True)
            if (step.item in self.of_inputs) == inputs_only and (varied or step.item not in self.family.varied)
        )
        return MenuPlan(tuple(s for s, _ in steps), found.mirrored, tuple(n for _, n in steps))

    def _plan(self, wanted: Shapes) -> MenuPlan:
        args = [
            TermType(self.types.shapes[n].dtype, tuple(int(str(s)) for s in self.types.shapes[n].shape)) for n in wanted
        ]
        steps, results = [], []
        mirrored = set()
        for k, item in enumerate(self.family.items):
            if self.arities[k] != len(wanted) or item.cut is not None:
                continue
            if any(place != self.types.roles[n] for place, n in zip(self.family.places[k], wanted, strict=False)):
                continue
            found = shapes(self.rules, item, args)
            if found is None:
                continue
            steps.append(ItemStep(k))
            results.append(len(found))
            if len(wanted) == 2 and self._commutes(k, args):
                mirrored.add(steps[-1])
                self._commutative.add(k)
        return MenuPlan(tuple(steps), frozenset(mirrored), tuple(results))

    def _commutes(self, number: int, args: list[TermType]) -> bool:
        """Whether the item gives the same for both orders of its arguments: declared, or found on random values."""
        item = self.family.items[number]
        if self.declared_commutative(number):
            return True
        reverse = shapes(self.rules, item, args[::-1])
        if reverse is None or reverse != shapes(self.rules, item, args):
            return False
        rng = np.random.default_rng(self.seed)
        values = [random_values(arg.tensor, 2, rng) for arg in args]
        types = tuple(arg.tensor for arg in args)
        domain = Field(self.seed)
        one = applied_values(self.rules, item, None, types, values, domain)
        other = applied_values(self.rules, item, None, types[::-1], values[::-1], domain)
        return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))

    def declared_commutative(self, number: int) -> bool:
        return self.rules.traits_of(self.family.items[number].op).commutative

    def cuts(self, type: int) -> tuple[tuple[ItemStep, int], ...]:
        """The cutting steps on a tensor of the given type, each with its number of results."""
        found = self._cuts.get(type)
        if found is None:
            own = self.types.types[type]
            steps = []
            for k, item in enumerate(self.family.items):
                if item.cut is None or item.axis is None or item.axis >= len(own.dims):
                    continue
                found_parts, results = parts(item, own), shapes(self.rules, item, (own,))
                if found_parts is not None and results is not None:
                    steps.append((ItemStep(k, found_parts), len(results)))
            found = self._cuts[type] = tuple(steps)
        return found

    def result_types(self, item: int, args: tuple[int, ...]) -> tuple[int, ...]:
        """The types' numbers of the results of an item on arguments of some types."""
        key = (item, args)
        found = self._results.get(key)
        if found is None:
            made = output_types(self.rules, self.family.items[item], [self.types.types[n] for n in args])
            assert made is not None
            role = self.types.roles[self.types.shape_of[args[0]]] if args else 0
            found = self._results[key] = tuple(self.types.number(type, role) for type in made)
        return found


def combined(types: Array, rows: list[Array]) -> tuple[Array, list[tuple[int, ...]]]:
    """The type numbers of argument tuples: the distinct combinations, and which one each tuple has."""
    columns = np.stack([types[row] for row in rows], axis=1)
    base = int(columns.max(initial=0)) + 1
    code = np.zeros(len(columns), dtype=np.int64)
    for k in range(columns.shape[1]):
        code = code * base + columns[:, k]
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    return inverse.astype(np.int32), [tuple(int(v) for v in columns[at]) for at in first]
