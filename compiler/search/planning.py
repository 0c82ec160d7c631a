"""`--on cuda`: the search at prices of a data sheet, whole plans for the last word, and the plan in the model's metadata."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import ModelProto

from dslc.cost.measure import Measurer
from dslc.cuda.code import generable
from dslc.cuda.costs import Roofline, plan_at
from dslc.cuda.devices import device_named
from dslc.cuda.plan import CallStep, Plan, text_of
from dslc.cuda.planning import NotPlanned
from dslc.errors import DslcError
from dslc.ir.graph import Graph
from dslc.ir.scalar import Sym
from dslc.onnx.importer import import_model
from dslc.onnx.metadata import PLAN, set_metadata
from dslc.search.contenders import Contender
from dslc.search.originals import Unusable
from dslc.search.run import Run
from dslc.search.stages import Explored, Finished, Task
from dslc.semantics.library import Rules

#: said of every result
NOT_MEASURED = "nothing was measured: times are those of a roofline, by the data sheet of the device"


def begun(task: Task, measurer: Measurer, sizes: Mapping[str, int]) -> Roofline:
    """Prices, begun with the original.

    Raises:
        Unusable: there is no plan for the original.
    """
    device, graph = device_named(task.settings.device), task.imported.graph
    can = generable(task.rules)
    try:
        whole = plan_at(task.rules, graph, device, sizes, can)
    except NotPlanned as problem:
        raise Unusable(f"there is no plan for it: {problem}") from None
    costs = Roofline(task.rules, measurer, task.imported.context.opset, sizes, device, can)
    costs.begin(graph, whole.plan.seconds)
    return costs


def by_plans(explored: Explored, run: Run) -> Finished:
    """The contender whose plan as a whole is the fastest by the roofline, or the original."""
    referenced, task = explored.referenced, explored.referenced.task
    run.phase("planning")
    device, can = device_named(task.settings.device), generable(task.rules)

    def seconds(graph: Graph) -> float | None:
        try:
            return plan_at(task.rules, graph, device, _sizes(referenced.inputs[0].feeds[0], graph, task), can).plan.seconds
        except NotPlanned:
            return None

    before = seconds(task.imported.graph)
    priced = [
        (found, one) for one in explored.contenders if (found := seconds(_read_again(one, task.rules))) is not None
    ]
    if before is None or not priced:
        return Finished(task, None, "no rewritten model has a plan")
    after, best = min(priced, key=lambda one: one[0])
    if after >= before:
        return Finished(task, None, f"no plan of a rewritten model is faster ({NOT_MEASURED})")
    reason = f"by plans {before * 1e6:.4g} us -> {after * 1e6:.4g} us on {device.name} ({NOT_MEASURED})"
    return Finished(task, best, reason, (), before / after)


def _read_again(one: Contender, rules: Rules) -> Graph:
    """A contender as a session will read it; its graph where it cannot be read without its folder."""
    try:
        return import_model(one.model, rules).graph
    except DslcError:
        return one.candidate.graph


def _sizes(feeds: Mapping[str, object], graph: Graph, task: Task) -> dict[str, int]:
    """Sizes by name, from what was fed."""
    found = dict(task.sizes)
    for value in graph.inputs:
        array = feeds.get(getattr(value.node, "name", ""))
        for size, given in zip(value.type.shape, getattr(array, "shape", ()), strict=False):
            if isinstance(size, Sym):
                found.setdefault(size.name, int(given))
    return found


def with_plan(model: ModelProto, task: Task, run: Run) -> tuple[ModelProto, list[str]]:
    """A model with the plan of its graph as it will be read again, and what there is to say about it."""
    device = device_named(task.settings.device)
    out = ModelProto()
    out.CopyFrom(model)
    feeds = run.referenced.inputs[0].feeds[0] if run.referenced is not None else {}
    try:
        imported = import_model(out, task.rules) if model is not task.model else task.imported
        graph = imported.graph
        sizes = _sizes(feeds, graph, task)
        names = tuple(str(getattr(value.node, "name", "")) for value in graph.inputs)
        outputs = tuple(one.name for one in out.graph.output)
        found = plan_at(task.rules, graph, device, sizes, generable(task.rules), names, outputs)
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
        kind = "call" if isinstance(step, CallStep) else "kernel"
        lines.append(f"{kind} {step.name} ({step.rule}): {step.seconds * 1e6:.4g} us")
    if len(plan.steps) > _SHOWN:
        lines.append(f"and {len(plan.steps) - _SHOWN} more")
    streams = f"{plan.streams} stream{'' if plan.streams == 1 else 's'}"
    takes = f"{plan.seconds * 1e6:.4g} us, {plan.shared} bytes shared"
    lines.append(f"plan for {plan.device}: {len(plan.steps)} steps on {streams}, {takes}")
    return lines


#: steps of a plan that a report lists
_SHOWN = 24

__all__ = ["NOT_MEASURED", "begun", "by_plans", "told", "with_plan"]
