"""Plans of graphs and of models, at sizes that are given."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dslc.cost.inputs import drawn_inputs
from dslc.cuda.code import generable, templates_of, texts
from dslc.cuda.cpu_parts import at_feeds, hosted_of, opaque
from dslc.cuda.devices import DEVICES, Device
from dslc.cuda.plan import BadPlan, Plan, plan_of
from dslc.cuda.planning import Generable, NotPlanned, Places, Planned, WhyUnplanned, nowhere, planned
from dslc.errors import DslcError
from dslc.ir.graph import Graph
from dslc.ir.scalar import Scalar, Sym, num, scalars, substitute
from dslc.ir.sizes import with_sizes
from dslc.onnx.context import Imported
from dslc.onnx.functions import inlined
from dslc.onnx.importer import import_model
from dslc.onnx.metadata import PLAN, metadata
from dslc.semantics.library import Rules

if TYPE_CHECKING:
    from onnx import ModelProto

    from dslc.codegen.cuda.text import CudaText


def plan_model(
    rules: Rules, source: str | os.PathLike[str] | ModelProto, imported: Imported, device: Device, sizes: Mapping[str, int],
    feeds: Mapping[str, Any], generable: Generable, written: Places = nowhere,
) -> Planned:  # fmt: skip
    """A plan for a whole model at the sizes of some inputs; what only ONNX Runtime can run, it runs on the CPU.

    Raises:
        NotPlanned: with the reason.
    """
    found = at_feeds(source, rules, _open(rules, imported), feeds)
    graph = found.graph
    names = tuple(str(getattr(value.node, "name", "")) for value in graph.inputs)
    outputs = tuple(one.name for one in imported.context.model.graph.output)
    for name, value in zip((*names, *outputs), (*graph.inputs, *graph.outputs), strict=True):
        if not value.known:
            raise NotPlanned(WhyUnplanned.TYPE, name)
    return planned(
        rules, at_sizes(graph, sizes), device, names=names, outputs=outputs, generable=generable,
        hosted=hosted_of(rules, found), written=written,
    )  # fmt: skip


def _open(rules: Rules, imported: Imported) -> Imported:
    """A model with the nodes of its functions in their place, where the language has no words for a function as a whole."""
    model = imported.context.model
    if not model.functions or not opaque(imported.graph):
        return imported
    try:
        return import_model(inlined(model), rules)
    except DslcError:  # it cannot be read without its folder
        return imported


def at_sizes(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """A graph with unknown sizes as numbers, as far as these are given by name."""

    def put(root: Scalar) -> Scalar:
        given: dict[Scalar, Scalar] = {one: num(sizes[one.name]) for one in scalars(Sym, root) if one.name in sizes}
        return substitute(root, given) if given else root

    found = with_sizes((*graph.inputs, *graph.outputs), put)
    count = len(graph.inputs)
    return Graph(found[:count], found[count:])


def stored_plan(model: ModelProto) -> Plan | None:
    """The plan that a file has; None where it has none.

    Raises:
        BadPlan: it has something else in its place.
    """
    text = metadata(model).get(PLAN)
    return None if text is None else plan_of(text)


def stored_device(model: ModelProto) -> Device | None:
    """The device that a file has a plan for; None where it has no plan, or for a device that no data sheet is known of."""
    try:
        plan = stored_plan(model)
    except BadPlan:
        return None
    return DEVICES.get(plan.device) if plan else None


def stored_kernels(
    rules: Rules, model: ModelProto, told: Callable[[str], None] = lambda _: None
) -> dict[str, CudaText]:
    """The texts of a plan's kernels, by their names in it: dslc plans the model again, for the sizes and the device of the plan.

    Args:
        told: takes a line where that plan is another one than the file's.

    Raises:
        NotPlanned: there is no plan at these sizes.
        DslcError: the model cannot be read.
    """
    try:
        plan = stored_plan(model)
    except BadPlan:
        return {}
    device = stored_device(model)
    if not plan or not device:
        return {}
    imported = import_model(model, rules)
    shapes = {name: view.shape for name, view in plan.inputs}
    sizes: dict[str, int] = {}
    for value in imported.graph.inputs:
        shape = shapes.get(str(getattr(value.node, "name", "")), ())
        for size, given in zip(value.type.shape if value.known else (), shape, strict=False):
            if isinstance(size, Sym):
                sizes.setdefault(size.name, given)
    feeds = drawn_inputs(model, sizes).feeds[0]
    own = templates_of(rules)
    found = plan_model(rules, model, imported, device, sizes, feeds, generable(rules, device, own), own.groups)
    if not plan.same(found.plan):
        told(
            "the plan in the file is another one (by other rules, or by templates of theirs): these are the kernels without them"
        )
    text = texts(rules, device, own)
    return {name: text(program) for name, program in found.programs.items()}
