"""Instances that look for mistakes: sizes, ranks and numbers around those that a rule names, and elements of every manner.

The other provers look at what is general; what is left of a rule that they do not prove for everything is tried here, with integers
as their type computes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from dslc.interpret.check_rule import term_options
from dslc.interpret.differ import Difference, Pair, feeds_of, pair_of
from dslc.interpret.domain import Redraw
from dslc.interpret.draws import MANNERS, adversarial
from dslc.interpret.exact import Exact
from dslc.interpret.floats import Floats
from dslc.interpret.instantiate import Instance, Rejected, instantiate, show
from dslc.interpret.run import InterpretError, run_scopes
from dslc.ir.dtype import DType
from dslc.ir.graph import Value
from dslc.prove.counterexample import trace, types_differ
from dslc.prove.verdict import Counterexample, Types
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.library import Rules
from dslc.semantics.values import numbers_of

INSTANCES = 16
# draws of names in all, elements of an instance, and manners of its inputs
_ATTEMPTS, _ELEMENTS, _MANNERS = 160, 20_000, 3
# what is larger than what floats round
_CLEAR = 1e-3


def refutation(rules: Rules, sub: SubstitutionDef, types: Types, seed: int = 0, instances: int = INSTANCES) -> Counterexample | None:
    """The first difference between the sides that some instances show; None where they show none.

    Elements for which one side only has no finite value are no difference: a rule speaks of numbers.
    """
    rng = np.random.default_rng(seed)
    near, options = numbers_of(sub), term_options(rules, sub)
    if sub.syntax.partial or not all(options.values()):
        return None
    found = 0
    for _ in range(_ATTEMPTS):
        if found == instances:
            break
        terms = {name: fitting[int(rng.integers(len(fitting)))] for name, fitting in options.items()}
        draws = adversarial(near, rng)
        try:
            instance = instantiate(rules, sub, rng, terms, types.dtypes[:1] or (DType.F32,), types.at, draws)
        except (Rejected, ArithmeticError):
            continue
        if _elements(instance) > _ELEMENTS:
            continue
        found += 1
        wrong = _compared(rules, sub, instance, rng)
        if wrong is not None:
            return wrong
    return None


def _compared(rules: Rules, sub: SubstitutionDef, instance: Instance, rng: np.random.Generator) -> Counterexample | None:
    drawn = {name: show(value) for name, value in instance.drawn.items()}
    mistyped = types_differ(instance, drawn)
    if mistyped is not None:
        return mistyped
    names = tuple(instance.left)
    left, right = (tuple(side[name] for name in names) for side in (instance.left, instance.right))
    pair = pair_of(rules, instance.inputs, left, right)
    if pair is None or pair.left == pair.right:
        return None
    others = MANNERS[2:]
    for manner in (*MANNERS[:2], *(others[int(rng.integers(len(others)))] for _ in range(_MANNERS - 2))):
        feeds = feeds_of(pair, manner, rng, numbers_of(sub).every, mixed=bool(rng.random() < 0.2))
        one = pair.difference(feeds)
        if one is None or one.way == "undefined" or (one.way == "values" and not _certain(pair, one)):
            continue
        try:
            steps = trace(rules, left, right, names, one.feeds, Floats(rounded=False))
        except (InterpretError, Redraw):
            steps = ""
        return Counterexample(drawn, names[one.output], one.position, one.left, one.right, trace=steps)
    return None


def _certain(pair: Pair, one: Difference) -> bool:
    """Whether a difference is none of rounding: it is there over the fractions too, or large where these cannot tell."""
    left, right = pair.left[one.output], pair.right[one.output]
    if not left.type.dtype.is_float:
        return True
    try:
        a, b = (result[one.position] for result in run_scopes((left, right), _fractions(one.feeds), Exact()))
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            return a != b
    except (Redraw, InterpretError, ArithmeticError, ValueError):
        pass
    x, y = float(one.left), float(one.right)
    return abs(x - y) > _CLEAR * max(abs(x), abs(y))


def _fractions(feeds: Mapping[Value, Any]) -> Mapping[Value, Any]:
    return {value: Exact().encode(np.asarray(array), value.type.dtype) if value.type.dtype.is_float else array
            for value, array in feeds.items()}  # fmt: skip


def _elements(instance: Instance) -> int:
    values = (*instance.inputs, *instance.left.values(), *instance.right.values())
    return sum(int(str(value.type.elements)) for value in values)
