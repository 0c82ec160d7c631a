"""A result with kernels in runtimes without their library: no slower than the original there either, or another one is taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dslc.cost.process import WorkerFailed
from dslc.cost.timing import MemoryShort
from dslc.deadline import TimeUp
from dslc.search.candidates.candidate import Candidate
from dslc.search.candidates.export import derived
from dslc.search.options.settings import Settings
from dslc.search.runs.benchmark import UNCLEAR, FinalBenchmark, Verdict, Verdicts, winner
from dslc.search.runs.contenders import Contender
from dslc.search.runs.endings import Ending
from dslc.search.runs.proving import checked
from dslc.search.runs.stages import Finished, Referenced, Task
from dslc.search.runs.state import RunState

PART = 0.25  #: share of the time for timing that is kept for this
CLEARLY = 0.9  #: ratio below which something counts as slower though a busy machine leaves it open
#: part of the winner's ratio that is hardly less: timing cannot tell them apart in what is left of a budget
HARDLY = 0.93
OTHERS = 3  #: other results that are looked at


#: a contender with its verdicts at every choice of sizes, with its library; none where it was not timed to the end
Timed = tuple[Contender, Verdicts]
Known = Sequence[Timed]


def asked(settings: Settings, contenders: Sequence[Contender]) -> bool:
    """Return whether it matters how fast some contender is without its library."""
    return settings.timing and not settings.library_only and any(one.model.functions for one in contenders)


def standing(referenced: Referenced, found: Finished, others: Known, run: RunState) -> Finished:
    """Return what was found, with its times without its library, where these are no slower than the original's.

    Else the first of the others of which that is true and that is faster with its library, or the original.
    """
    contender, task = found.contender, referenced.task
    if not contender or not asked(task.settings, [contender]):
        return found
    run.phase("timing", "timing without the library")
    bare, reason = _bare(referenced, contender, 0.5, run)
    spelled = _is_spelled(task, contender.candidate)
    if bare and not any(slower(one, spelled) for one in bare):
        return _stronger(referenced, replace(found, alone=bare), others, run)
    if not bare and not spelled:
        # its functions have nodes of the model, one for one
        run.note(f"without its library it was not timed: {reason}")
        return found
    for other, verdicts in _others(referenced, contender, others, run):
        better = _both(referenced, other, verdicts, run)
        if better:
            run.note(
                f"kernels were left out: {_said(found.verdicts)} with their library, but {_said(bare) or reason} without it"
            )
            return better
    detail = f"{_said(found.verdicts)} with its library of kernels, {_said(bare) or 'not timed'} without it"
    return Finished(task, None, Ending.SLOWER_ALONE, detail, found.verdicts, alone=bare)


def _stronger(referenced: Referenced, found: Finished, others: Known, run: RunState) -> Finished:
    """Return what was found, or another one that is hardly slower with its library, and not slower than the original without."""
    own = _least(found.alone)
    for other, verdicts in others:
        if own >= 1:
            break
        if verdicts and other is not found.contender and _least(verdicts) >= HARDLY * _least(found.verdicts):
            better = _both(referenced, other, verdicts, run)
            if better and _least(better.alone) > own:
                found, own = better, _least(better.alone)
    return found


def _least(verdicts: Sequence[Verdict]) -> float:
    return min((one.ratio.ratio for one in verdicts), default=1.0)


def _is_spelled(task: Task, candidate: Candidate) -> bool:
    """Return whether a candidate's functions spell an equation out; those that have nodes of the model are as fast as these."""
    return derived(task.rules, candidate.end, task.imported.context)


def regresses_without_library(
    referenced: Referenced, contender: Contender, seconds: float, run: RunState
) -> Verdict | None:
    """Return what was measured, in so many seconds, of a contender that is slower than the original without its library.

    None of one that is not.
    """
    task = referenced.task
    if not asked(task.settings, [contender]) or not _is_spelled(task, contender.candidate):
        return None
    try:
        found = referenced.without_library.decide([_without_kernels(contender)], seconds)
    except (TimeUp, WorkerFailed, MemoryShort):
        return None
    # what a busy machine leaves open is measured again in the end
    return next((at[0] for at in found.verdicts if at[0].ratio.high < 1 and slower(at[0], True)), None)


