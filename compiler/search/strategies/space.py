"""Spaces: a graph, sources of facts, prices and limits, which a strategy explores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from dslc.cost.model import CostModel
from dslc.deadline import Deadline
from dslc.egraph.extract.table import Price
from dslc.egraph.graph import EGraph
from dslc.fuse.estimate import EVERYDAY, Speeds, machine, seconds_of
from dslc.fuse.groups import GroupLimits, proposals
from dslc.fuse.kernels import fold_of
from dslc.fuse.profile import Profiles
from dslc.ir.constants import number_of
from dslc.ir.facts import fact_of
from dslc.ir.graph import Graph, Kernel, Node, ScopeNode, Value
from dslc.match import CompiledRule, GraphIndex, find_matches
from dslc.search.candidates.candidate import Candidate, Limits, PlacedFact, Progress, matched, replaced
from dslc.search.options.option import LayoutMode
from dslc.search.region_rewrites.building import Builder
from dslc.search.region_rewrites.derivations import Derivations, derivations_of
from dslc.search.region_rewrites.findings import Findings
from dslc.search.region_rewrites.fusions import fact_of_kernel
from dslc.search.rewrites.layouts import has_tag, without_layouts
from dslc.semantics.library import Rules


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
        return [*found, self.findings] if self.findings else found

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


class Source(Protocol):
    """Finds equivalents of parts of a graph, whatever they are used for: moves of a search, unions of an e-graph, proofs."""

    def facts(self, graph: Graph) -> Iterator[PlacedFact]:
        """Facts about regions of a graph, each with what its holes stand for there; lazily, in an order that repeats.

        `replace(fact.old.outputs, holes -> values)` are values of the graph, and `fact.new` over the same values may stand for them.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Substitutions:
    """The rules' left sides where they match, and their right sides."""

    rules: tuple[CompiledRule, ...]

    def facts(self, graph: Graph) -> Iterator[PlacedFact]:
        index = GraphIndex(graph)
        for rule in self.rules:
            for match, new in replaced(find_matches(rule, index)):
                changed = {old: value for old, value in new.items() if old != value}
                if changed:
                    leaves = _leaves(matched(match), index, changed.values())
                    yield fact_of(rule.name, tuple(changed), tuple(changed.values()), leaves)


def _leaves(matched: set[Node], index: GraphIndex, new: Iterable[Value]) -> set[Value]:
    """Return what matched nodes and replacements read of the graph: anything may stand there but for numbers."""
    read = {arg for node in matched for arg in node.args if arg.node not in matched}
    stack, seen = list(new), set[Value]()
    while stack:
        value = stack.pop()
        if value in seen or value in read:
            continue
        seen.add(value)
        if value.node in index.position and value.node not in matched:
            read.add(value)
        else:
            stack.extend(value.node.args)
    return {value for value in read if number_of(value) is None}


NEVER = 1e3  #: seconds of what stands alone and cannot be run: a sum stays a number


@dataclass(slots=True, eq=False)
class KernelMoves:
    """Groups of nodes as one kernel, wherever one is proposed (`dslc.fuse.groups`)."""

    library: Rules
    sizes: Mapping[str, int] = field(default_factory=dict)
    speeds: Speeds = EVERYDAY
    _profiles: Profiles = field(init=False)

    def __post_init__(self) -> None:
        self._profiles = Profiles(self.library, self.sizes)

    def facts(self, graph: Graph) -> Iterator[PlacedFact]:
        for group in proposals(graph, self.library, GroupLimits(sizes=dict(self.sizes)), self._profiles):
            fold = fold_of(group)
            if fold.proved:
                yield fact_of_kernel(fold.kernel.group), fold.kernel.args

    def price(self, node: Node) -> float | None:
        """Estimated seconds of a kernel; None for what has a price of its own."""
        if isinstance(node, ScopeNode):
            return NEVER
        return seconds_of(node, self._profiles, self.speeds) if isinstance(node, Kernel) else None


def moves_of(
    rules: Rules, costs: CostModel, opset: int, sizes: Mapping[str, int], until: Deadline
) -> tuple[tuple[Source, ...], Callable[[Node], float | None]]:
    """Return kernels and derivations as sources, and the prices of both. Raises TimeUp: there was no time to measure the machine."""
    kernels = KernelMoves(rules, sizes, machine(costs.measurer))
    derived = Derivations(Builder(rules, costs, opset, until, sizes=sizes), derivations=derivations_of(rules))
    return (kernels, derived), kernels.price
