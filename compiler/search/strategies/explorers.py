"""A search of one graph or of its regions, by any explorer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from dslc.cost.model import CostModel
from dslc.prove.garbage import gc_paused
from dslc.search.rewrites.candidate import Candidate, Progress
from dslc.search.rewrites.divided import Explorer, divided, ended, is_large, is_repeated
from dslc.search.strategies.strategy import Grown, Space


class GrowingExplorer(Explorer, Protocol):
    """An explorer by an e-graph."""

    def grown(self) -> Grown | None:
        """The e-graph that its best program is of; None before it began."""


#: an explorer of a graph at some costs, one of so many, which tells of what is better
Make = Callable[[Candidate, CostModel, int, Progress], GrowingExplorer]


def explored(space: Space, make: Make, apart: bool = False, whole: bool = False) -> Iterator[Candidate]:
    """What an explorer finds in the space's graph, or one for each region where the graph is large, or most of it is repeated.

    `apart`: it sees what regions have in common, and gets the whole graph where they share weights. `whole`: it gets that in any case.
    """
    limits = space.limits
    made: list[GrowingExplorer] = []

    def explorer(start: Candidate, costs: CostModel, count: int, told: Progress) -> GrowingExplorer:
        one = make(start, costs, count, told)
        if space.grown is not None:
            made.append(one)
        return one

    if limits.over:
        return
    parts = not whole and is_large(space.graph)
    with ended(limits):
        # a step of an e-graph takes as long as all that is in it
        parts = parts or (not whole and is_repeated(space.graph, space.costs, apart))
    if parts:

        def region(start: Candidate, costs: CostModel, count: int) -> GrowingExplorer:
            return explorer(start, costs, count, _silent)

        found = divided(space.start, space.costs, limits, region, space.told, space.alpha, space.note, small=True)
    else:
        one: GrowingExplorer | None = None
        with ended(limits), gc_paused():
            one = explorer(space.start, space.costs, 1, space.told)
            one.begin()
            while not limits.over and one.expand():
                pass
        found = space.start if one is None else one.best
    if space.grown is not None:
        space.grown([grown for one in made if (grown := one.grown()) is not None])
    if found is not space.start:
        yield found


def _silent(_: Candidate) -> None:
    """A better region is no graph yet."""
