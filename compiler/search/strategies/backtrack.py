"""TASO's cost-based backtracking search (Algorithm 2 of the paper): a queue of graphs by cost, pruned by alpha."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from random import Random

from dslc.ir.graph import Node
from dslc.match import CompiledRule
from dslc.match.apply import replacements
from dslc.match.recipe import Refused
from dslc.search.candidates.candidate import Candidate, built, least_gain, rewritten
from dslc.search.options.strategies import Backtrack
from dslc.search.region_rewrites.findings import gathered, taken
from dslc.search.rewrites.layouts import Layouts, layout_variants, layouts_of, without_layouts
from dslc.search.strategies.explorers import SweepCount, finished, summarize
from dslc.search.strategies.partition import TURN as DIVIDED_TURN
from dslc.search.strategies.partition import divided, is_large
from dslc.search.strategies.space import Space, silent
from dslc.search.strategies.sweep import SweepState, chained, greedy

QUEUE = 2000  #: graphs that wait, the cheapest ones
NODES = 300_000  #: nodes of all graphs that wait
MATCHES = 500  #: matches of one rule in one graph that are tried
#: how many times what it may cost a graph costs at most that is tried in other layouts: the right one may pay
ROOM = 1.5
LAYOUTS = 2  #: layouts of the original that are searched from, the cheapest ones


def explore(options: Backtrack, space: Space) -> Iterator[Candidate]:
    """Search by substitutions, and by layouts with them, after them, or instead."""
    layouts = None if space.layouts == "none" else layouts_of(space.rules)
    found, sweeps = space.start, SweepCount()
    if space.layouts != "only" and not space.limits.over:
        jointly = layouts if space.layouts == "joint" else None
        found = backtrack(space, without_layouts(space.rules), jointly, options.tidy, sweeps)
        if found is not space.start:
            yield found
    if space.layouts != "joint" and layouts and not space.limits.over:
        alone = replace(space, start=found, findings=None, note=silent)
        after = backtrack(alone, [], layouts, options.tidy, sweeps)
        if after is not found:
            yield after
    summarize(space, [sweeps], "the queue")


def backtrack(
    space: Space,
    rules: Sequence[CompiledRule],
    layouts: Layouts | None = None,
    tidy: bool = True,
    sweeps: SweepCount | None = None,
) -> Candidate:
    """Return the cheapest graph that was found.

    A sweep takes what can be had at once; from there every rule is tried at every place of the cheapest graph in the queue, and
    what costs less than `alpha` times the best goes back into the queue. Whenever something better turns up, it is swept again.
    With `layouts`, a graph is tried in other layouts too, and so is what every substitution builds (section 5 of the paper).
    A large graph is searched in regions (`dslc.search.strategies.partition`). The result depends on the seed, the costs and the number
    of steps, and on nothing else; Ctrl-C ends the search as its clock would. The space's findings are moves beside the rules. `sweeps`
    counts what sweeps do; without `tidy` nothing is swept, and the queue is all there is.
    """
    if is_large(space.graph):
        return divided(
            space,
            lambda part, count: BacktrackSearch(part, rules, layouts, tidy, sweeps, NODES // count, DIVIDED_TURN),
        )
    return finished(space, lambda whole, _: BacktrackSearch(whole, rules, layouts, tidy, sweeps))


class BacktrackSearch:
    """A search of one graph, which goes on when it is told to: `best` is there at any moment."""

    def __init__(
        self,
        space: Space,
        rules: Sequence[CompiledRule],
        layouts: Layouts | None = None,
        tidy: bool = True,
        sweeps: SweepCount | None = None,
        nodes: int = NODES,
        turn: int | None = None,
    ) -> None:
        """Begin with an empty queue.

        `nodes`: how many the graphs in the queue may have together; `turn`: steps that a sweep takes at most. Sweeps are left out
        where not `tidy`; `sweeps` counts what they do.
        """
        start = space.start
        self.best = self._swept = start
        self._before = self._stages()
        self._space, self._rules, self._layouts, self._turn = space, rules, layouts, turn
        self._tidy, self._sweeps = tidy, sweeps or SweepCount()
        self._order = itertools.count()
        self._longest = min(QUEUE, max(20, nodes // max(1, len(start.graph.nodes()))))
        self._queue: list[tuple[float, int, Candidate]] = []
        self._seen = {hash(start.graph.outputs)}
        self._shuffled = list(rules)
        self._random = Random(space.seed)

    def _improved(self, found: Candidate) -> None:
        if found.cost < self.best.cost:
            self.best = found
            self._space.limits.gained()
            self._space.told(found)

    def _push(self, found: Candidate) -> None:
        heapq.heappush(self._queue, (found.cost, next(self._order), found))

    def begin(self) -> None:
        """Take what can be had at once."""
        if not self._tidy:
            return
        with self._sweeping():
            self._swept = self._sweep(self._space.start)

    @contextmanager
    def _sweeping(self) -> Iterator[None]:
        limits = self._space.limits
        with limits.turn(self._turn), self._sweeps.counting(limits, lambda: self.best.cost):
            yield

    def _sweep(self, found: Candidate) -> Candidate:
        """Sweep, and take what was found beside rules where that gains."""
        space = self._space
        swept = greedy(space.at(found, self._improved), self._rules)
        return gathered(swept, space.findings, space.costs, space.limits, self._improved) if space.findings else swept

    def _stages(self) -> Iterator[None]:
        """Do what comes before the queue: what takes several turns, and the same in other layouts."""
        space, rules, swept = self._space, self._rules, self._swept
        if not self._tidy:
            self._wait(space.start)
            return
        # what a sweep takes at once may stand in the way of what takes several turns
        grown = chained(space.at(space.start, self._improved), rules)
        self._wait(grown if grown.cost < swept.cost else chained(space.at(swept, self._improved), rules))
        yield
        if self._layouts:
            # what substitutions may take away of what a layout would have gained: each has costs that must be measured
            gaining = (one for one in _in_other_layouts(space, self._layouts) if one.cost < space.start.cost)
            for first in sorted(gaining, key=lambda one: one.cost)[:LAYOUTS]:
                self._improved(first)
                self._wait(greedy(space.at(first, self._improved), rules))
                yield

    def _wait(self, found: Candidate) -> None:
        self._seen.add(hash(found.graph.outputs))
        self._push(found)

    def expand(self) -> bool:
        """Go on: first with what takes several turns, then every rule is tried at every place of the cheapest graph in the queue.

        False where none is left that is worth it.
        """
        with self._sweeping():
            if next(self._before, self) is not self:
                return True
        if not self._queue:
            return False
        alpha, limits, seen = self._space.alpha, self._space.limits, self._seen
        _, _, current = heapq.heappop(self._queue)
        if current.cost > alpha * self.best.cost:
            self._queue.clear()
            return False
        if self._space.seed:
            self._random.shuffle(self._shuffled)
        for found in _successors(
            self._space.at(current), self._shuffled, self._layouts, lambda: alpha * self.best.cost
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
                with self._sweeping():
                    self._sweep(found)
                seen.add(hash(self.best.graph.outputs))
                self._push(self.best)
                # go on from the better graph; what is left to try here waits
                self._push(current)
                break
        if len(self._queue) > self._longest:
            self._queue = heapq.nsmallest(self._longest, self._queue)
        return bool(self._queue)


def _successors(
    space: Space, rules: Sequence[CompiledRule], layouts: Layouts | None, most: Callable[[], float]
) -> Iterator[Candidate]:
    """Yield every graph that is one substitution or finding, or one choice of layouts, or one substitution in other layouts away.

    `most` says what a graph may cost now to be worth building.
    """
    current, limits = space.start, space.limits
    if layouts:
        yield from _in_other_layouts(space, layouts)
    state = SweepState(current, space.costs)
    for one, _, new in space.findings.moves(current.graph) if space.findings else ():
        if not limits.step():
            return
        if state.evaluation.after(new)[0] <= most():
            yield taken(current, one, [new], space.costs)
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
            fresh = set(built(new.values(), state.index.position))
            turnable = layouts is not None and layouts.concern(fresh)
            if cost > most() * (ROOM if turnable else 1):
                continue
            found = Candidate(rewritten(current.graph, new), cost, current, rule.name, 1)
            yield found
            if layouts and turnable:
                yield from _in_other_layouts(space.at(found), layouts, fresh)


def _in_other_layouts(space: Space, layouts: Layouts, near: set[Node] | None = None) -> Iterator[Candidate]:
    current = space.start
    for variant in layout_variants(current.graph, layouts, near):
        if not space.limits.step():
            return
        cost = space.costs.graph_cost(variant.graph)
        yield Candidate(variant.graph, cost, current, variant.label, len(variant.rules))
