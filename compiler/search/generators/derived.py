"""Programs that are derived, and mutants that are corrected, in the place of hot operators, as generators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from dslc.cost.machine import allowed_cpus
from dslc.deadline import Deadline, TimeUp
from dslc.mutate.mutant import MutantOptions
from dslc.search.candidates.candidate import Candidate
from dslc.search.finders.beside import Beside, DerivedOperator, Task
from dslc.search.finders.branches import Branches
from dslc.search.finders.derivations import Derivations, derivations_of
from dslc.search.finders.findings import derived
from dslc.search.finders.mutants import SECONDS as MUTANTS_SECONDS
from dslc.search.finders.mutants import Mutants
from dslc.search.finders.siblings import Siblings
from dslc.search.finders.subprograms import Subprograms
from dslc.search.generators.kernels import has_kernels, may_be_kernels
from dslc.search.generators.left_open import tell_left_open
from dslc.search.generators.protocol import Prior, Proposal, Proposer, SearchContext
from dslc.search.options.settings import Settings
from dslc.search.runs.selection import chosen_partial


@dataclass(frozen=True, slots=True)
class Derived:
    """Hot sums of products of a candidate as programs that are derived from them; `every`: also those that take hardly longer than
    their operations must, of which nobody hopes for anything: a report says what it would take."""

    name: str = "derivations"
    phase: str = "deriving programs"
    asks_own_results: bool = False
    uses_findings: bool = False
    prior: Prior = field(default_factory=lambda: Prior(gain=0.3, seconds=10.0))
    every: bool = False

    @property
    def reported_if_skipped(self) -> bool:
        return not self.every

    def promise(self, context: SearchContext, base: Candidate) -> float:
        """What these operators take beyond their operations."""
        if not context.task.settings.derive or not _may_stand(context, base):
            return 0.0
        if self.every:
            return 1.0 if context.task.target.measured else 0.0
        context.run.phase(self.phase)
        _begin_beside(context, base)
        return Derivations(**_common(context)).to_gain(base)

    def begin(self, context: SearchContext) -> Proposer:
        looked = Derivations(**_known(context), every=self.every)
        return lambda base: _told(context, self.name, looked, base)


@dataclass(frozen=True, slots=True)
class Paired:
    """Two sums of products that read one tensor, derived together (EinNet, Figure 15)."""

    name: str = "derivations of pairs"
    phase: str = "deriving programs"
    reported_if_skipped: bool = True
    asks_own_results: bool = False
    uses_findings: bool = False
    prior: Prior = field(default_factory=lambda: Prior(gain=0.3, seconds=8.0))

    def promise(self, context: SearchContext, base: Candidate) -> float:
        """What the operators of all pairs take beyond their operations."""
        if not context.task.settings.derive or not _may_stand(context, base):
            return 0.0
        context.run.phase(self.phase)
        _begin_beside(context, base)
        return Siblings(**_common(context)).to_gain(base)

    def begin(self, context: SearchContext) -> Proposer:
        looked = Siblings(**_known(context))
        return lambda base: _told(context, self.name, looked, base)


@dataclass(frozen=True, slots=True)
class Mutated:
    """Hot linear operators as programs that are almost equal, and corrected where they are not (PET)."""

    name: str = "mutants"
    phase: str = "mutating programs"
    reported_if_skipped: bool = True
    asks_own_results: bool = True
    uses_findings: bool = False
    prior: Prior = field(default_factory=lambda: Prior(gain=0.15, seconds=12.0))

    def promise(self, context: SearchContext, base: Candidate) -> float:
        """What these operators take beyond what the fastest form that they may become takes."""
        settings = context.task.settings
        rounds = sum(step.rule.startswith("mutant") for step in base.path())
        if not settings.mutate or rounds >= settings.mutant_rounds or not _may_stand(context, base):
            return 0.0
        context.run.phase(self.phase)
        tell_left_open(context)
        _begin_beside(context, base)
        return Mutants(**_common(context), strict=settings.strict_floats).to_gain(base)

    def begin(self, context: SearchContext) -> Proposer:
        task, settings = context.task, context.task.settings
        looked = Mutants(
            **_common(context), beside=context.beside, spent=context.run.kernel_seconds, limit=settings.mutant_limit,
            partial=chosen_partial(task.rules, settings.only, settings.disable, settings.strict_floats),
            options=_options(settings), operators=settings.mutant_operators, strict=settings.strict_floats,
        )  # fmt: skip

        behind = Subprograms(
            **_common(context), spent=context.run.kernel_seconds, strict=settings.strict_floats, mutants=looked
        )

        def of(base: Candidate) -> Iterator[Proposal]:
            # operators by themselves, then those that stand one behind the other
            for name, finds in ((self.name, looked), ("mutants together", behind)):
                for found in _told(context, name, finds, base):
                    for note in looked.notes:
                        context.note(note)
                    yield found

        return of


@dataclass(frozen=True, slots=True)
class Branched:
    """Calls of one operator on a common operand as one call (PET, Figure 10)."""

    name: str = "branches"
    phase: str = "mutating programs"
    reported_if_skipped: bool = True
    asks_own_results: bool = False
    uses_findings: bool = False
    prior: Prior = field(default_factory=lambda: Prior(gain=0.1, seconds=5.0))

    def promise(self, context: SearchContext, base: Candidate) -> float:
        """What all calls take that may be combined."""
        if not context.task.settings.mutate or not _may_stand(context, base):
            return 0.0
        context.run.phase(self.phase)
        return Branches(**_common(context)).to_gain(base)

    def begin(self, context: SearchContext) -> Proposer:
        looked = Branches(**_common(context), spent=context.run.kernel_seconds)
        return lambda base: _told(context, self.name, looked, base)


def _may_stand(context: SearchContext, base: Candidate) -> bool:
    """Whether programs with kernels may stand in a candidate: kernels that are there already are left alone."""
    return may_be_kernels(context, context.task.settings) and not has_kernels(base)


def _common(context: SearchContext) -> dict[str, Any]:
    task = context.task
    return {
        "rules": task.rules, "derivations": derivations_of(task.rules), "costs": context.costs, "opset": task.imported.context.opset,
        "until": Deadline(now=context.run.clock.now, outer=lambda: context.exploring), "known": context.run.decided,
        "sizes": task.sizes, "leaning": task.settings.library_only,
    }  # fmt: skip


def _known(context: SearchContext) -> dict[str, Any]:
    run = context.run
    return {
        **_common(context), "spent": run.kernel_seconds, "faster": run.kernels, "found": run.derived, "beside": context.beside,
    }  # fmt: skip


def _begin_beside(context: SearchContext, base: Candidate) -> None:
    """Hot operators of the original are searched beside others' turns, where there is another processor."""
    settings = context.task.settings
    if (
        context.beside is not None
        or base is not context.start
        or len(allowed_cpus()) < 2
        or context.run.journal.repeats
    ):
        return
    tasks: list[tuple[float, Task, Callable[[], DerivedOperator]]] = []
    with suppress(TimeUp):
        if settings.derive:
            tasks += Derivations(**_common(context)).tasks(base)
        if settings.mutate:
            tasks += Mutants(**_common(context), options=_options(settings), strict=settings.strict_floats).tasks(base)
    context.beside = Beside({task: work for _, task, work in sorted(tasks, key=lambda one: one[0])})


def _options(settings: Settings) -> MutantOptions:
    return MutantOptions(settings.mutant_depth, settings.mutants_kept, seconds=MUTANTS_SECONDS, seed=settings.seed)


def _told(context: SearchContext, name: str, looked: Derivations, base: Candidate) -> Iterator[Proposal]:
    """What is found in a candidate, and its story."""
    how = "" if isinstance(looked, Mutants | Subprograms | Branches) else "derived by "
    for made, tale in looked.proposals(base):
        yield Proposal(
            made,
            costly=made,
            kernels={each: tale.told(each.kernels, how) for each in made},
            untaken={name: tale.left(how)},
            findings=[derived(one) for one in tale.measured if one.ratio >= looked.margin],
        )
