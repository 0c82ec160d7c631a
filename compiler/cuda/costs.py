"""Prices on a device that is not here: each group of a graph as a plan of its own, by the roofline of a data sheet."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from dslc.cost.groups import Group
from dslc.cost.layout import Info
from dslc.cost.machine import Machine, this_machine
from dslc.cost.measure import LEAST, Measurer
from dslc.cost.model import CostModel
from dslc.cost.targets import lowerings_on
from dslc.cuda.devices import Device
from dslc.cuda.hosted import Hosted, at_feeds, hosted, hosted_of
from dslc.cuda.planning import Generable, NotPlanned, Planned, planned
from dslc.cuda.programs import looks_only
from dslc.ir.graph import Graph, Value, input_value, replace
from dslc.ir.scalar import Scalar, Sym, num, substitute, walk
from dslc.ir.sizes import with_sizes
from dslc.onnx.importer import Imported
from dslc.semantics.library import Rules

if TYPE_CHECKING:
    from onnx import ModelProto

#: version of the format of models for one node
_IR = 8


@dataclass(frozen=True, slots=True)
class Sheet(Machine):
    """A device by its data sheet: what is said of it was not measured."""

    def __str__(self) -> str:
        return f"{self.device}, {self.runtime}"


def sheet(device: Device, threads: int | None = None) -> Sheet:
    """As `this_machine`, for a device that is named. Outputs are compared on the processors at hand."""
    return Sheet(str(device), this_machine(threads).threads, "by its data sheet, nothing measured")


class Roofline(CostModel):
    """Costs of nodes and graphs in seconds on a device, computed and not measured."""

    def __init__(
        self, rules: Rules, measurer: Measurer, opset: int, sizes: Mapping[str, int], device: Device, generable: Generable
    ) -> None:
        super().__init__(rules, measurer, lambda _inputs, _outputs: None, opset, sizes, lowerings=lowerings_on(("cuda",), rules))
        self.device, self.generable, self.hosted = device, generable, hosted(rules, opset, {}, _IR)

    def measure(self, group: Group, turn: str = "") -> Info:
        """What a group takes as a plan of its own; what only looks at memory takes next to nothing."""
        if all(looks_only(self.rules, node) for node in group.nodes):
            return Info(LEAST)
        small = self.small(group)
        weights = {value: input_value(f"w{k}", value.type, constant=True) for k, value in enumerate(small.weights)}
        outputs = replace(small.outputs, dict[Value, Value](weights))
        try:
            found = planned(self.rules, Graph(small.inputs, outputs), self.device, generable=self.generable, hosted=self.hosted)
        except NotPlanned:
            return Info(inf)
        return Info(max(LEAST, found.plan.seconds))

    def confirm(self, *graphs: Graph) -> bool:
        """Nothing is measured, and so nothing again."""
        return False


def plan_at(
    rules: Rules, graph: Graph, device: Device, sizes: Mapping[str, int], generable: Generable, names: tuple[str, ...] = (),
    outputs: tuple[str, ...] = (), hosted: Hosted | None = None,
) -> Planned:  # fmt: skip
    """A plan for a graph at some sizes.

    Raises:
        NotPlanned: with the reason.
    """
    return planned(rules, at_sizes(graph, sizes), device, names=names, outputs=outputs, generable=generable, hosted=hosted)


def plan_model(
    rules: Rules, source: str | os.PathLike[str] | ModelProto, imported: Imported, device: Device, sizes: Mapping[str, int],
    feeds: Mapping[str, Any], generable: Generable,
) -> Planned:  # fmt: skip
    """A plan for a whole model at the sizes of some inputs; what only ONNX Runtime can run, it runs on the CPU.

    Raises:
        NotPlanned: with the reason.
    """
    found = at_feeds(source, rules, imported, feeds)
    graph = found.graph
    names = tuple(str(getattr(value.node, "name", "")) for value in graph.inputs)
    outputs = tuple(one.name for one in imported.context.model.graph.output)
    return plan_at(rules, graph, device, sizes, generable, names, outputs, hosted_of(rules, found))


def at_sizes(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """A graph with unknown sizes as numbers, as far as these are given by name."""

    def put(root: Scalar) -> Scalar:
        given: dict[Scalar, Scalar] = {
            one: num(sizes[one.name]) for one in walk(root) if isinstance(one, Sym) and one.name in sizes
        }
        return substitute(root, given) if given else root

    found = with_sizes((*graph.inputs, *graph.outputs), put)
    count = len(graph.inputs)
    return Graph(found[:count], found[count:])


__all__ = ["Roofline", "Sheet", "at_sizes", "plan_at", "plan_model", "sheet"]
