"""Rules of the libraries under a strategy, as a generator: what it finds is checked at once, and culprits are left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from dslc.search.generators.kernels import has_kernels
from dslc.search.generators.protocol import Prior, Proposer
from dslc.search.generators.searches import searched
from dslc.search.rewrites.candidate import Candidate
from dslc.search.runs.compiling import wanted
from dslc.search.runs.contenders import Blamed, Contender
from dslc.search.runs.context import SearchContext
from dslc.search.runs.progress import CHECKED
from dslc.search.runs.proving import passed


@dataclass(frozen=True, slots=True)
class Rules:
    """What a strategy finds by rules. A turn takes half of the time that is left, or less where nothing was gained for long; the next
    one goes on from its best.

    `brief` is the share of the budget after which the first search may give way to others, `culprits` how many rules may be
    blamed before it gives up, `after` what it promises of what others found.
    """

    name: str = "rules"
    phase: str = "searching"
    needed: bool = True
    again: bool = False
    gathers: bool = False
    prior: Prior = field(default_factory=lambda: Prior(gain=0.15, seconds=5.0, share=0.5))
    brief: float = 0.125
    culprits: int = 5
    after: float = 0.2

    def promise(self, context: SearchContext, base: Candidate) -> float:
        """All of it, from where rules came; less of what others found, where rules were mostly applied before."""
        if base is context.start:
            return 1.0
        return 0.0 if base is context.best or has_kernels(base) or context.run.journal.repeats else self.after

    def begin(self, context: SearchContext) -> Proposer:
        settings, run, journal = context.task.settings, context.run, context.run.journal

        def brief() -> float:
            gives_way = settings.patience is None and wanted(settings) and not context.task.heavy
            return self.brief if gives_way and context.best is None else inf

        def goes_on(gained: bool) -> bool:
            """Whether a search was cut short, or gave way, before it was done."""
            if journal.repeats:
                return journal.ahead(self.name) is not None
            last = [limits for who, limits in journal.begun if who == self.name][-1]
            gave_way = last.idle and wanted(settings) and settings.patience is None
            return settings.steps is None and (last.late or (gave_way and (gained or last.brief < inf)))

        def of(base: Candidate) -> Iterator[Sequence[Candidate]]:
            return first() if base is context.start else further(base)

        def further(base: Candidate) -> Iterator[Sequence[Candidate]]:
            """From what somebody else found: whoever asked for it checks it."""
            context.measuring = context.turn
            found = searched(context, f"{self.name} after others", base, settings.steps, self.brief)
            context.measuring = context.exploring
            yield (found,) if found is not base else ()

        def first() -> Iterator[Sequence[Candidate]]:
            more = True
            while more:
                before = context.reached
                # what is repeated measures nothing new
                context.measuring = None if journal.repeats else context.turn
                for turn in range(self.culprits):
                    # as many steps again, so that the number of steps alone decides what is found
                    most = journal.first if turn else settings.steps
                    found = searched(context, self.name, context.reached, most, brief())
                    context.best, context.measuring = found, context.exploring
                    blamed = checked(context, found)
                    if not blamed:
                        break
                    run.notes.extend(f"{one.rule} was left out: {one.problem}" for one in blamed)
                    names = {one.rule for one in blamed}
                    context.rules = tuple(rule for rule in context.rules if rule.name not in names)
                    context.best = run.best = _before(blamed[0].before, names)
                else:
                    run.checked.clear()
                    return
                more = goes_on(context.reached is not before)
                yield (found,) if found is not before else ()

        return of


def checked(context: SearchContext, found: Candidate) -> Sequence[Blamed]:
    """Makes what a search found a contender, or says which rules it must do without.

    Raises:
        Unusable: import and export alone change what the model computes.
        TimeUp: there was no time to check anything.
    """
    run, referenced = context.run, context.referenced
    if any(one.candidate is found for one in run.checked):
        return ()
    if found is context.start:
        canonical(context)
        return ()
    one = passed(referenced, run, context.start, found)
    if isinstance(one, Contender):
        run.passed(one)
        run.clock.reached(CHECKED)
        return ()
    return one


def canonical(context: SearchContext) -> None:
    """The model as import and export leave it is a contender where that makes it smaller."""
    run, checker = context.run, context.referenced.checker
    if any(one.candidate is context.start for one in run.checked):
        return
    run.phase("comparing outputs")
    if checker.operators(context.start) < context.task.size.operators:
        found = checker.check(context.start)
        if isinstance(found, Contender):
            run.passed(found)


def _before(found: Candidate, names: set[str]) -> Candidate:
    """The last candidate on the way to one that no such rule had a part in."""
    while any(step.rule in names for step in found.path()):
        assert found.parent is not None
        found = found.parent
    return found
