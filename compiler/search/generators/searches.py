"""One search of a run: what a strategy is given, and the best that it yields."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from dslc.deadline import Deadline
from dslc.ir.graph import Node
from dslc.search.region_rewrites.findings import Findings
from dslc.search.rewrites.candidate import Candidate, Front, Limits
from dslc.search.runs.compiling import no_compiler, with_kernels
from dslc.search.runs.context import SearchContext
from dslc.search.strategies.dumping import dumped
from dslc.search.strategies.moves import moves_of
from dslc.search.strategies.sources import Source, Substitutions
from dslc.search.strategies.strategy import Grown, Space
from dslc.search.strategies.treesearch import Mcts

PATIENCE = 0.25  #: share of the budget without a gain after which a search gives up
CLEAR = 0.02  #: part of what a model takes that is a clear gain


def limits_of(
    context: SearchContext, who: str, most: int | None, front: Front | None = None, brief: float = inf
) -> Limits:
    """Limits of one more search of a run: so many steps at most, until the turn is over, or nothing was gained for long: where `brief`
    is finite that is a share of the budget after which it may give way."""
    settings, run = context.task.settings, context.run
    journal = run.journal
    limits = Limits(
        journal.next(who, most),
        # what is repeated is in the cache, also what it was timed with
        context.exploring if journal.repeats else context.turn,
        on_step=run.progress.step,
        on_tried=run.ran,
    )
    if front is not None:
        limits.on_built = front.add
    if not journal.repeats and settings.steps is None:
        limits.patience = PATIENCE * settings.budget if settings.patience is None else settings.patience
        limits.brief = brief * settings.budget
    journal.begun.append((who, limits))
    return limits


def _moves(context: SearchContext) -> tuple[tuple[Source, ...], Callable[[Node], float | None] | None]:
    """Kernels and derivations, and what they price, for a strategy that takes them for moves."""
    task, run = context.task, context.run
    strategy = task.settings.strategy
    if not isinstance(strategy, Mcts) or not strategy.mixed:
        return (), None
    if not with_kernels(task.settings):
        run.note(no_compiler() or "no kernels: the model is to run with ONNX Runtime's own operators alone")
        return (), None
    until = Deadline(now=run.clock.now, outer=lambda: context.turn)
    return moves_of(task.rules, context.costs, task.imported.context.opset, task.sizes, until)


def searched(
    context: SearchContext,
    who: str,
    start: Candidate,
    most: int | None,
    brief: float = inf,
    findings: Findings | None = None,
) -> Candidate:
    """The best that the strategy yields (see `limits_of`), by rules and by what was found beside them; where it was interrupted,
    `run.best` is what it had."""
    run, settings = context.run, context.task.settings
    run.phase("searching")
    limits = limits_of(context, who, most, context.front if findings is None else None, brief)
    best, clear = start, start.cost

    def told(found: Candidate) -> None:
        nonlocal best, clear
        if found.cost < (1 - CLEAR) * clear:
            clear = found.cost
            limits.gained_clearly()
        if found.cost < best.cost:
            run.best = best = found if findings is None else findings.with_texts(found)
            run.progress.best(context.start.cost / max(found.cost, 1e-12), limits.done)

    grown: list[Grown] = []
    others, price = _moves(context)
    space = Space(
        start, (Substitutions(context.rules), *others), context.costs, limits, settings.seed, settings.alpha, settings.layouts, told,
        settings.budget or None, settings.steps, findings, price, run.note, grown.extend if settings.dump_egraph is not None else None,
    )  # fmt: skip
    for found in settings.strategy.explore(space):
        told(found)
    if settings.dump_egraph is not None and not dumped(settings.dump_egraph, grown):
        run.note(f"{settings.dump_egraph} was not written: the search made no e-graph")
    if limits.interrupted:
        raise KeyboardInterrupt
    return best
