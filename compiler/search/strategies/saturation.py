"""Equality saturation as a strategy (TENSAT): rules are applied everywhere in rounds, then the best program is taken out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dslc.deadline import FOREVER, OVER, Deadline
from dslc.egraph import rewrite
from dslc.egraph.extract.program import extract
from dslc.egraph.extract.table import Weigh
from dslc.egraph.graph import EGraph
from dslc.search.candidates.candidate import Candidate
from dslc.search.options.strategies import WAYS, Saturate
from dslc.search.rewrites.associative_flattening import level
from dslc.search.strategies.explorers import SweepCount, explored
from dslc.search.strategies.programs import NodePrices, Programs, Tidying
from dslc.search.strategies.space import SearchedEGraph, Space

SETTLED = 12  #: how often prices are asked for what the best program is made of, and the best program for these prices
GROWING = 0.5  #: share of the time that growing may take
SOLVING = 0.25  #: share of what is left that the solver may take
SOLVER = 30.0  #: seconds that the solver may take, at most
SWEPT = 0.3  #: share of the time that what can be had at once may take
LEAST = 800  #: e-nodes of a region, however many regions there are


def explore(options: Saturate, space: Space) -> Iterator[Candidate]:
    """Saturate e-graphs of the graph or of its regions."""

    def make(part: Space, count: int) -> Saturating:
        enodes = max(options.enodes // count, min(options.enodes, LEAST))
        return Saturating(replace(options, enodes=enodes), part, SWEPT / count)

    return explored(space, make, options.whole or options.tensat)


class Saturating:
    """An e-graph of one graph; each turn is a round, and the best program by then."""

    def __init__(self, options: Saturate, space: Space, swept: float = SWEPT, tidying: Tidying | None = None) -> None:
        """Begin with the e-graph of the space's graph.

        `swept`: share of the time of the first sweep, none where there was one; `tidying` counts the sweeps.
        """
        self._options, self._space, self._limits, self._swept = options, space, space.limits, swept
        # in ascending order, as TENSAT has them: what is found does not depend on the order of files
        self._rules = sorted(space.tried, key=lambda rule: rule.name)
        self._start, self._egraph, self._seed = space.start, EGraph.of(space.graph), space.seed
        self._prices = NodePrices(space)
        self._programs = Programs(space, self._prices, options.finalists)
        self._tidying = (tidying or Tidying(space)) if options.tidy and not options.tensat else None
        self._round, self._multi = 0, options.k_multi
        self._growing = self._limits.until.part(GROWING)

    @property
    def best(self) -> Candidate:
        return self._programs.best

    @property
    def sweeps(self) -> SweepCount | None:
        return self._tidying.sweeps if self._tidying else None

    def grown(self) -> SearchedEGraph:
        """Return the e-graph and its prices."""
        return SearchedEGraph(self._egraph, self._prices)

    def begin(self) -> None:
        """Take what can be had at once, and do the first round."""
        if self._tidying and self._swept:
            with self._limits.within(self._swept):
                self._tidying.tidy(self._programs, swept=True)
        self._growing = self._limits.until.part(GROWING)
        self._state()
        self.expand()

    def _state(self) -> None:
        """State what was found beside rules as unions."""
        findings = self._space.findings
        for fact, leaves in findings.facts(self._start.graph) if findings else ():
            rewrite.state(self._egraph, fact, rewrite.placed(self._egraph, leaves))
        self._egraph.rebuild()

    def expand(self) -> bool:
        """Do one more round; False where it was the last."""
        options, limits = self._options, self._limits
        if self._round >= options.rounds or not limits.step():
            return False
        egraph = self._egraph
        # it ends by itself: patience is for what is done in turns
        limits.gained()
        grown = rewrite.saturate(egraph, self._rules, rewrite.SaturationLimits(
            options.enodes, self._until(), 1, 1 if self._round < self._multi else 0,
            ordered=options.tensat, acyclic=options.tensat, seed=self._seed + self._round,
        ), None if options.tensat else lambda rule, nodes: level(egraph, rule, nodes, options.enodes))  # fmt: skip
        self._round += 1
        multi = self._round <= self._multi
        done = grown.stop is rewrite.Stop.SATURATED or (
            not multi and not grown.unions and rewrite.Cap.MATCHES not in grown.capped
        )
        several = not options.tensat and any(len(rule.left.tops) > 1 for rule in self._rules)
        if done and several and grown.stop is not rewrite.Stop.SATURATED:
            # single patterns add nothing any more, and there is room: once more with several
            self._multi, done = self._round + 1, False
        full = len(egraph) >= options.enodes or grown.stop is rewrite.Stop.SECONDS
        last = done or full or self._round >= options.rounds
        if not options.tensat:
            self._take("joint")
        if last:
            self._programs.rank()
            self._take(WAYS[options.final or "ilp"])
            return self._onwards()
        return True

    def _onwards(self) -> bool:
        """Goes on from the best graph rule by rule, and then with an e-graph of that; False where it is the one that was saturated."""
        limits = self._limits
        if not self._tidying or limits.over:
            return False
        limits.gained()
        self._tidying.tidy(self._programs)
        best = self._programs.best
        if best is self._start or limits.over:
            return False
        self._start, self._programs, self._egraph = best, self._programs.onwards(), EGraph.of(best.graph)
        self._seed, self._round, self._multi = self._seed + self._round, 0, self._options.k_multi
        self._growing = limits.until.part(GROWING)
        self._state()
        return True

    def _until(self) -> Deadline:
        """Return when growing ends: what is found has to be taken out, ranked, and gone on from, if the search does not end before."""
        return replace(self._growing, outer=lambda: OVER if self._limits.over else FOREVER)

    def _take(self, how: str) -> None:
        """The best programs by one extractor: as if weights were free, and as if caches were full of them where they may be."""
        egraph, costs = self._egraph, self._space.costs
        self._taken(how, None)
        # two weights joined are a third one, and another operator that reads one has its own copy
        weights = [egraph.value(number) for number in egraph.members if egraph.constant(number)]
        if costs.caches.crowded(sum(map(costs.samples.bytes_of, weights))):
            self._taken(how, costs.weight)

    def _taken(self, how: str, weigh: Weigh | None) -> None:
        """The best program at prices that are known for each of its nodes."""
        limits = self._limits
        for _ in range(SETTLED):
            if limits.over:
                return
            until = limits.until.part(SOLVING, SOLVER) if how == "ilp" else FOREVER
            found = extract(self._egraph, self._prices, how, until=until, weigh=weigh)
            if not found:
                return
            some = self._prices.settle(found)
            # what a guess made cheap is not
            found = replace(found, cost=self._prices.total(found))
            # a snapshot: the e-graph grows on
            self._programs.offer(self._egraph.clone(), found, at_once=weigh is not None and not some)
            if not some:
                return
