"""Operators for the terms of a rule (`term f(X)`): those that take as many tensors and are what the guards want."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from dslc.inspection.samples import sample
from dslc.ir.graph import Call
from dslc.semantics.definitions import OperatorDef, SubstitutionDef
from dslc.semantics.env import EvalError, Mismatch, Unbound
from dslc.semantics.library import Rules, rules_cache
from dslc.semantics.linear import linear_at
from dslc.semantics.shape_free import is_pointwise
from dslc.syntax import tree as t


def term_options(rules: Rules, sub: SubstitutionDef) -> dict[str, list[OperatorDef]]:
    """For each term of a rule the operators that have as many tensors and are what the guards want."""
    signatures = [s for stmt in sub.syntax.left if isinstance(stmt, t.TermDecl) for s in stmt.signatures]
    options: dict[str, list[OperatorDef]] = {}
    for signature in signatures:
        wanted = {c.function for c in _conditions(sub) if _names(c) == [signature.name]}
        options[signature.name] = [
            op
            for op in rules.operators.values()
            if len(op.syntax.params) == len(signature.params)
            and len(op.syntax.outputs) == 1
            and ("pointwise" not in wanted or is_pointwise(op, rules))
            and ("linear" not in wanted or _may_be_linear(rules, op))
        ]
    return options


def term_choices(
    rules: Rules, sub: SubstitutionDef, rng: np.random.Generator, count: int
) -> Iterator[Mapping[str, OperatorDef]]:
    """Operators for the terms of a rule: some of those that fit, by turns those that tell more apart, and any."""
    options = term_options(rules, sub)
    linear = {name for c in _conditions(sub) if c.function == "linear" for name in _names(c)}
    drawn = []
    for name, fitting in options.items():
        order = [fitting[int(k)] for k in rng.permutation(len(fitting))]
        telling = [op for op in order if _tells(op, name in linear)]
        turns = [op for pair in itertools.zip_longest(telling, order) for op in pair if op is not None]
        drawn.append(list(dict.fromkeys(turns))[:count])
    for choice in itertools.islice(itertools.product(*drawn), count):
        yield dict(zip(options, choice, strict=True))


def _may_be_linear(rules: Rules, op: OperatorDef) -> bool:
    """Whether an operator is linear in some use; whether it is in an instance is asked of that."""
    cache = rules_cache(rules, "linear in a sample")
    if op.name not in cache:
        try:
            node = sample(rules, op)[0].node
        except (Mismatch, EvalError, Unbound):
            node = None
        cache[op.name] = isinstance(node, Call) and linear_at(rules, node, len(node.args))
    return bool(cache[op.name])


def _tells(op: OperatorDef, linear: bool) -> bool:
    """Whether an operator has attributes, which a rule may mix up, or (`linear`) computes more than it moves."""
    if not linear:
        return bool(op.attrs)
    return not all(_moves(s.value) for s in op.syntax.statements if isinstance(s, t.Equation))


def _moves(value: t.Expr) -> bool:
    """Whether an element of the result is an element of a tensor, or a number."""
    if isinstance(value, t.Conditional):
        return _moves(value.then) and _moves(value.otherwise)
    return isinstance(value, t.Subscript | t.Name | t.Int | t.Float)


def _conditions(sub: SubstitutionDef) -> list[t.Call]:
    """The guards that are calls."""
    return [c for s in sub.syntax.left if isinstance(s, t.Where) for c in s.conditions if isinstance(c, t.Call)]


def _names(call: t.Call) -> list[str]:
    return [arg.id for arg in call.args if isinstance(arg, t.Name)]
