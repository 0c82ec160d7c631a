"""The last word: which of the contenders was measured to be faster than the original, if any."""

from __future__ import annotations

from collections.abc import Sequence

from dslc.cost.cache import CostCache
from dslc.cost.clock import TimeUp
from dslc.cost.inputs import Inputs
from dslc.cost.process import WorkerFailed
from dslc.cost.timing import FEWEST, MemoryShort, Times
from dslc.search.alone import PART, asked, standing
from dslc.search.contenders import Contender, distinct
from dslc.search.explore import proved_again
from dslc.search.judge import Judged, Verdict, judge, winner
from dslc.search.planning import by_plans
from dslc.search.run import Run
from dslc.search.stages import Explored, Finished, Predicted, Referenced, Task
from dslc.search.written import derived

#: contenders that are timed to the end, after all were timed briefly: for such a part of the time
FINAL, BRIEF = 2, 0.25


def finish(explored: Explored, cache: CostCache, run: Run) -> Finished:
    """The contender that was measured to be faster, or the original and why."""
    referenced, task = explored.referenced, explored.referenced.task
    contenders = list(explored.contenders)
    if not contenders:
        return Finished(task, None, explored.reason)
    if task.target.plans is not None:
        return by_plans(explored, run)
    if not task.settings.timing:
        cheapest = min(contenders, key=lambda one: one.candidate.cost)
        return _chosen(task, cheapest, explored.predicted, "the search's choice, not timed")
    run.phase("timing")
    # what the budget left undecided may be decided with another one
    key = f"{referenced.identity} {task.settings.budget}"
    own = 1 - PART if asked(explored, contenders) else 1.0
    run.timed = contenders = affordable(explored, contenders, run)
    rest = sorted((one for one in explored.contenders if one not in contenders), key=lambda one: one.candidate.cost)
    try:
        if len(contenders) > FINAL:
            brief = _timed(referenced, f"brief {key}", contenders, referenced.inputs[0], own * BRIEF, cache, run).verdicts
            order = sorted(range(len(contenders)), key=lambda k: -brief[k].ratio.ratio)
            run.timed, hopeful = finals([(contenders[k], brief[k]) for k in order], own < 1, task)
            contenders, rest = run.timed, [*hopeful, *rest]
        inputs = referenced.inputs
        judged = [
            _timed(referenced, key, contenders, found, own / (len(inputs) - own * k), cache, run) for k, found in enumerate(inputs)
        ]
    except MemoryShort as short:
        return Finished(task, None, f"it cannot be timed against a rewritten model: {short}")
    except TimeUp:
        run.cut("timing")
        return Finished(task, None, f"the budget of {task.settings.budget:g} s left no time to time a rewritten model")
    except WorkerFailed as failed:
        return Finished(task, None, f"timing failed: {failed}")
    if any(one.cut for one in judged):
        run.cut("timing")
    found = _decided(explored, contenders, judged)
    # in the order of their promise: who was timed beside the fastest, then who was timed briefly
    timed = [(one, tuple(at.verdicts[k] for at in judged)) for k, one in enumerate(contenders) if one is not found.contender]
    return standing(explored, found, cache, run, [*timed, *((one, ()) for one in rest)])


def finals(order: Sequence[tuple[Contender, Verdict]], alone: bool, task: Task) -> tuple[list[Contender], list[Contender]]:
    """Of contenders that were timed briefly, the fastest first, those that are timed to the end, and which of the others may be faster
    than the original.

    Where it matters how fast they are without their library, one of them has kernels of the model's own nodes, which are there what
    they were: if the fastest is slower there, the other one is known by then.
    """
    every = [one for one, _ in order]
    taken = every[:FINAL]
    if alone and all(derived(task.rules, one.candidate.end, task.imported.context) for one in taken):
        own = [one for one in every if not derived(task.rules, one.candidate.end, task.imported.context)]
        taken = [*taken[: FINAL - 1], *(own[:1] or taken[FINAL - 1 :])]
    return taken, [one for one, verdict in order if one not in taken and verdict.ratio.high > 1]


def _decided(explored: Explored, contenders: Sequence[Contender], judged: Sequence[Judged]) -> Finished:
    task, verdicts = explored.referenced.task, [one.verdicts for one in judged]
    chosen = winner(verdicts)
    if chosen is not None:
        own = tuple(at[chosen] for at in verdicts)
        return Finished(task, contenders[chosen], "", own, explored.predicted.ratio(contenders[chosen].candidate))
    best = max(verdicts[0], key=lambda verdict: verdict.ratio.ratio)
    somewhere = next((v for at in verdicts for v in at if v.faster), None)
    reason = f"no rewritten model was measured to be faster (best: {best.ratio} times as fast)"
    if not best.ratio.known:
        reason = f"no rewritten model was timed often enough (best: {best.ratio} times as fast in a few pairs)"
    if somewhere is not None:
        reason = f"what is faster at some sizes ({somewhere.ratio} times as fast) is slower at others"
    first = tuple(at[0] for at in verdicts)
    return Finished(task, None, reason, first, explored.predicted.ratio(contenders[0].candidate))


def affordable(explored: Explored, contenders: list[Contender], run: Run) -> list[Contender]:
    """Those that can be timed against each other in what is left: every generation of processes loads all of them.

    One of them is always what is there without mutants and derivations: their predictions must not be the only hope.
    """
    referenced = explored.referenced
    left = run.clock.left() - referenced.task.writing
    # where not all can be timed, the best by prediction are
    contenders = sorted(contenders, key=lambda one: one.candidate.cost)
    simple = [one for one in contenders if not run.rests_on_much(one.candidate)][:1] or contenders[:1]

    def takes(generations: int, count: int) -> float:
        return generations * (count + 1) * referenced.load

    if left < takes(FEWEST, FINAL):
        return simple
    if len(contenders) > FINAL and left < takes(FEWEST, FINAL) + takes(2, len(contenders)) / (1 - BRIEF):
        first = contenders[:FINAL]
        return first if simple[0] in first else [*first[:-1], *simple]
    return contenders


def _timed(
    referenced: Referenced, key: str, contenders: Sequence[Contender], inputs: Inputs, part: float, cache: CostCache, run: Run
) -> Judged:
    """Verdicts within such a part of the time that is left, without that for writing the result."""
    run.times = Times()
    seconds = max(0.0, run.clock.left() - referenced.task.writing) * part
    return judge(
        referenced.file, key, contenders, inputs.feeds[0], referenced.task.machine, seconds, cache, run.clock, run.times,
        referenced.load,
    )  # fmt: skip


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
    # what is known from an earlier run is not among the times
    all_timed = run.times.complete and len(run.times.samples) == len(run.timed) + 1
    ratios = {k: run.times.interval(k + 1) for k in range(len(run.timed))} if all_timed else {}
    best = max(ratios, key=lambda k: ratios[k].ratio, default=0)
    if ratios and ratios[best].ratio <= 1:
        reason = f"interrupted: what was timed so far is no faster ({ratios[best]} times as fast)"
        return Finished(task, None, reason, interrupted=True)
    said = f"{ratios[best]} times as fast so far" if ratios else "not timed"
    return _chosen(task, run.timed[best], _predicted(run), f"interrupted while it was timed: {said}", True)


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
