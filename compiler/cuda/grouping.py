"""Partition of a graph into groups: a vendor's call with its epilogue, a part for the CPU, a generated kernel."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import heappop, heappush

from dslc.cuda.cpu_parts import CpuParts
from dslc.cuda.devices import Device
from dslc.cuda.programs import looks_only, sums_products, view_of_node
from dslc.cuda.vendor_calls import Calls
from dslc.cuda.views import StridedView, plain
from dslc.fuse.groups import GroupLimits, Neighbours, NodeGroup, proposals
from dslc.fuse.kernels import fold_of, without_circles
from dslc.fuse.profile import Profiles
from dslc.ir.graph import Graph, Kernel, Node, Opaque, Value
from dslc.records import record
from dslc.semantics.library import Rules

EPILOGUE = 3  #: nodes behind a product that may be computed with it


def turnable(rules: Rules, around: Neighbours, value: Value) -> bool:
    """Return whether a result may lie in any order, since all its users are views."""
    users = around.used.get(value, ())
    return value not in around.final and bool(users) and all(looks_only(rules, user) for user in users)


@record
class Grouping:
    """A graph whose nodes are grouped; `scratch` gives None where there is no kernel for a group."""

    rules: Rules
    graph: Graph
    device: Device
    calls: Calls
    profiles: Profiles
    scratch: Callable[[Graph], object | None]

    def grouped(self, own: Sequence[NodeGroup]) -> Graph:
        """The graph with everything that runs as one as one kernel node.

        `own`: groups that a library wrote a better kernel for than is generated.
        """
        around = Neighbours(self.graph)
        hosts = CpuParts(self.rules, around, self.device, self.profiles).found()
        calls = self._calls(around, {node for group in hosts for node in group.nodes})
        taken = {node for group in (*hosts, *calls) for node in group.nodes}
        groups: list[NodeGroup] = []
        for group in sorted(own, key=lambda one: -len(one.nodes)):
            if taken.isdisjoint(group.nodes):
                groups.append(group)
                taken.update(group.nodes)
        proposed = {group.nodes: group for group in proposals(self.graph, self.rules, GroupLimits(), self.profiles)}
        # the largest first
        waiting = [(-len(nodes), k, nodes) for k, nodes in enumerate(proposed)]
        while waiting:
            group = proposed[heappop(waiting)[2]]
            if not taken.isdisjoint(group.nodes):
                # what calls and other kernels leave of it is smaller, and waits for its turn
                for rest in _left(group, taken, around):
                    if rest.nodes not in proposed:
                        heappush(waiting, (-len(rest.nodes), len(proposed), rest.nodes))
                        proposed[rest.nodes] = rest
                continue
            if len(group.nodes) < 2 or all(looks_only(self.rules, node) for node in group.nodes):
                continue
            if self.scratch(fold_of(group).kernel.group) is not None:
                groups.append(group)
                taken.update(group.nodes)
        return without_circles(self.graph, groups, [*hosts, *calls])[0]

    def _calls(self, around: Neighbours, hosted: Collection[Node]) -> list[NodeGroup]:
        """Products with what is computed of them at once, as far as some lowering says so, and the CPU does not have them."""
        views = self._assumed(around)
        out: list[NodeGroup] = []
        taken = set(hosted)
        for node in around.nodes:
            if node in taken or len(node.types) != 1 or not sums_products(self.rules, node):
                continue
            chain = [node]
            best: NodeGroup | None = None
            while True:
                group = around.group(chain)
                last = Value(chain[-1])
                if len(group.outputs) == 1:
                    kernel = fold_of(group).kernel
                    given = [views.get(arg) or plain(-1, arg.type.dtype, arg.type.sizes) for arg in kernel.args]
                    if self._taken(kernel, given, turnable(self.rules, around, last)):
                        best = group
                users = around.users[chain[-1]]
                if len(chain) > EPILOGUE or last in around.final or len(set(users)) != 1 or len(users[0].types) != 1:
                    break
                if users[0] in taken or isinstance(users[0], Opaque):
                    break
                chain.append(users[0])
            if best:
                out.append(best)
                taken.update(best.nodes)
        return out

    def _assumed(self, around: Neighbours) -> dict[Value, StridedView]:
        """Places of all values if all but views lay in row-major order."""
        views: dict[Value, StridedView] = {}
        for value in self.graph.inputs:
            views[value] = plain(len(views), value.type.dtype, value.type.sizes)
        for node in around.nodes:
            seen = view_of_node(self.rules, node, views)
            for value in node.values:
                if value.known or not isinstance(node, Opaque):
                    views[value] = seen or plain(len(views), value.type.dtype, value.type.sizes)
        return views

    def _taken(self, kernel: Kernel, views: Sequence[StridedView], turnable: bool) -> bool:
        """Return whether some call computes a kernel, maybe of operands that were copied into order first."""
        ordered = [plain(one.buffer, one.dtype, one.shape) for one in views]
        return any(self.calls.best(kernel, tried, turnable) is not None for tried in (views, ordered))


def _left(group: NodeGroup, taken: Collection[Node], around: Neighbours) -> Iterator[NodeGroup]:
    """The connected rests of a group without some nodes, as far as they may be kernels."""
    limits = GroupLimits()
    for rest in around.connected([node for node in group.nodes if node not in taken]):
        found = around.group(rest) if len(rest) > 1 and around.convex(rest) else None
        if found and len(found.outputs) <= limits.results and len(found.arguments) <= limits.arguments:
            yield found
