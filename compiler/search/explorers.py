"""A search of one graph or of its regions, by any explorer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dslc.cost.model import CostModel
from dslc.prove.garbage import rare_collections
from dslc.search.candidate import Candidate, Progress
from dslc.search.divided import Explorer, divided, ended, is_large
from dslc.search.strategy import Space

#: an explorer of a graph at some costs, one of so many, which tells of what is better
Make = Callable[[Candidate, CostModel, int, Progress], Explorer]


def explored(space: Space, make: Make) -> Iterator[Candidate]:
    """What an explorer finds in the space's graph, or one for each region where the graph is large."""
    limits = space.limits
    if limits.over:
        return
    if is_large(space.graph):
        found = divided(
            space.start, space.costs, limits, lambda start, costs, count: make(start, costs, count, _silent), space.told, space.alpha
        )
    else:
        whole = make(space.start, space.costs, 1, space.told)
        with ended(limits), rare_collections():
            whole.begin()
            while not limits.over and whole.expand():
                pass
        found = whole.best
    if found is not space.start:
        yield found


def _silent(_: Candidate) -> None:
    """A better region is no graph yet."""


__all__ = ["Make", "explored"]
