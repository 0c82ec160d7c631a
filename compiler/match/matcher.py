"""Finding the places of a graph where a rule applies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dslc.errors import DslcError
from dslc.ir.graph import Value
from dslc.match.describe import show
from dslc.match.guards import environment, freeze, solve_state
from dslc.match.index import Index
from dslc.match.names import free_names
from dslc.match.rule import CompiledRule
from dslc.match.state import State
from dslc.match.structure import Structure
from dslc.match.trace import Trace
from dslc.semantics.env import Env, Mismatch, Unbound
from dslc.semantics.evaluate import evaluate
from dslc.syntax import tree as t


@dataclass(frozen=True, eq=False)
class Match:
    """One place where a rule applies, with a value for every name.

    `roots` are the values that would be replaced, by the names of the rule's outputs; `choice` the values of `search` parameters.
    """

    rule: CompiledRule
    index: Index
    roots: tuple[tuple[str, Value], ...]
    names: Mapping[str, Any]
    choice: Mapping[str, Any]
    state: State

    @property
    def variables(self) -> Mapping[str, Value]:
        return self.state.values

    def env(self) -> Env:
        """A fresh environment with all names of the match."""
        env = environment(self.rule, self.state, self.names)
        for name, value in self.choice.items():
            env.bind(name, value)
        return env

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for equal matches: the same rule at the same place with the same values."""
        variables = tuple(sorted(self.state.values.items(), key=lambda item: item[0]))
        names = tuple(sorted((name, freeze(value)) for name, value in self.choice.items()))
        return (self.rule.name, tuple(value for _, value in self.roots), variables, names)

    def __str__(self) -> str:
        places = ", ".join(f"{name} = node {self.index.position[value.node]}" for name, value in self.roots)
        return f"{self.rule.name} at {places}"


def find_matches(
    rule: CompiledRule,
    index: Index,
    *,
    limit: int | None = None,
    constants: bool = False,
    trace: Trace | None = None,
) -> Iterator[Match]:
    """The matches of a rule, lazily and in a deterministic order; no two are equal.

    Args:
        limit: at most so many.
        constants: also where only weights are computed, which costs nothing when the model runs.
        trace: is told how far every failing place came.
    """
    seen: set[Any] = set()
    count = 0
    for state in Structure(rule, index, trace).states():
        roots = _roots(rule, state)
        if not constants and all(value.constant for _, value in roots):
            if trace is not None:
                trace.refused(state, "only weights are computed there, which costs nothing at run time", rule.span, ())
            continue
        variables = tuple(sorted(state.values.items(), key=lambda item: item[0]))
        identity = (tuple(value for _, value in roots), _chosen(state), variables)
        if identity in seen:
            continue
        seen.add(identity)
        try:
            names = solve_state(rule, state)
            choices = list(_choices(rule, state, names))
        except Mismatch as problem:
            if trace is not None:
                trace.refused(state, problem.reason, problem.span, _values(rule, state, problem))
            continue
        except (DslcError, Unbound) as problem:
            if trace is not None:
                trace.refused(state, str(problem), rule.span, ())
            continue
        for choice in choices:
            yield Match(rule, index, roots, names, choice, state)
            count += 1
            if limit is not None and count >= limit:
                return


def _chosen(state: State) -> Any:
    return tuple((site, frozenset(wrap.operands[k] for k in wrap.chosen)) for site, wrap in state.wraps.items())


def _roots(rule: CompiledRule, state: State) -> tuple[tuple[str, Value], ...]:
    out = []
    for name, pattern in rule.left.roots:
        wrap = state.wraps.get(pattern.site)
        # of a longer associative call the whole is replaced
        value = wrap.node.values[0] if wrap is not None else state.results[pattern.site][pattern.output]
        out.append((name, value))
    return tuple(out)


def _choices(rule: CompiledRule, state: State, names: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every combination of the values of `search` parameters."""
    searches = [s for s in rule.right if isinstance(s, t.Search)]

    def go(k: int, env: Env, chosen: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if k == len(searches):
            yield chosen
            return
        domain = evaluate(searches[k].domain, env)
        for value in domain if isinstance(domain, tuple) else (domain,):
            inner = env.child()
            inner.bind(searches[k].name, value)
            yield from go(k + 1, inner, {**chosen, searches[k].name: value})

    if not searches:
        yield {}
        return
    yield from go(0, environment(rule, state, names), {})


def _values(rule: CompiledRule, state: State, problem: Mismatch) -> tuple[tuple[str, str], ...]:
    """The names of the guard that failed, with their values."""
    failed = next((c for c in rule.conditions if problem.span is not None and c.span == problem.span), None)
    if failed is None:
        return ()
    env = environment(rule, state, state.names)
    from dslc.semantics.types import solve

    pairs = [(type, state.values[name].type) for name, type in rule.types.items() if name in state.values]
    with contextlib.suppress(Mismatch, Unbound, DslcError):
        solve(pairs, [c for c in rule.conditions if c is not failed], env)
    out = []
    for name in sorted(free_names(failed, rule.functions)):
        try:
            out.append((name, show(env.get(name))))
        except (Mismatch, Unbound, DslcError):
            continue
    return tuple(out)
