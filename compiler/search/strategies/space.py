"""Spaces: a graph, sources of facts, prices and limits, which a strategy explores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dslc.cost.model import CostModel
from dslc.egraph.extract.table import Price
from dslc.egraph.graph import EGraph
from dslc.ir.graph import Graph, Node
from dslc.match import CompiledRule
from dslc.search.candidates.candidate import Candidate, Limits, Progress
from dslc.search.finders.findings import Findings
from dslc.search.options.option import LayoutMode
from dslc.search.rewrites.layouts import has_tag, without_layouts
from dslc.search.strategies.sources import Source, Substitutions


class SearchedEGraph(NamedTuple):
    """An e-graph as a search left it, and the seconds that its e-nodes cost."""

    egraph: EGraph
    price: Price


def silent(_: object) -> None:
    """Tell nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """A search of one graph: from a candidate, by the facts of some sources, at some prices, until the limits say stop.

    The result depends on the seed, the prices and the number of steps, and on nothing else. `limits` is the one thing in it that
    changes: a strategy asks it before every step, and tells it what it gained.
    """

    start: Candidate
    sources: tuple[Source, ...]
    costs: CostModel
    limits: Limits
    seed: int = 0
    #: a graph that costs up to so many times the best is near enough to be looked at
    alpha: float = 1.05
    layouts: LayoutMode = "joint"
    #: is told of everything better as soon as it is there, which may be long before it is yielded
    told: Progress = silent
    #: the options that say how long is searched, in seconds of the whole command or in steps
    budget: float | None = None
    steps: int | None = None
    #: facts that a run measured to be faster
    findings: Findings | None = None
    #: seconds of kernels and other nodes that only some source knows; None for all others
    price: Callable[[Node], float | None] | None = None
    #: takes a line for the report
    note: Callable[[str], None] = silent
    #: takes the e-graphs that a search ends with, and the prices of their e-nodes, where they are wanted
    grown: Callable[[Sequence[SearchedEGraph]], None] | None = None

    @property
    def graph(self) -> Graph:
        return self.start.graph

    @property
    def moves(self) -> list[Source]:
        """The other sources, whose facts a strategy asks for."""
        found = [source for source in self.sources if not isinstance(source, Substitutions)]
        return found if self.findings is None else [*found, self.findings]

    @property
    def rules(self) -> list[CompiledRule]:
        """The substitutions among the sources, for a strategy that looks for their matches itself."""
        return [rule for source in self.sources if isinstance(source, Substitutions) for rule in source.rules]

    @property
    def tried(self) -> list[CompiledRule]:
        """The substitutions that `layouts` says are tried; layouts are substitutions too."""
        if self.layouts == "none":
            return without_layouts(self.rules)
        return [rule for rule in self.rules if self.layouts != "only" or has_tag(rule.definition, "layout")]

    def at(self, start: Candidate, told: Progress = silent, costs: CostModel | None = None) -> Space:
        """Return the same search from another candidate."""
        return replace(self, start=start, told=told, costs=costs or self.costs)
