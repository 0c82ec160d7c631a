"""What became of an e-graph since it was another one: which answers about that still hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property

from dslc.egraph.graph import EGraph
from dslc.ir.graph import Node


class Since:
    """The difference of an e-graph and one that it was cloned from. Neither may change any more."""

    def __init__(self, before: EGraph, egraph: EGraph) -> None:
        self._old, self._egraph = before, egraph
        self._within: list[frozenset[Node]] = []
        self._touched: frozenset[int] = frozenset()

    @cached_property
    def classes(self) -> frozenset[int]:
        """The classes that are new, or whose e-nodes are others."""
        old = self._old.members
        return frozenset([number for number, nodes in self._egraph.members.items() if old.get(number) is not nodes])

    @cached_property
    def nodes(self) -> list[Node]:
        """The e-nodes that are new, in the order in which they came."""
        old = self._old.memo
        return [node for node in self._egraph.memo if node not in old]

    def nodes_within(self, depth: int) -> Collection[Node]:
        """The e-nodes that are new, or from which a changed class is at most so many classes away: 1 for their arguments."""
        egraph, within = self._egraph, self._within
        if not within:
            within.append(frozenset(self.nodes))
            self._touched = self.classes
        while len(within) <= depth:
            touched = self._touched
            readers = frozenset([node for number in touched for node in egraph.users.get(number, ())])
            within.append(within[-1] | readers)
            self._touched = touched.union([egraph.find(out) for node in readers for out in egraph.memo[node].outs])
        return within[depth]

    @cached_property
    def above(self) -> frozenset[int]:
        """The classes that a changed class can be reached from, these included."""
        egraph = self._egraph
        out = set(self.classes)
        stack = list(out)
        while stack:
            for node in egraph.users[stack.pop()]:
                for number in egraph.memo[node].outs:
                    number = egraph.find(number)
                    if number not in out:
                        out.add(number)
                        stack.append(number)
        return frozenset(out)

    def placed(self, position: Mapping[Node, int]) -> dict[Node, int]:
        """Places of nodes and classes: those from before as they were, new ones behind them."""
        old, egraph = self._old, self._egraph
        out = dict(position)
        for node in old.memo:
            if node.args and node not in egraph.memo:
                del out[node]
        for number, value in old.values.items():
            if egraph.values.get(number) is not value:
                del out[value.node]
        place = max(position.values(), default=-1) + 1
        for number, value in egraph.values.items():
            if value.node not in out and number in egraph.members:
                out[value.node] = place
                place += 1
        for node in self.nodes:
            if node.args:
                out[node] = place
                place += 1
        return out


__all__ = ["Since"]
