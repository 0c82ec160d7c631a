"""Instances that look for mistakes: sizes, ranks and numbers around those that a rule names, and elements of every manner.

Integers are computed as their type does. What is found is a difference of numbers: elements for which one side has no finite value
are none, and what may be rounding is looked at over the fractions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dslc.interpret.differ import Difference, PairOfLists, feeds_of, pair_of
from dslc.interpret.draws import MANNERS, adversarial
from dslc.interpret.instantiate import Instance, Rejected, instantiate
from dslc.interpret.smallest import elements_of
from dslc.interpret.terms import term_options
from dslc.ir.dtype import DType
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.library import Rules
from dslc.semantics.values import numbers_of

ATTEMPTS = 8  #: draws of names for one instance that counts
ELEMENTS = 20_000  #: elements of an instance
ADVERSARY_MANNERS = 3  #: manners of its inputs
FIRST = 12  #: draws that begin with given names
SEEN = 2  #: instances with lists of the same lengths that are welcome
CLEAR = 1e-3  #: share by which numbers differ by more than what floats round


@dataclass(frozen=True, slots=True)
class WrongInstance:
    """An instance, and the first element (or type) in which its sides differ."""

    instance: Instance
    difference: Difference

    def __str__(self) -> str:
        one = self.difference
        lines = [str(self.instance)]
        for value, array in one.feeds.items():
            if np.size(array) <= 16:
                lines.append(
                    f"{getattr(value.node, 'name', '?')} = {np.array2string(np.asarray(array), separator=', ')}"
                )
        place = f"{tuple(self.instance.left)[one.output]}{list(one.position)}" if one.way == "values" else "it"
        return "\n".join((*lines, f"{place} is {one.left} on the left, {one.right} on the right"))


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
        if mistyped is not None:
            return WrongInstance(instance, mistyped)
        pair = pair_of(
            rules, instance.inputs, tuple(instance.left.values()), tuple(instance.right[name] for name in instance.left)
        )
        if pair is None or pair.left == pair.right:
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
    for k, (name, left) in enumerate(instance.left.items()):
        right = instance.right[name]
        if left.type != right.type:
            return Difference("types", k, (), str(left.type), str(right.type), {})
    return None


def _certain(pair: PairOfLists, one: Difference) -> bool:
    """Whether a difference is none of rounding: it is there over the fractions too, or large where these cannot tell."""
    if not pair.left[one.output].type.dtype.is_float:
        return True
    exact = pair.exactly(one.feeds, one.output, one.position)
    if exact is not None:
        return exact
    x, y = float(one.left), float(one.right)
    return abs(x - y) > CLEAR * max(abs(x), abs(y))
