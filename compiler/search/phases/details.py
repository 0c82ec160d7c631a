"""Details of a run that a page shows beside its report: both models, where their time goes, kernels, and what repeats it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from typing import TYPE_CHECKING

from onnx import ModelProto

from dslc.cost.process import profiled
from dslc.cost.targets import OwnKernels
from dslc.onnx.picture import compared, pictured
from dslc.report import Details, Report
from dslc.reporting.data import KernelCode, Picture
from dslc.search.rewrites.written import graph_as_kernels, texts_of
from dslc.version import __version__

if TYPE_CHECKING:
    from dslc.cost.process import ModelFile
    from dslc.search.runs.contenders import Contender
    from dslc.search.runs.progress import Run
    from dslc.search.runs.stages import Task

#: whose versions decide what a run does
PACKAGES = ("onnx", "onnxruntime", "numpy")


@dataclass(frozen=True, slots=True)
class Profiling:
    """How long looking at the time of single nodes may take: seconds for a model, and the share of what is left of the budget."""

    seconds: float = 4.0
    share: float = 0.5


def detailed(
    task: Task,
    run: Run,
    report: Report,
    model: ModelProto,
    contender: Contender | None = None,
    limits: Profiling = Profiling(),
) -> Details | None:
    """What a page shows; None where nobody asked for one. `contender` is what was written as `model`, None for the original."""
    if not task.settings.detailed:
        return None
    run.phase("profiling")
    replaced: dict[str, list[str]] = {}
    for step in report.steps:
        for place in step.places:
            replaced.setdefault(place, []).append(step.rule)
    original = pictured(task.model)
    before, after = compared(original, pictured(model), replaced, [step.rule for step in report.steps])
    if run.referenced is not None and task.target.measured and not report.interrupted:
        seconds = min(limits.seconds, limits.share * run.clock.left() / 2)
        before = _with_times(before, task.model, run.referenced.file, run, seconds)
        after = before if contender is None else _with_times(after, model, contender.file, run, seconds)
    built = task.target.kernels is OwnKernels.BUILT
    kernels = () if contender is None or not built else _kernels(task, contender, model)
    processor = str(task.machine.processor) if built else ""
    plan = {} if run.scheduled is None else run.scheduled.plan()
    return Details(before, after, kernels, processor, versions(), task.settings.command, plan)


def versions() -> dict[str, str]:
    """Versions of dslc, of Python and of what decides what a run does."""
    found = {"dslc": __version__, "Python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _with_times(picture: Picture, model: ModelProto, file: ModelFile, run: Run, seconds: float) -> Picture:
    """The picture of a model with what its nodes take where the runtime still calls them so."""
    assert run.referenced is not None
    feeds = run.referenced.inputs[0].feeds[0]
    times = profiled(file, feeds, run.referenced.task.machine.threads, seconds)
    # the runtime names nodes that have no name by their place
    placed = {
        f"{node.op_type}_{k}": next(iter(node.output), "") for k, node in enumerate(model.graph.node) if not node.name
    }
    times = tuple(replace(one, name=placed.get(one.name, one.name)) for one in times)
    known: dict[str, float] = {}
    for one in times:
        # what the runtime made of a node has a name of its node's, or of what that gives
        name = one.name.removeprefix("fused ").removesuffix("_nchwc")
        known[name] = known.get(name, 0.0) + one.milliseconds
    timed = (
        next((known[name] for name in (node.name, *node.outputs) if name in known), None) for node in picture.nodes
    )
    nodes = tuple(replace(node, milliseconds=ms) for node, ms in zip(picture.nodes, timed, strict=True))
    return replace(picture, times=times, nodes=nodes)


def _kernels(task: Task, contender: Contender, model: ModelProto) -> tuple[KernelCode, ...]:
    """The C++ of the kernels of a model, with the nodes that run each."""
    context = task.imported.context
    graph = graph_as_kernels(task.rules, contender.candidate.graph, context)
    known: dict[str, object] = {}
    texts = texts_of(task.rules, graph.outputs, context.opset, contender.candidate.kernels, task.machine.processor)
    for node in model.graph.node:
        if node.op_type in texts:
            known.setdefault(node.op_type, None)
    users: Mapping[str, tuple[str, ...]] = {
        name: tuple(node.name or next(iter(node.output), "") for node in model.graph.node if node.op_type == name)
        for name in known
    }
    return tuple(KernelCode(name, users[name], texts[name].text) for name in known)
