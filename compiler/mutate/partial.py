"""Partial substitutions written by hand: what they make of a region is a mutant, and is tested and corrected like the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from math import isfinite

from dslc.errors import DslcError
from dslc.ir.graph import Call, Graph, Node, Value
from dslc.ir.holes import abstracted, leaves_of
from dslc.match import CompiledRule, GraphIndex, Match, Refused, compile_directions, find_matches, replacements
from dslc.mutate.correct import SHARE as CORRECT_SHARE
from dslc.records import record
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.env import Env, Mismatch, Unbound
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import Rules
from dslc.syntax import tree as t


@record
class PartialRule:
    """A partial substitution as one that is matched, and the share of the result that may be corrected, which sizes may decide.

    `own`: the same with the author's own correction for what the right side gives; None: `correct auto`.
    """

    definition: SubstitutionDef
    rule: CompiledRule
    limit: t.Expr | None
    own: CompiledRule | None = None


@record
class PartialMutant:
    """A region after a partial substitution: the mutant, the largest share that may be corrected.

    `own`: the author's own correction, where there is one.
    """

    rule: str
    value: Value
    limit: float
    own: Value | None = None


def compiled(rules: Rules, definitions: Iterable[SubstitutionDef]) -> tuple[PartialRule, ...]:
    """The partial substitutions among some, each direction."""
    found = []
    for definition in definitions:
        syntax = definition.syntax
        if not syntax.partial:
            continue
        corrections = [one for one in syntax.statements if isinstance(one, t.Correct)]
        left, right = (
            tuple(one for one in side if not isinstance(one, t.Correct)) for side in (syntax.left, syntax.right)
        )
        own = tuple(one.what for one in corrections if isinstance(one.what, t.Bind))
        limit = next((one.limit for one in corrections if one.limit), None)
        # a correction may use all that both sides bind, so it stands behind the right side, and what it gives is the result
        every, owns = (
            _directions(rules, definition, left, right),
            _directions(rules, definition, left, (*right, *own)) if own else (),
        )
        found += [PartialRule(definition, rule, limit, owns[k] if owns else None) for k, rule in enumerate(every)]
    return tuple(found)


def _directions(
    rules: Rules, definition: SubstitutionDef, left: tuple[t.GraphStatement, ...], right: tuple[t.GraphStatement, ...]
) -> tuple[CompiledRule, ...]:
    syntax = replace(definition.syntax, partial=False, left=left, right=right)
    return compile_directions(rules, replace(definition, syntax=syntax))


def applied(rules: Rules, every: Iterable[PartialRule], region: Graph) -> Iterator[PartialMutant]:
    """Mutants of a region of one result by partial substitutions, by the one matcher."""
    (old,) = region.outputs
    index = GraphIndex(region)
    for each in every:
        owns = {match.key: match for match in find_matches(each.own, index)} if each.own else {}
        for match in find_matches(each.rule, index):
            new = _replaced(match, old)
            if not new or new == old:
                continue
            own = _replaced(owns[match.key], old) if match.key in owns else None
            if not each.own or own:
                # where the correction gives nothing else than the right side, the author leaves this result to `auto`
                yield PartialMutant(each.rule.name, new, _limit(rules, each, match), own if own != new else None)


def sites(every: Iterable[PartialRule], graph: Graph) -> Iterator[tuple[Graph, tuple[Call, ...]]]:
    """The matches of partial substitutions in a graph, each result of theirs alone, each once: what is computed, and its calls."""
    index = GraphIndex(graph)
    seen: set[tuple[Node, frozenset[Node]]] = set()
    for each in every:
        for match in find_matches(each.rule, index):
            matched = {value.node for results in match.state.results.values() for value in results}
            matched |= {wrap.node for wrap in match.state.wraps.values()}
            for _, root in match.roots:
                nodes = _below(root, matched)
                key = (root.node, frozenset(nodes))
                if isinstance(root.node, Call) and nodes and key not in seen:
                    seen.add(key)
                    program, _ = abstracted((root,), leaves_of(nodes))
                    yield program, tuple(nodes)


def _below(root: Value, matched: Collection[Node]) -> list[Call]:
    """The matched calls that a value needs, the highest first."""
    found: dict[Call, None] = {}
    stack = [root.node]
    while stack:
        node = stack.pop()
        if node in matched and isinstance(node, Call) and node not in found:
            found[node] = None
            stack += [arg.node for arg in node.args]
    return list(found)


def _replaced(match: Match, old: Value) -> Value | None:
    try:
        return replacements(match).get(old)
    except Refused:
        return None


def _limit(rules: Rules, rule: PartialRule, match: Match) -> float:
    if not rule.limit:
        return CORRECT_SHARE
    env = Env(rule.definition.module, rules)
    for name, value in match.names.items():
        env.bind(name, value)
    try:
        found = evaluate(rule.limit, env)
    except (Unbound, Mismatch, DslcError):
        return 0.0
    # what is no share allows nothing
    good = (
        isinstance(found, int | float | Fraction) and not isinstance(found, bool) and isfinite(found) and 0 < found <= 1
    )
    return float(found) if good else 0.0
