"""The greedy sweep: everything that a rule gains anywhere is taken at once, rule by rule, until no rule gains any more.

A network with a hundred equal blocks needs the same rewrite a hundred times. Taking the places of one rule together, and
predicting equal places once, makes that one step and not a hundred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Any

from dslc.cost.evaluation import Evaluation
from dslc.cost.model import CostModel
from dslc.ir.graph import Value
from dslc.match import CompiledRule, GraphIndex, Match, find_matches
from dslc.match.apply import replacements
from dslc.match.recipe import Refused
from dslc.search.candidates.candidate import (
    NOISE,
    Candidate,
    Limits,
    apart,
    disjoint,
    least_gain,
    replaced,
    rewritten,
)
from dslc.search.rewrites.associative_flattening import flattened
from dslc.search.strategies.partition import TURN, divided, is_large
from dslc.search.strategies.space import Space

CLEAR = 0.15  #: share of what a rewrite concerns that is a clear gain: these are all taken first
SMALL = 0.03  #: share of it that is a small gain, which may be noise and could take a clear gain's place away
LARGE = 0.1  #: share of the whole; gains as large are compared with each other, and the largest is taken
HOPED = 0.25  #: share of a gain that operations and bytes may promise of it
MATTERS = 0.005  #: share of the whole; places where no more can be gained wait
MATCHES = 2000  #: matches of one rule that are tried
ROUNDS = 20  #: rounds over all rules


def sweep(space: Space, rules: Sequence[CompiledRule]) -> Candidate:
    """As `greedy`; a large graph is gone through in regions, and keeps what was found when a cost is not measured in time.

    Raises:
        TimeUp: a cost was not measured in time.
    """
    if not is_large(space.graph):
        return greedy(space, rules)
    return divided(replace(space, alpha=1.0), lambda part, _: Swept(part, rules))


@dataclass(slots=True)
class Swept:
    """A sweep of one graph, as an explorer of regions."""

    space: Space
    rules: Sequence[CompiledRule]
    best: Candidate = field(init=False)

    def __post_init__(self) -> None:
        self.best = self.space.start

    def begin(self) -> None:
        """Sweep."""

        def told(found: Candidate) -> None:
            self.best = found

        with self.space.limits.turn(TURN):
            greedy(self.space.at(self.best, told), self.rules)

    def expand(self) -> bool:
        """Return that nothing is left."""
        return False


def greedy(space: Space, rules: Sequence[CompiledRule]) -> Candidate:
    """The result of taking every gain, clear ones first, in the order of the rules; never costs more than the start."""
    limits = space.limits
    state = _largest(space, rules)
    # what is large enough to matter is measured first: time may not suffice for all
    for least, share in ((CLEAR, MATTERS), (CLEAR, 0.0), (SMALL, 0.0)):
        for _ in range(ROUNDS):
            before = state
            for rule in _promising(state, rules, limits) if share else rules:
                while not limits.over:
                    whole = state.candidate.cost
                    after = everywhere(state, rule, limits, least, whole - least_gain(whole), share * whole)
                    if not after:
                        break
                    state = SweepState(after, space.costs)
                    space.told(after)
            if state is before or limits.stopped:
                break
    return state.candidate


def _promising(state: SweepState, rules: Sequence[CompiledRule], limits: Limits) -> list[CompiledRule]:
    """Return the rules that may save enough to matter by operations and bytes, those first that may save most.

    All of them where nothing is known of the original as a whole.
    """
    hopes = [(-state.hoped(rule, limits)[0], number) for number, rule in enumerate(rules)]
    return [rules[number] for hope, number in sorted(hopes) if -hope > MATTERS * state.candidate.cost]


def _largest(space: Space, rules: Sequence[CompiledRule]) -> SweepState:
    """Takes the rule that gains most, again and again, while it gains a large share of the whole at one place.

    In a small graph a rule with a lesser gain could take the place of the one that matters.
    """
    state, limits = SweepState(space.start, space.costs), space.limits
    for _ in range(ROUNDS):
        whole = state.candidate.cost
        best: Candidate | None = None
        for rule in rules:
            if limits.over:
                break
            if most_saved(state, rule) <= LARGE * whole or state.hoped(rule, limits)[1] <= HOPED * LARGE * whole:
                continue
            found = everywhere(state, rule, limits, CLEAR, whole - least_gain(whole), LARGE * whole)
            if found and (not best or found.cost < best.cost):
                best = found
        if not best:
            break
        state = SweepState(best, space.costs)
        space.told(best)
    return state


def most_saved(state: SweepState, rule: CompiledRule) -> float:
    """Return what a rule can save at one place, in seconds: all that the costliest nodes cost which its pattern can stand for.

    What neighbours save that the rewrite lets the runtime fuse is not in it.
    """
    dearest = state.evaluation.dearest
    return sum(
        max(dearest.values(), default=0.0) if site.operator is None else dearest.get(site.operator, 0.0)
        for site in rule.left.sites
    )


def everywhere(
    start: SweepState,
    rule: CompiledRule,
    limits: Limits,
    least: float,
    below: float,
    seconds: float = 0.0,
) -> Candidate | None:
    """One rule at all places where it gains, none of which share a node, as long as the result costs less than `below`.

    A place counts where the rule saves the share `least` of what it concerns there, and so many seconds; a share of -inf
    takes every place that can be run.
    """
    gains: dict[Any, float | None] = {}
    found: list[tuple[float, tuple[int, ...], Match, dict[Value, Value]]] = []
    costs = start.costs
    for match, new in replaced(start.matches(rule, MATCHES)):
        key = start.likeness(match)
        if key not in gains:
            if not limits.step():
                break
            wanted = max(NOISE, seconds) if least > 0 else -inf
            cost, concerned = start.evaluation.after(new, wanted)
            limits.on_tried(rule.name, cost < inf)
            gain = start.evaluation.cost - cost
            enough = gain > (max(wanted, least * concerned) if least > 0 else -inf)
            gains[key] = gain if enough else None
        one = gains[key]
        if one is not None:
            # of equal gains in the order of the operands, so that like branches are treated alike
            found.append((-one, tuple(start.index.rank[value.node] for _, value in match.roots), match, new))
    chosen = list(apart((match, new) for _, _, match, new in sorted(found, key=lambda item: item[:2])))
    before = start.candidate
    while chosen:
        graph = flattened(costs.rules, rewritten(before.graph, disjoint(chosen)))
        cost = costs.graph_cost(graph)
        if cost < below and graph.outputs != before.graph.outputs:
            built = Candidate(graph, cost, before, rule.name, len(chosen))
            limits.on_built(built)
            return built
        # together they do not gain: fewer may
        chosen = chosen[: len(chosen) // 2]
    return None


class SweepState:
    """A candidate with what matching and costing ask about its graph, each built once."""

    def __init__(self, candidate: Candidate, costs: CostModel) -> None:
        self.candidate = candidate
        self.costs = costs
        self._matches: dict[tuple[str, int], list[Match]] = {}
        self._hoped: dict[str, tuple[float, float]] = {}

    def hoped(self, rule: CompiledRule, limits: Limits) -> tuple[float, float]:
        """Return what a rule may save by operations and bytes, in seconds: at all places, and at one; looked at once.

        Infinite where nothing is known of the original as a whole, and nothing where time is up.
        """
        if not self.costs.start:
            return inf, inf
        if limits.over:
            return 0.0, 0.0
        if rule.name not in self._hoped:
            gains = [0.0]
            known: dict[Any, float] = {}
            for match in self.matches(rule, MATCHES):
                key = self.likeness(match)
                if key not in known:
                    known[key] = 0.0
                    with suppress(Refused):
                        known[key] = max(0.0, self.evaluation.hoped(replacements(match)))
                gains.append(known[key])
            self._hoped[rule.name] = sum(gains), max(gains)
        return self._hoped[rule.name]

    def likeness(self, match: Match) -> Any:
        """Equal for matches of one rule that gain the same."""
        return self.evaluation.likeness(match.state.nodes), tuple(sorted(map(str, match.choice.items())))

    @cached_property
    def index(self) -> GraphIndex:
        return GraphIndex(self.candidate.graph)

    def matches(self, rule: CompiledRule, limit: int) -> Iterator[Match]:
        """Yield the matches of a rule, so many at most; looked for once where all of them were asked for."""
        key = (rule.name, limit)
        if key in self._matches:
            yield from self._matches[key]
            return
        found = []
        for match in find_matches(rule, self.index, limit=limit):
            found.append(match)
            yield match
        self._matches[key] = found

    @cached_property
    def evaluation(self) -> Evaluation:
        return self.costs.evaluate(self.candidate.graph)


TURNS = 4  #: how often a rule is applied to its own results
MOST_TURNS = 64  #: the same as long as it then matches at fewer places
ROOM = 1.5  #: how many times what the start costs a graph on the way may cost
FOLLOWED = 4  #: rules that are followed by sweeps in a round


def chained(space: Space, rules: Sequence[CompiledRule]) -> Candidate:
    """Apply each rule at all places at once, again and again; sweeps follow the cheapest results, and the best one is gone on from.

    It ends where no rule gains. Eight products of one operand become one in three turns, each of which joins pairs. One pair alone
    gains too little to be told from noise, or nothing, or costs more than it gains, and step by step there are more equal ways to
    the end than a queue can hold. Only rules that compute several results at once, or join operands of an associative call, grow
    like that.
    """
    growing = [rule for rule in rules if len(rule.left.tops) > 1 or _joins(rule)]
    best, limits = space.start, space.limits
    while not limits.over:
        ways: list[tuple[float, int, list[Candidate]]] = []
        for number, rule in enumerate(growing):
            if limits.over:
                break
            found = _ways(space.at(best), rule)
            if found:
                ways.append((min(one.cost for one in found), number, found))
        before = best
        for _, number, found in sorted(ways, key=lambda way: way[:2])[:FOLLOWED]:
            for end in _ends(space.at(before), growing[number], found, rules):
                if end.cost < best.cost - least_gain(best.cost):
                    best = end
                    space.told(best)
            if limits.stopped:
                break
        if best is before:
            break
    return best


def _ways(space: Space, rule: CompiledRule) -> list[Candidate]:
    """Apply a rule to its own results and nothing else: a graph for each turn."""
    joined = _joined(space, rule)
    found = [] if not joined or joined.cost > ROOM * space.start.cost else [joined]
    return [*found, *_turns(space, rule, lambda found: found)]


def _ends(
    space: Space, rule: CompiledRule, ways: Sequence[Candidate], rules: Sequence[CompiledRule]
) -> Iterator[Candidate]:
    """The last and the cheapest of a rule's graphs, swept; and what comes of a sweep after each turn.

    A sweep between turns brings the results of one together again, where the next one finds them; but what does not pay yet it
    takes back.
    """

    def swept(found: Candidate) -> Candidate:
        return greedy(space.at(found), rules)

    cheapest = min(ways, key=lambda found: found.cost)
    yield swept(cheapest)
    if ways[-1] is not cheapest:
        yield swept(ways[-1])
    yield from _turns(space, rule, swept)


def _turns(space: Space, rule: CompiledRule, finished: Callable[[Candidate], Candidate]) -> Iterator[Candidate]:
    """The graphs after each turn, until the rule has no place left or a graph comes again."""
    current, been = space.start, {hash(space.graph.outputs)}
    places = MATCHES + 1
    for turn in range(MOST_TURNS):
        if space.limits.over:
            return
        state = SweepState(current, space.costs)
        if turn >= TURNS:
            # thirty-two branches below one node can only be joined one after the other
            before, places = places, sum(1 for _ in find_matches(rule, state.index, limit=MATCHES))
            if places >= before:
                break
        found = everywhere(state, rule, space.limits, -inf, ROOM * space.start.cost)
        if not found:
            break
        current = finished(found)
        if hash(current.graph.outputs) in been:
            # the sweep took back what the rule had done
            break
        been.add(hash(current.graph.outputs))
        yield current


def _joins(rule: CompiledRule) -> bool:
    """Return whether a result of the pattern is an associative call on results of others."""
    return len(rule.left.sites) > 1 and any(rule.left.sites[pattern.site].associative for _, pattern in rule.left.roots)


def _joined(space: Space, rule: CompiledRule) -> Candidate | None:
    """A rule about two operands of an associative call at all pairs of each, until one operand is left; then what that costs.

    None for other rules, and as soon as the graph does not get smaller.
    """
    if not _joins(rule):
        return None
    graph, count = space.graph, 0
    size = len(graph.nodes())
    for _ in range(MOST_TURNS):
        chosen = list(apart(replaced(find_matches(rule, GraphIndex(graph), limit=MATCHES))))
        found = flattened(space.costs.rules, rewritten(graph, disjoint(chosen))) if chosen else graph
        smaller = len(found.nodes())
        if smaller >= size:
            break
        graph, size, count = found, smaller, count + len(chosen)
    if count < 2 or not space.limits.step():
        return None
    return Candidate(graph, space.costs.graph_cost(graph), space.start, rule.name, count)
