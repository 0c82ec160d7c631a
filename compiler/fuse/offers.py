"""Savings of a group: the price of its nodes on the runtime, its own fusions and all, less what a kernel is estimated to take."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import inf, isfinite

from dslc.cost.evaluation import Evaluation
from dslc.cost.groups import Group as Together
from dslc.cost.model import CostModel
from dslc.fuse.estimate import Estimate, Speeds, seconds_of
from dslc.fuse.groups import GroupLimits, Neighbours, NodeGroup
from dslc.fuse.kernels import Fold, fold_of
from dslc.fuse.profile import Profiles, Reach
from dslc.ir.graph import Call, Graph, Kernel, Node, ScopeNode, Value, nodes_of
from dslc.match.forms import forms, has_form
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules

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
        """Guess the seconds of a node by itself, as if it were a kernel."""
        profile = self.profiles.of(node)
        if not profile or profile.view:
            return VIEW
        key = self.costs.keys.number(node)
        if key not in self._alone:
            self._alone[key] = self.kernel(fold_of(NodeGroup((node,), node.values)))
        return self._alone[key]

    def _price(self, nodes: Sequence[Node]) -> float:
        """Price the nodes by the time that the runtime saves without them.

        Nodes that it runs together with others are priced with them, and the others by themselves.
        """
        own = set(nodes)
        touched = list(dict.fromkeys(self._together[node] for node in nodes if node in self._together))
        before = sum(info.alone for info in self.costs.infos(touched))
        rest = [part for group in touched for part in _rest(group, own)]
        return before - sum(info.alone for info in self.costs.infos(rest))


def _rest(group: Together, gone: Collection[Node]) -> list[Together]:
    """Split the remaining nodes of a group that runs together into runs of neighbours."""
    runs = groupby(zip(group.nodes, group.args, strict=True), lambda one: one[0] in gone)
    out: list[Together] = []
    for is_gone, run in runs:
        if not is_gone:
            nodes, args = zip(*run, strict=True)
            out.append(Together(nodes, args))
    return out


BEHIND = 6  #: nodes behind one that has a form
ROUNDS = 3  #: stages of a kernel of a form: operand, product, result


def formed(
    around: Neighbours, rules: Rules, limits: GroupLimits, profiles: Profiles, strict: bool = False
) -> Iterator[Iterator[NodeGroup]]:
    """For every node with a form a chain of groups: the node alone, and with one to a few nodes behind it."""
    for node in around.nodes:
        if isinstance(node, Call) and has_form(rules, fold_of(around.group([node])).kernel.group, strict):
            yield _chain(node, around, limits, profiles)


def _chain(node: Node, around: Neighbours, limits: GroupLimits, profiles: Profiles) -> Iterator[NodeGroup]:
    chain: list[Node] = [node]
    yield around.group(chain)
    while len(chain) <= BEHIND and (behind := _behind(chain, around, limits, profiles)):
        chain.append(behind)
        yield around.group(chain)


def _behind(chain: list[Node], around: Neighbours, limits: GroupLimits, profiles: Profiles) -> Node | None:
    """The only user of a chain's result, where it looks at each element by itself."""
    if len(chain[-1].values) != 1:
        return None
    (result,) = chain[-1].values
    users = around.used.get(result, [])
    if len(users) != 1 or result in around.final or len(users[0].values) != 1:
        return None
    (user,) = users
    profile = profiles.of(user)
    if not profile or profile.reuse >= limits.reuse or user.values[0].type.shape != result.type.shape:
        return None
    reaches = [reach for arg, reach in zip(user.args, profile.reach, strict=False) if arg == result]
    if any(reach > Reach.OWN for reach in reaches) or not around.convex([*chain, user]):
        return None
    return user


def form_estimates(kernel: Kernel, profiles: Profiles, strict: bool = False) -> Iterator[Estimate]:
    """Estimate the forms of a kernel's program: what depends on weights alone is computed once, what is between stays in a cache."""
    found = [profiles.of(node) for node in kernel.group.nodes() if isinstance(node, Call | ScopeNode)]
    if sum(profile is None or profile.reuse >= GroupLimits().reuse for profile in found) > 1:
        # a form was seen to pay around one product; others belong to the runtime
        return
    for _, form in forms(profiles.rules, kernel.group, strict):
        yield _estimate(form, [arg.constant for arg in kernel.args], profiles)


def _estimate(form: Graph, weights: list[bool], profiles: Profiles) -> Estimate:
    outputs = expand(profiles.rules, form.outputs)
    fixed: set[Value] = {value for value, weight in zip(form.inputs, weights, strict=True) if weight}
    operations = 0.0
    for node in nodes_of(outputs):
        if isinstance(node, ScopeNode):
            if all(arg in fixed or arg.constant for arg in node.args):
                fixed.update(node.values)
            else:
                operations += profiles.work(node).operations
    moved = sum(float(profiles.sizes.bytes(value.type)) for value in (*form.inputs, *form.outputs))
    return Estimate(moved, 0.0, operations, ROUNDS, inf)
