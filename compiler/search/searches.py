"""One search of a run: what a strategy is given, and the best that it yields."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from dslc.ir.graph import Node
from dslc.search.candidate import Candidate, Front, Limits
from dslc.search.dumping import dumped
from dslc.search.fusions import no_compiler, with_kernels
from dslc.search.ground import Ground, Reached
from dslc.search.moves import moves_of
from dslc.search.run import Run
from dslc.search.sources import Source, Substitutions
from dslc.search.strategy import Grown, Space
from dslc.search.treesearch import Mcts

#: a search gives up where nothing was gained for such a part of the budget; where it goes on later with what others leave, one that
#: has gained may give way sooner
PATIENCE, BRIEF = 0.25, 0.125
#: what is gained clearly: such a part of what a model takes
CLEAR = 0.02


def limits_of(
    ground: Ground, run: Run, most: int | None, keep: float, front: Front | None = None, brief: float = inf
) -> Limits:
    """Limits of one more search of a run: so many steps at most, until the share `keep` of the budget is left, or nothing was gained
    for long: where `brief` is finite that is a share of the budget after which it may give way."""
    settings, journal = ground.referenced.task.settings, run.journal
    limits = Limits(
        journal.next(most),
        # what is repeated is in the cache, also what it was timed with
        run.clock.end(keep / 3 if journal.repeats else keep),
        now=run.clock.now,
        on_step=run.progress.step,
        on_tried=run.ran,
    )
    if front is not None:
        limits.on_built = front.add
    if not journal.repeats and settings.steps is None:
        limits.patience = PATIENCE * settings.budget if settings.patience is None else settings.patience
        limits.brief = brief * settings.budget
    journal.begun.append(limits)
    return limits


def _moves(ground: Ground, run: Run) -> tuple[tuple[Source, ...], Callable[[Node], float | None] | None]:
    """Kernels and derivations, and what they price, for a strategy that takes them for moves."""
    task = ground.referenced.task
    strategy = task.settings.strategy
    if not isinstance(strategy, Mcts) or not strategy.mixed:
        return (), None
    if not with_kernels(task.settings):
        run.note(no_compiler() or "no kernels: the model is to run with ONNX Runtime's own operators alone")
        return (), None
    left = run.clock.left
    return moves_of(task.rules, ground.costs, task.imported.context.opset, task.sizes, lambda: left(ground.shares.search))


def searched(
    ground: Ground, run: Run, start: Reached, most: int | None, keep: float, brief: float = inf
) -> Candidate:
    """The best that the strategy yields (see `limits_of`); where it was interrupted, `run.best` is what it had."""
    run.phase("searching")
    limits = limits_of(ground, run, most, keep, start.front, brief)
    best, clear = start.best, start.best.cost

    def told(found: Candidate) -> None:
        nonlocal best, clear
        if found.cost < (1 - CLEAR) * clear:
            clear = found.cost
            limits.gained_clearly()
        if found.cost < best.cost:
            run.best = best = found
            run.progress.best(ground.start.cost / max(found.cost, 1e-12), limits.done)

    settings = ground.referenced.task.settings
    grown: list[Grown] = []
    others, price = _moves(ground, run)
    space = Space(
        start.best, (Substitutions(start.rules), *others), ground.costs, limits, settings.seed, settings.alpha, settings.layouts, told,
        settings.budget or None, settings.steps, price, run.note, grown.extend if settings.dump_egraph is not None else None,
    )  # fmt: skip
    for found in settings.strategy.explore(space):
        told(found)
    if settings.dump_egraph is not None and not dumped(settings.dump_egraph, grown):
        run.note(f"{settings.dump_egraph} was not written: the search made no e-graph")
    if limits.interrupted:
        raise KeyboardInterrupt
    return best


__all__ = ["BRIEF", "limits_of", "searched"]
