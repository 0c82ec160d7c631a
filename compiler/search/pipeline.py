"""`dslc optimize` as its stages: read, prove rules, reference, explore, finish, write. Each takes the value of the one before."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from pathlib import Path

from onnx import ModelProto

from dslc.codegen.host.processor import processor, runnable, wanted
from dslc.cost.cache import CostCache
from dslc.cost.clock import Clock
from dslc.cost.machine import this_machine
from dslc.cost.process import Worker
from dslc.deadline import TimeUp
from dslc.search.phases.applying import UNCHANGED, applied_alone, apply
from dslc.search.phases.explore import Exploration
from dslc.search.phases.finish import finish, interrupted, sharpened
from dslc.search.phases.reading import prove_rules
from dslc.search.phases.reference import reference
from dslc.search.phases.untouched import begun
from dslc.search.phases.writing import canonical, write
from dslc.search.runs.originals import Unusable
from dslc.search.runs.progress import Run
from dslc.search.runs.settings import Settings
from dslc.search.runs.stages import Explored, Finished, Optimized, Task
from dslc.search.runs.tuning import GRACE


def optimize(source: str | Path | ModelProto, settings: Settings, clock: Clock | None = None) -> Optimized:
    """Runs all stages within the settings' budget, counted by the clock of the command where there is one; kernels are written for the
    settings' level of instructions, in this process and in those that it starts.

    Raises:
        DslcError: what is wrong with the model, the rules, the inputs or the options.
        KeyboardInterrupt: before the model was read, or a second time; the first one ends the search with the best so far.
    """
    with wanted(settings.isa):
        if settings.target().measured:
            runnable(processor())
        return _optimize(source, settings, clock)


def _optimize(source: str | Path | ModelProto, settings: Settings, clock: Clock | None) -> Optimized:
    run = Run(clock or Clock(settings.budget or inf), settings.progress)
    if settings.apply is not None and settings.budget == 0:
        run.worker = Worker(this_machine(settings.threads).threads, run.clock.until())
        run.worker.start()
    elif settings.budget != 0:
        run.spares.fill()
    try:
        return _run(source, settings, run)
    finally:
        run.spares.close()
        if run.worker is not None:
            run.worker.close()


def _run(source: str | Path | ModelProto, settings: Settings, run: Run) -> Optimized:
    task = begun(source, settings, run)
    if isinstance(task, Optimized):
        return task
    try:
        if settings.budget == 0 and settings.apply is None:
            return canonical(task, run)
        return write(searched(task, run), run)
    except KeyboardInterrupt:
        pass
    except Exception:
        # libraries in C may turn Ctrl-C into an error of their own
        if not settings.interrupts():
            raise
    run.clock.shorten(GRACE)
    finished = interrupted(task, run)
    if finished.contender is None and run.applied is not None:
        finished = Finished(task, run.applied, f"rules applied, not timed; {finished.reason}", interrupted=True)
    return write(finished, run)


def searched(task: Task, run: Run) -> Finished:
    """What is to be written: what was measured to be faster, else what rules of `--apply` made, else the original."""
    finished = _stages(task, run)
    if finished.contender is None and run.applied is not None:
        why = "" if task.settings.budget == 0 else f"; {finished.reason}"
        return Finished(task, run.applied, f"rules applied, not timed{why}", interrupted=finished.interrupted)
    return finished


def _stages(task: Task, run: Run) -> Finished:
    """The stages between reading and writing; the original where one of them cannot go on."""
    try:
        with CostCache(task.settings.cache, run.note) as cache:
            proven = prove_rules(task, run)
            if task.settings.budget == 0:
                run.applied = applied_alone(proven, cache, run)
                return Finished(task, None, UNCHANGED)
            referenced = reference(proven, cache, run)
            if task.settings.apply is not None:
                run.applied = apply(referenced, run)
            if referenced.apart:
                return Finished(task, None, referenced.apart)
            with Exploration(referenced, cache, run) as exploration:
                return exploration.confirmed(_as_long_as_it_pays(exploration))
    except Unusable as reason:
        return Finished(task, None, str(reason))
    except TimeUp:
        run.cut("comparing outputs")
        return Finished(task, None, f"the budget of {task.settings.budget:g} s left no time to check a rewritten model")


def _as_long_as_it_pays(exploration: Exploration) -> Finished:
    """What was decided of all that is found while there is time; that stands where the rest of the time decides nothing."""
    finished = _decided(exploration, exploration.first())
    with suppress(TimeUp, Unusable):
        while (more := exploration.further()) is not None:
            again = _decided(exploration, more)
            finished = finished if again.contender is None else again
    if exploration.run.explored is None:
        return finished
    with exploration.halted():
        return sharpened(finished, exploration.run.explored, exploration.run)


def _decided(exploration: Exploration, explored: Explored) -> Finished:
    """What was decided; no compiler runs beside what is timed."""
    with exploration.halted():
        return finish(explored, exploration.cache, exploration.run)
