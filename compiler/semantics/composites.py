"""Operators that only abbreviate: a composite of other operators which no model holds, because ONNX has no name for it.

Patterns see through them, and what a rule builds with them is spelled out before it goes into a graph.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from itertools import product

from dslc.ir.graph import Call, Node, Values, rebuild, with_args
from dslc.semantics.checks.terms import substituted
from dslc.semantics.definitions import OperatorDef, SubstitutionDef
from dslc.semantics.elaborate import elaborate
from dslc.semantics.library import Rules, rules_cache
from dslc.semantics.walk import conditions_in, nodes
from dslc.syntax import tree as t


def abbreviates(rules: Rules, op: OperatorDef) -> bool:
    """Return whether an operator only stands for a graph of others and has no ONNX mapping of its own."""
    cache = rules_cache(rules, "abbreviates")
    found = cache.get(op.name)
    if found is None:
        found = cache[op.name] = _abbreviates(op)
    return bool(found)


def _abbreviates(op: OperatorDef) -> bool:
    if any(isinstance(s, t.OnnxMap) for s in op.statements):
        return False
    bodies = bodies_of(op)
    return all(output.name in bodies and _is_graph(op, bodies[output.name][0]) for output in op.outputs)


def bodies_of(op: OperatorDef) -> dict[str, tuple[t.Expr, int]]:
    """Bodies of the names without indices (`let`s and outputs), and the index among several results."""
    out: dict[str, tuple[t.Expr, int]] = {}
    for statement in op.statements:
        if isinstance(statement, t.Let | t.Equation) and statement.target.places is None:
            out[statement.target.name] = (statement.value, 0)
        elif isinstance(statement, t.LetMany | t.EquationMany):
            out.update({name: (statement.value, k) for k, name in enumerate(statement.names)})
    return out


def _is_graph(op: OperatorDef, expr: t.Expr) -> bool:
    if isinstance(expr, t.Conditional):
        return _is_graph(op, expr.then) and _is_graph(op, expr.otherwise)
    if isinstance(expr, t.Name):
        body = bodies_of(op).get(expr.id)
        return any(p.name == expr.id for p in op.params) or (body is not None and _is_graph(op, body[0]))
    return isinstance(op.module.called(expr), OperatorDef)


def spelled_out(rules: Rules, outputs: Values) -> Values:
    """The values with every abbreviating operator replaced by what it stands for.

    Raises:
        Mismatch, EvalError
    """
    return rebuild(outputs, lambda node, args: _spelled(rules, node, args))


def _spelled(rules: Rules, node: Node, args: Values) -> Values:
    if not isinstance(node, Call) or not abbreviates(rules, rules.operator(node.op)):
        return with_args(node, args)
    instance = elaborate(rules, node.op, tuple(arg.type for arg in args), node.attrs)
    known = dict(zip(instance.params, args, strict=True))
    return rebuild(instance.outputs, lambda below, inner: _spelled(rules, below, inner), known)


# ---- modes ---------------------------------------------------------------------------------------------------------


def modes_of(op: OperatorDef) -> Mapping[str, tuple[t.Expr, ...]]:
    """The attributes that choose between graphs, with every value that the guards allow: bools, and strings of `where a in [...]`."""
    out: dict[str, tuple[t.Expr, ...]] = {}
    for attr in op.attrs:
        if attr.type.name == "bool" and attr.type.dims is None:
            out[attr.name] = tuple(t.Name(word, span=attr.span) for word in ("false", "true"))
        elif attr.type.name == "string":
            out[attr.name] = _listed(op, attr.name)
    return {name: values for name, values in out.items() if values}


def _listed(op: OperatorDef, name: str) -> tuple[t.Expr, ...]:
    for condition in conditions_in(op.statements):
        match condition:
            case t.Compare((t.Name(found), t.ListExpr(elements)), ("in",)) if found == name:
                return tuple(e for e in elements if isinstance(e, t.Str))
    return ()


def with_modes_chosen(rules: Rules, definition: SubstitutionDef) -> tuple[SubstitutionDef, ...]:
    """A rule whose abbreviating operators have variables as modes (`activation=c`), once for each choice of their values.

    before: Y = taso.conv(X, K, activation=c)   after: ... activation="none" ..., and ... activation="relu" ...
    """
    choices: dict[str, tuple[t.Expr, ...]] = {}
    for node in nodes(t.Call, (definition.syntax.left, definition.syntax.right)):
        found = definition.module.called(node)
        if not isinstance(found, OperatorDef) or not abbreviates(rules, found):
            continue
        modes = modes_of(found)
        for keyword in node.kwargs:
            value = keyword.value
            if keyword.name in modes and isinstance(value, t.Name) and value.id not in {"true", "false"}:
                choices.setdefault(value.id, modes[keyword.name])
    if not choices:
        return (definition,)
    tables = (dict(zip(choices, values, strict=True)) for values in product(*choices.values()))
    return tuple(dataclasses.replace(definition, syntax=substituted(definition.syntax, table)) for table in tables)
