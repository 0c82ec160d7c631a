"""The smallest instance of a rule at which its sides still differ, and the smallest inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dslc.interpret.differ import Difference, Way, feeds_of, pair_of
from dslc.interpret.draws import MANNERS, InstanceDraws, Manner
from dslc.interpret.instantiate import Instance, Rejected, instantiate
from dslc.interpret.shrink import measure, smaller_elements, smaller_names
from dslc.ir.dtype import DType
from dslc.ir.graph import Value
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.env import OperatorRef
from dslc.semantics.library import Rules

ELEMENTS = 20_000  #: elements of an instance that is looked at; larger ones are no small counterexamples
RANDOM = 40  #: random small instances that are tried before the steps from the one at hand

_TINY = InstanceDraws(sizes=(1, 1, 2), ranks=(0, 1, 2), entries=(-1, 0, 1, 2))


@dataclass(frozen=True, eq=False)
class Smallest:
    """An instance whose sides differ, and the difference with the inputs that show it."""

    instance: Instance
    difference: Difference
    manner: Manner = "small"


def smallest(
    rules: Rules, sub: SubstitutionDef, instance: Instance, way: Way | None = None, tries: int = 80
) -> Smallest | None:
    """A small instance that differs as `instance` does (in `way`, where that is known), of the same element types and terms.

    None where the interpreter's numbers show no difference here. `tries`: instances that are looked at; every run finds the same.
    """
    rng = np.random.default_rng(0)
    terms = {
        name: rules.operators[value.name] for name, value in instance.drawn.items() if isinstance(value, OperatorRef)
    }
    found = _looked(rules, instance, way, rng, MANNERS)
    if found is None:
        return None
    way, manner = found.difference.way, found.manner

    def again(names: Mapping[str, Any], draws: InstanceDraws = _TINY) -> Smallest | None:
        try:
            other = instantiate(rules, sub, rng, terms, (DType.F32,), draws=replace(draws, fixed=names))
        except (Rejected, ArithmeticError, TypeError):
            return None
        return _looked(rules, other, way, rng, (manner,))

    types = {name: value for name, value in instance.drawn.items() if isinstance(value, DType)}
    for _ in range(min(RANDOM, tries)):
        other = again(types)
        if other is not None and _size(other.instance) < _size(found.instance):
            found = other
    found = smaller_names(found, lambda one: one.instance.drawn, again, tries)
    return _small_inputs(rules, found)


def _looked(
    rules: Rules, instance: Instance, way: Way | None, rng: np.random.Generator, manners: Sequence[Manner]
) -> Smallest | None:
    """The instance with its first difference, on inputs of some manners."""
    sides = tuple(instance.left.values()), tuple(instance.right[name] for name in instance.left)
    if elements_of(instance) > ELEMENTS:
        return None
    for k, (a, b) in enumerate(zip(*sides, strict=True)):
        if a.type != b.type:
            found = Difference("types", k, (), str(a.type), str(b.type), {})
            return Smallest(instance, found) if way in {None, "types"} else None
    pair = pair_of(rules, instance.inputs, *sides)
    if pair is None or pair.left == pair.right:
        return None
    for manner in manners:
        difference = pair.difference(feeds_of(pair, manner, rng))
        if difference is not None and way in {None, difference.way}:
            return Smallest(instance, difference, manner)
    return None


def _small_inputs(rules: Rules, found: Smallest) -> Smallest:
    if found.difference.way == "types":
        return found
    instance = found.instance
    pair = pair_of(
        rules, instance.inputs, tuple(instance.left.values()), tuple(instance.right[name] for name in instance.left)
    )
    assert pair is not None

    def wrong(feeds: Mapping[Value, Any]) -> bool:
        difference = pair.difference(feeds)
        return difference is not None and difference.way == found.difference.way

    feeds = smaller_elements(found.difference.feeds, wrong)
    return Smallest(instance, pair.difference(feeds) or found.difference)


def elements_of(instance: Instance) -> int:
    """Elements of all inputs and results."""
    values = (*instance.inputs, *instance.left.values(), *instance.right.values())
    return sum(int(str(value.type.elements)) for value in values)


def _size(instance: Instance) -> int:
    return elements_of(instance) + sum(measure(value) for value in instance.drawn.values())
