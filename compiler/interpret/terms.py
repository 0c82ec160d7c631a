"""Operators for the terms of a rule (`term f(X)`): those that take as many tensors and are what the guards want."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from dslc.semantics.definitions import OperatorDef, SubstitutionDef
from dslc.semantics.library import Rules
from dslc.semantics.shape_free import is_linear, is_pointwise
from dslc.syntax import tree as t


def term_options(rules: Rules, sub: SubstitutionDef) -> dict[str, list[OperatorDef]]:
    """For each term of a rule the operators that have as many tensors and are what the guards want."""
    signatures = [s for stmt in sub.syntax.left if isinstance(stmt, t.TermDecl) for s in stmt.signatures]
    conditions = [c for s in sub.syntax.left if isinstance(s, t.Where) for c in s.conditions]
    options: dict[str, list[OperatorDef]] = {}
    for signature in signatures:
        wanted = {c.function for c in conditions if isinstance(c, t.Call) and _names(c) == [signature.name]}
        options[signature.name] = [
            op
            for op in rules.operators.values()
            if len(op.syntax.params) == len(signature.params)
            and len(op.syntax.outputs) == 1
            and ("pointwise" not in wanted or is_pointwise(op, rules))
            and ("linear" not in wanted or is_linear(op, rules))
        ]
    return options


def term_choices(
    rules: Rules, sub: SubstitutionDef, rng: np.random.Generator, count: int
) -> Iterator[Mapping[str, OperatorDef]]:
    """Operators for the terms of a rule: some of those that fit."""
    options = term_options(rules, sub)
    drawn = [[fitting[int(k)] for k in rng.permutation(len(fitting))[:count]] for fitting in options.values()]
    for choice in itertools.islice(itertools.product(*drawn), count):
        yield dict(zip(options, choice, strict=True))


def _names(call: t.Call) -> list[str]:
    return [arg.id for arg in call.args if isinstance(arg, t.Name)]
