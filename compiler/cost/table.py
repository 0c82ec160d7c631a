"""A price for every node: what its lowering takes alone. A sum of prices means something, so that an extraction can minimise it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from dslc.cost.groups import Group, working_nodes
from dslc.cost.layout import Info, Port, Reorder, port_of, reorders
from dslc.cost.lowered import Lowered
from dslc.cost.model import CostModel
from dslc.ir.graph import Graph, Node, Opaque, Value


@dataclass(frozen=True, slots=True)
class Price:
    """Seconds of one thing that runs as one: what a lowering takes, or a change of layout."""

    what: Lowered | Reorder
    seconds: float


@dataclass(frozen=True, slots=True)
class Priced:
    """A graph as what is run, producers first and changes of layout last, each with its price. `seconds` is the sum."""

    prices: tuple[Price, ...]

    @property
    def seconds(self) -> float:
        return sum(price.seconds for price in self.prices)


class PriceTable:
    """Prices on one target, measured when first asked for, each by itself; infinite for what the target cannot run.

    Opaque nodes have none: they are the same in whatever is compared.
    """

    def __init__(self, costs: CostModel) -> None:
        self._costs = costs

    def price(self, node: Node) -> float:
        """Seconds of a node by itself, from plain layout to plain."""
        return self._costs.cost(node)

    def lowered(self, outputs: Sequence[Value]) -> list[Lowered]:
        """The nodes below some values as what is run, producers first: the lowerings that take most, and single nodes."""
        nodes = [node for node in working_nodes(outputs) if node.args and not isinstance(node, Opaque)]
        uses: dict[Value, int] = {}
        for value in [*outputs, *(arg for node in working_nodes(outputs) for arg in node.args)]:
            uses[value] = uses.get(value, 0) + 1
        pieces = self._costs.lowerings.fused(nodes, lambda node: node.args, lambda value: uses.get(value, 0))
        last = {piece.nodes[-1]: piece for piece in pieces}
        inside = {node for piece in pieces for node in piece.nodes}
        return [last.get(node, Lowered("", (node,))) for node in nodes if node in last or node not in inside]

    def priced(self, graph: Graph) -> Priced:
        """A graph as a list of what is run, with prices."""
        pieces = self.lowered(graph.outputs)
        groups = [Group(piece.nodes, tuple(node.args for node in piece.nodes), len(piece.nodes)) for piece in pieces]
        infos = self._costs.infos(groups)
        ports: list[tuple[Info, Port]] = [(info, port_of(group)) for info, group in zip(infos, groups, strict=True)]
        changes, more = reorders(ports, graph.outputs)
        prices = [
            Price(piece, info.body + extra if info.body < inf else inf)
            for piece, info, extra in zip(pieces, infos, more, strict=True)
        ]
        return Priced((*prices, *(Price(change, change.seconds) for change in changes)))
