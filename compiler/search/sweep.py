"""The greedy sweep: everything that a rule gains anywhere is taken at once, rule by rule, until no rule gains any more.

A network with a hundred equal blocks needs the same rewrite a hundred times. Taking the places of one rule together, and
predicting equal places once, makes that one step and not a hundred.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dslc.cost.model import CostModel
from dslc.ir.graph import Call, Graph, Value
from dslc.match import CompiledRule, GraphIndex, Match, apply_match, find_matches
from dslc.match.apply import Refused, replacements
from dslc.search.candidate import Candidate, Limits
from dslc.search.rewriting import disjoint, rewritten

#: gains below this share of the whole cost, or this many seconds, are noise
SHARE, SECONDS = 1e-4, 1e-7
MATCHES = 2000
ROUNDS = 20

Progress = Callable[[Candidate], None]


def least_gain(cost: float) -> float:
    """What a rewrite must save to count, in seconds."""
    return max(SECONDS, SHARE * cost)


def sweep(start: Candidate, rules: Sequence[CompiledRule], costs: CostModel, limits: Limits, on_best: Progress) -> Candidate:
    """The result of taking every gain, in the order of the rules; never costs more than the start."""
    best = start
    for _ in range(ROUNDS):
        before = best
        for rule in rules:
            while not limits.stopped:
                after = _everywhere(best, rule, costs, limits)
                if after is None:
                    break
                best = after
                on_best(best)
        if best is before or limits.stopped:
            break
    return best


def _everywhere(start: Candidate, rule: CompiledRule, costs: CostModel, limits: Limits) -> Candidate | None:
    """One rule at all places where it gains, none of which share a node; None where it gains nowhere."""
    index = GraphIndex(start.graph)
    gains: dict[Any, float] = {}
    found: list[tuple[float, int, Match]] = []
    for number, match in enumerate(find_matches(rule, index, limit=MATCHES)):
        key = _likeness(match, costs)
        if key not in gains:
            if not limits.step():
                break
            after = apply_match(match, start.graph)
            gains[key] = start.cost - costs.graph_cost(after) if after is not None else 0.0
        if gains[key] > least_gain(start.cost):
            found.append((-gains[key], number, match))
    taken: set[Any] = set()
    chosen: list[Match] = []
    for _, _, match in sorted(found, key=lambda item: item[:2]):
        nodes = set(match.state.nodes.values()) | {value.node for _, value in match.roots}
        if not nodes & taken:
            taken |= nodes
            chosen.append(match)
    while chosen:
        graph = _apply(start.graph, chosen)
        cost = costs.graph_cost(graph)
        if cost < start.cost - least_gain(start.cost) and graph.outputs != start.graph.outputs:
            return Candidate(graph, cost, start, rule.name, len(chosen))
        # together they do not gain: fewer may
        chosen = chosen[: len(chosen) // 2]
    return None


def _apply(graph: Graph, matches: Sequence[Match]) -> Graph:
    new: list[dict[Value, Value]] = []
    for match in matches:
        try:
            new.append(replacements(match))
        except Refused:
            continue
    return rewritten(graph, disjoint(new))


def _likeness(match: Match, costs: CostModel) -> Any:
    """Equal for places where the same operators at the same types, used as often, are matched in the same way."""
    nodes = list(match.state.nodes.items())
    place = {node: site for site, node in nodes}
    parts = []
    for site, node in nodes:
        arguments = tuple(
            place.get(arg.node, -1) if not arg.constant else ("constant", costs.argument(arg)) for arg in node.args
        )
        users = tuple(len(match.index.users(value)) for value in node.values)
        parts.append((site, costs.number(node), arguments, users))
    variables = sorted(match.variables.items())
    shared = tuple(next(k for k, (_, other) in enumerate(variables) if other == value) for _, value in variables)
    above = tuple(
        tuple(sorted(costs.number(user) for user in match.index.users(value) if isinstance(user, Call)))
        for _, value in match.roots
    )
    return (match.rule.name, tuple(parts), shared, above, tuple(sorted(map(str, match.choice.items()))))
