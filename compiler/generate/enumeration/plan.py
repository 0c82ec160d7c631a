"""Menu items by the shapes that they apply to, and their types: asked of the declarations once for every combination."""

from __future__ import annotations

from functools import cache

import numpy as np

from dslc.generate.enumeration.evaluation import ItemStep, applied_values, random_values
from dslc.generate.enumeration.space import TypeNumbers
from dslc.generate.terms.inputs import Family, arity
from dslc.generate.terms.term import TermType, parts
from dslc.generate.terms.trees import output_types, shapes
from dslc.interpret.domain import Array
from dslc.interpret.field import Field
from dslc.semantics.library import Rules

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

    def _types_of(self, item: int, args: tuple[int, ...]) -> tuple[int, ...]:
        made = output_types(self.rules, self.family.items[item], [self.types.types[n] for n in args])
        assert made is not None
        role = self.types.roles[self.types.shape_of[args[0]]] if args else 0
        return tuple(self.types.number(type, role) for type in made)


def combined(types: Array, rows: list[Array]) -> tuple[Array, list[tuple[int, ...]]]:
    """The type numbers of argument tuples: the distinct combinations, and which one each tuple has."""
    columns = np.stack([types[row] for row in rows], axis=1)
    base = int(columns.max(initial=0)) + 1
    code = np.zeros(len(columns), dtype=np.int64)
    for k in range(columns.shape[1]):
        code = code * base + columns[:, k]
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    return inverse.astype(np.int32), [tuple(int(v) for v in columns[at]) for at in first]
