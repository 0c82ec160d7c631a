"""Savings of a group: the price of its nodes on the runtime, its own fusions and all, less what a kernel is estimated to take."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite

from dslc.cost.evaluation import Evaluation
from dslc.cost.groups import Group as Together
from dslc.cost.model import CostModel
from dslc.fuse.estimate import Speeds, seconds_of
from dslc.fuse.formed import form_estimates
from dslc.fuse.groups import Neighbours, NodeGroup
from dslc.fuse.kernels import Fold, fold_of
from dslc.fuse.profile import Profiles
from dslc.ir.graph import Graph, Node

VIEW = 2e-7  #: seconds of a node of the runtime that only passes memory on


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """A group with its kernel, the price of what it replaces and what the kernel takes, both in seconds.

    `measured`: whether the price was measured, and not guessed from bytes and operations. `part`: of what the whole graph takes the
    share of the group's operations and bytes, where that is known.
    """

    group: NodeGroup
    fold: Fold
    price: float
    seconds: float
    measured: bool = False
    part: float = 0.0

    @property
    def saving(self) -> float:
        return self.price - self.seconds

    @property
    def program(self) -> Graph:
        return self.fold.kernel.group


@dataclass(slots=True)
class OfferPrices:
    """Prices of groups of one graph on one target."""

    graph: Graph
    costs: CostModel
    profiles: Profiles
    machine: Speeds
    around: Neighbours
    strict: bool = False
    _together: dict[Node, Together] = field(default_factory=dict)
    _alone: dict[object, float] = field(default_factory=dict)
    _kernels: dict[Graph, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # how the runtime divides the graph; nothing is measured for that
        for group in Evaluation(self.costs, self.graph, 0.0).groups:
            self._together.update(dict.fromkeys(group.nodes, group))

    def offer(self, group: NodeGroup) -> Offer:
        """A group at a guessed price."""
        fold = fold_of(group)
        part = sum(self.costs.guess(Together((node,), (node.args,))) for node in group.nodes)
        return Offer(group, fold, sum(map(self._guess, group.nodes)), self.kernel(fold), part=part)

    def measured(self, offer: Offer) -> Offer:
        """The same at the price that was measured, or is now; as it is where the runtime does not run the nodes by themselves.

        Raises:
            TimeUp: there is no time to measure it.
        """
        price = self._price(offer.group.nodes)
        return replace(offer, price=price, measured=True) if isfinite(price) else offer

    def kernel(self, fold: Fold) -> float:
        """Estimated seconds of a kernel."""
        program = fold.kernel.group
        found = self._kernels.get(program)
        if found is None:
            others = (each.seconds(self.machine) for each in form_estimates(fold.kernel, self.profiles, self.strict))
            found = self._kernels[program] = min([seconds_of(fold.kernel, self.profiles, self.machine), *others])
        return found

    def _guess(self, node: Node) -> float:
        """What a node takes by itself, as if it were a kernel."""
        profile = self.profiles.of(node)
        if profile is None or profile.view:
            return VIEW
        key = self.costs.keys.number(node)
        found = self._alone.get(key)
        if found is None:
            alone = self.kernel(fold_of(NodeGroup((node,), tuple(value for value in node.values))))
            found = self._alone[key] = alone
        return found

    def _price(self, nodes: Sequence[Node]) -> float:
        """What the runtime takes less where it need not run some nodes: what it runs together with others is priced with them, and
        the others by themselves."""
        own = set(nodes)
        touched = list(dict.fromkeys(self._together[node] for node in nodes if node in self._together))
        before = sum(info.alone for info in self.costs.infos(touched))
        rest = [part for group in touched for part in _rest(group, own)]
        return before - sum(info.alone for info in self.costs.infos(rest))


def _rest(group: Together, gone: Collection[Node]) -> list[Together]:
    """What is left of nodes that run together, in runs of neighbours."""
    out: list[list[int]] = []
    for k, node in enumerate(group.nodes):
        if node in gone:
            continue
        if out and out[-1][-1] == k - 1:
            out[-1].append(k)
        else:
            out.append([k])
    return [Together(tuple(group.nodes[k] for k in run), tuple(group.args[k] for k in run)) for run in out]
