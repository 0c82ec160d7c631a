"""Strategies as a protocol: each explores a space, and yields candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

if TYPE_CHECKING:
    from dslc.cost.model import CostModel
    from dslc.egraph.extract.table import Price
    from dslc.egraph.graph import EGraph
    from dslc.ir.graph import Graph, Node
    from dslc.match import CompiledRule
    from dslc.search.region_rewrites.findings import Findings
    from dslc.search.rewrites.candidate import Candidate, Limits
    from dslc.search.runs.settings import Mode
    from dslc.search.strategies.sources import Source


class Grown(NamedTuple):
    """An e-graph as a search left it, and what its e-nodes cost in seconds."""

    egraph: EGraph
    price: Price


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """What is explored: from a graph, by the facts of some sources, at some prices, until the limits say stop.

    What is found depends on the seed, the prices and the number of steps, and on nothing else. `limits` is the one thing in it that
    changes: a strategy asks it before every step, and tells it what it gained.
    """

    start: Candidate
    sources: tuple[Source, ...]
    costs: CostModel
    limits: Limits
    seed: int = 0
    #: what costs up to so many times the best is near enough to be looked at
    alpha: float = 1.05
    layouts: Mode = "joint"
    #: is told of everything better as soon as it is there, which may be long before it is yielded
    told: Callable[[Candidate], None] = lambda _: None
    #: the options that say how long is searched, in seconds of the whole command or in steps
    budget: float | None = None
    steps: int | None = None
    #: what a run found and measured to be faster
    findings: Findings | None = None
    #: what kernels and other nodes cost that only some source knows, in seconds; None for all others
    price: Callable[[Node], float | None] | None = None
    #: takes a line for the report
    note: Callable[[str], None] = lambda _: None
    #: takes the e-graphs that a search ends with, and the prices of their e-nodes, where somebody wants them
    grown: Callable[[Sequence[Grown]], None] | None = None

    @property
    def graph(self) -> Graph:
        return self.start.graph

    @property
    def moves(self) -> list[Source]:
        """The other sources, whose facts a strategy asks for."""
        found: list[Source] = [source for source in self.sources if not source.rules]
        return found if self.findings is None else [*found, self.findings]

    @property
    def rules(self) -> list[CompiledRule]:
        """The substitutions among the sources, for a strategy that looks for their matches itself."""
        return [rule for source in self.sources for rule in source.rules]


class Strategy(Protocol):
    """A way to search. A frozen dataclass, whose fields are options of the command line (`dslc.search.runs.settings.option`).

    A strategy is a file of its own and a line in `dslc.search.strategies.table`.
    """

    #: whether it may make e-graphs, which it then hands to `space.grown`
    egraphs: ClassVar[bool]

    def explore(self, space: Space) -> Iterator[Candidate]:
        """Candidates that cost less than the start of the space, each next one less; none where nothing was found.

        Anytime: it ends soon after `space.limits.over`, and what it had told of by then counts. A KeyboardInterrupt ends it too: it
        sets `limits.interrupted`, and what it yields then is the best so far.
        """
