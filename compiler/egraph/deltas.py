"""Differences of an e-graph and an earlier one, by which answers about that one are known to hold still."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain

from dslc.egraph.graph import EGraph
from dslc.ir.graph import Call, Node
from dslc.match.prefilter import SitePrefilter


class EGraphDelta:
    """The difference of an e-graph and one that it was cloned from. Neither may change any more.

    Where just some e-nodes are seen of both, what is seen now and was not before is new.
    """

    def __init__(
        self, before: EGraph, egraph: EGraph, seen: tuple[frozenset[Node], frozenset[Node]] | None = None
    ) -> None:
        """`seen`: the e-nodes that are seen of each, beside weights; all where None."""
        self._old, self._egraph, self._seen = before, egraph, seen
        self._unknown: dict[SitePrefilter, dict[Call, None]] = {}

    @cached_property
    def classes(self) -> frozenset[int]:
        """The classes that are new, or whose e-nodes are others."""
        old, egraph = self._old.members, self._egraph
        out = [number for number, nodes in egraph.members.items() if old.get(number) is not nodes]
        if self._seen is not None:
            out += [egraph.find(number) for node in self.nodes for number in egraph.memo[node].outs]
        return frozenset(out)

    @cached_property
    def nodes(self) -> list[Node]:
        """The e-nodes that are new, in the order in which they came."""
        fresh = added(self._old, self._egraph)
        if self._seen is None:
            return fresh
        before, now = self._seen
        memo = self._egraph.memo
        some = {node for node in now - before if node in memo}
        some.update(node for node in fresh if node.constant)
        return sorted(some, key=lambda node: memo[node].outs[0])

    def _sees(self, node: Node) -> bool:
        return self._seen is None or node in self._seen[1] or node.constant

    @cached_property
    def _fresh(self) -> dict[str, list[Call]]:
        """The new calls by operator."""
        out: dict[str, list[Call]] = {}
        for node in self.nodes:
            if isinstance(node, Call):
                out.setdefault(node.op, []).append(node)
        return out

    @cached_property
    def _readers(self) -> dict[str, dict[Call, None]]:
        """The calls that read a class that is new or has other e-nodes, by operator."""
        out: dict[str, dict[Call, None]] = {}
        for number in sorted(self.classes):
            for node in self._egraph.users.get(number, ()):
                if isinstance(node, Call) and self._sees(node):
                    out.setdefault(node.op, {})[node] = None
        return out

    def unknown(self, prefilter: SitePrefilter) -> dict[Call, None]:
        """The calls of which it is not known whether a prefilter lets them through where that is known of the e-graph before.

        Every match that the e-graph before did not have, and whose top has this prefilter, has one of these as its top.
        """
        found = self._unknown.get(prefilter)
        if found is None:
            found = self._unknown[prefilter] = self._anew(prefilter)
        return found

    @cached_property
    def _operators(self) -> frozenset[str]:
        """The operators of calls that are new, or read what has changed."""
        return frozenset((*self._fresh, *self._readers))

    def _anew(self, prefilter: SitePrefilter) -> dict[Call, None]:
        operator, inside = prefilter.operator, prefilter.operators
        if inside is not None and inside.isdisjoint(self._operators):
            return {}
        out = dict.fromkeys(_of(operator, self._fresh))
        if not prefilter.below and not prefilter.nested:
            return out
        out.update(dict.fromkeys(_of(operator, self._readers)))
        level = [call for below in prefilter.below for call in self.unknown(below)]
        if level:
            out.update(dict.fromkeys(self._above(level, operator)))
        level = list(out) if prefilter.nested else []
        while level:
            # of nested calls of one operator any may be looked through
            level = [call for call in dict.fromkeys(self._above(level, operator)) if call not in out]
            out.update(dict.fromkeys(level))
        return out

    def _above(self, calls: Iterable[Call], operator: str | None) -> Iterator[Call]:
        """The calls of an operator, or of any, that read a result of some calls."""
        egraph = self._egraph
        for number in dict.fromkeys([egraph.find(out) for call in calls for out in egraph.memo[call].outs]):
            for node in egraph.users[number]:
                if isinstance(node, Call) and (operator is None or node.op == operator) and self._sees(node):
                    yield node


def added(before: EGraph, egraph: EGraph) -> list[Node]:
    """The e-nodes that an e-graph has beside those of what it was cloned from, in the order in which they came: the last ones."""
    old, out = before.memo, list[Node]()
    for node in reversed(egraph.memo):
        if node in old:
            break
        out.append(node)
    out.reverse()
    return out


def _of(operator: str | None, calls: Mapping[str, Iterable[Call]]) -> Iterator[Call]:
    """The calls of an operator, or of any."""
    return iter(calls.get(operator, ())) if operator is not None else chain.from_iterable(calls.values())
