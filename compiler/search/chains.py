"""One rule applied to its own results, everywhere at once, before the queue of the backtracking search takes over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from dslc.cost.model import CostModel
from dslc.ir.graph import Node, Value
from dslc.match import CompiledRule, GraphIndex, find_matches
from dslc.match.apply import Refused, replacements
from dslc.search.candidate import Candidate, Limits
from dslc.search.flatten import flattened
from dslc.search.rewriting import disjoint, rewritten
from dslc.search.sweep import State, everywhere, sweep

#: a rule is applied to its own results so many times, and up to so many times as long as it then matches at fewer places
TURNS, MOST_TURNS = 4, 64
MATCHES = 2000


def chains(
    start: Candidate, rules: Sequence[CompiledRule], costs: CostModel, limits: Limits, alpha: float
) -> Iterator[Candidate]:
    """Each rule at all places at once, again and again, and a sweep after each turn.

    Eight products of one operand become one in three turns, each of which joins pairs. One pair alone gains too little to be
    told from noise, or nothing, and step by step there are more equal ways to the end than a queue can hold.
    """
    for rule in rules:
        joined = _joined(start, rule, costs, limits)
        if joined is not None and joined.cost < alpha * start.cost:
            yield sweep(joined, rules, costs, limits, lambda _: None)
        current, been = start, {hash(start.graph.outputs)}
        places = MATCHES + 1
        for turn in range(MOST_TURNS):
            if limits.stopped:
                return
            state = State(current, costs)
            if turn >= TURNS:
                # thirty-two branches below one node can only be joined one after the other
                before, places = places, sum(1 for _ in find_matches(rule, state.index, limit=MATCHES))
                if places >= before:
                    break
            found = everywhere(state, rule, costs, limits, -inf, alpha * start.cost)
            if found is None:
                break
            current = sweep(found, rules, costs, limits, lambda _: None)
            if hash(current.graph.outputs) in been:
                # the sweep took back what the rule had done
                break
            been.add(hash(current.graph.outputs))
            yield current


def _joined(start: Candidate, rule: CompiledRule, costs: CostModel, limits: Limits) -> Candidate | None:
    """A rule about two operands of an associative call at all pairs of each, until one operand is left; then what that costs.

    None for other rules, and as soon as the graph does not get smaller.
    """
    if not any(rule.left.sites[pattern.site].associative for _, pattern in rule.left.roots):
        return None
    graph, count = start.graph, 0
    size = len(graph.nodes())
    for _ in range(MOST_TURNS):
        taken: set[Node] = set()
        chosen: list[dict[Value, Value]] = []
        for match in find_matches(rule, GraphIndex(graph), limit=MATCHES):
            nodes = set(match.state.nodes.values()) | {value.node for _, value in match.roots}
            if nodes & taken:
                continue
            try:
                chosen.append(replacements(match))
            except Refused:
                continue
            taken |= nodes
        found = flattened(costs.rules, rewritten(graph, disjoint(chosen))) if chosen else graph
        smaller = len(found.nodes())
        if smaller >= size:
            break
        graph, size, count = found, smaller, count + len(chosen)
    if count < 2 or not limits.step():
        return None
    return Candidate(graph, costs.graph_cost(graph), start, rule.name, count)
