"""Rules that are applied wherever they match, without measuring, until none matches any more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dslc.errors import error
from dslc.ir.graph import Graph, Node, Value
from dslc.match import GraphIndex, Match, find_matches
from dslc.match.apply import replacements
from dslc.match.recipe import Refused
from dslc.onnx.context import Context
from dslc.onnx.exporter import ComputedSizes
from dslc.search.rewrites.candidate import Candidate
from dslc.search.rewrites.flatten import flattened
from dslc.search.rewrites.rewriting import disjoint, rewritten
from dslc.search.rewrites.rulesets import AppliedRule
from dslc.search.rewrites.smaller import GraphSizes, Users
from dslc.semantics.library import Rules


@dataclass(frozen=True, slots=True)
class Bounds:
    """When rules that somebody says `always` of are taken to go on for ever: such a multiple of the nodes that there were, and some
    more, or so many passes of a rule through the graph; or one rule lets it grow in so many more passes in a row than there were
    nodes: then it applies to what it made itself."""

    growth: int = 4
    more: int = 1000
    passes: int = 2000
    again: int = 50


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """A graph in which no rule applies any more; `larger` are the rules that match still, each with the number of places, and that
    would leave a graph which is no smaller."""

    candidate: Candidate
    larger: Mapping[str, int]


def applied(
    start: Candidate, chosen: Sequence[AppliedRule], rules: Rules, context: Context, bounds: Bounds = Bounds()
) -> FixedPoint:
    """Applies rules until none applies any more; each step is one rule at all places that share no node.

    A rule that is not `always` applied is applied where it leaves fewer nodes (those that are written for sizes count), or as many and
    fewer operations, bytes or axes. So what only such rules do comes to an end.

    Raises:
        DslcError: E0915 where rules that are `always` applied lead back to an earlier graph, or go on for ever.
    """
    sizes = GraphSizes(rules), ComputedSizes(rules, context)
    most = bounds.growth * len(start.graph.nodes()) + bounds.more
    state, history = _State(start, sizes), [""]
    seen = {hash(start.graph.outputs): 0}
    while True:
        before = state
        for one in chosen:
            first, row = len(state.users.nodes), len(history)
            while (graph := _everywhere(state, one, rules)) is not None:
                state = _State(graph, sizes)
                history.append(one.rule.name)
                outputs = hash(state.graph.outputs)
                if outputs in seen:
                    raise _endless(history[seen[outputs] + 1 :], "lead back to a graph that was there before")
                seen[outputs] = len(history) - 1
                nodes, turns = len(state.users.nodes), len(history) - row
                if nodes > most or len(history) > bounds.passes or (nodes > first and turns > first + bounds.again):
                    raise _endless(history[-len(chosen) :], "go on for ever")
        if state is before:
            return FixedPoint(state.candidate, state.larger)


def _endless(history: Sequence[str], what: str) -> Exception:
    names = [name for name, after in zip(history, [*history[1:], ""], strict=True) if name != after]
    path = " -> ".join(dict.fromkeys(names))
    hint = (
        "leave one out (--disable), or `include` it in a rule set: it is then applied only where the graph gets smaller"
    )
    return error("E0915", f"the rules of --apply {what}: {path}", hint=hint)


class _State:
    """A graph with what matching asks about it, each built once."""

    def __init__(self, candidate: Candidate, sizes: tuple[GraphSizes, ComputedSizes]) -> None:
        self.candidate, self.graph = candidate, candidate.graph
        self.index = GraphIndex(self.graph)
        self.users = Users(self.graph, *sizes)
        self.larger: dict[str, int] = {}


def _everywhere(state: _State, one: AppliedRule, rules: Rules) -> Candidate | None:
    """One rule at all places that share no node; None where there is none."""
    taken: set[Node] = set()
    chosen: list[dict[Value, Value]] = []
    rest: list[tuple[set[Node], dict[Value, Value]]] = []
    for match in find_matches(one.rule, state.index):
        roots = {value.node for value in match.replaced}
        nodes = {*match.state.nodes.values(), *roots}
        if nodes & taken:
            continue
        new = _replaced(match)
        if new and (one.always or state.users.lowers(new)):
            taken |= nodes
            chosen.append(new)
        elif new:
            rest.append((nodes - roots, new))
    for together in _sharing(rest, taken):
        if state.users.lowers(together):
            chosen.append(together)
    if not chosen:
        state.larger |= {one.rule.name: len(rest)} if rest else {}
        return None
    before = state.candidate
    graph: Graph = flattened(rules, rewritten(before.graph, disjoint(chosen)))
    if graph.outputs == before.graph.outputs:
        return None
    return Candidate(graph, before.cost, before, one.rule.name, len(chosen))


def _sharing(rest: Sequence[tuple[set[Node], dict[Value, Value]]], taken: set[Node]) -> Iterator[dict[Value, Value]]:
    """Replacements that share what is inside their matches, where several do: what none of them leaves unread all of them may."""
    by_inside: dict[Node, dict[Value, Value]] = {}
    for inside, new in rest:
        for node in inside:
            together = by_inside.setdefault(node, {})
            if not together.keys() & new.keys():
                together.update(new)
    used = set(taken)
    for node, together in by_inside.items():
        nodes = {node, *(value.node for value in together)}
        if len(together) > 1 and not nodes & used:
            used |= nodes
            yield together


def _replaced(match: Match) -> dict[Value, Value]:
    """What a match puts in the place of what, nothing where it cannot or where that is there already."""
    try:
        new = {old: value for old, value in replacements(match).items() if old != value}
    except Refused:
        return {}
    if len(new) > 1 and match.index.depends(new.values(), new):
        return {}
    return new
