"""Programs in searches over e-graphs: prices of e-nodes, and programs that become candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from dslc.cost.groups import Group, Key
from dslc.cost.model import CostModel
from dslc.deadline import TimeUp
from dslc.egraph.extract.program import program_of
from dslc.egraph.extract.table import Extraction
from dslc.egraph.graph import EGraph
from dslc.egraph.story import story
from dslc.ir.graph import Graph, Node, Opaque
from dslc.match import CompiledRule
from dslc.search.region_rewrites.findings import Findings
from dslc.search.rewrites.candidate import Candidate, Limits, Progress
from dslc.search.rewrites.layouts import without_layouts
from dslc.search.rewrites.sweep import least_gain
from dslc.search.strategies.strategy import Space

NEVER = 1e3  #: how many times what the whole graph costs something costs that cannot be run: a sum stays a number
#: share of a guess that something is hoped to cost that was not measured: what might be best is then measured
HOPE = 0.5
PART = 0.05  #: share of the start's cost that a graph with kernels costs at least
TIDY = 200  #: steps that the best graph so far is gone on from by itself, at most
PARTS = 4  #: parts of all steps of which it has one, at most
ROOM = 1.05  #: how many times its cost a graph may cost that is gone on from there
MEASURING = 0.5  #: share of the time that measuring single e-nodes may take

#: what a node costs in seconds, None for what others know
Own = Callable[[Node], float | None]


class NodePrices:
    """Seconds of single e-nodes: measured, and guessed by operations and bytes where that is too early or time is short.

    A price that was said once stays, unless `settle` measures it.
    """

    def __init__(self, costs: CostModel, limits: Limits, lazy: bool, own: Own | None = None) -> None:
        """`lazy`: nothing is measured before `settle` asks for it, where the costs can guess. `own` prices what costs do not know."""
        self._own = own
        self._costs, self._limits = costs, limits
        self._lazy = lazy and costs.start is not None
        self._known: dict[Key, float] = {}
        self._guessed: set[Key] = set()
        self._most = NEVER * max(1e-6, costs.start.seconds if costs.start is not None else 1.0)
        self._until = limits.until.part(MEASURING)

    def __call__(self, node: Node) -> float:
        if node.constant or not node.args or isinstance(node, Opaque):
            return 0.0
        known = None if self._own is None else self._own(node)
        if known is not None:
            return known
        group = Group((node,), (node.args,))
        key = self._costs.keys.of(group)
        found = self._known.get(key)
        if found is None:
            measure = not self._lazy or self._costs.known(key) is not None
            found = self._known[key] = self._measured(node, group, key) if measure else self._guess(group, key)
        return found

    def settle(self, extraction: Extraction) -> bool:
        """Measures what a program is made of; whether any of it was guessed before."""
        some = False
        for choice in extraction.choice.values():
            node = choice.key
            if not isinstance(node, Node) or not choice.cost or (self._own is not None and self._own(node) is not None):
                continue
            group = Group((node,), (node.args,))
            key = self._costs.keys.of(group)
            if key in self._guessed and not self._late:
                self._guessed.discard(key)
                self._known[key] = self._measured(node, group, key)
                some = True
        return some

    def total(self, extraction: Extraction) -> float:
        """What a program costs by the prices that are known by now."""
        return sum(
            self(choice.key) for choice in extraction.choice.values() if isinstance(choice.key, Node) and choice.cost
        )

    @property
    def _late(self) -> bool:
        # without a whole to take a part of there is no guess
        return self._costs.start is not None and self._until.over

    def _measured(self, node: Node, group: Group, key: Key) -> float:
        if self._late and self._costs.known(key) is None:
            return self._guess(group, key)
        try:
            return min(self._costs.cost(node), self._most)
        except TimeUp:
            return self._guess(group, key)

    def _guess(self, group: Group, key: Key) -> float:
        self._guessed.add(key)
        return HOPE * self._costs.guess(group)


class Programs:
    """Programs of e-graphs of one graph: the best by the sum of their prices wait to be ranked as whole graphs.

    `best` is the best candidate so far.
    """

    def __init__(
        self,
        start: Candidate,
        costs: CostModel,
        limits: Limits,
        price: Callable[[Node], float],
        most: int,
        on_best: Progress,
    ) -> None:
        self.best = start
        #: whether the best is a program of these e-graphs, and not what others found
        self.own = True
        self._start, self._costs, self._limits, self._price = start, costs, limits, price
        self._most, self._on_best = most, on_best
        self._seen = {hash(start.graph.outputs)}
        #: the choices of extractions that were offered: most are what they were a step ago
        self._chosen: set[int] = set()
        self._least = inf
        self._first: float | None = None
        self._waiting: list[tuple[float, Graph, EGraph, Extraction]] = []

    def offer(self, egraph: EGraph, extraction: Extraction, at_once: bool = False, later: bool = False) -> None:
        """A program; one with a lower sum than all before is ranked at once, or `later`. The e-graph must not change any more."""
        if not at_once and len(self._waiting) >= self._most and extraction.cost >= self._waiting[-1][0]:
            return
        chosen = hash(frozenset([one.key for one in extraction.choice.values()]))
        if chosen in self._chosen:
            return
        self._chosen.add(chosen)
        graph = program_of(egraph, extraction)
        identity = hash(graph.outputs)
        if identity in self._seen:
            return
        self._seen.add(identity)
        if at_once or (extraction.cost < self._least and not later):
            self._least = min(self._least, extraction.cost)
            self._rank(graph, egraph, extraction)
            return
        self._waiting.append((extraction.cost, graph, egraph, extraction))
        self._waiting.sort(key=lambda one: one[0])
        del self._waiting[self._most :]

    def rank_first(self) -> None:
        """Ranks the program with the lowest sum of those that wait, where that is lower than all that were ranked.

        Raises:
            TimeUp: something is not measured.
        """
        if self._waiting and self._waiting[0][0] < self._least:
            cost, graph, egraph, extraction = self._waiting.pop(0)
            self._least = cost
            self._rank(graph, egraph, extraction)

    def known(self, seconds: float) -> None:
        """The sum of the start's prices: what is above waits until it is ranked with others."""
        self._first = seconds
        self._least = min(self._least, seconds)

    def take(self, found: Candidate) -> None:
        """A candidate that others found, and that is better than the best so far."""
        self._limits.on_built(found)
        self.best, self.own = found, False
        self._limits.gained()
        self._on_best(found)

    def onwards(self) -> Programs:
        """The programs of e-graphs of the best graph; those that wait stay behind."""
        return Programs(self.best, self._costs, self._limits, self._price, self._most, self._on_best)

    def rank(self) -> None:
        """Ranks what waits as whole graphs.

        Raises:
            TimeUp: something is not measured.
        """
        while self._waiting:
            _, graph, egraph, extraction = self._waiting.pop(0)
            self._rank(graph, egraph, extraction)

    def _rank(self, graph: Graph, egraph: EGraph, extraction: Extraction) -> None:
        cost = self._cost(graph, extraction)
        if cost >= self.best.cost - least_gain(self.best.cost):
            return
        found = self._candidate(cost, egraph, extraction)
        if found is None:
            return
        self.take(found)
        self.own = True

    def _cost(self, graph: Graph, extraction: Extraction) -> float:
        """What a graph costs as a whole; with kernels, what the start does without what they gain by the sum of prices."""
        if self._first is None or self._costs.can_price(graph):
            return self._costs.graph_cost(graph)
        return max(self._start.cost - (self._first - extraction.cost), PART * self._start.cost)

    def _candidate(self, cost: float, egraph: EGraph, extraction: Extraction) -> Candidate | None:
        """A program with the way to it: a step for each rule, and what each step rests on. None where it rests on nothing."""
        turns = list(story(egraph, extraction, self._start.graph, self._price))
        at = self._start
        for turn in turns[:-1]:
            at = Candidate(turn.graph, self._between(at, turn.graph), at, turn.rule, turn.places, turn.facts)
        if not turns:
            return None
        last = turns[-1]
        return Candidate(last.graph, cost, at, last.rule, last.places, last.facts)

    def _between(self, before: Candidate, graph: Graph) -> float:
        """What a graph on the way costs, as far as there is time to say."""
        if graph.outputs == before.graph.outputs or not self._costs.can_price(graph):
            return before.cost
        try:
            return self._costs.graph_cost(graph)
        except TimeUp:
            return before.cost


