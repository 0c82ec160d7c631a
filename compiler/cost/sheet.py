"""A processor by two numbers: ONNX Runtime on a machine that is not at hand, priced by operations and bytes a second."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf, isfinite
from types import MappingProxyType
from typing import Any

from dslc.cost.evaluation import Prices
from dslc.cost.fused_groups import Lowered
from dslc.cost.groups import Group, working_nodes
from dslc.cost.kinds import flops
from dslc.cost.layout import Info, Port, Reorder, port_of, reorders
from dslc.cost.machine import this_machine
from dslc.cost.measure import LEAST as MEASURE_LEAST
from dslc.cost.measure import Unmeasured
from dslc.cost.model import CostModel
from dslc.cost.targets import ModelPlan, Sheet, Target
from dslc.errors import error
from dslc.ir.graph import Call, Constant, Graph, Input, Node, Opaque, Value, nodes_of
from dslc.onnx.context import Imported
from dslc.records import record
from dslc.semantics.library import Rules


@record
class Price:
    """Seconds of one thing that runs as one: what a lowering takes, or a change of layout."""

    what: Lowered | Reorder
    seconds: float


@record
class Priced:
    """A graph as what is run, producers first and changes of layout last, each with its price. `seconds` is the sum."""

    prices: tuple[Price, ...]

    @property
    def seconds(self) -> float:
        return sum(price.seconds for price in self.prices)


@record
class PriceTable:
    """Prices on one target, measured when first asked for, each by itself; infinite for what the target cannot run.

    Opaque nodes have none: they are the same in whatever is compared.
    """

    costs: CostModel

    def lowered(self, outputs: Sequence[Value]) -> list[Lowered]:
        """The nodes below some values as what is run, producers first: the lowerings that take most, and single nodes."""
        nodes = [node for node in working_nodes(outputs) if node.args and not isinstance(node, Opaque)]
        uses = Counter([*outputs, *(arg for node in working_nodes(outputs) for arg in node.args)])
        pieces = self.costs.lowerings.fused(nodes, lambda node: node.args, uses.__getitem__)
        last = {piece.nodes[-1]: piece for piece in pieces}
        inside = {node for piece in pieces for node in piece.nodes}
        return [last.get(node, Lowered("", (node,))) for node in nodes if node in last or node not in inside]

    def priced(self, graph: Graph) -> Priced:
        """A graph as a list of what is run, with prices."""
        pieces = self.lowered(graph.outputs)
        groups = [Group(piece.nodes, tuple(node.args for node in piece.nodes), len(piece.nodes)) for piece in pieces]
        infos = self.costs.infos(groups)
        ports: list[tuple[Info, Port]] = [(info, port_of(group)) for info, group in zip(infos, groups, strict=True)]
        changes, more = reorders(ports, graph.outputs)
        prices = [
            Price(piece, info.body + extra if info.body < inf else inf)
            for piece, info, extra in zip(pieces, infos, more, strict=True)
        ]
        return Priced((*prices, *(Price(change, change.seconds) for change in changes)))


NODE = 2e-6  #: seconds of a node of the runtime, beside what it computes
SHOWN = 8  #: pieces of a model that a report lists, those that take longest

#: operations on single precision and bytes a second of whole processors, from their data sheets: cores x base clock x operations of
#: a core in a cycle, and channels of memory
PROCESSORS: Mapping[str, tuple[float, float]] = MappingProxyType({
    "xeon-8480": (56 * 2.0e9 * 64, 307.2e9),
    "epyc-9654": (96 * 2.4e9 * 32, 460.8e9),
    "graviton3": (64 * 2.6e9 * 32, 307.2e9),
    "raspberry-pi-5": (4 * 2.4e9 * 16, 17.1e9),
})  # fmt: skip


@record
class CpuSheet(Target):
    """A processor that does so many operations and moves so many bytes a second, and runs ONNX Runtime's own operators."""

    operations: float = 0.0
    bytes: float = 0.0

    def price(self, costs: Prices, group: Group, turn: str = "") -> Info:
        """Price a fused group by a roofline: operands are read and results written once; moving and computing overlap."""
        if costs.is_view(group):
            return Info(MEASURE_LEAST)
        small = costs.samples.small(group)
        if not costs.timer.says(small):
            return Info(inf)
        below = nodes_of(small.outputs)
        nodes = [node for node in below if not isinstance(node, Input | Constant)]
        parts = [nodes[: group.fused], *([node] for node in nodes[group.fused :])]
        return Info(sum(self.seconds(costs.rules, part) for part in parts))

    def seconds(self, rules: Rules, nodes: Sequence[Node]) -> float:
        """Seconds of nodes of static types, producers first, that run as one."""
        made = {value for node in nodes for value in node.values}
        read = {arg for node in nodes for arg in node.args} - made
        moved = sum(value.type.bytes for value in (*read, *nodes[-1].values) if value.known)
        computed = sum(flops(rules, node) or 0.0 for node in nodes if isinstance(node, Call))
        return NODE + max(computed / self.operations, moved / self.bytes)

    def plan(
        self, rules: Rules, source: Any, imported: Imported, sizes: Mapping[str, int], feeds: Mapping[str, Any]
    ) -> ModelPlan:
        """The runtime runs one piece of a model after the other."""
        costs = CostModel(
            rules, Unmeasured(self.machine), lambda _inputs, _outputs: b"", imported.context.opset, sizes, target=self
        )
        priced = PriceTable(costs).priced(imported.graph)
        found = sorted(priced.prices, key=lambda price: -price.seconds)
        lines = [f"{_words(price.what)}: {price.seconds * 1e6:.4g} us" for price in found[:SHOWN]]
        total = f"{len(found)} pieces, one after the other: {priced.seconds * 1e6:.4g} us"
        return ModelPlan(priced.seconds, (*lines, total))


def _words(what: object) -> str:
    """A piece by its operators, and the lowering that makes it one."""
    if not isinstance(what, Lowered):
        return "a change of layout"
    names = [getattr(node, "op", type(node).__name__).rpartition(".")[2] for node in what.nodes]
    return " + ".join(names) + (f" ({what.lowering})" if what.lowering else "")


def target(device: str | None = None, threads: int | None = None, _trust: tuple[str, ...] = ()) -> CpuSheet:
    """A processor by its name, or by its two numbers: `1.2e12:4e10` does so many operations and moves so many bytes a second.

    Raises:
        DslcError: E0909 for what is neither.
    """
    name = next(iter(PROCESSORS)) if device is None else device.lower()
    operations, bytes = PROCESSORS.get(name) or _numbers(name)
    sheet = Sheet(
        f"{name} ({operations:.3g} operations/s, {bytes:.3g} bytes/s)",
        this_machine(threads).threads,
        "nothing measured",
    )
    basis = f"nothing was measured: times are those of {operations:.3g} operations and {bytes:.3g} bytes a second"
    return CpuSheet(sheet, "cpu_sheet", name, basis=basis, operations=operations, bytes=bytes)


def _numbers(text: str) -> tuple[float, float]:
    first, _, second = text.partition(":")
    try:
        found = float(first), float(second)
    except ValueError:
        found = 0.0, 0.0
    if not all(number > 0 and isfinite(number) for number in found):
        hint = f"one of {', '.join(PROCESSORS)}; or two numbers, operations and bytes a second: 1.2e12:4e10"
        raise error("E0909", f"there is no data sheet of a processor `{text}`", hint=hint)
    return found
