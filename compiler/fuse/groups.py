"""Groups of nodes that could run as one kernel: connected sets that no path leaves and enters again, and their cuts.

`proposals` are linear in the graph: the largest sets of nodes that a kernel computes between those that it does not (products,
convolutions, what dslc does not know), and of each a few smaller ones, cut where a value is looked at elsewhere than at its own
position, and freed of nodes at the borders that a runtime takes along with a product. Nothing is fused because it is proposed:
the price decides (`estimate`, `choose`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TypeVar

from dslc.cost.groups import working_nodes
from dslc.deadline import FOREVER, Deadline
from dslc.fuse.profile import Profile, Profiles, Reach
from dslc.ir.graph import Graph, Input, Node, Value, Values
from dslc.ir.holes import stays
from dslc.records import record
from dslc.semantics.library import Rules

FARTHEST = 2000  #: nodes outside a set that are looked at for a path back
ALONG = 2  #: nodes behind a product that a runtime computes along with it


@record
class GroupLimits:
    """Limits of proposals.

    Nodes, arguments and results of a group; how often a sum of products may use an element, or how many operations it may have;
    how often another reduction may use one; how many cuts of one group; the sizes at which symbolic graphs are looked at.
    """

    nodes: int = 64
    arguments: int = 32
    results: int = 8
    reuse: float = 2.0
    products: float = 2e5
    window: float = 32.0
    cuts: int = 12
    sizes: Mapping[str, int] = field(default_factory=dict)


@record
class NodeGroup:
    """Nodes, arguments first, and those of their values that are used outside, in that order."""

    nodes: tuple[Node, ...]
    outputs: Values

    @property
    def arguments(self) -> Values:
        """The values from outside, numbers aside."""
        own = set(self.nodes)
        args = (arg for node in self.nodes for arg in node.args)
        return tuple(dict.fromkeys(arg for arg in args if arg.node not in own and not inside(arg)))


def inside(value: Value) -> bool:
    """Return whether a value from outside is a part of every kernel that reads it: a number, or positions."""
    return value.constant and value.known and stays(value)


class Neighbours:
    """The working nodes of a graph, in an order in which arguments come first, and the users of their values."""

    def __init__(self, graph: Graph) -> None:
        self.nodes = [node for node in working_nodes(graph.outputs) if not isinstance(node, Input)]
        self.rank = {node: k for k, node in enumerate(self.nodes)}
        self.users: dict[Node, list[Node]] = {node: [] for node in self.nodes}
        self.used: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for arg in dict.fromkeys(node.args):
                if arg.node in self.rank:
                    self.used.setdefault(arg, []).append(node)
            for below in self.args(node):
                self.users[below].append(node)
        self.final = {value for value in graph.outputs if value.node in self.rank}

    def args(self, node: Node) -> list[Node]:
        """The working nodes right below."""
        return [below for below in dict.fromkeys(arg.node for arg in node.args) if below in self.rank]

    def group(self, nodes: Iterable[Node]) -> NodeGroup:
        """Nodes as a group."""
        ordered = tuple(sorted(set(nodes), key=self.rank.__getitem__))
        own = set(ordered)
        outputs = tuple(
            value
            for node in ordered
            for value in node.values
            if value in self.final or any(user not in own for user in self.used.get(value, ()))
        )
        return NodeGroup(ordered, outputs)

    def convex(self, nodes: Collection[Node]) -> bool:
        """Return whether no path leaves the nodes and enters them again; False where that takes long to see."""
        own = set(nodes)
        last = max(self.rank[node] for node in own)
        seen: set[Node] = set()
        stack = [user for node in own for user in self.users[node] if user not in own]
        while stack:
            node = stack.pop()
            if node in own:
                return False
            if node in seen or self.rank[node] > last:
                continue
            seen.add(node)
            if len(seen) > FARTHEST:
                return False
            stack.extend(self.users[node])
        return True

    def connected(self, nodes: Collection[Node]) -> list[list[Node]]:
        """The parts of some nodes that edges between them join, each in order."""
        own = set(nodes)
        left = dict.fromkeys(sorted(own, key=self.rank.__getitem__))
        out = []
        while left:
            stack, part = [next(iter(left))], []
            while stack:
                node = stack.pop()
                if node not in left:
                    continue
                del left[node]
                part.append(node)
                stack.extend(other for other in (*self.args(node), *self.users[node]) if other in left)
            out.append(sorted(part, key=self.rank.__getitem__))
        return out


def proposals(
    graph: Graph,
    rules: Rules,
    limits: GroupLimits | None = None,
    profiles: Profiles | None = None,
    until: Deadline = FOREVER,
) -> Iterator[NodeGroup]:
    """Groups of nodes that could run as one kernel, the largest first; some overlap. None depends on weights only.

    Once the time is over no more are looked for.
    """
    limits = limits or GroupLimits()
    profiles = profiles or Profiles(rules, limits.sizes)
    around = Neighbours(graph)
    found: dict[tuple[Node, ...], NodeGroup] = {}
    for products in (False, True):
        for nodes in _largest(around, profiles, limits, products):
            for part in _parts(nodes, around, profiles, limits):
                found.setdefault(part.nodes, part)
                if until.over:
                    break
    yield from sorted(found.values(), key=lambda group: -len(group.nodes))


def _runs(profile: Profile | None, limits: GroupLimits, products: bool) -> bool:
    """Return whether a kernel may compute a node.

    Sums of products at large belong to the runtime, which is at its peak there, unless they fill none of its blocks.
    """
    if not profile or profile.window > limits.window:
        return False
    return profile.reuse < limits.reuse or (products and (profile.loose or profile.operations <= limits.products))


def _is_large(profile: Profile | None, limits: GroupLimits) -> bool:
    """Return whether a node is a sum of products with many operations."""
    return profile is not None and profile.reuse >= limits.reuse and profile.operations > limits.products


def _largest(around: Neighbours, profiles: Profiles, limits: GroupLimits, products: bool) -> Iterator[list[Node]]:
    """Find connected convex sets, as large as they get.

    Of large sums of products none has another one behind it: together they save a pass through memory, and take a compiler many times
    as long.
    """
    runs = {node: _runs(profiles.of(node), limits, products) for node in around.nodes}
    large = {node for node in around.nodes if runs[node] and _is_large(profiles.of(node), limits)}
    levels = _levels(around, runs, large)
    members = {node: [node] for node in around.nodes}
    edges = [(below, node) for node in around.nodes for below in around.args(node) if runs[node] and runs[below]]
    # every path between two nodes of one level stays in it: sets within a level are convex
    for below, node in edges:
        if levels[node] == levels[below]:
            join(members, node, below)
    for below, node in edges:
        one, other = members[node], members[below]
        if one is other or not (large.isdisjoint(one) or large.isdisjoint(other)):
            continue
        if around.convex([*one, *other]):
            join(members, node, below)
    for nodes in {id(nodes): nodes for nodes in members.values()}.values():
        ordered = sorted(nodes, key=around.rank.__getitem__)
        if runs[ordered[0]]:
            yield ordered


def _levels(around: Neighbours, runs: Mapping[Node, bool], large: Collection[Node]) -> dict[Node, int]:
    """Count the nodes that do not run in a kernel before each node, at most, and large sums, itself among them."""
    out: dict[Node, int] = {}
    for node in around.nodes:
        out[node] = max((out[below] + (not runs[below]) for below in around.args(node)), default=0) + (node in large)
    return out


T = TypeVar("T")


def join(members: dict[T, list[T]], a: T, b: T) -> None:
    """Make one set of those of two things; `members` has the set of each."""
    small, large = sorted((members[a], members[b]), key=len)
    if large is not small:
        large.extend(small)
        members.update(dict.fromkeys(small, large))


def _parts(nodes: list[Node], around: Neighbours, profiles: Profiles, limits: GroupLimits) -> Iterator[NodeGroup]:
    """A set of nodes and its cuts, as groups that keep to the limits."""
    for part in _cuts(nodes, around, profiles, limits):
        for piece in around.connected(_trimmed(part, around, profiles)):
            group = around.group(piece)
            if len(group.outputs) <= limits.results and len(group.arguments) <= limits.arguments:
                yield group


def _cuts(nodes: list[Node], around: Neighbours, profiles: Profiles, limits: GroupLimits) -> Iterator[Sequence[Node]]:
    """The nodes as they are, or in slices of the most that a kernel has; and smaller sets.

    A slice of a convex set along the graph's order is convex: whatever lies between two of its nodes is in the set and the slice.
    """
    for at in range(0, len(nodes), limits.nodes):
        piece = nodes[at : at + limits.nodes]
        yield piece
        if len(piece) == 1:
            continue
        hard = _hard(piece, profiles)
        # no value is looked at from elsewhere within a part
        yield from _between(piece, hard, around)
        for node in list(dict.fromkeys(node for _, node in hard))[: limits.cuts]:
            where = piece.index(node)
            yield piece[:where]
            yield piece[where:]
            before = _ancestors(node, piece, around)
            if len(before) < len(piece):
                yield sorted(before, key=around.rank.__getitem__)
                yield [each for each in piece if each not in before]
        for most in range(1, ALONG + 1):
            heads = _heads(piece, around, profiles, most)
            if heads:
                yield [node for node in piece if node not in heads]


def _hard(piece: Sequence[Node], profiles: Profiles) -> list[tuple[Node, Node]]:
    """Edges at which the upper node looks at other positions of the lower one's values than its own."""
    own = set(piece)
    return [
        (arg.node, node)
        for node in piece
        if (profile := profiles.of(node))
        for arg, reach in zip(node.args, profile.reach, strict=False)
        if arg.node in own and reach > Reach.OWN
    ]


