"""`dslc optimize` as its stages: read, prove rules, reference, explore, finish, write. Each takes the value of the one before."""

from __future__ import annotations

from math import inf
from pathlib import Path

from onnx import ModelProto

from dslc.cost.cache import CostCache
from dslc.cost.clock import Clock, TimeUp
from dslc.search.explore import explore
from dslc.search.finish import finish, interrupted
from dslc.search.originals import Unusable
from dslc.search.reading import prove_rules, read
from dslc.search.reference import reference
from dslc.search.run import Run
from dslc.search.settings import Settings
from dslc.search.stages import Finished, Optimized, Task
from dslc.search.writing import canonical, write

#: after Ctrl-C, seconds for checking the best so far
GRACE = 5.0


def optimize(source: str | Path | ModelProto, settings: Settings, clock: Clock | None = None) -> Optimized:
    """Runs all stages within the settings' budget, counted by the clock of the command where there is one.

    Raises:
        DslcError: what is wrong with the model, the rules, the inputs or the options.
        KeyboardInterrupt: before the model was read, or a second time; the first one ends the search with the best so far.
    """
    run = Run(clock or Clock(settings.budget or inf), settings.progress)
    task = read(source, settings, run)
    try:
        return canonical(task, run) if settings.budget == 0 else write(searched(task, run), run)
    except KeyboardInterrupt:
        pass
    except Exception:
        # libraries in C may turn Ctrl-C into an error of their own
        if not settings.interrupts():
            raise
    run.clock.shorten(GRACE)
    return write(interrupted(task, run), run)


def searched(task: Task, run: Run) -> Finished:
    """The stages between reading and writing; the original where one of them cannot go on."""
    try:
        with CostCache(task.settings.cache, run.note) as cache:
            proven = prove_rules(task, run)
            referenced = reference(proven, cache, run)
            explored = explore(referenced, cache, run)
            return finish(explored, cache, run)
    except Unusable as reason:
        return Finished(task, None, str(reason))
    except TimeUp:
        run.cut("comparing outputs")
        return Finished(task, None, f"the budget of {task.settings.budget:g} s left no time to check a rewritten model")


__all__ = ["Optimized", "optimize"]
