"""The strategy that is chosen by a graph's size and by how long there is to search it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from dslc.cost.groups import working_nodes
from dslc.deadline import TimeUp
from dslc.search.candidates.candidate import Candidate
from dslc.search.options.strategies import Auto, Backtrack, Mcts, Saturate
from dslc.search.strategies.partition import is_large, is_repeated
from dslc.search.strategies.space import Space

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
