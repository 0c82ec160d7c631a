"""Rules of the libraries under a strategy, as a generator."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from dslc.deadline import Deadline
from dslc.egraph.extract import EGraphTable, ExtractionProblem
from dslc.egraph.extract.file import written
from dslc.ir.graph import Node
from dslc.search.candidates.candidate import Candidate
from dslc.search.candidates.export import no_compiler
from dslc.search.generators.kernels import has_kernels
from dslc.search.generators.protocol import Generator, Proposal, SearchContext
from dslc.search.options.strategies import Mcts
from dslc.search.region_rewrites.findings import Findings
from dslc.search.runs.contenders import kernels_wanted, with_kernels
from dslc.search.strategies.space import SearchedEGraph, Source, Space, Substitutions, moves_of
from dslc.store import write_file

CLEAR = 0.02  #: part of what a model takes that is a clear gain


@dataclass(frozen=True, kw_only=True)
class Rules(Generator):
    """Candidates that a strategy finds by rules.

    A turn takes half of the time that is left, or less where nothing was gained for long; the next one goes on from its best.
    `brief` is the share of the budget after which the first search may give way to others, `after` what it promises of what others
    found.
    """

    name: str = "rules"
    gain: float = 0.15
    seconds: float = 5.0
    share: float = 0.5
    reported_if_skipped: bool = True
    brief: float = 0.125
    after: float = 0.2

    def promise(self, context: SearchContext, base: Candidate) -> float:
        """Promise all of it, from where rules came; less of what others found, where rules were mostly applied before."""
        if base is context.start:
            return 1.0
        return 0.0 if base is context.best or has_kernels(base) or context.run.journal.repeats else self.after

    def propose(self, context: SearchContext, base: Candidate) -> Iterator[Proposal]:
        """Search from the original until nothing is gained any more, and once from each candidate of others."""
        settings, journal = context.task.settings, context.run.journal
        gives_way = settings.patience is None and kernels_wanted(settings)

        def goes_on(gained: bool) -> bool:
            """Return whether a search was cut short, or gave way, before it was done."""
            if journal.repeats:
                return journal.ahead(self.name) is not None
            last = [limits for who, limits in journal.begun if who == self.name][-1]
            return settings.steps is None and (last.late or (last.idle and gives_way and (gained or last.brief < inf)))

        if base is not context.start:
            found = searched(context, f"{self.name} after others", base, settings.steps, self.brief)
            yield Proposal((found,) if found is not base else ())
            return
        before, most = context.reached, settings.steps
        while True:
            rules = context.rules
            brief = self.brief if gives_way and not context.task.heavy and not context.best else inf
            found = searched(context, self.name, context.reached, most, brief)
            yield Proposal((found,) if found is not before else (), best=found)
            if context.rules is not rules:
                # without what was blamed: as many steps again, so that the number of steps alone decides what is found
                most = journal.first
            elif goes_on(context.reached is not before):
                before, most = context.reached, settings.steps
            else:
                return


def searched(
    context: SearchContext,
    who: str,
    start: Candidate,
    most: int | None,
    brief: float = inf,
    findings: Findings | None = None,
) -> Candidate:
    """Return the best that the strategy yields within limits (`SearchContext.limits`), by rules and by what was found beside them."""
    settings = context.task.settings
    limits = context.limits(who, most, brief)
    if not findings:
        limits.on_built = context.front.add
    best, clear = start, start.cost

    def told(found: Candidate) -> None:
        nonlocal best, clear
        if found.cost < (1 - CLEAR) * clear:
            clear = found.cost
            limits.gained_clearly()
        if found.cost < best.cost:
            best = findings.with_texts(found) if findings else found
            context.improved(best, limits.done)

    grown: list[SearchedEGraph] = []
    others: tuple[Source, ...] = ()
    price: Callable[[Node], float | None] | None = None
    if isinstance(settings.strategy, Mcts) and settings.strategy.mixed:
        # kernels and derivations are moves, too
        if with_kernels(settings):
            task, until = context.task, Deadline(now=context.run.clock.now, outer=lambda: context.turn)
            others, price = moves_of(task.rules, context.costs, task.imported.context.opset, task.sizes, until)
        else:
            context.run.warn(no_compiler() or "no kernels: the target is ONNX Runtime's own operators alone")
    space = Space(
        start, (Substitutions(context.rules), *others), context.costs, limits, settings.seed, settings.alpha, settings.layouts, told,
        settings.budget or None, settings.steps, findings, price, context.run.note,
        grown.extend if settings.dump_egraph else None,
    )  # fmt: skip
    for found in settings.strategy.explore(space):
        told(found)
    if settings.dump_egraph and not dumped(settings.dump_egraph, grown):
        context.run.warn(f"{settings.dump_egraph} was not written: the search made no e-graph")
    if limits.interrupted:
        raise KeyboardInterrupt
    return best


def dumped(path: Path, grown: Sequence[SearchedEGraph]) -> bool:
    """Write e-graphs as one, in which each has its own roots; False, and no file, where there are none. Costs are seconds.

    Raises:
        DslcError: E0903 where the file cannot be written.
    """
    problems = [
        ExtractionProblem(EGraphTable(egraph, price), [egraph.find(root) for root in egraph.roots])
        for egraph, price in grown
    ]
    if not problems:
        return False
    write_file(path, json.dumps(written(*problems)))
    return True
