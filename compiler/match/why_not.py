"""Explanations of rules that do not apply to a graph: the closest match, and the first thing that does not fit there."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import field, replace
from itertools import islice
from types import MappingProxyType

from dslc.errors import DslcError, Span
from dslc.ir.graph import Call, Graph, Node, Value
from dslc.match.apply import apply_match, replaced
from dslc.match.closest import Closest, fitting
from dslc.match.describe import show, show_call
from dslc.match.guards import environment
from dslc.match.index import GraphIndex, IndexMemory
from dslc.match.matcher import find_matches
from dslc.match.names import free_names
from dslc.match.recipe import Refused
from dslc.match.rule import CompiledRule
from dslc.match.state import MatchState
from dslc.records import record
from dslc.semantics.env import Mismatch, Unbound
from dslc.semantics.types import solve

MOST = 4  #: calls that fail which are said


@record
class Explanation:
    """The answer of `dslc why-not`.

    `applies` counts the places where the rule applies (then there is no reason). `matched` are the calls of the rule that match, each
    with the node that it is, the last of them at `place`; `total` is how many calls the author wrote on the left. `reason` is why the
    call or the guard at `span` fails; `fails` are all that fail, with their places. `values` are the tensors that are bound, and the
    names of a failed guard with their values. `nodes` are the calls of the graph that match (of a rule that applies: at its first
    place), `node` the one that does not.
    """

    rule: str
    applies: int
    matched: tuple[tuple[str, str], ...] = ()
    total: int = 0
    reason: str = ""
    span: Span | None = None
    values: tuple[tuple[str, str], ...] = ()
    place: str = ""
    fails: tuple[str, ...] = ()
    nodes: Mapping[Node, Span] = field(default_factory=dict)
    node: Node | None = None

    def __str__(self) -> str:
        if self.applies:
            places = "" if self.applies == 1 else f" at {self.applies} places"
            return f"{self.rule}: Applies{places}."
        operators = "operator" if self.total == 1 else "operators"
        at = f" at {self.place}" if self.place else ""
        out = [
            f"{self.rule}: Does not apply.",
            f"  closest match: {len(self.matched)} of {self.total} {operators}{at}; fails at {self.fails[0]}",
            *[f"    also at {one}" for one in self.fails[1:]],
        ]
        out += [f"    {part}\n      is {found}" for part, found in self.matched]
        out += [f"    {name} = {value}" for name, value in self.values]
        return "\n".join(out)


def why_not(rule: CompiledRule, graph: Graph, names: Mapping[Value | Node, str] = MappingProxyType({})) -> Explanation:
    """The place where most of a rule's left side matches, and what stops it there.

    Args:
        names: what values and nodes are called in the model, for the text.
    """
    index, sites = GraphIndex(graph), rule.left.sites
    found = [match for match in find_matches(rule, index) if apply_match(match, graph) is not None]
    if found:
        nodes: dict[Node, Span] = {node: sites[site].span for site, node in found[0].state.nodes.items()}
        return Explanation(rule.name, len(found), nodes=nodes)
    index.memory = IndexMemory(few=True)
    closest = Closest(rule, index, names)
    # part after part, also those that cannot be joined; what a guard wants to be constant may be none, so that the guard is named
    for match in find_matches(replace(rule, constants=frozenset()), index, refused=closest.refused):
        try:
            replaced(match, graph)
        except Refused as problem:
            closest.refused(match.state, str(problem), rule.span, guarded=True)
            break
    if closest.rank < (1,):
        closest.search()
    state, written = closest.state, {site.span for site in sites}
    fit = fitting(state)
    # a `let` that is used several times is several sites, and one call to whoever wrote it
    open_ones = {site.span for site in sites if site.id not in fit}
    calls = {sites[site].span: node for site, node in sorted(fit.items()) if sites[site].span not in open_ones}
    missed = [(item.span or sites[item.site].span, item.node, item.reason()) for item in state.missed]
    if not state.nodes:
        lacking = (site for site in sites if site.operator and site.operator not in index.by_operator)
        missed[:0] = [(site.span, None, f"the model has no `{site.label}`") for site in islice(lacking, 1)]
    missed = missed or [(rule.span, None, "no place in the model was tried")]
    span, failed, reason = missed[0]
    fails = [f"{at}{f' on {names[node]}' if node and node in names else ''}: {why}" for at, node, why in missed]
    return Explanation(
        rule.name, 0, tuple((_one_line(at, written), _place(node, names, index)) for at, node in calls.items()), len(written),
        reason, span, (*((name, _tensor(value, names)) for name, value in sorted(state.values.items())), *_values(rule, state, span)),
        names.get(max(calls.values(), key=index.position.__getitem__), "") if calls else "",
        tuple(dict.fromkeys(fails))[:MOST], {node: at for at, node in calls.items()}, failed,
    )  # fmt: skip


def _values(rule: CompiledRule, state: MatchState, span: Span) -> tuple[tuple[str, str], ...]:
    """The names of the guard that failed, with their values."""
    failed = next((c for c in rule.conditions if c.span is span), None)
    if not failed:
        return ()
    env = environment(rule, state, state.names)
    pairs = [(type, state.values[name].type) for name, type in rule.types.items() if name in state.values]
    with contextlib.suppress(Mismatch, Unbound, DslcError):
        solve(pairs, [c for c in rule.conditions if c is not failed], env)
    out = []
    for name in sorted(free_names(failed, rule.functions)):
        with contextlib.suppress(Mismatch, Unbound, DslcError):
            out.append((name, show(env.get(name))))
    return tuple(out)


def _place(node: Call, names: Mapping[Value | Node, str], index: GraphIndex) -> str:
    return f"{names.get(node) or f'node {index.position[node]}'}: {show_call(node)}"


def _tensor(value: Value, names: Mapping[Value | Node, str]) -> str:
    kind = " (constant)" if value.constant else ""
    return f"{names.get(value, '')} {show(value)}{kind}".strip()


def _one_line(span: Span, calls: Collection[Span]) -> str:
    """A call without what other calls inside of it are."""
    text, end = "", span.start
    for one in sorted(calls, key=lambda one: (one.start, -one.end)):
        if one.starts_in(span) and one.start >= end and one is not span:
            text, end = f"{text}{span.source.text[end : one.start]}...", one.end
    joined = " ".join((text + span.source.text[end : span.end]).split())
    return joined if len(joined) <= 60 else joined[:57] + "..."
