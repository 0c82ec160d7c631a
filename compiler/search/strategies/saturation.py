"""Equality saturation as a strategy (TENSAT): rules are applied everywhere in rounds, then the best program is taken out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from dslc.deadline import FOREVER, OVER, Deadline
from dslc.search.strategies.arms import ARMS_ENODES, ENODES, FINAL, TIDY, WAYS, WHOLE
from dslc.search.strategies.arms import told as noted
from dslc.search.strategies.option import option

if TYPE_CHECKING:
    from dslc.cost.model import CostModel
    from dslc.egraph.extract.table import Weigh
    from dslc.egraph.graph import EGraph
    from dslc.match import CompiledRule
    from dslc.search.region_rewrites.findings import Findings
    from dslc.search.rewrites.candidate import Candidate, Limits, Progress
    from dslc.search.strategies.programs import Tidying
    from dslc.search.strategies.strategy import Grown, Space


SETTLED = 12  #: how often prices are asked for what the best program is made of, and the best program for these prices
GROWING = 0.5  #: share of the time that growing may take
SOLVING = 0.25  #: share of what is left that the solver may take
SOLVER = 30.0  #: seconds that the solver may take, at most
SWEPT = 0.3  #: share of the time that what can be had at once may take
LEAST = 800  #: e-nodes of a region, however many regions there are


@dataclass(frozen=True, slots=True)
class Saturate:
    """Rounds of all rules in an e-graph, those with several patterns first and in the first rounds only; a step is a round."""

    egraphs: ClassVar[bool] = True

    enodes: int = field(default=ARMS_ENODES, metadata=ENODES)
    rounds: int = field(default=15, metadata=option(
        "Rounds of all rules (default: 15).", type=int, least=1, metavar="N",
    ))  # fmt: skip
    k_multi: int = field(default=1, metadata=option(
        "Rounds in which rules with several patterns are applied at least (default: 1).", type=int, least=0, metavar="N",
        more="One more whenever nothing else adds anything and there is room.",
    ))  # fmt: skip
    finalists: int = field(default=5, metadata=option(
        "Programs that are ranked as whole graphs (default: 5).", type=int, least=1, metavar="N",
        more="The best by the sum of their prices.",
    ))  # fmt: skip
    final: str = field(default="", metadata=FINAL)
    tensat: bool = field(default=False, metadata=option(
        "As TENSAT: rules in order until the e-graph is full, no circles built, nothing after that.", type=bool,
        more="Rules with several patterns are applied in --k-multi rounds and never again; --final takes the one program out.",
    ))  # fmt: skip
    tidy: bool = field(default=True, metadata=TIDY)

    whole: bool = field(default=False, metadata=WHOLE)

    def explore(self, space: Space) -> Iterator[Candidate]:
        from dslc.search.strategies.explorers import explored
        from dslc.search.strategies.programs import rules_of

        rules = rules_of(space)
        tidied: list[Tidying] = []

        def make(start: Candidate, costs: CostModel, count: int, told: Progress) -> Saturating:
            options = replace(self, enodes=max(self.enodes // count, min(self.enodes, LEAST)))
            one = Saturating(
                options, start, rules, costs, space.limits, space.seed, told, SWEPT / count, space.findings
            )
            if one.tidying is not None:
                tidied.append(one.tidying)
            return one

        yield from explored(space, make, apart=True, whole=self.whole or self.tensat)
        noted(space, rules, tidied)


class Saturating:
    """An e-graph of one graph; each turn is a round, and the best program by then."""

    def __init__(
        self, options: Saturate, start: Candidate, rules: Sequence[CompiledRule], costs: CostModel, limits: Limits, seed: int,
        told: Progress, swept: float = SWEPT, findings: Findings | None = None,
        tidying: Tidying | None = None,
    ) -> None:  # fmt: skip
        """`swept`: share of the time of the first sweep, none where there was one; `tidying`: what keeps count of sweeps."""
        from dslc.egraph.graph import EGraph
        from dslc.search.strategies.programs import NodePrices, Programs, Tidying

        self._options, self._limits, self._seed, self._swept = options, limits, seed, swept
        # in ascending order, as TENSAT has them: what is found does not depend on the order of files
        self._rules = sorted(rules, key=lambda rule: rule.name)
        self._start, self._egraph = start, EGraph.of(start.graph)
        self._prices = NodePrices(costs, limits, lazy=True)
        self._programs = Programs(start, costs, limits, self._prices, options.finalists, told)
        own = tidying or Tidying(rules, costs, limits, seed, findings)
        self.tidying = own if options.tidy and not options.tensat else None
        self._findings = findings
        self._costs = costs
        self._round, self._multi = 0, options.k_multi
        self._growing = limits.until.part(GROWING)

    @property
    def best(self) -> Candidate:
        return self._programs.best

    def grown(self) -> Grown:
        from dslc.search.strategies.strategy import Grown

        return Grown(self._egraph, self._prices)

    def begin(self) -> None:
        """What can be had at once, and the first round."""
        if self.tidying is not None and self._swept:
            with self._limits.within(self._swept):
                self.tidying.tidy(self._programs, swept=True)
        self._growing = self._limits.until.part(GROWING)
        self._state()
        self.expand()

    def _state(self) -> None:
        """What was found beside rules, as unions."""
        from dslc.egraph import rewrite

        for fact, leaves in () if self._findings is None else self._findings.facts(self._start.graph):
            rewrite.state(self._egraph, fact, rewrite.placed(self._egraph, leaves))
        self._egraph.rebuild()

    def expand(self) -> bool:
        """One more round; False where it was the last."""
        from dslc.egraph import rewrite
        from dslc.search.rewrites.levelled import level

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
        from dslc.egraph.graph import EGraph

        limits = self._limits
        if self.tidying is None or limits.over:
            return False
        limits.gained()
        self.tidying.tidy(self._programs)
        best = self._programs.best
        if best is self._start or limits.over:
            return False
        self._start, self._programs, self._egraph = best, self._programs.onwards(), EGraph.of(best.graph)
        self._seed, self._round, self._multi = self._seed + self._round, 0, self._options.k_multi
        self._growing = limits.until.part(GROWING)
        self._state()
        return True

    def _until(self) -> Deadline:
        """When growing ends: what is found has to be taken out, ranked, and gone on from. The search may end for another reason."""
        return replace(self._growing, outer=lambda: OVER if self._limits.over else FOREVER)

    def _take(self, how: str) -> None:
        """The best programs by one extractor: as if weights were free, and as if caches were full of them where they may be."""
        egraph, costs = self._egraph, self._costs
        self._taken(how, None)
        # two weights joined are a third one, and another operator that reads one has its own copy
        weights = [egraph.value(number) for number in egraph.members if egraph.constant(number)]
        if costs.caches.crowded(sum(map(costs.samples.bytes_of, weights))):
            self._taken(how, costs.weight)

    def _taken(self, how: str, weigh: Weigh | None) -> None:
        """The best program at prices that are known for each of its nodes."""
        from dslc.egraph.extract.program import extract

        limits = self._limits
        for _ in range(SETTLED):
            if limits.over:
                return
            until = limits.until.part(SOLVING, SOLVER) if how == "ilp" else FOREVER
            found = extract(self._egraph, self._prices, how, until=until, weigh=weigh)
            if found is None:
                return
            some = self._prices.settle(found)
            # what a guess made cheap is not
            found = replace(found, cost=self._prices.total(found))
            self._programs.offer(self._snapshot(), found, at_once=weigh is not None and not some)
            if not some:
                return

    def _snapshot(self) -> EGraph:
        """The e-graph as it is: it grows on."""
        return self._egraph.clone()
