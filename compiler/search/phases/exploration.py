"""Exploring at measured prices: the loop finds models that compute the same, as long as timing leaves time, and they are accepted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from onnx import ModelProto

from dslc.codegen.host.background import BackgroundCompiler
from dslc.cost.cache import CostCache
from dslc.cost.measure import Measurer
from dslc.cost.model import CostModel
from dslc.cost.process import ModelFile, Worker, WorkerFailed
from dslc.deadline import FOREVER, Deadline, TimeUp
from dslc.errors import DslcError
from dslc.ir.graph import Graph, Input, Value
from dslc.ir.scalar import Sym
from dslc.onnx.context import Context
from dslc.onnx.exporter import ComputedSizes, node_model
from dslc.onnx.microbenchmarks import with_outputs
from dslc.onnx.protos import ELEM_TYPES
from dslc.search.candidates.candidate import Candidate
from dslc.search.candidates.export import as_kernels, ready, texts_of
from dslc.search.generators.protocol import SearchContext
from dslc.search.generators.scheduler import Scheduler
from dslc.search.phases.acceptance import accept, narrow_intervals
from dslc.search.runs.contenders import Unusable, folder_of, serialized, with_kernels
from dslc.search.runs.endings import Ending
from dslc.search.runs.planning import planned_seconds
from dslc.search.runs.stages import Finished, Referenced
from dslc.search.runs.state import RunState


def explore(referenced: Referenced, cache: CostCache, run: RunState) -> Finished:
    """Find models that should be faster and give the same outputs, and decide which is.

    Raises:
        Unusable: import and export alone change what the model computes.
        TimeUp: there was no time to check anything.
    """
    with _context(referenced, cache, run) as context:
        scheduler = Scheduler(context)
        scheduler.run()
        _remember(context, cache)
        return explore_until_decided(scheduler)


def explore_until_decided(scheduler: Scheduler) -> Finished:
    """Return what is decided of all that is found while there is time; it stands where the rest of the time decides nothing."""
    context, run, referenced = scheduler.context, scheduler.context.run, scheduler.context.referenced

    def accepted() -> Finished:
        run.measured = context.costs.measurer.count
        with context.halted():
            return accept(referenced, run)

    finished = accepted()
    with suppress(TimeUp, Unusable):
        while not referenced.task.heavy and not run.journal.repeats:
            count, scheduler.spare = len(run.checked), True
            scheduler.run()
            if len(run.checked) <= count:
                break
            again = accepted()
            finished = again if again.contender else finished
    with context.halted():
        return narrow_intervals(finished, referenced, run)


def _remember(context: SearchContext, cache: CostCache) -> None:
    """Keep the steps of the searches for a run with the same options, and say why nothing was found."""
    run, journal, referenced = context.run, context.run.journal, context.referenced
    if journal.late:
        run.cut("searching")
    # a search that time cut short before it found anything is no example
    found = bool(run.checked)
    if (
        referenced.task.settings.steps is None
        and not journal.repeats
        and (found or not journal.late)
        and journal.first >= journal.reached
    ):
        cache.put_verdict(referenced.key, {"steps": journal.steps, "late": journal.late})
    if run.clock.cuts and run.reason[0] is Ending.NO_GAIN:
        run.reason = Ending.NO_GAIN_IN_TIME, ""


@contextmanager
def _context(referenced: Referenced, cache: CostCache, run: RunState) -> Iterator[SearchContext]:
    """Begin to measure prices; no compiler or search runs beside what is measured, and their processes end with the block."""
    task = referenced.task
    context: SearchContext | None = None
    ahead = BackgroundCompiler(processor=task.machine.processor)

    def measuring() -> Deadline:
        return context.measuring if context else run.clock.until()

    @contextmanager
    def undisturbed() -> Iterator[None]:
        with run.clock.within("measuring"), (context or ahead).halted(), run.spares.halted():
            yield

    measurer = task.target.measurer(cache, Deadline(now=run.clock.now, outer=measuring), undisturbed)
    try:
        costs = _prices(referenced, measurer, run)
        graph = task.imported.graph
        start = run.start = Candidate(graph, costs.graph_cost(graph))
        if run.applied:
            # the same steps, from a start that has its price, with that of the last graph
            cost = costs.graph_cost(run.applied.candidate.graph)
            for step in run.applied.candidate.path()[1:]:
                start = Candidate(step.made, cost, start, step.rule, step.count, step.facts, step.kernels)
        context = SearchContext(referenced, start, costs, run, referenced.proven.rules, ahead, run.clock.until())
        yield context
    finally:
        ahead.close()
        if context is not None and context.beside is not None:
            context.beside.close()
        measurer.close()


def _prices(referenced: Referenced, measurer: Measurer, run: RunState) -> CostModel:
    task = referenced.task
    context, graph = task.imported.context, task.imported.graph
    feeds = referenced.inputs[0].feeds[0]
    seen = sizes_of(graph, context, task.model, folder_of(task.folder), feeds, task.machine.threads, run.clock.until())

    builds = with_kernels(task.settings)

    def build(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> bytes | None:
        if builds:
            outputs = as_kernels(task.rules, outputs, context.opset)
        try:
            model, _ = node_model(outputs, task.rules, context.opset, context.ir_version, inputs=inputs)
        except DslcError:
            return None
        if builds and model.functions:
            ready(model, texts_of(task.rules, outputs, context.opset))
        return serialized(model)

    sizes = {**task.sizes, **seen}
    computed = ComputedSizes(task.rules, context).of
    costs = CostModel(task.rules, measurer, build, context.opset, sizes, target=task.target, computed=computed)
    costs.begin(graph, referenced.seconds if task.target.measured else planned_seconds(task, sizes, feeds))
    return costs


def sizes_of(
    graph: Graph,
    context: Context,
    model: ModelProto,
    folder: str | None,
    feeds: Mapping[str, Any],
    threads: int,
    until: Deadline = FOREVER,
) -> dict[str, int]:
    """Every symbol that stands for a size: from the inputs, or from a run of the original that shows intermediate values.

    What that run did not show `until` then is left out.
    """
    sizes: dict[str, int] = {}
    hidden: dict[str, tuple[Value, int]] = {}
    for node in graph.nodes():
        for value in node.values:
            for axis, size in enumerate(value.type.shape if value.known else ()):
                if isinstance(size, Sym) and isinstance(node, Input):
                    if hasattr(feeds.get(node.name), "shape"):
                        sizes[size.name] = int(feeds[node.name].shape[axis])
                elif isinstance(size, Sym) and value in context.names:
                    hidden.setdefault(size.name, (value, axis))
    hidden = {name: place for name, place in hidden.items() if name not in sizes}
    names = {context.names[value]: ELEM_TYPES[value.type.dtype] for value, _ in hidden.values()}
    data = with_outputs(model, names) if hidden else None
    if data is None:
        return sizes
    with Worker(threads, until) as worker:
        try:
            outputs = worker.load(ModelFile(data, folder))
            arrays = worker.ask({"do": "run", "feeds": dict(feeds)})["arrays"]
        except WorkerFailed:
            return sizes
    shapes = {name: array.shape for name, array in zip(outputs, arrays, strict=True) if hasattr(array, "shape")}
    for name, (value, axis) in hidden.items():
        if len(shapes.get(context.names[value], ())) > axis:
            sizes[name] = int(shapes[context.names[value]][axis])
    return sizes
