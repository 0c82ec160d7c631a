"""A result with kernels where nobody has their library: no slower than the original there either, or another one is taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dslc.cost.cache import CostCache
from dslc.cost.process import WorkerFailed
from dslc.cost.timing import MemoryShort
from dslc.deadline import TimeUp
from dslc.search.rewrites.written import derived
from dslc.search.runs.contenders import Contender
from dslc.search.runs.judge import UNCLEAR as JUDGE_UNCLEAR
from dslc.search.runs.judge import Verdict, judge_of, winner
from dslc.search.runs.progress import Run
from dslc.search.runs.proving import proved_again
from dslc.search.runs.settings import Settings
from dslc.search.runs.stages import Explored, Finished, Referenced

PART = 0.25  #: share of the time for timing that is kept for this
CLEARLY = 0.9  #: ratio below which something counts as slower though a busy machine leaves it open
#: part of the winner's ratio that is hardly less: timing cannot tell them apart in what is left of a budget
HARDLY = 0.93
OTHERS = 3  #: other results that are looked at


#: of others what is known: verdicts with their library at every choice of sizes, none where they were not timed to the end
Known = Sequence[tuple[Contender, tuple[Verdict, ...]]]


def asked(settings: Settings, contenders: Sequence[Contender]) -> bool:
    """Whether it matters how fast some contender is without its library."""
    return settings.timing and not settings.library_only and any(one.model.functions for one in contenders)


def standing(explored: Explored, found: Finished, cache: CostCache, run: Run, others: Known | None = None) -> Finished:
    """What was found, with its times without its library, where these are no slower than the original's; else the first of the others
    (by default all contenders, the best by prediction first) of which that is true and that is faster with its library, or the
    original."""
    contender = found.contender
    if contender is None or not asked(explored.referenced.task.settings, [contender]):
        return found
    task = explored.referenced.task
    run.phase("timing", "timing without the library")
    bare, reason = _bare(explored, contender, 0.5, cache, run)
    rests = derived(task.rules, contender.candidate.end, task.imported.context)
    if bare and not any(slower(one, rests) for one in bare):
        return _stronger(explored, replace(found, alone=bare), others or (), cache, run)
    if not bare and not rests:
        # its functions have nodes of the model, one for one
        run.note(f"without its library it was not timed: {reason}")
        return found
    for other, verdicts in _others(explored, contender, run, others):
        better = _both(explored, other, verdicts, cache, run)
        if better is not None:
            run.note(
                f"kernels were left out: with them {_said(found.verdicts)}, but without their library {_said(bare) or reason}"
            )
            return better
    text = f"what is {_said(found.verdicts)} with its library is {_said(bare) or 'not known to be as fast'} without it"
    return Finished(task, None, f"{text} (--library-only takes it)", found.verdicts, found.predicted, alone=bare)


def _stronger(explored: Explored, found: Finished, others: Known, cache: CostCache, run: Run) -> Finished:
    """What was found, or another one that is hardly slower with its library, and not slower than the original without, where it is."""
    own = _least(found.alone)
    for other, verdicts in others:
        if own >= 1:
            break
        if verdicts and other is not found.contender and _least(verdicts) >= HARDLY * _least(found.verdicts):
            better = _both(explored, other, verdicts, cache, run)
            if better is not None and _least(better.alone) > own:
                found, own = better, _least(better.alone)
    return found


def _least(verdicts: Sequence[Verdict]) -> float:
    return min((one.ratio.ratio for one in verdicts), default=1.0)


def leans(referenced: Referenced, contender: Contender, seconds: float, cache: CostCache, run: Run) -> Verdict | None:
    """What was measured, in so many seconds, of a contender that is slower than the original where nobody has its library; None of one
    that is not."""
    task = referenced.task
    # functions that have nodes of the model, one for one, are as fast as these
    if not asked(task.settings, [contender]) or not derived(task.rules, contender.candidate.end, task.imported.context):
        return None
    bare = replace(contender, file=replace(contender.file, kernels=False))
    try:
        found = judge_of(referenced, cache, run, bare=True).decide([bare], seconds)
    except (TimeUp, WorkerFailed, MemoryShort):
        return None
    # what a busy machine leaves open is measured again in the end
    return next((at[0] for at in found.verdicts if at[0].ratio.high < 1 and slower(at[0], True)), None)


def tell_leaning(finished: Finished, run: Run) -> None:
    """Notes what would have been faster than the result, and is slower than the original where nobody has its library."""
    known = {
        one: own
        for one in run.leaning
        if (own := run.judges[False].so_far(one)) is not None and one is not finished.contender
    }
    best = max(known, key=lambda one: known[one].ratio.ratio, default=None)
    result = 1.0 if finished.contender is None else _least(finished.verdicts)
    if best is not None and known[best].ratio.ratio > result:
        told = f"{known[best].ratio.ratio:.2f} times as fast with its library, {run.leaning[best].ratio.ratio:.2f} times without it"
        run.note(f"{best.candidate.rule}, left out: {told} (--library-only takes it)")


def slower(verdict: Verdict, rests: bool) -> bool:
    """Whether a runtime without the library was measured to lose by the file; `rests`: on functions that spell an equation out. Those
    that have nodes of the model lose nothing by what a busy machine leaves open."""
    unsure = CLEARLY if rests else 0.0
    return verdict.ratio.ratio < (JUDGE_UNCLEAR if verdict.ratio.high < 1 else unsure)


def _said(verdicts: Sequence[Verdict]) -> str:
    worst = min(verdicts, key=lambda one: one.ratio.ratio, default=None)
    return "" if worst is None else f"{worst.ratio.ratio:.2f} times as fast"


def _others(
    explored: Explored, contender: Contender, run: Run, others: Known | None
) -> Iterator[tuple[Contender, tuple[Verdict, ...]]]:
    """Other results, those first whose kernels have nodes of their operators; then what stood on the way to the contender before it
    needed others."""
    task, count = explored.referenced.task, 0

    def own(one: Contender) -> bool:
        return not derived(task.rules, one.candidate.end, task.imported.context)

    if others is None:
        others = [(one, ()) for one in sorted(explored.contenders, key=lambda one: one.candidate.cost)]
    # a stable sort: otherwise as they are given
    for one, verdicts in sorted(others, key=lambda each: not own(each[0])):
        if one is not contender and (count < OTHERS or verdicts) and (own(one) or verdicts):
            count += not verdicts
            yield one, verdicts
    for candidate in reversed(contender.candidate.path()[1:-1]):
        if count < OTHERS and not derived(task.rules, candidate.end, task.imported.context):
            found = explored.referenced.checker.check(candidate)
            if isinstance(found, Contender) and proved_again(explored.referenced, run, candidate).usable:
                yield found, ()
            return


def _both(
    explored: Explored, other: Contender, verdicts: tuple[Verdict, ...], cache: CostCache, run: Run
) -> Finished | None:
    """A result that is faster with its library, by verdicts that are known or measured now, and no slower without it; None where it
    is not."""
    task = explored.referenced.task
    try:
        # one that was behind another one may not have been compared with the original for long enough
        known = bool(verdicts) and winner([[one] for one in verdicts]) is not None
        with_library = verdicts if known else _timed(explored, other, 0.5, cache, run)
    except (TimeUp, WorkerFailed, MemoryShort):
        return None
    if winner([[one] for one in with_library]) is None:
        return None
    ratio = explored.predicted.ratio(other.candidate)
    bare: tuple[Verdict, ...] = ()
    if other.model.functions:
        bare, _ = _bare(explored, other, 0.5 if verdicts else 0.9, cache, run)
        # without a time, nodes of the model are as fast there as they were
        rests = derived(task.rules, other.candidate.end, task.imported.context)
        if any(slower(one, rests) for one in bare) or (not bare and rests):
            return None
    return Finished(task, other, "", with_library, ratio, alone=bare)


def _bare(
    explored: Explored, contender: Contender, part: float, cache: CostCache, run: Run
) -> tuple[tuple[Verdict, ...], str]:
    """Verdicts of a contender without its library; none, and why, where it could not be timed."""
    try:
        return _timed(explored, contender, part, cache, run, kernels=False), ""
    except TimeUp:
        run.cut("timing")
        return (), "there was no time"
    except (WorkerFailed, MemoryShort) as problem:
        return (), str(problem)


def _timed(
    explored: Explored, contender: Contender, part: float, cache: CostCache, run: Run, kernels: bool = True
) -> tuple[Verdict, ...]:
    """Verdicts at every choice of sizes within such a part of the time that is left; the original may have kernels, too."""
    judge = judge_of(explored.referenced, cache, run, bare=not kernels)
    if not kernels:
        contender = replace(contender, file=replace(contender.file, kernels=False))
    seconds = max(0.0, run.clock.left() - explored.referenced.task.writing) * part
    return tuple(at[0] for at in judge.decide([contender], seconds).verdicts)