class Tidying:
    """Going on from the best graph as a whole, rule by rule: what a sum of prices does not see, or chance left undone."""

    def __init__(
        self,
        rules: Sequence[CompiledRule],
        costs: CostModel,
        limits: Limits,
        seed: int,
        findings: Findings | None = None,
    ) -> None:
        self._rules, self._costs, self._limits, self._seed = without_layouts(rules), costs, limits, seed
        self._findings = findings
        self._done: Candidate | None = None
        #: steps that were taken, and seconds of the predicted time that they saved
        self.steps, self.gained = 0, 0.0

    def tidy(self, programs: Programs, swept: bool = False) -> None:
        """Tells programs of what is better; nothing where that was done from their best.

        `swept`: only what can be had at once.
        """
        from dslc.search.strategies.backtrack import BacktrackSearch

        best = programs.best
        if best is self._done or not self._costs.can_price(best.graph):
            return
        limits = self._limits
        steps = TIDY if limits.steps is None else min(TIDY, limits.steps // PARTS)
        near = BacktrackSearch(
            best,
            self._rules,
            self._costs,
            limits,
            ROOM,
            self._seed,
            None,
            programs.take,
            turn=steps,
            findings=self._findings,
        )
        began, before = limits.done, best.cost
        end = began + steps
        try:
            near.begin()
            while not swept and not limits.over and limits.done < end and near.expand():
                pass
        finally:
            self.steps += limits.done - began
            self.gained += before - programs.best.cost
        self._done = None if swept else programs.best


def rules_of(space: Space) -> list[CompiledRule]:
    """The substitutions that a space says are tried; layouts are substitutions too."""
    if space.layouts == "none":
        return without_layouts(space.rules)
    if space.layouts == "only":
        others = set(map(id, without_layouts(space.rules)))
        return [rule for rule in space.rules if id(rule) not in others]
    return space.rules