def tell_library_only(finished: Finished, run: RunState) -> None:
    """Note what would have been faster than the result, and is slower than the original without its library."""
    known = {one: own for one in run.library_only if (own := run.timing(one)) and one is not finished.contender}
    best = max(known, key=lambda one: known[one].ratio.ratio, default=None)
    result = _least(finished.verdicts) if finished.contender else 1.0
    if best and known[best].ratio.ratio > result:
        with_library, without = known[best].ratio.ratio, run.library_only[best].ratio.ratio
        told = f"{with_library:.2f}x with its library of kernels, {without:.2f}x without it"
        run.note(f"{best.candidate.rule}, left out: {told} (--library-only takes it)")


def slower(verdict: Verdict, spelled: bool) -> bool:
    """Return whether a runtime without the library was measured to lose by the file.

    `spelled`: it has functions that spell an equation out. Those that have nodes of the model lose nothing by what a busy machine
    leaves open.
    """
    unsure = CLEARLY if spelled else 0.0
    return verdict.ratio.ratio < (UNCLEAR if verdict.ratio.high < 1 else unsure)


def _said(verdicts: Sequence[Verdict]) -> str:
    worst = min(verdicts, key=lambda one: one.ratio.ratio, default=None)
    return f"{worst.ratio.ratio:.2f}x" if worst else ""


def _others(referenced: Referenced, contender: Contender, others: Known, run: RunState) -> Iterator[Timed]:
    """Yield other results, those first whose kernels have nodes of their operators.

    Then what stood on the way to the contender before it needed others.
    """
    task, count = referenced.task, 0
    # a stable sort: otherwise as they are given
    for one, verdicts in sorted(others, key=lambda each: _is_spelled(task, each[0].candidate)):
        if one is not contender and (verdicts or (count < OTHERS and not _is_spelled(task, one.candidate))):
            count += not verdicts
            yield one, verdicts
    for candidate in reversed(contender.candidate.path()[1:-1]):
        if count < OTHERS and not _is_spelled(task, candidate):
            found = checked(referenced, run, candidate)
            if found:
                yield found, ()
            return


def _both(referenced: Referenced, other: Contender, verdicts: Verdicts, run: RunState) -> Finished | None:
    """Return a result that is faster with its library and no slower without it; None where it is not.

    `verdicts` are known of it, or it is timed now.
    """
    task = referenced.task
    try:
        # one that was behind another one may not have been compared with the original for long enough
        known = bool(verdicts) and winner([[one] for one in verdicts]) is not None
        with_library = verdicts if known else _timed(referenced.benchmark, other, run.left(0.5, task))
    except (TimeUp, WorkerFailed, MemoryShort):
        return None
    if winner([[one] for one in with_library]) is None:
        return None
    bare: Verdicts = ()
    if other.model.functions:
        bare, _ = _bare(referenced, other, 0.5 if verdicts else 0.9, run)
        # without a time, nodes of the model are as fast there as they were
        spelled = _is_spelled(task, other.candidate)
        if any(slower(one, spelled) for one in bare) or (not bare and spelled):
            return None
    return Finished(task, other, verdicts=with_library, alone=bare)


def _bare(referenced: Referenced, contender: Contender, part: float, run: RunState) -> tuple[Verdicts, str]:
    """Return verdicts of a contender without its library; none, and why, where it could not be timed."""
    try:
        return _timed(referenced.without_library, _without_kernels(contender), run.left(part, referenced.task)), ""
    except TimeUp:
        run.cut("timing")
        return (), "there was no time"
    except (WorkerFailed, MemoryShort) as problem:
        return (), str(problem)


def _without_kernels(contender: Contender) -> Contender:
    return replace(contender, file=replace(contender.file, kernels=False))


def _timed(benchmark: FinalBenchmark, contender: Contender, seconds: float) -> Verdicts:
    """Return verdicts at every choice of sizes within so many seconds."""
    return tuple(at[0] for at in benchmark.decide([contender], seconds).verdicts)