def _between(piece: Sequence[Node], hard: Collection[tuple[Node, Node]], around: Neighbours) -> Iterator[list[Node]]:
    """Parts between hard edges: a node is in the part of the most hard edges below it, so that parts are convex."""
    cut, own = set(hard), set(piece)
    level: dict[Node, int] = {}
    for node in piece:
        level[node] = max(
            (level[below] + ((below, node) in cut) for below in around.args(node) if below in own), default=0
        )
    for each in sorted(set(level.values())):
        yield [node for node in piece if level[node] == each]


def _ancestors(node: Node, piece: Sequence[Node], around: Neighbours) -> set[Node]:
    """A node and those of the piece that it depends on."""
    own, out, stack = set(piece), set[Node](), [node]
    while stack:
        at = stack.pop()
        if at not in out:
            out.add(at)
            stack.extend(below for below in around.args(at) if below in own)
    return out


def _heads(piece: Sequence[Node], around: Neighbours, profiles: Profiles, most: int) -> set[Node]:
    """Up to so many nodes in a row that a runtime may take along with what is below them: nothing else uses those results."""
    own, depth = set(piece), dict[Node, int]()
    for node in piece:
        profile = profiles.of(node)
        below = around.args(node)
        # all of the piece that it depends on goes with it
        if (
            not profile
            or max(profile.reach, default=Reach.OWN) > Reach.OWN
            or any(each in own - depth.keys() for each in below)
        ):
            continue
        alone = [each for each in below if around.users[each] == [node] and (each in depth or each not in own)]
        level = 1 + max((depth[each] for each in below if each in depth), default=0)
        if alone and level <= most:
            depth[node] = level
    return set(depth)


def _trimmed(nodes: Sequence[Node], around: Neighbours, profiles: Profiles) -> list[Node]:
    """Without nodes at the borders that only pass memory on: a runtime does that for nothing."""
    kept = dict.fromkeys(nodes)
    changed = True
    while changed:
        changed = False
        for node in list(kept):
            profile = profiles.of(node)
            if not profile or not profile.view:
                continue
            first = not any(below in kept for below in around.args(node))
            last = not any(user in kept for user in around.users[node])
            if first or last:
                del kept[node]
                changed = True
    return list(kept)
