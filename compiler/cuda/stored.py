"""The plan in a model's metadata, as far as dslc would make it: what it says is data, and nothing is run because it is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dslc.cost.inputs import drawn_inputs
from dslc.cuda.code import generable, texts
from dslc.cuda.costs import plan_model
from dslc.cuda.devices import DEVICES, Device
from dslc.cuda.plan import BadPlan, Plan, plan_of
from dslc.cuda.written import templates_of
from dslc.ir.scalar import Sym
from dslc.onnx.importer import import_model
from dslc.onnx.metadata import PLAN, metadata
from dslc.semantics.library import Rules

if TYPE_CHECKING:
    from onnx import ModelProto

    from dslc.codegen.cuda.text import CudaText


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
    return None if plan is None else DEVICES.get(plan.device)


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
    if plan is None or device is None:
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
