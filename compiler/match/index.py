"""What matching asks of a graph: nodes by operator, users of a value, order, and which nodes lie below which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from dslc.ir.graph import Call, Graph, Node, Value, with_args


class GraphIndex:
    """An index of one graph. Everything beyond the order of the nodes is computed when first asked for."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Node] = graph.nodes()
        self.position: dict[Node, int] = {node: k for k, node in enumerate(self.nodes)}

    @cached_property
    def by_operator(self) -> dict[str, list[Call]]:
        out: dict[str, list[Call]] = {}
        for node in self.nodes:
            if isinstance(node, Call):
                out.setdefault(node.op, []).append(node)
        return out

    @cached_property
    def calls(self) -> list[Call]:
        return [node for node in self.nodes if isinstance(node, Call)]

    @cached_property
    def rank(self) -> dict[Node, int]:
        """Another order of the nodes, arguments first, that says nothing of who uses them: by depth, then by the arguments' ranks.

        Branches that do the same with the same operands are in the same order, wherever in the graph they are read: what joins
        pairs of one branch joins the same pairs of the others.
        """
        depth: dict[Node, int] = {}
        for node in self.nodes:
            depth[node] = 1 + max((depth[arg.node] for arg in node.args), default=-1)
        levels: dict[int, list[Node]] = {}
        for node in self.nodes:
            levels.setdefault(depth[node], []).append(node)
        first = {node: k for k, node in enumerate(value.node for value in self.graph.inputs)}
        out: dict[Node, int] = {}
        for _, level in sorted(levels.items()):
            keyed = [(tuple(out[arg.node] for arg in node.args), first.get(node, len(first)), node) for node in level]
            for _, _, node in sorted(keyed, key=lambda entry: entry[:2]):
                out[node] = len(out)
        return out

    @cached_property
    def _users(self) -> dict[Value, list[Call]]:
        out: dict[Value, list[Call]] = {}
        for node in self.calls:
            for arg in dict.fromkeys(node.args):
                out.setdefault(arg, []).append(node)
        return out

    @cached_property
    def _all_users(self) -> dict[Node, list[int]]:
        out: dict[Node, list[int]] = {}
        for at, node in enumerate(self.nodes):
            for below in dict.fromkeys(arg.node for arg in node.args):
                out.setdefault(below, []).append(at)
        return out

    def users(self, value: Value) -> Sequence[Call]:
        """The calls that read a value, in topological order."""
        return self._users.get(value, ())

    @cached_property
    def _below(self) -> list[int]:
        """For every node the set of nodes that it depends on, itself included, as bits."""
        out: list[int] = []
        for k, node in enumerate(self.nodes):
            bits = 1 << k
            for arg in node.args:
                bits |= out[self.position[arg.node]]
            out.append(bits)
        return out

    def depends(self, node: Node, on: Node) -> bool:
        """Whether `node` is `on` or is computed from it. A node outside the graph is looked through to the nodes it is built from."""
        target = self.position.get(on)
        if target is None:
            return node is on
        stack, seen = [node], {node}
        while stack:
            at = stack.pop()
            k = self.position.get(at)
            if k is not None:
                if self._below[k] >> target & 1:
                    return True
                continue
            for arg in at.args:
                if arg.node not in seen:
                    seen.add(arg.node)
                    stack.append(arg.node)
        return False

    def rebuilt(self, new: dict[Value, Value]) -> Graph:
        """The graph with some values replaced: only the nodes above them are built again."""
        mapped = dict(new)
        import heapq

        queue = sorted({k for value in new for k in self._all_users.get(value.node, ())})
        queued = set(queue)
        while queue:
            node = self.nodes[heapq.heappop(queue)]
            if not any(arg in mapped for arg in node.args):
                continue
            args = tuple(mapped.get(arg, arg) for arg in node.args)
            for value, built in zip(node.values, with_args(node, args), strict=True):
                mapped.setdefault(value, built)
            for k in self._all_users.get(node, ()):
                if k not in queued:
                    queued.add(k)
                    heapq.heappush(queue, k)
        return Graph(self.graph.inputs, tuple(mapped.get(value, value) for value in self.graph.outputs))


def in_order(nodes: Iterable[Call], index: GraphIndex) -> list[Call]:
    """Without repetitions, in topological order."""
    return sorted(dict.fromkeys(nodes), key=lambda node: index.position[node])
