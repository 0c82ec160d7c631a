"""Searching a large graph in regions: a step then costs what it touches, whatever the size of the graph.

A state of the search is the graph with what was found in each of its regions put in their places. A region is explored as a graph of
its own, once for all places where it stands; the graph itself is built again only when a turn through its regions is over.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from dslc.cost.evaluation import Evaluation
from dslc.cost.groups import working_nodes
from dslc.cost.model import CostModel
from dslc.deadline import TimeUp
from dslc.ir.graph import Graph, Value
from dslc.prove.garbage import gc_paused
from dslc.search.rewrites.candidate import Candidate, Front, Limits, Progress
from dslc.search.rewrites.regions import MOST as REGIONS_MOST
from dslc.search.rewrites.regions import WHOLE as REGIONS_WHOLE
from dslc.search.rewrites.regions import Region, RegionMap, RegionPlace
from dslc.search.rewrites.stitching import RegionCandidate, put, stitched

KINDS = 3  #: kinds of regions that take turns
STEPS = 500  #: steps that regions are gone on with in a turn, at least; twice as many in each next cycle
LONGER = 2  #: how many times as many steps as it took to begin them; twice as many in each next cycle
TURN = 400  #: steps that a sweep of a region takes, at most
TRIED = 8  #: findings that are tried in their places, in a turn, at most
SECONDS = 2e-7  #: seconds that a graph has to get faster by


class Explorer(Protocol):
    """A search of one region."""

    @property
    def best(self) -> Candidate:
        """The cheapest so far, at any moment."""

    def begin(self) -> None:
        """What can be had at once."""

    def expand(self) -> bool:
        """Goes on a little; False where nothing is left."""


#: a search of a region with these costs, one of so many
Make: TypeAlias = Callable[[Candidate, CostModel, int], Explorer]


@dataclass(eq=False, slots=True)
class _Work:
    """A region that is looked at: what was found in it, and how often it was gone on with."""

    start: Candidate
    explorer: Explorer
    front: Front = field(default_factory=Front)
    begun: bool = False
    alive: bool = True
    expanded: int = 0
    #: what was found and made the whole graph no faster
    refused: Candidate | None = None
    #: seconds that it took, and in how many places at once it stood at most
    seconds: float = 0.0
    places: int = 0


def is_large(graph: Graph) -> bool:
    """Whether a graph is searched in regions."""
    return len(working_nodes(graph.outputs)) > REGIONS_WHOLE


def is_repeated(graph: Graph, costs: CostModel, apart: bool = False) -> bool:
    """Whether half of a graph lies in regions that do the same as others with other weights.

    `apart`: with other weights indeed. What is computed with the same ones in several regions may be joined over all of them.

    Raises:
        TimeUp: what a node costs is not measured.
    """
    if len(working_nodes(graph.outputs)) <= REGIONS_MOST:
        return False
    found = RegionMap(graph, costs, small=True)
    places = found.places(1)
    weights = [arg for place in places for arg in dict.fromkeys(place.args) if arg.constant]
    if apart and len(set(weights)) < len(weights):
        return False
    often = Counter(place.region.graph.outputs for place in places)
    again = sum(len(working_nodes(one)) * count for one, count in often.items() if count > 1)
    return len(places) > 1 and 2 * again >= len(working_nodes(graph.outputs))


@contextmanager
def ended(limits: Limits) -> Iterator[None]:
    """Time that is up, and Ctrl-C, end a search, which keeps what it has."""
    try:
        yield
    except TimeUp:
        limits.time_up()
    except KeyboardInterrupt:
        limits.stopped = True
        limits.interrupted = True


def divided(
    start: Candidate, costs: CostModel, limits: Limits, make: Make, on_best: Progress, alpha: float = 1.0,
    note: Callable[[str], None] = lambda _: None, small: bool = False,
) -> Candidate:  # fmt: skip
    """The cheapest graph that is found region by region.

    Which region has how many steps follows from what regions cost and how often they stand in the graph: the number of steps alone
    decides what is found. Of what costs up to `alpha` times the best, the smallest is told to `limits.on_built` too. `note` takes a
    line for the report: what it saved that regions which do the same with other weights are searched once. With `small` regions these
    are more.
    """
    search = _Divided(start, costs, limits, make, on_best, alpha, small)
    with gc_paused():
        found = search.run()
    if (saved := search.saved()) is not None:
        note(saved)
    return found


class _Divided:
    def __init__(
        self,
        start: Candidate,
        costs: CostModel,
        limits: Limits,
        make: Make,
        on_best: Progress,
        alpha: float,
        small: bool,
    ) -> None:
        self._small_regions = small
        self._best, self._costs, self._limits, self._make = start, costs, limits, make
        self._on_best, self._alpha, self._on_built = on_best, alpha, limits.on_built
        self._works: dict[tuple[Value, ...], _Work] = {}
        self._every: list[_Work] = []
        self._seen: set[tuple[Value, ...]] = set()
        self._map: RegionMap | None = None

    def run(self) -> Candidate:
        quiet, alive = 0, False
        for turn in itertools.count():
            places: dict[tuple[Value, ...], list[RegionPlace]] = {}
            with ended(self._limits):
                if self._map is None:
                    self._map = RegionMap(self._best.end, self._costs, small=self._small_regions)
                for place in self._map.places(turn):
                    places.setdefault(place.region.graph.outputs, []).append(place)
                self._forget(turn, places)
                alive = self._explored(places, turn // KINDS) or (alive and turn % KINDS > 0)
            before = self._best
            with ended(self._limits):
                self._take(places)
            quiet = 0 if self._best is not before else quiet + 1
            if self._limits.over or (quiet >= KINDS and turn % KINDS == KINDS - 1 and not alive):
                self._small(before, places)
                return self._best
        raise AssertionError

    # ---- exploring --------------------------------------------------------------------------------------------------

    def _explored(self, places: dict[tuple[Value, ...], list[RegionPlace]], cycle: int) -> bool:
        """Explores every region; whether some has more to try."""
        limits = self._limits
        works: list[tuple[float, int, _Work]] = []
        for number, (key, found) in enumerate(places.items()):
            if limits.over:
                return True
            work = self._works.get(key)
            if work is None:
                work = self._works[key] = self._new(found[0].region, len(places))
                self._every.append(work)
            work.places = max(work.places, len(found))
            works.append((max(work.start.cost, SECONDS) * len(found), number, work))
        before = limits.done
        for _, _, work in sorted(works, key=lambda one: (-one[0], one[1])):
            if limits.over:
                return True
            if not work.begun:
                with self._telling(work):
                    work.explorer.begin()
                work.begun = True
        end = limits.done + 2**cycle * max(STEPS, LONGER * (limits.done - before))
        queue = [(work.expanded / weight, number, weight, work) for weight, number, work in works if work.alive]
        heapq.heapify(queue)
        while queue and limits.done < end and not limits.over:
            _, number, weight, work = heapq.heappop(queue)
            work.expanded += 1
            with self._telling(work):
                work.alive = work.explorer.expand()
            if work.alive:
                heapq.heappush(queue, (work.expanded / weight, number, weight, work))
        return bool(queue)

    def _forget(self, turn: int, places: Collection[tuple[Value, ...]]) -> None:
        """Regions that were in no turn of a cycle stand nowhere any more."""
        if turn % KINDS == 0:
            self._works = {key: work for key, work in self._works.items() if key in self._seen}
            self._seen = set()
        self._seen.update(places)

    def _new(self, region: Region, count: int) -> _Work:
        costs = self._costs.within(region.graph)
        start = Candidate(region.graph, costs.graph_cost(region.graph))
        return _Work(start, self._make(start, costs, count))

    @contextmanager
    def _telling(self, work: _Work) -> Iterator[None]:
        """What is built meanwhile is a region, and not the graph."""
        self._limits.on_built = work.front.add
        began = self._limits.now()
        try:
            yield
        finally:
            work.seconds += self._limits.now() - began
            self._limits.on_built = self._on_built

    def saved(self) -> str | None:
        """What the searches of regions took, and what they would have taken one by one; None where there was none."""
        begun = [work for work in self._every if work.seconds > 0]
        if not begun:
            return None
        took = sum(work.seconds for work in begun)
        alone = sum(work.seconds * work.places for work in begun)
        return (
            f"{len(begun)} different regions were searched once, in {took:.1f} s, and used {sum(work.places for work in begun)} times: "
            f"that saved {alone - took:.1f} s"
        )

    # ---- putting together -------------------------------------------------------------------------------------------

    def _take(self, places: dict[tuple[Value, ...], list[RegionPlace]]) -> None:
        """Puts what was found into its places; where all together gain nothing, what gains most of it."""
        gains: list[tuple[float, int, _Work, RegionCandidate]] = []
        for key, where in places.items():
            work = self._works.get(key)
            best = None if work is None else work.explorer.best
            if work is None or best is None or best is work.start or best is work.refused:
                continue
            gains.append((-len(where) * (work.start.cost - best.cost), len(gains), work, RegionCandidate(best, where)))
        gains.sort(key=lambda one: one[:2])
        waiting = [gains] if gains else []
        # where all together gain nothing, some of it may
        for _ in range(TRIED):
            if not waiting:
                return
            some = waiting.pop()
            made, evaluation = self._together([one[3] for one in some])
            if made is not None and made.cost < self._best.cost - SECONDS:
                self._best = made
                self._map = (
                    None if evaluation is None else RegionMap(made.end, self._costs, evaluation, self._small_regions)
                )
                self._on_built(made)
                self._on_best(made)
                # the others stand where they stood in another graph: they come again
                return
            if len(some) == 1:
                some[0][2].refused = some[0][2].explorer.best
            else:
                waiting += [some[(len(some) + 1) // 2 :], some[: (len(some) + 1) // 2]]

    def _together(self, found: Sequence[RegionCandidate]) -> tuple[Candidate | None, Evaluation | None]:
        end = put(self._best.end, found)
        if end.outputs == self._best.end.outputs:
            return None, None
        evaluation: Evaluation | None = None
        try:
            evaluation = self._costs.evaluate(end)
            cost = evaluation.cost
        except TimeUp:
            # what stands at borders was not measured: the regions' own word is all that there is
            self._limits.time_up()
            cost = self._best.cost - sum(len(one.places) * (one.best.path()[0].cost - one.best.cost) for one in found)
        return stitched(self._best, found, end, cost), evaluation

    def _small(self, base: Candidate, places: dict[tuple[Value, ...], list[RegionPlace]]) -> None:
        """Tells of the graph with the fewest nodes of those that cost little more than the best."""
        found: list[RegionCandidate] = []
        smaller = False
        for key, where in places.items():
            work = self._works.get(key)
            if work is None or not work.begun:
                continue
            best = work.explorer.best
            small = work.front.smallest(self._alpha * best.cost)
            if small is not None and len(working_nodes(small.graph.outputs)) < len(working_nodes(best.graph.outputs)):
                found.append(RegionCandidate(small, where))
                smaller = True
            elif best is not work.start and best is not work.refused:
                found.append(RegionCandidate(best, where))
        if smaller:
            after, self._best = self._best, base
            made, _ = self._together(found)
            self._best = after
            if made is not None:
                self._on_built(made)
