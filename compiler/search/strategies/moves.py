"""Kernels and steps of derivation as facts about a graph, for searches in which they stand beside what rules find.

They are priced by estimates, so that thousands of them can be compared; what a search ends with is built and measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from dslc.cost.model import CostModel
from dslc.deadline import Deadline
from dslc.fuse.estimate import EVERYDAY, Speeds, machine, seconds_of
from dslc.fuse.groups import GroupLimits, proposals
from dslc.fuse.kernels import fold_of
from dslc.fuse.profile import Profiles
from dslc.ir.facts import Fact
from dslc.ir.graph import Graph, Kernel, Node, ScopeNode, Value
from dslc.match import CompiledRule
from dslc.search.region_rewrites.building import Builder
from dslc.search.region_rewrites.derivations import Derivations, derivations_of
from dslc.search.region_rewrites.fusions import fact_of_kernel
from dslc.search.strategies.sources import Source
from dslc.semantics.library import Rules

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

    @property
    def rules(self) -> tuple[CompiledRule, ...]:
        return ()

    def facts(self, graph: Graph) -> Iterator[tuple[Fact, tuple[Value, ...]]]:
        for group in proposals(graph, self.library, GroupLimits(sizes=dict(self.sizes)), self._profiles):
            fold = fold_of(group)
            if fold.proved:
                yield fact_of_kernel(fold.kernel.group), fold.kernel.args

    def price(self, node: Node) -> float | None:
        """Estimated seconds of a kernel; None for what has a price of its own."""
        if isinstance(node, ScopeNode):
            return NEVER
        return seconds_of(node, self._profiles, self.speeds) if isinstance(node, Kernel) else None


@dataclass(slots=True, eq=False)
class DerivationMoves:
    """Programs that are derived from the expressions of hot sums of products, with their expressions as kernels."""

    derivations: Derivations

    @property
    def rules(self) -> tuple[CompiledRule, ...]:
        return ()

    def facts(self, graph: Graph) -> Iterator[tuple[Fact, tuple[Value, ...]]]:
        return self.derivations.facts(graph)


def moves_of(
    rules: Rules, costs: CostModel, opset: int, sizes: Mapping[str, int], until: Deadline
) -> tuple[tuple[Source, ...], Callable[[Node], float | None]]:
    """Both sources, and what they price. Raises TimeUp: there was no time to measure the machine."""
    kernels = KernelMoves(rules, sizes, machine(costs.measurer))
    derived = Derivations(Builder(rules, costs, opset, until, sizes=sizes), derivations=derivations_of(rules))
    return (kernels, DerivationMoves(derived)), kernels.price
