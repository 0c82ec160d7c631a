"""Exploring at measured prices, until models are known to compute the same: generators propose, and the scheduler divides the time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any

from dslc.codegen.host.background import BackgroundCompiler
from dslc.cost.cache import CostCache
from dslc.cost.measure import Measurer
from dslc.cost.model import CostModel
from dslc.deadline import OVER, Deadline, TimeUp
from dslc.errors import DslcError
from dslc.fuse.kernels import kernels
from dslc.onnx.exporter import ComputedSizes, node_model
from dslc.search.generators.scheduler import Scheduler
from dslc.search.rewrites.candidate import Candidate
from dslc.search.rewrites.sizes import sizes_of
from dslc.search.rewrites.written import as_kernels, ready, texts_of
from dslc.search.runs.compiling import with_kernels
from dslc.search.runs.contenders import Contender, folder_of, serialized
from dslc.search.runs.context import SearchContext
from dslc.search.runs.planning import planned_seconds
from dslc.search.runs.progress import Run
from dslc.search.runs.stages import Explored, Finished, Predicted, Referenced
from dslc.search.runs.tuning import AGAIN


class Exploration:
    """Searching at measured prices, and checking what is found; it goes on as long as timing leaves time.

    A context manager, which ends the process that measures.
    """

    def __init__(self, referenced: Referenced, cache: CostCache, run: Run) -> None:
        task = referenced.task
        self.referenced, self.cache, self.run = referenced, cache, run
        self._ahead = BackgroundCompiler(processor=task.machine.processor)
        #: when measuring ends; None where nothing new is measured
        self._until: Deadline | None = run.clock.until()
        self._scheduler: Scheduler | None = None
        self._measurer = task.target.measurer(
            cache, Deadline(now=run.clock.now, outer=self._measuring), self._undisturbed
        )

    def __enter__(self) -> Exploration:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ahead.close()
        if self._scheduler is not None and self._scheduler.context.beside is not None:
            self._scheduler.context.beside.close()
        self._measurer.close()

    @contextmanager
    def halted(self) -> Iterator[None]:
        """Leaves the processors to what is measured or timed inside."""
        with self._ahead.halted() if self._scheduler is None else self._scheduler.context.halted():
            yield

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        with self.run.clock.within("measuring"), self.halted(), self.run.spares.halted():
            yield

    def _measuring(self) -> Deadline:
        until = self._until if self._scheduler is None else self._scheduler.context.measuring
        return OVER if until is None else until

    def first(self) -> Explored:
        """What is found in the part of the budget that is not kept for checking and timing.

        Raises:
            Unusable: import and export alone change what the model computes.
            TimeUp: there was no time to check anything.
        """
        referenced, run, journal = self.referenced, self.run, self.run.journal
        graph, settings = referenced.task.imported.graph, referenced.task.settings
        self.costs = _prices(referenced, self._measurer, run)
        run.start = Candidate(graph, self.costs.graph_cost(graph))
        begun = run.start if run.applied is None else priced(run.applied.candidate, run.start, self.costs)
        context = SearchContext(referenced, begun, self.costs, run, referenced.proven.rules, ahead=self._ahead)
        self._scheduler = Scheduler(context, self.cache)
        run.scheduled = self._scheduler
        self._scheduler.run()
        if journal.late:
            run.cut("searching")
        # a search that time cut short before it found anything is no example
        found, culprits = bool(run.checked), len(context.rules) < len(referenced.proven.rules)
        if (
            settings.steps is None
            and not journal.repeats
            and (found or not journal.late)
            and journal.first >= journal.reached
        ):
            self.cache.put_verdict(referenced.key, {"steps": journal.steps, "late": journal.late})
        reason = "no rewritten model gives the same outputs" if culprits else "no rule predicts a gain"
        if journal.late and not culprits:
            reason = "the search found no gain in its time"
        return self._explored("" if found else reason)

    def further(self) -> Explored | None:
        """What is found in the time that is left when timing has decided; None where nobody was cut short, or nothing new is found."""
        run, scheduler, count = self.run, self._scheduler, len(self.run.checked)
        if scheduler is None or run.explored is None or self.referenced.task.heavy or run.journal.repeats:
            return None
        scheduler.spare = True
        scheduler.run()
        return self._explored(run.explored.reason) if len(run.checked) > count else None

    def confirmed(self, finished: Finished) -> Finished:
        """What was decided, with a prediction from prices that were measured again in the same rounds."""
        run, explored = self.run, self.run.explored
        if explored is None or self._scheduler is None or finished.predicted is None:
            return finished
        seconds = AGAIN * finished.task.settings.budget
        if run.clock.left() <= seconds:
            return finished
        contender = finished.contender or explored.contenders[0]
        # only the report rests on it
        self._scheduler.context.measuring = None if run.journal.repeats else run.clock.until().part(most=seconds)
        found = _predicted(explored.predicted.start, self.costs, [contender], run)
        return replace(finished, predicted=found.ratio(contender.candidate))

    def _explored(self, reason: str) -> Explored:
        run = self.run
        assert run.start is not None
        run.explored = Explored(
            self.referenced, tuple(run.checked), Predicted(run.start), run.journal.first, self._measurer.count, reason
        )
        return run.explored


def _prices(referenced: Referenced, measurer: Measurer, run: Run) -> CostModel:
    task = referenced.task
    context, graph = task.imported.context, task.imported.graph
    feeds = referenced.inputs[0].feeds[0]
    seen = sizes_of(graph, context, task.model, folder_of(task.folder), feeds, task.machine.threads, run.clock.until())

    kernels = with_kernels(task.settings)

    def build(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> bytes | None:
        if kernels:
            outputs = as_kernels(task.rules, outputs, context.opset)
        try:
            model, _ = node_model(outputs, task.rules, context.opset, context.ir_version, inputs=inputs)
        except DslcError:
            return None
        if kernels and model.functions:
            ready(model, texts_of(task.rules, outputs, context.opset))
        return serialized(model)

    sizes = {**task.sizes, **seen}
    computed = ComputedSizes(task.rules, context).of
    costs = CostModel(task.rules, measurer, build, context.opset, sizes, target=task.target, computed=computed)
    costs.begin(graph, referenced.seconds if task.target.measured else planned_seconds(task, sizes, feeds))
    return costs


def priced(found: Candidate, start: Candidate, costs: CostModel) -> Candidate:
    """The same steps, from a start that has its price, with that of the last graph."""
    cost = costs.graph_cost(found.graph)
    at = start
    for step in found.path()[1:]:
        at = Candidate(step.made, cost, at, step.rule, step.count, step.facts, step.kernels)
    return at


def _predicted(start: Candidate, costs: CostModel, found: Sequence[Contender], run: Run) -> Predicted:
    """What the original and the contenders cost, measured again in the same rounds."""
    every = (start, *(one.candidate for one in found))
    seconds = {one: one.cost for one in every}
    if not found:
        return Predicted(start, seconds)
    run.phase("measuring", "measuring again")
    # kernels are measured by those who build them: as nodes they take something else
    plain = [one for one in every if not one.kernels and not kernels(one.graph)]
    try:
        if costs.confirm(*(one.graph for one in plain)):
            run.cut("measuring")
        seconds |= {one: costs.graph_cost(one.graph) for one in plain}
        seconds |= {one: one.cost * seconds[start] / max(start.cost, 1e-12) for one in every if one not in plain}
    except TimeUp:
        run.cut("measuring")
    return Predicted(start, seconds)
