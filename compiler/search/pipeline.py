"""`dslc optimize` as its stages: read, prove rules, reference, explore, write. Each takes the value of the one before."""

from __future__ import annotations

from contextlib import closing
from math import inf
from pathlib import Path

from onnx import ModelProto

from dslc.codegen.host.processor import processor, runnable, wanted
from dslc.cost.cache import CostCache
from dslc.cost.clock import Clock
from dslc.cost.machine import this_machine
from dslc.cost.process import Worker
from dslc.deadline import TimeUp
from dslc.search.options.settings import Settings
from dslc.search.phases.acceptance import interrupted
from dslc.search.phases.application import applied_alone, apply
from dslc.search.phases.exploration import explore
from dslc.search.phases.reading import prove_rules, read, unread
from dslc.search.phases.reference import reference
from dslc.search.phases.writing import canonical, write
from dslc.search.runs.contenders import Unusable
from dslc.search.runs.endings import Ending
from dslc.search.runs.stages import Finished, Optimized, Task
from dslc.search.runs.state import RunState

GRACE = 5.0  #: seconds after Ctrl-C for checking the best so far


def optimize(source: str | Path | ModelProto, settings: Settings, clock: Clock | None = None) -> Optimized:
    """Run all stages within the settings' budget, counted by the clock of the command where there is one.

    Kernels are written for the settings' level of instructions, in this process and in those that it starts.

    Raises:
        DslcError: what is wrong with the model, the rules, the inputs or the options.
        KeyboardInterrupt: before the model was read, or a second time; the first one ends the search with the best so far.
    """
    with (
        wanted(settings.isa),
        closing(RunState(clock or Clock(settings.budget or inf), settings.progress)) as run,
    ):
        if settings.target().measured:
            runnable(processor())
        if settings.apply is not None and settings.budget == 0:
            run.worker = Worker(this_machine(settings.threads).threads, run.clock.until())
            run.worker.start()
        elif settings.budget != 0:
            run.spares.fill()
        task: Task | None = None
        try:
            task = read(source, settings, run)
            if settings.budget == 0 and settings.apply is None:
                return canonical(task, run)
            return write(_or_applied(searched(task, run), run), run)
        except KeyboardInterrupt:
            pass
        except Exception:
            # libraries in C may turn Ctrl-C into an error of their own
            if not settings.interrupts():
                raise
        if not task:
            return unread(settings, run)
        run.clock.shorten(GRACE)
        return write(_or_applied(interrupted(task, run), run), run)


def searched(task: Task, run: RunState) -> Finished:
    """Return what was measured to be faster; the original where a stage cannot go on."""
    try:
        with CostCache(task.settings.cache, run.warn) as cache:
            proven = prove_rules(task, run)
            if task.settings.budget == 0:
                run.applied = applied_alone(proven, cache, run)
                return Finished(task, None, Ending.UNMATCHED)
            referenced = reference(proven, cache, run)
            if task.settings.apply is not None:
                run.applied, _ = apply(referenced, run)
            if referenced.apart:
                return Finished(task, None, Ending.UNLOADABLE, referenced.apart)
            return explore(referenced, cache, run)
    except Unusable as problem:
        return Finished(task, None, problem.ending, problem.detail)
    except TimeUp:
        run.cut("comparing outputs")
        return Finished(task, None, Ending.NO_TIME_TO_CHECK, f"{task.settings.budget:g}")


def _or_applied(finished: Finished, run: RunState) -> Finished:
    """Return the result of the rules of `--apply` where nothing is faster."""
    if finished.contender or not run.applied:
        return finished
    why = "" if finished.task.settings.budget == 0 and not finished.interrupted else f"; {finished.reason}"
    return Finished(finished.task, run.applied, Ending.APPLIED, why, interrupted=finished.interrupted)
