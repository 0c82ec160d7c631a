"""Applying a match: the right side is built, and the terms above the replaced values are built again."""

from __future__ import annotations

from typing import Any

from dslc.errors import DslcError
from dslc.ir.constants import fill
from dslc.ir.graph import Graph, Value
from dslc.match.associative import unwrap
from dslc.match.guards import bind_local, scope_of
from dslc.match.index import GraphIndex
from dslc.match.matcher import Match
from dslc.semantics.composites import spelled_out
from dslc.semantics.env import Env, Mismatch, Outputs, Unbound
from dslc.semantics.evaluate import evaluate, truth
from dslc.semantics.types import shape_of
from dslc.syntax import tree as t


class Refused(Exception):
    """Why a match was not applied."""


def apply_match(match: Match, graph: Graph) -> Graph | None:
    """The graph with the match's results replaced, or None.

    None where the replacement would depend on what it replaces (a cycle), where it cannot be built or has another type, where a guard
    of the right side fails, and where nothing would change. Other users of intermediates keep them.
    """
    try:
        return replaced(match, graph)
    except Refused:
        return None


def replaced(match: Match, graph: Graph) -> Graph:
    """As `apply_match`.

    Raises:
        Refused: with the reason.
    """
    index = match.index
    if not isinstance(index, GraphIndex) or index.graph is not graph:
        index = GraphIndex(graph)
        if any(value.node not in index.position for _, value in match.roots):
            raise Refused("the graph does not hold what was matched")
    new = replacements(match)
    changed = {old: value for old, value in new.items() if old != value}
    if not changed:
        raise Refused("the replacement is what stands there already")
    if len(match.roots) > 1 and any(index.depends(value, old) for value in changed.values() for old in changed):
        raise Refused("the replacement would depend on a result that it replaces: a cycle")
    out = index.rebuilt(changed)
    if out.outputs == graph.outputs:
        raise Refused("nothing that the graph computes would change")
    return out


def replacements(match: Match) -> dict[Value, Value]:
    """The new value of every replaced one.

    Raises:
        Refused: the right side has no value here, or one of another type.
    """
    try:
        env = _build(match)
        out: dict[Value, Value] = {}
        for (name, old), (_, pattern) in zip(match.roots, match.rule.left.roots, strict=True):
            found = env.get(name)
            wrap = match.state.wraps.get(pattern.site)
            expected = match.state.results[pattern.site][pattern.output]
            if not isinstance(found, Value):
                found = _number(found, expected)
            if not found.known or found.type != expected.type:
                raise Refused(f"`{name}` would be {found.type if found.known else 'unknown'}, and is {expected.type}")
            if wrap is not None:
                whole = unwrap(match.rule.rules, wrap, found)
                if whole is None or whole.type != old.type:
                    raise Refused(f"`{name}` does not go back into the longer `{wrap.node.op}`")
                found = whole
            out[old] = found
        return dict(zip(out, spelled_out(match.rule.rules, tuple(out.values())), strict=True))
    except Mismatch as problem:
        raise Refused(problem.reason) from None
    except Unbound as problem:
        raise Refused(f"nothing binds `{problem.name}`") from None
    except DslcError as problem:
        raise Refused(problem.diagnostics[0].message if problem.diagnostics else "the right side has no value") from None


def _number(value: Any, like: Value) -> Value:
    if isinstance(value, tuple) or not like.known:
        raise Refused("the right side gives no tensor")
    return fill(value, like.type)


def _build(match: Match) -> Env:
    """Runs the statements of the right side in their order."""
    rule = match.rule
    env = match.env().child()
    bind_local([s for s in rule.right if isinstance(s, t.Function)], (), env)
    for statement in rule.right:
        if isinstance(statement, t.Let | t.LetMany):
            bind_local((), (statement,), env)
        elif isinstance(statement, t.Const):
            env.bind(statement.target.name, _constant(statement, env))
        elif isinstance(statement, t.Where) and not rule.reverse:
            for condition in statement.conditions:
                if truth(evaluate(condition, env)) is not True:
                    raise Refused(f"`{condition.span.text}` does not hold")
        elif isinstance(statement, t.Bind):
            value = evaluate(statement.value, env)
            if len(statement.names) == 1:
                if isinstance(value, Outputs):
                    raise Refused("a call with several results stands for one")
                env.bind(statement.names[0], value)
                continue
            if not isinstance(value, tuple) or len(value) != len(statement.names):
                count = len(value) if isinstance(value, tuple) else 1
                raise Refused(f"{len(statement.names)} names for {count} results")
            for name, part in zip(statement.names, value, strict=True):
                env.bind(name, part)
    return env


def _constant(statement: t.Const, env: Env) -> Value:
    """`const K[f, c]: T[F, C] = e`: a scope without operands; iterators range over the declared dimensions."""
    from dslc.semantics.scopes import build_scope

    type = shape_of(statement.type, env)
    if statement.target.places is None:
        value = evaluate(statement.value, env)
        if isinstance(value, Value):
            return value
        return fill(value, type)
    value = build_scope(statement.target.places, statement.value, None, env, type.dtype, statement.type.dims)
    if value.type != type:
        raise Refused(f"the constant `{statement.target.name}` is {value.type}, declared {type}")
    return value


__all__ = ["Refused", "apply_match", "replaced", "replacements", "scope_of"]
