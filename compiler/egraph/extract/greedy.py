"""egg's default: every class is had by what is cheapest as a tree, in which a shared part is paid for each time it is read."""

from __future__ import annotations

from dslc.deadline import FOREVER, Deadline
from dslc.egraph.extract.table import Extraction, ExtractionProblem, walk


def greedy_of(
    problem: ExtractionProblem, until: Deadline = FOREVER, start: Extraction | None = None
) -> Extraction | None:
    """The program of the cheapest trees; `estimate` is what they cost as trees."""
    del until, start
    if problem.roots is None:
        return None
    found = walk(lambda number: problem.tree[number][0], problem.roots, problem.find)
    if found is None:
        return None
    return Extraction(found.cost, found.choice, sum(problem.tree[root][1] for root in problem.roots))
