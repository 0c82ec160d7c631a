"""The acceptance test: the contender that was measured to be faster than the original, if any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dslc.cost.process import WorkerFailed
from dslc.cost.timing import MemoryShort
from dslc.deadline import TimeUp
from dslc.search.runs.benchmark import Decision
from dslc.search.runs.contenders import Contender, distinct
from dslc.search.runs.endings import Ending
from dslc.search.runs.planning import by_plans
from dslc.search.runs.proving import checked
from dslc.search.runs.stages import Finished, Referenced, Task, deciding
from dslc.search.runs.state import RunState
from dslc.search.runs.without_library import PART, asked, standing, tell_library_only

STARTS = 12  #: an interval is made narrower where there is time for so many starts of a model
SHARPENING = 0.1  #: share of the budget that may make the interval of the result narrower, when all is decided
HOPE = 0.5  #: part of the best one's gain that makes what is there without mutants and derivations the better bet
HOPELESS = 1.1  #: times as slow as the winner from which on nothing is hoped of a contender, by its prediction


def accept(referenced: Referenced, run: RunState) -> Finished:
    """Return the contender that was measured to be faster, or the original and why."""
    task = referenced.task
    # what is known to be slow without its library is not asked for where anything else is there
    contenders = [one for one in run.checked if one not in run.library_only] or list(run.checked)
    if not contenders:
        return Finished(task, None, *run.reason)
    if not task.target.measured:
        return by_plans(referenced, run)
    if not task.settings.timing:
        cheapest = min(contenders, key=lambda one: one.candidate.cost)
        return Finished(task, cheapest, Ending.UNTIMED)
    run.phase("timing")
    taken = affordable(referenced, contenders, run)
    faster = _faster(contenders, run)
    rest = sorted((one for one in contenders if one not in taken), key=run.expected)
    try:
        part = _part(task, taken)
        found = _timed(referenced, taken, part, run)
        while deciding(referenced, len(taken) + 1, faster) <= part * (run.clock.left() - task.writing):
            # what was kept for something else is not needed while there is nothing that is faster
            part = part if found.winner is not None else 1.0
            if found.decided or found.winner is not None:
                hopeless = found.winner is not None and HOPELESS * taken[found.winner].candidate.cost
                if not rest or (hopeless and rest[0].candidate.cost >= hopeless):
                    break
                taken.append(rest.pop(0))
            before, found = found, _timed(referenced, taken, part, run)
            if not found.decided and found.verdicts == before.verdicts:
                break
    except MemoryShort as short:
        return Finished(task, None, Ending.NO_ROOM, str(short))
    except TimeUp:
        run.cut("timing")
        return Finished(task, None, Ending.NO_TIME_TO_TIME, f"{task.settings.budget:g}")
    except WorkerFailed as failed:
        return Finished(task, None, Ending.TIMING_FAILED, str(failed))
    if found.winner is None and not found.decided:
        run.cut("timing")
    finished = _decided(task, taken, found)
    # in the order of their promise: those that were timed, the fastest first, then those that were not
    order = sorted(range(len(taken)), key=lambda k: -found.verdicts[0][k].ratio.ratio)
    timed = [(taken[k], tuple(at[k] for at in found.verdicts)) for k in order if taken[k] is not finished.contender]
    hopeful = [(one, own) for one, own in timed if own[0].ratio.high > 1]
    result = standing(referenced, finished, [*hopeful, *((one, ()) for one in rest)], run)
    tell_library_only(result, run)
    return result


def _decided(task: Task, contenders: Sequence[Contender], found: Decision) -> Finished:
    verdicts, best = found.verdicts, found.winner
    if best is not None:
        return Finished(task, contenders[best], verdicts=tuple(at[best] for at in verdicts))
    best = max(range(len(contenders)), key=lambda k: verdicts[0][k].ratio.ratio)
    ending, detail = Ending.NO_FASTER if found.decided else Ending.UNDECIDED, str(verdicts[0][best])
    if somewhere := next((v for at in verdicts for v in at if v.faster), None):
        ending, detail = Ending.MIXED, str(somewhere)
    return Finished(task, None, ending, detail, tuple(at[best] for at in verdicts))


def affordable(referenced: Referenced, contenders: Sequence[Contender], run: RunState) -> list[Contender]:
    """Return those that can be timed beside each other in what is left: every generation of processes loads all of them.

    One of them is always what is there without mutants and derivations, whose predictions must not be the only hope, and one what
    needs no library.
    """
    left = _part(referenced.task, contenders) * (run.clock.left() - referenced.task.writing)
    # where not all can be timed, the best are by what is known of them
    ordered = sorted(contenders, key=run.expected)
    simple = [one for one in ordered if not run.is_costly(one.candidate)][:1] or ordered[:1]
    most, faster = len(ordered), _faster(ordered, run)
    while most > 1 and deciding(referenced, most, faster) > left:
        most -= 1
    if most == 1:
        # not where that is expected to gain next to nothing beside another one
        taken = ordered[:1] if _faster(simple, run) < faster**HOPE else simple
    else:
        plain = [one for one in ordered if not one.model.functions][:1]
        wanted = list(dict.fromkeys([ordered[0], *simple, *plain]))[:most]
        taken = [*wanted, *(one for one in ordered if one not in wanted)][:most]
    # what was decided before takes no time
    sure = [one for one in ordered if one not in taken and (known := run.timing(one)) and known.faster]
    return [*taken, *sure]


def narrow_intervals(finished: Finished, referenced: Referenced, run: RunState) -> Finished:
    """Return what was decided, with intervals that some of the time that is left makes narrower."""
    seconds = min(SHARPENING * finished.task.settings.budget, run.clock.left() - finished.task.writing)
    if not finished.contender or not finished.verdicts or seconds < STARTS * referenced.load:
        return finished
    run.phase("timing")
    try:
        found = referenced.benchmark.narrow_intervals(finished.contender, seconds)
    except (TimeUp, WorkerFailed, MemoryShort):
        return finished
    return replace(finished, verdicts=found) if found else finished


def _part(task: Task, contenders: Sequence[Contender]) -> float:
    """Return the part of the time for timing that decides with the library; the rest is for the result without it."""
    return 1 - PART if asked(task.settings, contenders) else 1.0


def _faster(contenders: Sequence[Contender], run: RunState) -> float:
    """Return how many times as fast the best of some contenders is expected to be."""
    return run.start.cost / min(map(run.expected, contenders)) if run.start else 1.0


def _timed(referenced: Referenced, contenders: Sequence[Contender], part: float, run: RunState) -> Decision:
    """Decide within such a part of the time that is left, without that for writing the result."""
    run.timed = list(contenders)
    return referenced.benchmark.decide(contenders, run.left(part, referenced.task))


# ---- Ctrl-C -------------------------------------------------------------------------------------------------------------


def interrupted(task: Task, run: RunState) -> Finished:
    """Return the best so far that can still be checked, within seconds; another Ctrl-C ends this too."""
    run.phase("interrupted", "interrupted: checking the best so far")
    if run.timed:
        # what is known from an earlier run is not among the times
        known = {one: verdict for one in run.timed if (verdict := run.timing(one))}
        best = max(known, key=lambda one: known[one].ratio.ratio, default=run.timed[0])
        if known and known[best].ratio.ratio <= 1:
            return Finished(task, None, Ending.STOPPED_NO_FASTER, str(known[best]), interrupted=True)
        detail = f"{known[best]} so far" if known else "not timed"
        return Finished(task, best, Ending.STOPPED_TIMING, detail, interrupted=True)
    found = _checked_in_time(run)
    return Finished(task, found, Ending.STOPPED_CHECKED if found else Ending.STOPPED_EARLY, interrupted=True)


def _checked_in_time(run: RunState) -> Contender | None:
    """Return the best candidate that was checked, or is now; of its path the last one that time suffices for."""
    if not run.referenced or not run.best:
        return None
    # kernels that were built are among them; what rests on more is slower without its library
    simple = [one for one in run.checked if not run.is_costly(one.candidate)]
    if simple:
        return min(simple, key=lambda one: one.candidate.cost)
    try:
        for candidate in distinct(run.best, 3):
            found = checked(run.referenced, run, candidate) if candidate.parent else None
            if found:
                return found
    except (TimeUp, MemoryShort):
        pass
    return None
