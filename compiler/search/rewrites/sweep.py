"""The greedy sweep: everything that a rule gains anywhere is taken at once, rule by rule, until no rule gains any more.

A network with a hundred equal blocks needs the same rewrite a hundred times. Taking the places of one rule together, and
predicting equal places once, makes that one step and not a hundred.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from math import inf
from typing import Any

from dslc.cost.evaluation import Evaluation
from dslc.cost.model import CostModel
from dslc.ir.graph import Value
from dslc.match import CompiledRule, GraphIndex, Match, find_matches
from dslc.match.apply import replacements
from dslc.match.recipe import Refused
from dslc.search.rewrites.candidate import Candidate, Limits, Progress
from dslc.search.rewrites.divided import TURN as DIVIDED_TURN
from dslc.search.rewrites.divided import divided, is_large
from dslc.search.rewrites.flatten import flattened
from dslc.search.rewrites.rewriting import disjoint, rewritten

#: share of a cost below which a gain is noise: of the whole graph's, and at one place of what the rewrite concerns
SHARE = 1e-3
SECONDS = 2e-7  #: seconds below which a gain at one place is noise
CLEAR = 0.15  #: share of what a rewrite concerns that is a clear gain: these are all taken first
SMALL = 0.03  #: share of it that is a small gain, which may be noise and could take a clear gain's place away
LARGE = 0.1  #: share of the whole; gains as large are compared with each other, and the largest is taken
HOPED = 0.25  #: share of a gain that operations and bytes may promise of it
MATTERS = 0.005  #: share of the whole; places where no more can be gained wait
MATCHES = 2000  #: matches of one rule that are tried
ROUNDS = 20  #: rounds over all rules


def least_gain(cost: float) -> float:
    """What a rewrite must save to count, in seconds."""
    return max(SECONDS, SHARE * cost)


def sweep(
    start: Candidate, rules: Sequence[CompiledRule], costs: CostModel, limits: Limits, on_best: Progress
) -> Candidate:
    """As `greedy`; a large graph is gone through in regions, and keeps what was found when a cost is not measured in time.

    Raises:
        TimeUp: a cost was not measured in time.
    """
    if not is_large(start.graph):
        return greedy(start, rules, costs, limits, on_best)

    def swept(start: Candidate, costs: CostModel, count: int) -> Swept:
        return Swept(start, rules, costs, limits)

    return divided(start, costs, limits, swept, on_best)


class Swept:
    """A sweep of one graph, as an explorer of regions."""

    def __init__(self, start: Candidate, rules: Sequence[CompiledRule], costs: CostModel, limits: Limits) -> None:
        self.best = start
        self._rules, self._costs, self._limits = rules, costs, limits

    def _found(self, found: Candidate) -> None:
        self.best = found

    def begin(self) -> None:
        with self._limits.turn(DIVIDED_TURN):
            greedy(self.best, self._rules, self._costs, self._limits, self._found)

    def expand(self) -> bool:
        return False


def greedy(
    start: Candidate, rules: Sequence[CompiledRule], costs: CostModel, limits: Limits, on_best: Progress
) -> Candidate:
    """The result of taking every gain, clear ones first, in the order of the rules; never costs more than the start."""
    state = _largest(SweepState(start, costs), rules, costs, limits, on_best)
    # what is large enough to matter is measured first: time may not suffice for all
    for least, share in ((CLEAR, MATTERS), (CLEAR, 0.0), (SMALL, 0.0)):
        for _ in range(ROUNDS):
            before = state
            for rule in _promising(state, rules, limits) if share else rules:
                while not limits.over:
                    whole = state.candidate.cost
                    after = everywhere(state, rule, costs, limits, least, whole - least_gain(whole), share * whole)
                    if after is None:
                        break
                    state = SweepState(after, costs)
                    on_best(after)
            if state is before or limits.stopped:
                break
    return state.candidate


def _promising(state: SweepState, rules: Sequence[CompiledRule], limits: Limits) -> list[CompiledRule]:
    """The rules that may save enough to matter by operations and bytes, those first that may save most; all of them where nothing
    is known of the original as a whole."""
    hopes = [(-state.hoped(rule, limits)[0], number) for number, rule in enumerate(rules)]
    return [rules[number] for hope, number in sorted(hopes) if -hope > MATTERS * state.candidate.cost]


def _largest(
    state: SweepState, rules: Sequence[CompiledRule], costs: CostModel, limits: Limits, on_best: Progress
) -> SweepState:
    """Takes the rule that gains most, again and again, while it gains a large share of the whole at one place.

    In a small graph a rule with a lesser gain could take the place of the one that matters.
    """
    for _ in range(ROUNDS):
        whole = state.candidate.cost
        best: Candidate | None = None
        for rule in rules:
            if limits.over:
                break
            if most_saved(state, rule) <= LARGE * whole or state.hoped(rule, limits)[1] <= HOPED * LARGE * whole:
                continue
            found = everywhere(state, rule, costs, limits, CLEAR, whole - least_gain(whole), LARGE * whole)
            if found is not None and (best is None or found.cost < best.cost):
                best = found
        if best is None:
            break
        state = SweepState(best, costs)
        on_best(best)
    return state


def most_saved(state: SweepState, rule: CompiledRule) -> float:
    """What a rule can save at one place, in seconds: all that the costliest nodes cost which its pattern can stand for.

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
    costs: CostModel,
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
    for match in start.matches(rule, MATCHES):
        try:
            new = replacements(match)
        except Refused:
            continue
        key = start.likeness(match)
        if key not in gains:
            if not limits.step():
                break
            wanted = max(SECONDS, seconds) if least > 0 else -inf
            cost, concerned = start.evaluation.after(new, wanted)
            limits.on_tried(rule.name, cost < inf)
            gain = start.evaluation.cost - cost
            enough = gain > (max(wanted, least * concerned) if least > 0 else -inf)
            gains[key] = gain if enough else None
        one = gains[key]
        if one is not None:
            # of equal gains in the order of the operands, so that like branches are treated alike
            found.append((-one, tuple(start.index.rank[value.node] for _, value in match.roots), match, new))
    taken: set[Any] = set()
    chosen: list[dict[Value, Value]] = []
    for _, _, match, new in sorted(found, key=lambda item: item[:2]):
        nodes = set(match.state.nodes.values()) | {value.node for _, value in match.roots}
        if not nodes & taken:
            taken |= nodes
            chosen.append(new)
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
        self._costs = costs
        self._matches: dict[tuple[str, int], list[Match]] = {}
        self._hoped: dict[str, tuple[float, float]] = {}

    def hoped(self, rule: CompiledRule, limits: Limits) -> tuple[float, float]:
        """What a rule may save by operations and bytes, in seconds: at all places, and at one; looked at once.

        Infinite where nothing is known of the original as a whole, and nothing where time is up.
        """
        if self._costs.start is None:
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
        """Where a rule matches, so many places at most; looked for once where all of them were asked for."""
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
        return self._costs.evaluate(self.candidate.graph)
