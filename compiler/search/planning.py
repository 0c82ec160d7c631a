"""`--on cuda`: the search at prices of a data sheet, whole plans for the last word, and the plan in the model's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnx import ModelProto

from dslc.cost.inputs import drawn_inputs
from dslc.cost.measure import Measurer
from dslc.cost.model import CostModel
from dslc.cuda.code import generable
from dslc.cuda.costs import plan_model
from dslc.cuda.devices import device_named
from dslc.cuda.plan import CallStep, HostStep, Plan, text_of
from dslc.cuda.planning import NotPlanned
from dslc.cuda.target import device_target
from dslc.errors import DslcError
from dslc.ir.graph import Graph
from dslc.ir.scalar import Sym
from dslc.onnx.importer import Imported, import_model
from dslc.onnx.metadata import PLAN, set_metadata
from dslc.search.originals import Unusable
from dslc.search.run import Run
from dslc.search.stages import Explored, Finished, Task

#: said of every result
NOT_MEASURED = "nothing was measured: times are those of a roofline, by the data sheet of the device"


def begun(task: Task, measurer: Measurer, sizes: Mapping[str, int], feeds: Mapping[str, Any]) -> CostModel:
    """Prices, begun with the original.

    Raises:
        Unusable: there is no plan for the original.
    """
    device, graph = device_named(task.settings.device), task.imported.graph
    can = generable(task.rules)
    try:
        whole = plan_model(task.rules, task.model, task.imported, device, sizes, feeds, can)
    except NotPlanned as problem:
        raise Unusable(f"there is no plan for it: {problem}") from None
    target = device_target(task.settings.device, task.settings.threads)
    costs = CostModel(task.rules, measurer, lambda _inputs, _outputs: None, task.imported.context.opset, sizes, target=target)
    costs.begin(graph, whole.plan.seconds)
    return costs


def by_plans(explored: Explored, run: Run) -> Finished:
    """The contender whose plan as a whole is the fastest by the roofline, or the original."""
    referenced, task = explored.referenced, explored.referenced.task
    run.phase("planning")
    device, can = device_named(task.settings.device), generable(task.rules)

    feeds = referenced.inputs[0].feeds[0]

    def seconds(model: ModelProto, imported: Imported) -> float | None:
        try:
            return plan_model(task.rules, model, imported, device, _sizes(feeds, imported.graph, task), feeds, can).plan.seconds
        except NotPlanned:
            return None

    before = seconds(task.model, task.imported)
    priced = []
    for one in explored.contenders:
        try:
            found = seconds(one.model, import_model(one.model, task.rules))
        except DslcError:  # it cannot be read without its folder
            continue
        if found is not None:
            priced.append((found, one))
    if before is None or not priced:
        return Finished(task, None, "no rewritten model has a plan")
    after, best = min(priced, key=lambda one: one[0])
    if after >= before:
        return Finished(task, None, f"no plan of a rewritten model is faster ({NOT_MEASURED})")
    reason = f"by plans {before * 1e6:.4g} us -> {after * 1e6:.4g} us on {device.name} ({NOT_MEASURED})"
    return Finished(task, best, reason, (), before / after)


def _sizes(feeds: Mapping[str, object], graph: Graph, task: Task) -> dict[str, int]:
    """Sizes by name, from what was fed."""
    found = dict(task.sizes)
    for value in graph.inputs:
        array = feeds.get(getattr(value.node, "name", ""))
        for size, given in zip(value.type.shape if value.known else (), getattr(array, "shape", ()), strict=False):
            if isinstance(size, Sym):
                found.setdefault(size.name, int(given))
    return found


def with_plan(model: ModelProto, task: Task, run: Run) -> tuple[ModelProto, list[str]]:
    """A model with the plan of its graph as it will be read again, and what there is to say about it."""
    device = device_named(task.settings.device)
    out = ModelProto()
    out.CopyFrom(model)
    try:
        # without a run of the original, at the sizes that it would have had
        inputs = run.referenced.inputs[0] if run.referenced is not None else drawn_inputs(task.model, task.sizes)
        feeds = inputs.feeds[0]
        imported = import_model(out, task.rules) if model is not task.model else task.imported
        found = plan_model(task.rules, out, imported, device, _sizes(feeds, imported.graph, task), feeds, generable(task.rules))
    except NotPlanned as problem:
        return model, [f"no plan for {device.name}: {problem}"]
    except DslcError as problem:
        return model, [f"no plan for {device.name}: {problem.diagnostics[0].message}"]
    set_metadata(out, PLAN, text_of(found.plan))
    return out, [*told(found.plan), NOT_MEASURED]


def told(plan: Plan) -> list[str]:
    """What a report says of a plan: its calls and kernels with the rules that they come from, memory, and seconds."""
    lines = []
    for step in plan.steps[:_SHOWN]:
        kind = "call" if isinstance(step, CallStep) else "CPU" if isinstance(step, HostStep) else "kernel"
        lines.append(f"{kind} {step.name} ({step.rule}): {step.seconds * 1e6:.4g} us")
    if len(plan.steps) > _SHOWN:
        lines.append(f"and {len(plan.steps) - _SHOWN} more")
    streams = f"{plan.streams} stream{'' if plan.streams == 1 else 's'}"
    takes = f"{plan.seconds * 1e6:.4g} us, {plan.shared} bytes shared"
    steps = f"{len(plan.steps)} step{'' if len(plan.steps) == 1 else 's'}"
    lines.append(f"plan for {plan.device}: {steps} on {streams}, {takes}")
    return lines


#: steps of a plan that a report lists
_SHOWN = 24

__all__ = ["NOT_MEASURED", "begun", "by_plans", "told", "with_plan"]
