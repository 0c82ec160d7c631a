"""Explorers: searches of one graph, or one for each of its regions, that go on step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Protocol

from dslc.cost.groups import working_nodes
from dslc.deadline import TimeUp
from dslc.prove.garbage import gc_paused
from dslc.search.candidates.candidate import Candidate, Limits
from dslc.search.options.strategies import Auto, Backtrack, Mcts, Saturate
from dslc.search.strategies.partition import Explorer, divided, ended, is_large, is_repeated
from dslc.search.strategies.space import SearchedEGraph, Space


@dataclass(slots=True)
class SweepCount:
    """Steps of sweeps beside a queue or an e-graph, and seconds of the predicted time that they saved."""

    steps: int = 0
    gained: float = 0.0

    @contextmanager
    def counting(self, limits: Limits, best: Callable[[], float]) -> Iterator[None]:
        """Count the steps inside; `best` gives the cost of the best at any moment, in seconds."""
        steps, cost = limits.done, best()
        try:
            yield
        finally:
            self.steps += limits.done - steps
            self.gained += cost - best()


class GrowingExplorer(Explorer, Protocol):
    """An explorer by an e-graph."""

    @property
    def sweeps(self) -> SweepCount | None:
        """The count of sweeps; None where nothing is swept."""

    def grown(self) -> SearchedEGraph | None:
        """Return the e-graph that its best program is of; None before it began."""


def explored(space: Space, make: Callable[[Space, int], GrowingExplorer], whole: bool = False) -> Iterator[Candidate]:
    """Explore the space's graph, or each of its regions where the graph is large, or most of it is repeated with other weights.

    `make` gives the explorer of a space, one of so many. `whole`: it gets the whole graph in any case.
    """
    limits = space.limits
    made: list[GrowingExplorer] = []

    def explorer(part: Space, count: int) -> GrowingExplorer:
        made.append(make(part, count))
        return made[-1]

    if not limits.over:
        parts = not whole and is_large(space.graph)
        with ended(limits):
            # a step of an e-graph takes as long as all that is in it
            parts = parts or (not whole and is_repeated(space.graph, space.costs))
        if parts:
            found = divided(space, explorer, small=True)
        else:
            with gc_paused():
                found = finished(space, explorer)
        if space.grown is not None:
            space.grown([grown for one in made if (grown := one.grown()) is not None])
        if found is not space.start:
            yield found
    summarize(space, [one.sweeps for one in made if one.sweeps])


def finished(space: Space, make: Callable[[Space, int], Explorer]) -> Candidate:
    """Return the best that an explorer of the whole graph finds until its limits are over."""
    one: Explorer | None = None
    with ended(space.limits):
        one = make(space, 1)
        one.begin()
        while not space.limits.over and one.expand():
            pass
    return space.start if one is None else one.best


def summarize(space: Space, swept: Sequence[SweepCount], where: str = "the e-graph") -> None:
    """Note the rules of a search for the report, and the sweeps beside it with what they gained."""
    rules = space.rules if where == "the queue" else space.tried
    names = {rule.name.removesuffix("^-1") for rule in rules}
    space.note(f"{len(names)} rules searched")
    steps, gained = sum(one.steps for one in swept), sum(one.gained for one in swept)
    if steps:
        share = gained / space.start.cost if space.start.cost else 0.0
        how = "" if where == "the queue" else " and backtracking"
        space.note(f"rule sweeps{how}: {steps} step{'s' * (steps != 1)}, predicted time down {share:.1%}")


#: nodes up to which a graph is saturated: an e-graph has room for what rules make of them, and was as good within
#: seconds
SMALL = 32
STEPS = 1_000  #: steps from which on a tree is planted a few times
SECONDS = 45.0  #: the same in seconds of the whole command


def explore(options: Auto, space: Space) -> Iterator[Candidate]:
    """Search by the chosen strategy."""
    strategy, why = chosen(space)
    space.note(f"strategy {type(strategy).__name__.lower()}: {why}")
    yield from replace(strategy, tidy=options.tidy).explore(space)


def chosen(space: Space) -> tuple[Backtrack | Saturate | Mcts, str]:
    """Return a strategy, and why; by the graph, and by the budget or the steps that the options say, so that a run is repeated."""
    nodes = sum(bool(node.args) for node in working_nodes(space.graph.outputs))
    steps, seconds = space.steps, space.budget
    if nodes <= SMALL:
        return Saturate(), f"what rules make of {nodes} node{'s' * (nodes != 1)} has room in an e-graph"
    with suppress(TimeUp):
        if is_repeated(space.graph, space.costs):
            return (
                Saturate(),
                f"half of {nodes} nodes is repeated, so that few regions are left, each with room for an e-graph",
            )
    if is_large(space.graph):
        return Backtrack(), f"{nodes} nodes are searched in regions, and each has too few steps for a tree"
    if steps is not None and steps < STEPS:
        return Backtrack(), f"{steps} steps are too few for a tree, which takes {STEPS:,}"
    if steps is None and seconds is not None and seconds < SECONDS:
        return Backtrack(), f"{seconds:g} s are too short for a tree, which takes {SECONDS:g}"
    return Mcts(), f"{nodes} nodes are one graph, and there is enough time for a tree of e-graphs"
