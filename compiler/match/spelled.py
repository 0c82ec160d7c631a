"""Patterns see through operators that only abbreviate: the pieces that need no graph."""

from __future__ import annotations

from dslc.errors import DslcError
from dslc.match.pattern import Frame
from dslc.semantics.composites import bodies_of
from dslc.semantics.definitions import OperatorDef
from dslc.semantics.env import Env, Mismatch, Unbound
from dslc.semantics.evaluate import evaluate, truth
from dslc.semantics.library import Rules
from dslc.syntax import tree as t


def inside(op: OperatorDef, expr: t.Call, caller: Frame) -> Frame | str:
    """The frame of an abbreviating operator's statements for one call, or why the call is no pattern."""
    params = op.syntax.params
    if len(expr.args) > len(params) or expr.rest is not None or any(isinstance(arg, t.Pack) for arg in expr.args):
        return f"`{op.short}` is spelled out, which takes {len(params)} tensors and every attribute by its name"
    arguments: dict[str, t.Expr] = {p.name: p.default for p in params if p.default is not None}
    arguments |= {attr.name: attr.default for attr in op.attrs if attr.default is not None}
    arguments |= {p.name: arg for p, arg in zip(params, expr.args, strict=False)}
    names = {*(p.name for p in params), *(attr.name for attr in op.attrs)}
    for keyword in expr.kwargs:
        if keyword.name not in names:
            return f"`{op.short}` has no attribute `{keyword.name}`"
        arguments[keyword.name] = keyword.value
    missing = sorted(names - set(arguments))
    if missing:
        return f"`{op.short}` needs `{missing[0]}`"
    return Frame(op.module, arguments, caller, op, bodies_of(op))


def chosen(rules: Rules, expr: t.Conditional, frame: Frame) -> t.Expr | None:
    """The branch that the attributes of the call choose, None where they don't say."""
    env = Env(frame.module, rules)
    for name, argument in frame.arguments.items():
        value = _constant(rules, argument, frame.caller)
        if value is not None:
            env.bind(name, value)
    try:
        held = truth(evaluate(expr.condition, env))
    except (Unbound, Mismatch, DslcError):
        return None
    return expr.then if held is True else expr.otherwise if held is False else None


def _constant(rules: Rules, expr: t.Expr, frame: Frame | None) -> object:
    """The value of an argument that no match changes."""
    while isinstance(expr, t.Name) and frame is not None and frame.caller is not None and expr.id in frame.arguments:
        expr, frame = frame.arguments[expr.id], frame.caller
    if isinstance(expr, t.Str | t.Int) or (isinstance(expr, t.Name) and expr.id in {"true", "false"}):
        return evaluate(expr, Env(frame.module, rules)) if frame is not None else None
    return None
