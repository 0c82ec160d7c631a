"""Instances that look for mistakes: sizes, ranks and numbers around those that a rule names, and elements of every manner.

Integers are computed as their type does. What is found is a difference of numbers: elements for which one side has no finite value
are none, and what may be rounding is looked at over the fractions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from dslc.interpret.differ import Difference, PairOfLists, Way, feeds_of, pair_of, shown_feeds
from dslc.interpret.draws import MANNERS, InstanceDraws, Manner, adversarial
from dslc.interpret.instantiate import Instance, Rejected, instantiate, term_options
from dslc.interpret.run import Feeds
from dslc.ir.dtype import DType
from dslc.records import record
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.env import AttrSet, OperatorRef
from dslc.semantics.library import Rules
from dslc.semantics.values import numbers_of

ATTEMPTS = 8  #: draws of names for one instance that counts
ELEMENTS = 20_000  #: elements of an instance
ADVERSARY_MANNERS = 3  #: manners of its inputs
FIRST = 12  #: draws that begin with given names
SEEN = 2  #: instances with lists of the same lengths that are welcome
CLEAR = 1e-3  #: share by which numbers differ by more than what floats round


@record
class WrongInstance:
    """An instance, and the first element (or type) in which its sides differ, on inputs of some manner."""

    instance: Instance
    difference: Difference
    manner: Manner = "small"

    def __str__(self) -> str:
        one = self.difference
        place = f"{tuple(self.instance.left)[one.output]}{list(one.position)}" if one.way == "values" else "it"
        last = f"{place} is {one.left} on the left, {one.right} on the right"
        return "\n".join((str(self.instance), *shown_feeds(one.feeds), last))


def differing(
    rules: Rules, sub: SubstitutionDef, rng: np.random.Generator, instances: int,
    dtypes: Sequence[DType] = (DType.F32,), types: Mapping[str, DType] | None = None, first: Mapping[str, Any] | None = None,
) -> WrongInstance | None:  # fmt: skip
    """The first difference that some instances show; None where they show none. `dtypes`, `types`: see `instantiate`.

    `first`: what names stand for in the first draws.
    """
    near, options = numbers_of(sub), term_options(rules, sub)
    if sub.syntax.partial or not all(options.values()):
        return None
    found, forms = 0.0, Counter[tuple[int, ...]]()
    for attempt in range(ATTEMPTS * instances):
        if found >= instances:
            break
        terms = {name: fitting[int(rng.integers(len(fitting)))] for name, fitting in options.items()}
        try:
            draws = adversarial(near, rng)
            draws = replace(draws, fixed=first) if first and attempt < FIRST else draws
            instance = instantiate(rules, sub, rng, terms, tuple(dtypes), types, draws)
        except (Rejected, ArithmeticError, TypeError):
            continue
        # ranks and lengths that were seen often are taken less often
        form = tuple(len(value) for value in instance.drawn.values() if isinstance(value, tuple))
        if elements_of(instance) > ELEMENTS or (form and rng.random() * (1 + forms[form]) > SEEN):
            continue
        forms[form] += 1
        mistyped = _types(instance)
        if mistyped:
            return WrongInstance(instance, mistyped)
        pair = pair_of(rules, instance.inputs, *instance.sides)
        if not pair or pair.left == pair.right:
            # the same program tells little
            found += 0.25
            continue
        found += 1
        others = MANNERS[2:]
        chosen = [*MANNERS[:2], *(others[int(rng.integers(len(others)))] for _ in range(ADVERSARY_MANNERS - 2))]
        for manner in (*chosen, *MANNERS[-1:] * (4 if pair.powers else 0)):
            one = pair.difference(feeds_of(pair, manner, rng, near.every, mixed=bool(rng.random() < 0.2)))
            if one is not None and one.way != "undefined" and (one.way != "values" or _certain(pair, one)):
                return WrongInstance(instance, one)
    return None


def _types(instance: Instance) -> Difference | None:
    """The first output that has another type on the right side."""
    for k, (left, right) in enumerate(zip(*instance.sides, strict=True)):
        if left.type != right.type:
            return Difference("types", k, (), str(left.type), str(right.type), {})
    return None


def _certain(pair: PairOfLists, one: Difference) -> bool:
    """Return whether a difference is none of rounding: it is there over the fractions too, or large where these cannot tell."""
    if not pair.left[one.output].type.dtype.is_float:
        return True
    exact = pair.exactly(one.feeds, one.output, one.position)
    if exact is not None:
        return exact
    x, y = float(one.left), float(one.right)
    return abs(x - y) > CLEAR * max(abs(x), abs(y))


TURNS = 3  #: inputs of each manner, until some show two numbers that differ
RANDOM = 40  #: random small instances that are tried before the steps from the one at hand

TINY = InstanceDraws(sizes=(1, 1, 2), ranks=(0, 1, 2), entries=(-1, 0, 1, 2))


def smallest(
    rules: Rules, sub: SubstitutionDef, instance: Instance, way: Way | None = None, tries: int = 80
) -> WrongInstance | None:
    """A small instance that differs as `instance` does (in `way`, where that is known), of the same element types and terms.

    None where the interpreter's numbers show no difference here. `tries`: instances that are looked at; every run finds the same.
    """
    rng = np.random.default_rng(0)
    terms = {
        name: rules.operators[value.name] for name, value in instance.drawn.items() if isinstance(value, OperatorRef)
    }
    # where one side has no number, two numbers may differ as well, which says more
    found = _looked(rules, instance, None if way == "undefined" else way, rng, MANNERS)
    if found is None:
        return None
    way, manner = found.difference.way, found.manner

    def again(names: Mapping[str, Any], draws: InstanceDraws = TINY) -> WrongInstance | None:
        try:
            other = instantiate(rules, sub, rng, terms, (DType.F32,), draws=replace(draws, fixed=names))
        except (Rejected, ArithmeticError, TypeError):
            return None
        return _looked(rules, other, way, rng, (manner,))

    types = {name: value for name, value in instance.drawn.items() if isinstance(value, DType)}
    for _ in range(min(RANDOM, tries)):
        other = again(types)
        if other and _size(other.instance) < _size(found.instance):
            found = other
    found = smaller_names(found, lambda one: one.instance.drawn, again, tries)
    if way == "types":
        return found
    instance = found.instance
    pair = pair_of(rules, instance.inputs, *instance.sides)
    assert pair

    def wrong(feeds: Feeds) -> bool:
        difference = pair.difference(feeds)
        return difference is not None and difference.way == way

    feeds = smaller_elements(found.difference.feeds, wrong)
    return WrongInstance(instance, pair.difference(feeds) or found.difference)


def _looked(
    rules: Rules, instance: Instance, way: Way | None, rng: np.random.Generator, manners: Sequence[Manner]
) -> WrongInstance | None:
    """The instance with its first difference, on inputs of some manners."""
    if elements_of(instance) > ELEMENTS:
        return None
    mistyped = _types(instance)
    if mistyped:
        return WrongInstance(instance, mistyped) if way in {None, "types"} else None
    pair = pair_of(rules, instance.inputs, *instance.sides)
    if not pair or pair.left == pair.right:
        return None
    undefined = None
    for manner in [*manners] * (1 if way else TURNS):
        difference = pair.difference(feeds_of(pair, manner, rng))
        if difference is not None and way in {None, difference.way}:
            found = WrongInstance(instance, difference, manner)
            if way is not None or difference.way != "undefined":
                return found
            undefined = undefined or found
    return undefined


def elements_of(instance: Instance) -> int:
    """Elements of all inputs and results."""
    values = (*instance.inputs, *instance.left.values(), *instance.right.values())
    return sum(int(str(value.type.elements)) for value in values)


def _size(instance: Instance) -> int:
    return elements_of(instance) + _total(instance.drawn)


Found = TypeVar("Found")


NEGATIVE = 5  #: how much harder to read a negative number is
EVERY = 13  #: size up to which every size is tried


def smaller_names(
    found: Found,
    names: Callable[[Found], Mapping[str, Any]],
    again: Callable[[Mapping[str, Any]], Found | None],
    tries: int = 200,
) -> Found:
    """The same difference with smaller names: `again` looks for it where some names are given, and has it or None.

    `tries`: how often it looks, at most, so that every run finds the same.
    """
    changed = True
    while changed:
        changed = False
        for name, value in dict(names(found)).items():
            for other in smaller(value):
                if measure(other) >= measure(names(found).get(name)):
                    continue
                if tries <= 0:
                    return found
                tries -= 1
                new = again({**names(found), name: other})
                if new is not None and _total(names(new)) < _total(names(found)):
                    found, changed = new, True
                    break
    return found


def smaller_elements(feeds: Feeds, wrong: Callable[[Feeds], bool], tries: int = 400) -> Feeds:
    """Inputs for which the sides still differ, with as many zeros, then ones and other small numbers as `tries` find."""
    feeds = dict(feeds)
    for value in feeds:
        zeros = np.zeros_like(feeds[value])
        if feeds[value].any() and wrong({**feeds, value: zeros}):
            feeds[value] = zeros
    for value, array in list(feeds.items()):
        for at in np.ndindex(array.shape):
            for other in _elements(feeds[value][at]):
                if tries <= 0:
                    return feeds
                tries -= 1
                new = feeds[value].copy()
                new[at] = other
                if wrong({**feeds, value: new}):
                    feeds[value] = new
                    break
    return feeds


def _elements(item: Any) -> Iterator[Any]:
    """Simpler numbers of the same type, the simplest first."""
    if item.dtype.kind == "b":
        if item:
            yield item.dtype.type(False)
        return
    whole = item.dtype.kind in "iu" or float(item) == np.round(float(item))
    for other in (0, 1, -1, 2, 3, 5):
        fits = other >= 0 or item.dtype.kind != "u"
        if fits and (not whole or abs(other) < abs(int(item)) or other == -int(item) > 0):
            yield item.dtype.type(other)
    if not whole and abs(float(item)) < 1e6:
        yield item.dtype.type(round(float(item)))


def smaller(value: Any) -> Iterator[Any]:
    """Smaller values of a name, the smallest first."""
    if isinstance(value, bool):
        if value:
            yield False
    elif isinstance(value, int):
        for other in (
            0,
            1,
            -1,
            2,
            -2,
            value // 2,
            *range(3, min(value, EVERY)),
            value - 1 if value > 0 else value + 1,
        ):
            if measure(other) < measure(value):
                yield other
    elif isinstance(value, Fraction):
        for fraction in (*map(Fraction, (0, 1, -1, 2, -2, round(value))), Fraction(1, 2), Fraction(-1, 2)):
            if measure(fraction) < measure(value):
                yield fraction
    elif isinstance(value, tuple):
        for k in range(len(value)):
            yield (*value[:k], *value[k + 1 :])
        for k, item in enumerate(value):
            for other in smaller(item):
                yield (*value[:k], other, *value[k + 1 :])
    elif isinstance(value, AttrSet):
        for name, item in value.values.items():
            for other in smaller(item):
                yield AttrSet({**value.values, name: other})


def measure(value: Any) -> int:
    """The size of a value to a reader."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return 2 * abs(value) + NEGATIVE * (value < 0)
    if isinstance(value, Fraction):
        return 2 * abs(value.numerator) + NEGATIVE * (value < 0) + 4 * (value.denominator - 1)
    if isinstance(value, tuple):
        return sum(2 + measure(item) for item in value)
    if isinstance(value, AttrSet):
        return sum(map(measure, value.values.values()))
    return 0


def _total(names: Mapping[str, Any]) -> int:
    return sum(map(measure, names.values()))
