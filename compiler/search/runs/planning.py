"""Targets that are not at hand: the search at computed prices, whole plans that decide, and the plan in the metadata of models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnx import ModelProto

from dslc.cost.inputs import drawn_inputs
from dslc.cost.targets import NoPlan
from dslc.errors import DslcError
from dslc.ir.graph import Graph
from dslc.ir.scalar import Sym
from dslc.onnx.context import Imported
from dslc.onnx.importer import import_model
from dslc.onnx.metadata import PLAN, set_metadata
from dslc.search.runs.contenders import Unusable
from dslc.search.runs.endings import Ending
from dslc.search.runs.stages import Finished, Referenced, Task
from dslc.search.runs.state import RunState


def planned_seconds(task: Task, sizes: Mapping[str, int], feeds: Mapping[str, Any]) -> float:
    """Return the seconds of the original as a whole.

    Raises:
        Unusable: there is no plan for the original.
    """
    try:
        return task.target.plan(task.rules, task.model, task.imported, sizes, feeds).seconds
    except NoPlan as problem:
        raise Unusable(Ending.UNPLANNED, str(problem)) from None


def by_plans(referenced: Referenced, run: RunState) -> Finished:
    """The contender whose plan as a whole is the fastest, or the original."""
    task = referenced.task
    run.phase("planning")
    feeds = referenced.inputs[0].feeds[0]

    def seconds(model: ModelProto, imported: Imported) -> float | None:
        try:
            sizes = _sizes(feeds, imported.graph, task)
            return task.target.plan(task.rules, model, imported, sizes, feeds).seconds
        except NoPlan:
            return None

    before = seconds(task.model, task.imported)
    priced = []
    for one in run.checked:
        try:
            found = seconds(one.model, import_model(one.model, task.rules))
        except DslcError:  # it cannot be read without its folder
            continue
        if found is not None:
            priced.append((found, one))
    if before is None or not priced:
        return Finished(task, None, Ending.NO_PLAN)
    after, best = min(priced, key=lambda one: one[0])
    if after >= before:
        return Finished(task, None, Ending.NO_FASTER_PLAN, task.target.basis)
    detail = f"{before * 1e6:.4g} us -> {after * 1e6:.4g} us on {task.target.where} ({task.target.basis})"
    return Finished(task, best, Ending.PRICED, detail, predicted=before / after)


def _sizes(feeds: Mapping[str, object], graph: Graph, task: Task) -> dict[str, int]:
    """Sizes by name, from what was fed."""
    found = dict(task.sizes)
    for value in graph.inputs:
        array = feeds.get(getattr(value.node, "name", ""))
        for size, given in zip(value.type.shape if value.known else (), getattr(array, "shape", ()), strict=False):
            if isinstance(size, Sym):
                found.setdefault(size.name, int(given))
    return found


def with_plan(model: ModelProto, task: Task, run: RunState) -> ModelProto:
    """A model with the plan of its graph as it will be read again, where the target has one; notes say what is in it."""
    if task.target.measured:
        return model
    run.clock.enter("planning")
    out = ModelProto()
    out.CopyFrom(model)
    try:
        # without a run of the original, at the sizes that it would have had
        inputs = run.referenced.inputs[0] if run.referenced else drawn_inputs(task.model, task.sizes)
        feeds = inputs.feeds[0]
        imported = import_model(out, task.rules) if model is not task.model else task.imported
        found = task.target.plan(task.rules, out, imported, _sizes(feeds, imported.graph, task), feeds)
    except (NoPlan, DslcError) as problem:
        why = problem.diagnostics[0].message if isinstance(problem, DslcError) else problem
        run.warn(f"no plan for {task.target.where}: {why}")
        return model
    run.warn(*found.warnings)
    run.notes += [*found.told, task.target.basis]
    if not found.text:
        return model
    set_metadata(out, PLAN, found.text)
    return out
