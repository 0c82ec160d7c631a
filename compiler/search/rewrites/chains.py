"""One rule applied to its own results, everywhere at once, before the queue of the backtracking search takes over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf

from dslc.cost.model import CostModel
from dslc.ir.graph import Node, Value
from dslc.match import CompiledRule, GraphIndex, find_matches
from dslc.match.apply import replacements
from dslc.match.recipe import Refused
from dslc.search.rewrites.candidate import Candidate, Limits, Progress
from dslc.search.rewrites.flatten import flattened
from dslc.search.rewrites.rewriting import disjoint, rewritten
from dslc.search.rewrites.sweep import SweepState, everywhere, greedy, least_gain

TURNS = 4  #: how often a rule is applied to its own results
MOST_TURNS = 64  #: the same as long as it then matches at fewer places
MATCHES = 2000  #: places of one rule that are counted and tried
ROOM = 1.5  #: how many times what the start costs a graph on the way may cost
FOLLOWED = 4  #: rules that are followed by sweeps in a round


def chained(
    start: Candidate, rules: Sequence[CompiledRule], costs: CostModel, limits: Limits, on_best: Progress
) -> Candidate:
    """Each rule at all places at once, again and again; the rules that come out cheapest are followed by sweeps, and the best
    result is gone on from, until no rule gains.

    Eight products of one operand become one in three turns, each of which joins pairs. One pair alone gains too little to be
    told from noise, or nothing, or costs more than it gains, and step by step there are more equal ways to the end than a queue
    can hold. Only rules that compute several results at once, or join operands of an associative call, grow like that.
    """
    growing = [rule for rule in rules if len(rule.left.tops) > 1 or _joins(rule)]
    best = start
    while not limits.over:
        ways: list[tuple[float, int, list[Candidate]]] = []
        for number, rule in enumerate(growing):
            if limits.over:
                break
            found = _ways(best, rule, costs, limits)
            if found:
                ways.append((min(one.cost for one in found), number, found))
        before = best
        for _, number, found in sorted(ways, key=lambda way: way[:2])[:FOLLOWED]:
            for end in _ends(before, growing[number], found, rules, costs, limits):
                if end.cost < best.cost - least_gain(best.cost):
                    best = end
                    on_best(best)
            if limits.stopped:
                break
        if best is before:
            break
    return best


def _ways(start: Candidate, rule: CompiledRule, costs: CostModel, limits: Limits) -> list[Candidate]:
    """What comes of applying a rule to its own results and nothing else: a graph for each turn."""
    joined = _joined(start, rule, costs, limits)
    found = [] if joined is None or joined.cost > ROOM * start.cost else [joined]
    return [*found, *_turns(start, rule, costs, limits, lambda found: found)]


def _ends(
    start: Candidate,
    rule: CompiledRule,
    ways: Sequence[Candidate],
    rules: Sequence[CompiledRule],
    costs: CostModel,
    limits: Limits,
) -> Iterator[Candidate]:
    """The last and the cheapest of a rule's graphs, swept; and what comes of a sweep after each turn.

    A sweep between turns brings the results of one together again, where the next one finds them; but what does not pay yet it
    takes back.
    """

    def swept(found: Candidate) -> Candidate:
        return greedy(found, rules, costs, limits, lambda _: None)

    cheapest = min(ways, key=lambda found: found.cost)
    yield swept(cheapest)
    if ways[-1] is not cheapest:
        yield swept(ways[-1])
    yield from _turns(start, rule, costs, limits, swept)


def _turns(
    start: Candidate, rule: CompiledRule, costs: CostModel, limits: Limits, finished: Callable[[Candidate], Candidate]
) -> Iterator[Candidate]:
    """The graphs after each turn, until the rule has no place left or a graph comes again."""
    current, been = start, {hash(start.graph.outputs)}
    places = MATCHES + 1
    for turn in range(MOST_TURNS):
        if limits.over:
            return
        state = SweepState(current, costs)
        if turn >= TURNS:
            # thirty-two branches below one node can only be joined one after the other
            before, places = places, sum(1 for _ in find_matches(rule, state.index, limit=MATCHES))
            if places >= before:
                break
        found = everywhere(state, rule, costs, limits, -inf, ROOM * start.cost)
        if found is None:
            break
        current = finished(found)
        if hash(current.graph.outputs) in been:
            # the sweep took back what the rule had done
            break
        been.add(hash(current.graph.outputs))
        yield current


def _joins(rule: CompiledRule) -> bool:
    """Whether a result of the pattern is an associative call on results of others."""
    return len(rule.left.sites) > 1 and any(rule.left.sites[pattern.site].associative for _, pattern in rule.left.roots)


def _joined(start: Candidate, rule: CompiledRule, costs: CostModel, limits: Limits) -> Candidate | None:
    """A rule about two operands of an associative call at all pairs of each, until one operand is left; then what that costs.

    None for other rules, and as soon as the graph does not get smaller.
    """
    if not _joins(rule):
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
