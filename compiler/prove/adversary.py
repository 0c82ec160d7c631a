"""Refutation of rules that are not proved for everything, at instances that look for mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

import numpy as np

from dslc.interpret.adversary import differing
from dslc.interpret.domain import Redraw
from dslc.interpret.floats import Floats
from dslc.interpret.instantiate import show
from dslc.interpret.run import InterpretError
from dslc.ir.dtype import DType
from dslc.prove.counterexample import sides, smaller_counterexample, trace
from dslc.prove.verdict import Counterexample, Types
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.library import Rules

INSTANCES = 16  #: instances of one rule


def refutation(
    rules: Rules,
    sub: SubstitutionDef,
    types: Types,
    seed: int = 0,
    share: float = 1.0,
    small: bool = True,
    near: Mapping[str, Any] | None = None,
) -> Counterexample | None:
    """The first difference between the sides that some instances show, with all intermediates; None where they show none.

    `share`: of the usual number of instances; `small`: whether a smaller one is looked for; `near`: what names stand for in the first
    instances, those that a prover left open.
    """
    rng, count = np.random.default_rng(seed), ceil(share * INSTANCES)
    wrong = differing(rules, sub, rng, count, types.dtypes[:1] or (DType.F32,), types.at, near)
    if wrong is None:
        return None
    instance, one = wrong.instance, wrong.difference
    found = smaller_counterexample(rules, sub, instance, one.way) if small else None
    if found is not None:
        return found
    names, left, right = sides(instance)
    try:
        steps = trace(rules, left, right, names, one.feeds, Floats(rounded=False)) if one.way == "values" else ""
    except (InterpretError, Redraw):
        steps = ""
    drawn = {name: show(value) for name, value in instance.drawn.items()}
    return Counterexample(drawn, names[one.output], one.position, one.left, one.right, trace=steps)
