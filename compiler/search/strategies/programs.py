"""Programs in searches over e-graphs: prices of e-nodes, and programs that become candidates."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import inf

from dslc.cost.groups import Group, Key
from dslc.deadline import TimeUp
from dslc.egraph.extract.program import program_of
from dslc.egraph.extract.table import Extraction
from dslc.egraph.graph import EGraph
from dslc.egraph.story import story
from dslc.ir.graph import Graph, Node, Opaque
from dslc.search.candidates.candidate import Candidate, least_gain
from dslc.search.rewrites.layouts import without_layouts
from dslc.search.strategies.backtrack import BacktrackSearch
from dslc.search.strategies.explorers import SweepCount
from dslc.search.strategies.space import Space

NEVER = 1e3  #: how many times what the whole graph costs something costs that cannot be run: a sum stays a number
#: share of a guess that something is hoped to cost that was not measured: what might be best is then measured
HOPE = 0.5
PART = 0.05  #: share of the start's cost that a graph with kernels costs at least
TIDY = 200  #: steps that the best graph so far is gone on from by itself, at most
PARTS = 4  #: parts of all steps of which it has one, at most
ROOM = 1.05  #: how many times its cost a graph may cost that is gone on from there
MEASURING = 0.5  #: share of the time that measuring single e-nodes may take


class NodePrices:
    """Seconds of single e-nodes: measured, and guessed by operations and bytes where that is too early or time is short.

    Nothing is measured before `settle` asks for it, where the costs can guess. A price that was said once stays, unless `settle`
    measures it. The space prices what costs do not know.
    """

    def __init__(self, space: Space) -> None:
        costs = self._costs = space.costs
        self._own = space.price
        self._known: dict[Key, float] = {}
        self._guessed: set[Key] = set()
        self._most = NEVER * max(1e-6, costs.start.seconds if costs.start else 1.0)
        self._until = space.limits.until.part(MEASURING)

    def __call__(self, node: Node) -> float:
        if node.constant or not node.args or isinstance(node, Opaque):
            return 0.0
        known = None if self._own is None else self._own(node)
        if known is not None:
            return known
        key = self._costs.keys.of(_group(node))
        if key not in self._known:
            measure = self._costs.start is None or self._costs.known(key) is not None
            self._known[key] = self._measured(node, key) if measure else self._guess(node, key)
        return self._known[key]

    def settle(self, extraction: Extraction) -> bool:
        """Measures what a program is made of; whether any of it was guessed before."""
        some = False
        for choice in extraction.choice.values():
            node = choice.key
            if not isinstance(node, Node) or not choice.cost or (self._own is not None and self._own(node) is not None):
                continue
            key = self._costs.keys.of(_group(node))
            if key in self._guessed and not self._late:
                self._guessed.discard(key)
                self._known[key] = self._measured(node, key)
                some = True
        return some

    def total(self, extraction: Extraction) -> float:
        """Return the cost of a program by the prices that are known by now."""
        return sum(
            self(choice.key) for choice in extraction.choice.values() if isinstance(choice.key, Node) and choice.cost
        )

    @property
    def _late(self) -> bool:
        # without a whole to take a part of there is no guess
        return self._costs.start is not None and self._until.over

    def _measured(self, node: Node, key: Key) -> float:
        if not self._late or self._costs.known(key):
            with suppress(TimeUp):
                return min(self._costs.cost(node), self._most)
        return self._guess(node, key)

    def _guess(self, node: Node, key: Key) -> float:
        self._guessed.add(key)
        return HOPE * self._costs.guess(_group(node))


def _group(node: Node) -> Group:
    """Return a node as a group that runs by itself."""
    return Group((node,), (node.args,))


class Programs:
    """Programs of e-graphs of one graph: the best by the sum of their prices wait to be ranked as whole graphs.

    `best` is the best candidate so far.
    """

    def __init__(self, space: Space, price: Callable[[Node], float], most: int) -> None:
        self.best = space.start
        #: whether the best is a program of these e-graphs, and not what others found
        self.own = True
        self._space, self._start, self._costs = space, space.start, space.costs
        self._price, self._most = price, most
        self._seen = {hash(space.graph.outputs)}
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
            self._least = self._waiting[0][0]
            self._rank(*self._waiting.pop(0)[1:])

    def known(self, seconds: float) -> None:
        """The sum of the start's prices: what is above waits until it is ranked with others."""
        self._first = seconds
        self._least = min(self._least, seconds)

    def take(self, found: Candidate) -> None:
        """A candidate that others found, and that is better than the best so far."""
        self._space.limits.on_built(found)
        self.best, self.own = found, False
        self._space.limits.gained()
        self._space.told(found)

    def onwards(self) -> Programs:
        """The programs of e-graphs of the best graph; those that wait stay behind."""
        return Programs(self._space.at(self.best, self._space.told), self._price, self._most)

    def rank(self) -> None:
        """Ranks what waits as whole graphs.

        Raises:
            TimeUp: something is not measured.
        """
        while self._waiting:
            self._rank(*self._waiting.pop(0)[1:])

    def _rank(self, graph: Graph, egraph: EGraph, extraction: Extraction) -> None:
        cost = self._cost(graph, extraction)
        if cost >= self.best.cost - least_gain(self.best.cost):
            return
        # a step for each rule, and what each step rests on
        turns = list(story(egraph, extraction, self._start.graph, self._price))
        at = self._start
        for turn in turns[:-1]:
            at = Candidate(turn.graph, self._between(at, turn.graph), at, turn.rule, turn.places, turn.facts)
        if turns:
            last = turns[-1]
            self.take(Candidate(last.graph, cost, at, last.rule, last.places, last.facts))
            self.own = True

    def _cost(self, graph: Graph, extraction: Extraction) -> float:
        """Return the cost of a graph as a whole; with kernels, that of the start without what they gain by the sum of prices."""
        if self._first is None or self._costs.can_price(graph):
            return self._costs.graph_cost(graph)
        return max(self._start.cost - (self._first - extraction.cost), PART * self._start.cost)

    def _between(self, before: Candidate, graph: Graph) -> float:
        """Return the cost of a graph on the way, as far as there is time to say."""
        if graph.outputs == before.graph.outputs or not self._costs.can_price(graph):
            return before.cost
        try:
            return self._costs.graph_cost(graph)
        except TimeUp:
            return before.cost


class Tidying:
    """Going on from the best graph as a whole, rule by rule: what a sum of prices does not see, or chance left undone."""

    def __init__(self, space: Space) -> None:
        self._space, self._rules, self.sweeps = space, without_layouts(space.tried), SweepCount()
        self._done: Candidate | None = None

    def tidy(self, programs: Programs, swept: bool = False) -> None:
        """Tells programs of what is better; nothing where that was done from their best.

        `swept`: only what can be had at once.
        """
        best, limits = programs.best, self._space.limits
        if best is self._done or not self._space.costs.can_price(best.graph):
            return
        steps = TIDY if limits.steps is None else min(TIDY, limits.steps // PARTS)
        near = BacktrackSearch(replace(self._space.at(best, programs.take), alpha=ROOM), self._rules, turn=steps)
        end = limits.done + steps
        with self.sweeps.counting(limits, lambda: programs.best.cost):
            near.begin()
            while not swept and not limits.over and limits.done < end and near.expand():
                pass
        self._done = None if swept else programs.best
