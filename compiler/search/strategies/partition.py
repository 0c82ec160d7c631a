"""Searching a large graph in regions: a step then costs what it touches, whatever the size of the graph.

A state of the search is the graph with what was found in each of its regions put in their places. A region is explored as a graph of
its own, once for all places where it stands; the graph itself is built again only when a turn through its regions is over.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, TypeAlias

from dslc.cost.evaluation import Evaluation
from dslc.cost.groups import working_nodes
from dslc.cost.model import CostModel
from dslc.deadline import TimeUp
from dslc.ir.facts import Fact
from dslc.ir.graph import Graph, Value, Values
from dslc.prove.garbage import gc_paused
from dslc.records import record
from dslc.search.candidates.candidate import NOISE, Candidate, Front, Limits, imaged, rewritings, rewritten
from dslc.search.strategies.regions import MOST as REGIONS_MOST
from dslc.search.strategies.regions import WHOLE as REGIONS_WHOLE
from dslc.search.strategies.regions import RegionMap, RegionPlace
from dslc.search.strategies.space import Space

KINDS = 3  #: kinds of regions that take turns
STEPS = 500  #: steps that regions are gone on with in a turn, at least; twice as many in each next cycle
LONGER = 2  #: how many times as many steps as it took to begin them; twice as many in each next cycle
TURN = 400  #: steps that a sweep of a region takes, at most
TRIED = 8  #: findings that are tried in their places, in a turn, at most


class Explorer(Protocol):
    """A search of one region."""

    @property
    def best(self) -> Candidate:
        """The cheapest so far, at any moment."""

    def begin(self) -> None:
        """Take what can be had at once."""

    def expand(self) -> bool:
        """Go on a little; False where nothing is left."""


#: places by the outputs of the region that stands there
Places: TypeAlias = dict[Values, list[RegionPlace]]
#: a search of a space, one of so many
Make: TypeAlias = Callable[[Space, int], Explorer]


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
    """Return whether a graph is searched in regions."""
    return len(working_nodes(graph.outputs)) > REGIONS_WHOLE


def is_repeated(graph: Graph, costs: CostModel) -> bool:
    """Return whether half of a graph lies in regions that do the same as others with other weights.

    With the same weights they do not count: what is computed with these in several regions may be joined over all of them.

    Raises:
        TimeUp: what a node costs is not measured.
    """
    if len(working_nodes(graph.outputs)) <= REGIONS_MOST:
        return False
    found = RegionMap(graph, costs, small=True)
    places = found.places(1)
    weights = [arg for place in places for arg in dict.fromkeys(place.args) if arg.constant]
    if len(set(weights)) < len(weights):
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


def divided(space: Space, make: Make, small: bool = False) -> Candidate:
    """Return the cheapest graph that is found region by region.

    Which region has how many steps follows from what regions cost and how often they stand in the graph: the number of steps alone
    decides what is found. Of what costs up to `alpha` times the best, the smallest is told to `limits.on_built` too. A note for the
    report says what was saved by searching regions once that do the same with other weights. With `small` regions these are more.
    """
    search = _Divided(space, make, small)
    with gc_paused():
        found = search.run()
    search.tell_saved()
    return found


class _Divided:
    def __init__(self, space: Space, make: Make, small: bool) -> None:
        self._space, self._make, self._small_regions = space, make, small
        self._best, self._limits, self._on_built = space.start, space.limits, space.limits.on_built
        self._works: dict[Values, _Work] = {}
        self._every: list[_Work] = []
        self._seen: set[Values] = set()
        self._map: RegionMap | None = None

    def run(self) -> Candidate:
        quiet, alive = 0, False
        for turn in itertools.count():
            places: Places = {}
            with ended(self._limits):
                if not self._map:
                    self._map = RegionMap(self._best.end, self._space.costs, small=self._small_regions)
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

    def _explored(self, places: Places, cycle: int) -> bool:
        """Explores every region; whether some has more to try."""
        limits = self._limits
        works: list[tuple[float, int, _Work]] = []
        for number, (key, found) in enumerate(places.items()):
            if limits.over:
                return True
            work = self._works.get(key)
            if not work:
                graph = found[0].region.graph
                costs = self._space.costs.within(graph)
                start = Candidate(graph, costs.graph_cost(graph))
                work = self._works[key] = _Work(start, self._make(self._space.at(start, costs=costs), len(places)))
                self._every.append(work)
            work.places = max(work.places, len(found))
            works.append((max(work.start.cost, NOISE) * len(found), number, work))
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

    def _forget(self, turn: int, places: Collection[Values]) -> None:
        """Regions that were in no turn of a cycle stand nowhere any more."""
        if turn % KINDS == 0:
            self._works = {key: work for key, work in self._works.items() if key in self._seen}
            self._seen = set()
        self._seen.update(places)

    @contextmanager
    def _telling(self, work: _Work) -> Iterator[None]:
        """Keep what is built meanwhile as a region, and not as the graph."""
        self._limits.on_built = work.front.add
        began = self._limits.now()
        try:
            yield
        finally:
            work.seconds += self._limits.now() - began
            self._limits.on_built = self._on_built

    def tell_saved(self) -> None:
        """Note what the searches of regions took, and what they would have taken one by one."""
        if begun := [work for work in self._every if work.seconds > 0]:
            took = sum(work.seconds for work in begun)
            alone = sum(work.seconds * work.places for work in begun)
            self._space.note(
                f"{len(begun)} different regions were searched once, in {took:.1f} s, and used "
                f"{sum(work.places for work in begun)} times: that saved {alone - took:.1f} s"
            )

    # ---- putting together -------------------------------------------------------------------------------------------

    def _take(self, places: Places) -> None:
        """Puts what was found into its places; where all together gain nothing, what gains most of it."""
        gains: list[tuple[float, int, _Work, RegionCandidate]] = []
        for key, where in places.items():
            work = self._works.get(key)
            best = work.explorer.best if work else None
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
            if made and made.cost < self._best.cost - NOISE:
                self._best = made
                costs, small = self._space.costs, self._small_regions
                self._map = RegionMap(made.end, costs, evaluation, small) if evaluation else None
                self._on_built(made)
                self._space.told(made)
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
            evaluation = self._space.costs.evaluate(end)
            cost = evaluation.cost
        except TimeUp:
            # what stands at borders was not measured: the regions' own word is all that there is
            self._limits.time_up()
            cost = self._best.cost - sum(len(one.places) * (one.best.path()[0].cost - one.best.cost) for one in found)
        return stitched(self._best, found, end, cost), evaluation

    def _small(self, base: Candidate, places: Places) -> None:
        """Tells of the graph with the fewest nodes of those that cost little more than the best."""
        found: list[RegionCandidate] = []
        smaller = False
        for key, where in places.items():
            work = self._works.get(key)
            if not work or not work.begun:
                continue
            best = work.explorer.best
            small = work.front.smallest(self._space.alpha * best.cost)
            if small is not None and len(working_nodes(small.graph.outputs)) < len(working_nodes(best.graph.outputs)):
                found.append(RegionCandidate(small, where))
                smaller = True
            elif best is not work.start and best is not work.refused:
                found.append(RegionCandidate(best, where))
        if smaller:
            after, self._best = self._best, base
            made, _ = self._together(found)
            self._best = after
            if made:
                self._on_built(made)


@record
class RegionCandidate:
    """A candidate of a region, and where the region stands in the graph."""

    best: Candidate
    places: Sequence[RegionPlace]


def put(graph: Graph, found: Sequence[RegionCandidate]) -> Graph:
    """A graph with everything that was found in its places, built at once."""
    new: dict[Value, Value] = {}
    for one in found:
        for place in one.places:
            new.update(zip(place.outputs, place.filled(one.best.end.outputs, place.args), strict=True))
    return rewritten(graph, new)


def stitched(start: Candidate, found: Sequence[RegionCandidate], end: Graph, cost: float) -> Candidate:
    """Return the candidate with everything that was found in its places, and the steps to it from the start.

    Regions that take the same rule next take it together. Every step is a rewriting of the graph before, and says what it replaced,
    as in a search that saw the whole graph; these graphs are built when one of them is asked for. A whole graph costs a little
    more or less than its regions say: each step has its part in that.
    """
    chain = _Chain(start, found)
    predicted = sum(turn.gain for turn in chain.turns)
    factor = (start.cost - cost) / predicted if predicted > 0 else 0.0
    at = start
    for number, turn in enumerate(chain.turns, 1):
        last = number == len(chain.turns)
        at = Candidate(
            _Link(chain, number - 1, end if last else None), cost if last else at.cost - factor * turn.gain, at, turn.rule, turn.count,
            turn.facts,
        )  # fmt: skip
    return at


@record
class _Turn:
    """A step that some regions take together."""

    rule: str
    count: int
    gain: float
    parts: tuple[int, ...]
    #: over holes: what holds in a region holds wherever it stands
    facts: tuple[Fact, ...]


@record
class _Link:
    """The graph after one turn of a chain."""

    chain: _Chain
    number: int
    known: Graph | None

    @property
    def end(self) -> Graph:
        return self.known or self.graph()

    def graph(self) -> Graph:
        return self.chain.graphs[self.number]


class _Chain:
    """The steps of several regions, put in an order."""

    def __init__(self, start: Candidate, found: Sequence[RegionCandidate]) -> None:
        self._start, self._found = start, found
        paths = [one.best.path() for one in found]
        at = [1] * len(found)
        self.turns: list[_Turn] = []
        while waiting := [k for k, path in enumerate(paths) if at[k] < len(path)]:
            votes = Counter[str]()
            for k in waiting:
                votes[paths[k][at[k]].rule] += len(found[k].places)
            rule = max(votes, key=votes.__getitem__)
            parts = tuple(k for k in waiting if paths[k][at[k]].rule == rule)
            steps = [(paths[k][at[k]], len(found[k].places)) for k in parts]
            count = sum(step.count * often for step, often in steps)
            gain = sum(step.gain * often for step, often in steps)
            facts = tuple(dict.fromkeys([fact for step, _ in steps for fact in step.facts]))
            self.turns.append(_Turn(rule, count, gain, parts, facts))
            for k in parts:
                at[k] += 1

    @cached_property
    def graphs(self) -> list[Graph]:
        """The graph after each turn."""
        graph = self._start.graph
        paths = [iter(itertools.pairwise(one.best.path())) for one in self._found]
        # the values of the holes by region and place
        args = [[place.args for place in one.places] for one in self._found]
        out: list[Graph] = []
        for turn in self.turns:
            rounds = [(k, _replacements(*next(paths[k]))) for k in turn.parts]
            for number in range(max(len(mappings) for _, mappings in rounds)):
                new: dict[Value, Value] = {}
                for k, mappings in rounds:
                    changed = (
                        {old: value for old, value in mappings[number].items() if old != value}
                        if number < len(mappings)
                        else {}
                    )
                    for place, given in zip(self._found[k].places, args[k], strict=True):
                        values = place.filled([*changed, *changed.values()], given)
                        for old, value in zip(values[: len(changed)], values[len(changed) :], strict=True):
                            new.setdefault(old, value)
                made, image = imaged(graph, new)
                if made.outputs != graph.outputs:
                    graph = made
                    args = [[tuple(image.get(value, value) for value in given) for given in own] for own in args]
            out.append(graph)
        return out


def _replacements(before: Candidate, step: Candidate) -> list[Mapping[Value, Value]]:
    """Return what a step replaces in its region, one mapping after the other."""
    made = rewritings(step.graph, before.graph)
    if made is None:
        return [dict(zip(before.graph.outputs, step.graph.outputs, strict=True))]
    return [one.new for one in reversed(list(made))]
