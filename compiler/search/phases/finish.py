"""The acceptance test: which of the contenders was measured to be faster than the original, if any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from dslc.cost.cache import CostCache
from dslc.cost.process import WorkerFailed
from dslc.cost.timing import MemoryShort
from dslc.deadline import TimeUp
from dslc.search.runs.alone import PART as ALONE_PART
from dslc.search.runs.alone import asked, standing, tell_leaning
from dslc.search.runs.contenders import Contender, distinct
from dslc.search.runs.judge import Decision, judge_of
from dslc.search.runs.planning import by_plans
from dslc.search.runs.progress import Run
from dslc.search.runs.proving import proved_again
from dslc.search.runs.stages import Explored, Finished, Predicted, Task
from dslc.search.runs.worth import deciding, expected

STARTS = 12  #: an interval is made narrower where there is time for so many starts of a model
SHARPENING = 0.1  #: share of the budget that may make the interval of the result narrower, when all is decided
HOPE = 0.5  #: part of the best one's gain that makes what is there without mutants and derivations the better bet
HOPELESS = 1.1  #: times as slow as the winner from which on nothing is hoped of a contender, by its prediction


def finish(explored: Explored, cache: CostCache, run: Run) -> Finished:
    """The contender that was measured to be faster, or the original and why."""
    task = explored.referenced.task
    # what is known to be slow without its library is not asked for where anything else is there
    contenders = [one for one in explored.contenders if one not in run.leaning] or list(explored.contenders)
    if not contenders:
        return Finished(task, None, explored.reason)
    if not task.target.measured:
        return by_plans(explored, run)
    if not task.settings.timing:
        cheapest = min(contenders, key=lambda one: one.candidate.cost)
        return _chosen(task, cheapest, explored.predicted, "the search's choice, not timed")
    run.phase("timing")
    taken = affordable(explored, contenders, run)
    faster = _faster(contenders, run)
    rest = sorted((one for one in contenders if one not in taken), key=partial(expected, run))
    try:
        part = _part(explored, taken)
        found = _timed(explored, taken, part, cache, run)
        while deciding(explored.referenced, len(taken) + 1, faster) <= part * (run.clock.left() - task.writing):
            # what was kept for something else is not needed while there is nothing that is faster
            part = part if found.winner is not None else 1.0
            if found.decided or found.winner is not None:
                if not rest or not _promising(rest[0], taken, found):
                    break
                taken.append(rest.pop(0))
            before, found = found, _timed(explored, taken, part, cache, run)
            if not found.decided and found.verdicts == before.verdicts:
                break
    except MemoryShort as short:
        return Finished(task, None, f"it cannot be timed against a rewritten model: {short}")
    except TimeUp:
        run.cut("timing")
        return Finished(task, None, f"the budget of {task.settings.budget:g} s left no time to time a rewritten model")
    except WorkerFailed as failed:
        return Finished(task, None, f"timing failed: {failed}")
    if found.winner is None and not found.decided:
        run.cut("timing")
    finished = _decided(explored, taken, found)
    # in the order of their promise: who was timed, the fastest first, then who was not
    order = sorted(range(len(taken)), key=lambda k: -found.verdicts[0][k].ratio.ratio)
    timed = [(taken[k], tuple(at[k] for at in found.verdicts)) for k in order if taken[k] is not finished.contender]
    hopeful = [(one, own) for one, own in timed if own[0].ratio.high > 1]
    result = standing(explored, finished, cache, run, [*hopeful, *((one, ()) for one in rest)])
    tell_leaning(result, run)
    return result


def _decided(explored: Explored, contenders: Sequence[Contender], found: Decision) -> Finished:
    task, verdicts = explored.referenced.task, found.verdicts
    if found.winner is not None:
        own = tuple(at[found.winner] for at in verdicts)
        return Finished(
            task, contenders[found.winner], "", own, explored.predicted.ratio(contenders[found.winner].candidate)
        )
    best = max(range(len(contenders)), key=lambda k: verdicts[0][k].ratio.ratio)
    somewhere = next((v for at in verdicts for v in at if v.faster), None)
    reason = f"no rewritten model was measured to be faster (best: {verdicts[0][best]})"
    if somewhere is not None:
        reason = f"what is faster at some sizes ({somewhere.ratio} times as fast) is slower at others"
    elif not found.decided:
        reason = f"the budget ended before timing could decide: {verdicts[0][best]}"
    own = tuple(at[best] for at in verdicts)
    return Finished(task, None, reason, own, explored.predicted.ratio(contenders[best].candidate))


def affordable(explored: Explored, contenders: Sequence[Contender], run: Run) -> list[Contender]:
    """Those that can be timed beside each other in what is left: every generation of processes loads all of them.

    One of them is always what is there without mutants and derivations, whose predictions must not be the only hope, and one what
    needs no library.
    """
    referenced = explored.referenced
    left = _part(explored, contenders) * (run.clock.left() - referenced.task.writing)
    # where not all can be timed, the best are by what is known of them
    ordered = sorted(contenders, key=partial(expected, run))
    simple = [one for one in ordered if not run.rests_on_much(one.candidate)][:1] or ordered[:1]
    most, faster = len(ordered), _faster(ordered, run)
    while most > 1 and deciding(referenced, most, faster) > left:
        most -= 1
    if most == 1:
        # not where that is expected to gain next to nothing beside another one
        taken = ordered[:1] if _faster(simple, run) < faster**HOPE else simple
    else:
        wanted = list(dict.fromkeys([ordered[0], *simple, *[one for one in ordered if not one.model.functions][:1]]))[
            :most
        ]
        taken = [*wanted, *(one for one in ordered if one not in wanted)][:most]
    # what was decided before takes no time
    judge = run.judges.get(False)
    return [*taken, *(one for one in ordered if one not in taken and judge is not None and judge.sure(one))]


def sharpened(finished: Finished, explored: Explored, run: Run) -> Finished:
    """What was decided, with intervals that some of the time that is left makes narrower."""
    judge = run.judges.get(False)
    seconds = min(SHARPENING * finished.task.settings.budget, run.clock.left() - finished.task.writing)
    if (
        judge is None
        or finished.contender is None
        or not finished.verdicts
        or seconds < STARTS * explored.referenced.load
    ):
        return finished
    run.phase("timing")
    try:
        found = judge.sharpened(finished.contender, seconds)
    except (TimeUp, WorkerFailed, MemoryShort):
        return finished
    return replace(finished, verdicts=found) if found else finished


def _part(explored: Explored, contenders: Sequence[Contender]) -> float:
    """The part of the time for timing that decides with the library; the rest is for the result without it."""
    return 1 - ALONE_PART if asked(explored.referenced.task.settings, contenders) else 1.0


def _faster(contenders: Sequence[Contender], run: Run) -> float:
    """How many times as fast the best of some contenders is expected to be."""
    return 1.0 if run.start is None else run.start.cost / min(expected(run, one) for one in contenders)


def _promising(one: Contender, taken: Sequence[Contender], found: Decision) -> bool:
    """Whether a contender may be faster than the winner."""
    return found.winner is None or one.candidate.cost < HOPELESS * taken[found.winner].candidate.cost


def _timed(explored: Explored, contenders: Sequence[Contender], part: float, cache: CostCache, run: Run) -> Decision:
    """What is decided within such a part of the time that is left, without that for writing the result."""
    run.timed = list(contenders)
    seconds = max(0.0, run.clock.left() - explored.referenced.task.writing) * part
    return judge_of(explored.referenced, cache, run).decide(contenders, seconds)


def _chosen(task: Task, contender: Contender, predicted: Predicted, reason: str, interrupted: bool = False) -> Finished:
    return Finished(task, contender, reason, (), predicted.ratio(contender.candidate), interrupted)


# ---- Ctrl-C -------------------------------------------------------------------------------------------------------------


def interrupted(task: Task, run: Run) -> Finished:
    """The best so far that can still be checked, within seconds; another Ctrl-C ends this too."""
    run.phase("interrupted", "interrupted: checking the best so far")
    if run.timed:
        return _half_timed(task, run)
    found = _checked_in_time(run)
    if found is None:
        return Finished(task, None, "interrupted before a rewritten model was checked", interrupted=True)
    return _chosen(task, found, _predicted(run), "interrupted: the best so far, its outputs compared, not timed", True)


def _half_timed(task: Task, run: Run) -> Finished:
    """What was timed so far says which contender is taken, if any."""
    judge = run.judges.get(False)
    # what is known from an earlier run is not among the times
    known = {} if judge is None else {one: found for one in run.timed if (found := judge.so_far(one)) is not None}
    best = max(known, key=lambda one: known[one].ratio.ratio, default=run.timed[0])
    if known and known[best].ratio.ratio <= 1:
        return Finished(
            task, None, f"interrupted: what was timed so far is no faster ({known[best]})", interrupted=True
        )
    said = f"{known[best]} so far" if known else "not timed"
    return _chosen(task, best, _predicted(run), f"interrupted while it was timed: {said}", True)


def _checked_in_time(run: Run) -> Contender | None:
    """The best candidate that was checked, or is now; of its path the last one that time suffices for."""
    if run.referenced is None or run.best is None:
        return None
    # kernels that were built are among them; what rests on more is slower where nobody has them
    simple = [one for one in run.checked if not run.rests_on_much(one.candidate)]
    if simple:
        return min(simple, key=lambda one: one.candidate.cost)
    try:
        for candidate in distinct(run.best, 3):
            found = run.referenced.checker.check(candidate) if candidate.parent is not None else None
            if isinstance(found, Contender) and proved_again(run.referenced, run, candidate).usable:
                return found
    except (TimeUp, MemoryShort):
        pass
    return None


def _predicted(run: Run) -> Predicted:
    assert run.start is not None
    return Predicted(run.start) if run.explored is None else run.explored.predicted
