"""TASO's cost-based backtracking search (Algorithm 2 of the paper): a queue of graphs by cost, pruned by alpha."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import inf
from random import Random

from dslc.cost.model import CostModel
from dslc.ir.graph import Node, Value
from dslc.match import CompiledRule
from dslc.match.apply import replacements
from dslc.match.recipe import Refused
from dslc.search.region_rewrites.findings import Findings, gathered, taken
from dslc.search.rewrites.candidate import Candidate, Limits, Progress
from dslc.search.rewrites.chains import chained
from dslc.search.rewrites.divided import TURN as DIVIDED_TURN
from dslc.search.rewrites.divided import divided, ended, is_large
from dslc.search.rewrites.layouts import Layouts, layout_variants
from dslc.search.rewrites.rewriting import rewritten
from dslc.search.rewrites.sweep import SweepState, greedy, least_gain
from dslc.search.strategies.arms import Aside

QUEUE = 2000  #: graphs that wait, the cheapest ones
NODES = 300_000  #: nodes of all graphs that wait
MATCHES = 500  #: matches of one rule in one graph that are tried
#: how many times what it may cost a graph costs at most that is tried in other layouts: the right one may pay
ROOM = 1.5
LAYOUTS = 2  #: layouts of the original that are searched from, the cheapest ones


def backtrack(
    start: Candidate,
    rules: Sequence[CompiledRule],
    costs: CostModel,
    limits: Limits,
    *,
    alpha: float = 1.05,
    seed: int = 0,
    layouts: Layouts | None = None,
    on_best: Progress = lambda _: None,
    note: Callable[[str], None] = lambda _: None,
    findings: Findings | None = None,
    tidy: bool = True,
    aside: Aside | None = None,
) -> Candidate:
    """The cheapest graph that was found.

    A sweep takes what can be had at once; from there every rule is tried at every place of the cheapest graph in the queue, and
    what costs less than `alpha` times the best goes back into the queue. Whenever something better turns up, it is swept again.
    With `layouts`, a graph is tried in other layouts too, and so is what every substitution builds (section 5 of the paper).
    A large graph is searched in regions (`dslc.search.rewrites.divided`). The result depends on the seed, the costs and the number of
    steps, and on nothing else; Ctrl-C ends the search as its clock would. `note` takes a line for the report; `findings` are moves
    beside the rules. `aside` counts what sweeps do; without `tidy` nothing is swept, and the queue is all there is.
    """

    if is_large(start.graph):

        def search(start: Candidate, costs: CostModel, count: int) -> BacktrackSearch:
            return BacktrackSearch(
                start,
                rules,
                costs,
                limits,
                alpha,
                seed,
                layouts,
                lambda _: None,
                NODES // count,
                DIVIDED_TURN,
                findings,
                tidy,
                aside,
            )

        return divided(start, costs, limits, search, on_best, alpha, note)
    whole = BacktrackSearch(
        start, rules, costs, limits, alpha, seed, layouts, on_best, findings=findings, tidy=tidy, aside=aside
    )
    with ended(limits):
        whole.begin()
        while not limits.over and whole.expand():
            pass
    return whole.best


class BacktrackSearch:
    """A search of one graph, which goes on when it is told to: `best` is there at any moment."""

    def __init__(
        self,
        start: Candidate,
        rules: Sequence[CompiledRule],
        costs: CostModel,
        limits: Limits,
        alpha: float,
        seed: int,
        layouts: Layouts | None,
        on_best: Progress,
        nodes: int = NODES,
        turn: int | None = None,
        findings: Findings | None = None,
        tidy: bool = True,
        aside: Aside | None = None,
    ) -> None:
        """`nodes`: how many the graphs in the queue may have together; `turn`: steps that a sweep takes at most.

        Sweeps are left out where not `tidy`; `aside` counts what they do.
        """
        self.best = self._swept = start
        self._before = self._stages()
        self._start, self._rules, self._costs, self._limits = start, rules, costs, limits
        self._alpha, self._seed, self._layouts, self._on_best, self._turn = alpha, seed, layouts, on_best, turn
        self._findings, self._tidy, self._aside = findings, tidy, aside
        self._order = itertools.count()
        self._longest = min(QUEUE, max(20, nodes // max(1, len(start.graph.nodes()))))
        self._queue: list[tuple[float, int, Candidate]] = []
        self._seen = {hash(start.graph.outputs)}
        self._shuffled = list(rules)
        self._random = Random(seed)

    def _improved(self, found: Candidate) -> None:
        if found.cost < self.best.cost:
            self.best = found
            self._limits.gained()
            self._on_best(found)

    def _push(self, found: Candidate) -> None:
        heapq.heappush(self._queue, (found.cost, next(self._order), found))

    def begin(self) -> None:
        """What can be had at once."""
        if not self._tidy:
            return
        with self._limits.turn(self._turn), self._counted():
            swept = greedy(self._start, self._rules, self._costs, self._limits, self._improved)
            self._swept = self._gathered(swept)

    def _counted(self) -> AbstractContextManager[None]:
        return nullcontext() if self._aside is None else self._aside.counting(self._limits, lambda: self.best.cost)

    def _stages(self) -> Iterator[None]:
        """What comes before the queue: what takes several turns, and the same in other layouts."""
        if not self._tidy:
            self._wait(self._start)
            return
        rules, costs, limits = self._rules, self._costs, self._limits
        swept = self._swept
        # what a sweep takes at once may stand in the way of what takes several turns
        grown = chained(self._start, rules, costs, limits, self._improved)
        self._wait(grown if grown.cost < swept.cost else chained(swept, rules, costs, limits, self._improved))
        yield
        if self._layouts is not None:
            for first in _laid_out(self._start, costs, limits, self._layouts):
                self._improved(first)
                self._wait(greedy(first, rules, costs, limits, self._improved))
                yield

    def _gathered(self, found: Candidate) -> Candidate:
        """With what was found beside rules, where that gains."""
        return (
            found
            if self._findings is None
            else gathered(found, self._findings, self._costs, self._limits, self._improved)
        )

    def _wait(self, found: Candidate) -> None:
        self._seen.add(hash(found.graph.outputs))
        self._push(found)

    def expand(self) -> bool:
        """Goes on: first with what takes several turns, then every rule is tried at every place of the cheapest graph in the queue.

        False where none is left that is worth it.
        """
        with self._limits.turn(self._turn), self._counted():
            if next(self._before, self) is not self:
                return True
        if not self._queue:
            return False
        alpha, costs, limits, seen = self._alpha, self._costs, self._limits, self._seen
        _, _, current = heapq.heappop(self._queue)
        if current.cost > alpha * self.best.cost:
            self._queue.clear()
            return False
        if self._seed:
            self._random.shuffle(self._shuffled)
        for found in _successors(
            current, self._shuffled, costs, limits, self._layouts, lambda: alpha * self.best.cost, self._findings
        ):
            cost = found.cost
            identity = hash(found.graph.outputs)
            if cost > alpha * self.best.cost or identity in seen:
                continue
            seen.add(identity)
            limits.on_built(found)
            self._push(found)
            if cost < self.best.cost - least_gain(self.best.cost):
                self._improved(found)
                if not self._tidy:
                    # it is in the queue, and the next one
                    self._push(current)
                    break
                with limits.turn(self._turn), self._counted():
                    self._gathered(greedy(found, self._rules, costs, limits, self._improved))
                seen.add(hash(self.best.graph.outputs))
                self._push(self.best)
                # go on from the better graph; what is left to try here waits
                self._push(current)
                break
        if len(self._queue) > self._longest:
            self._queue = heapq.nsmallest(self._longest, self._queue)
        return bool(self._queue)


def _laid_out(start: Candidate, costs: CostModel, limits: Limits, layouts: Layouts) -> list[Candidate]:
    """The cheapest of a graph's other layouts that gain: substitutions may take away what a layout would have gained.

    They are looked at when the graph itself is done with: each has costs that must be measured.
    """
    gaining = [found for found in _in_other_layouts(start, costs, limits, layouts, None) if found.cost < start.cost]
    return sorted(gaining, key=lambda found: found.cost)[:LAYOUTS]


def _successors(
    current: Candidate,
    rules: Sequence[CompiledRule],
    costs: CostModel,
    limits: Limits,
    layouts: Layouts | None,
    most: Callable[[], float],
    findings: Findings | None = None,
) -> Iterator[Candidate]:
    """Every graph that is one substitution or finding, or one choice of layouts, or one substitution in other layouts away.

    `most` says what a graph may cost now to be worth building.
    """
    if layouts is not None:
        yield from _in_other_layouts(current, costs, limits, layouts, None)
    state = SweepState(current, costs)
    for one, new in () if findings is None else findings.moves(current.graph):
        if not limits.step():
            return
        if state.evaluation.after(new)[0] <= most():
            yield taken(current, one, [new], costs)
    for rule, new, cost in _moves(state, rules, limits):
        built = _built(new, state.index.position)
        turnable = layouts is not None and layouts.concern(built)
        if cost > most() * (ROOM if turnable else 1):
            continue
        found = Candidate(rewritten(current.graph, new), cost, current, rule.name, 1)
        yield found
        if layouts is not None and turnable:
            yield from _in_other_layouts(found, costs, limits, layouts, built)


def _built(new: Mapping[Value, Value], known: Collection[Node]) -> set[Node]:
    """The nodes of replacements that the graph does not have."""
    out: set[Node] = set()
    stack = [value.node for value in new.values()]
    while stack:
        node = stack.pop()
        if node not in known and node not in out:
            out.add(node)
            stack.extend(arg.node for arg in node.args)
    return out


def _in_other_layouts(
    current: Candidate, costs: CostModel, limits: Limits, layouts: Layouts, near: set[Node] | None
) -> Iterator[Candidate]:
    for variant in layout_variants(current.graph, layouts, near):
        if not limits.step():
            return
        yield Candidate(variant.graph, costs.graph_cost(variant.graph), current, variant.label, len(variant.rules))


def _moves(
    state: SweepState, rules: Sequence[CompiledRule], limits: Limits
) -> Iterator[tuple[CompiledRule, dict[Value, Value], float]]:
    """Everything that is one substitution away, with its cost."""
    for rule in rules:
        if limits.over:
            return
        for match in state.matches(rule, MATCHES):
            if not limits.step():
                return
            try:
                new = replacements(match)
            except Refused:
                continue
            cost = state.evaluation.after(new)[0]
            limits.on_tried(rule.name, cost < inf)
            yield rule, new, cost
