"""Regions of several linear operators: what is between the non-linear ones of a graph, in connected parts (PET, section 6.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from dslc.ir.graph import Call, Node, Value

REGIONS = 8  #: regions that end in one operator


def regions(
    nodes: Sequence[Node],
    used: Mapping[Value, Sequence[Node]],
    final: set[Value],
    most: int,
    linear: Callable[[Call], bool],
) -> Iterator[tuple[Call, tuple[Call, ...]]]:
    """Operators of one result with some of those below them (a split as well), `most` together at most, that nothing else needs; the
    fewest first.

    Args:
        nodes: of a graph, arguments first; `used` has who reads a value, `final` what the graph gives.
        linear: whether a call may be part of a region.
    """
    known: dict[Node, bool] = {}

    def fits(node: Node) -> bool:
        if node not in known:
            known[node] = isinstance(node, Call) and linear(node)
        return known[node]

    for root in nodes:
        if not isinstance(root, Call) or len(root.types) != 1 or not fits(root):
            continue
        found: list[tuple[Call, ...]] = []
        seen: set[frozenset[Call]] = set()
        front: list[tuple[Call, ...]] = [(root,)]
        while front and len(found) < REGIONS:
            region = front.pop(0)
            for below in dict.fromkeys(arg.node for node in region for arg in node.args):
                if below in region or not isinstance(below, Call) or len(region) == most or not fits(below):
                    continue
                if any(
                    value in final or any(user not in region for user in used.get(value, ())) for value in below.values
                ):
                    continue
                larger = (*region, below)
                if frozenset(larger) not in seen:
                    seen.add(frozenset(larger))
                    found.append(larger)
                    front.append(larger)
        for region in found[:REGIONS]:
            yield root, region[1:]
