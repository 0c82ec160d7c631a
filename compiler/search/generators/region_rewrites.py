"""Programs that are derived, and mutants that are corrected, in the place of hot operators, as generators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from dslc.cost.machine import allowed_cpus
from dslc.deadline import Deadline, TimeUp
from dslc.mutate.mutant import MutantOptions
from dslc.search.candidates.candidate import Candidate
from dslc.search.generators.kernels import has_kernels, may_be_kernels
from dslc.search.generators.open_sizes import note_open_sizes
from dslc.search.generators.protocol import Generator, Proposal, Proposer, SearchContext
from dslc.search.region_rewrites.background import BackgroundSearch, DerivedOperator, Task
from dslc.search.region_rewrites.building import Builder
from dslc.search.region_rewrites.derivations import Derivations, derivations_of
from dslc.search.region_rewrites.mutant_chains import MutantChains
from dslc.search.region_rewrites.mutants import SECONDS, Mutants
from dslc.search.region_rewrites.pairs import PairedDerivation
from dslc.search.region_rewrites.rewriter import RegionRewriter
from dslc.search.runs.selection import chosen_partial

#: rewriters by their names in a report, of a run or (where not `begun`) of one question for a promise
Rewriters = Callable[[SearchContext, bool], dict[str, RegionRewriter]]


@dataclass(frozen=True, kw_only=True)
class RegionRewrites(Generator):
    """Programs of some sources in the place of hot regions of a candidate; the first one says what they promise.

    `how` goes before rules in a report; `rounds`: candidates of mutants are asked about so often; `every`: regions at their best are
    looked at, too, so that a report says what they would take.
    """

    rewriters: Rewriters
    phase: str = "deriving programs"
    reported_if_skipped: bool = True
    how: str = "derived by "
    every: bool = False

    def promise(self, context: SearchContext, base: Candidate) -> float:
        """The share that these regions take beyond what the fastest form of their operators takes."""
        settings = context.task.settings
        rounds = sum(step.rule.startswith("mutant") for step in base.path())
        wanted = settings.mutate and rounds < settings.mutant_rounds if self.asks_own_results else settings.derive
        # kernels that are there already are left alone
        if not wanted or not may_be_kernels(context, settings) or has_kernels(base):
            return 0.0
        if self.every:
            return float(context.task.target.measured)
        context.run.phase(self.phase)
        if self.asks_own_results:
            note_open_sizes(context)
        _begin_background(context, base)
        return next(iter(self.rewriters(context, False).values())).to_gain(base)

    def begin(self, context: SearchContext) -> Proposer:
        rewriters = self.rewriters(context, True)

        def of(base: Candidate) -> Iterator[Proposal]:
            for name, rewriter in rewriters.items():
                builder = rewriter.source.builder
                for made, log in rewriter.proposals(base):
                    for note in builder.notes:
                        context.run.note(note)
                    yield Proposal(
                        made,
                        costly=made,
                        kernels={each: log.taken_lines(each.kernels, self.how) for each in made},
                        untaken={name: log.rejected_lines(self.how)},
                        findings=[one for one in log.measured if one.ratio >= builder.margin],
                    )

        return of


def _builder(context: SearchContext, begun: bool, strict: bool = False) -> Builder:
    task, run = context.task, context.run
    until = Deadline(now=run.clock.now, outer=lambda: context.exploring)
    return Builder(
        task.rules, context.costs, task.imported.context.opset, until, strict, task.sizes, known=run.decided,
        spent=run.kernel_seconds if begun else {}, library_only=task.settings.library_only,
    )  # fmt: skip


def _derivations(context: SearchContext, begun: bool, every: bool = False) -> Derivations:
    run, builder = context.run, _builder(context, begun)
    if not begun:
        return Derivations(builder, derivations=derivations_of(builder.rules))
    return Derivations(
        builder, every=every, faster=run.kernels, background=context.beside, found=run.derived,
        derivations=derivations_of(builder.rules),
    )  # fmt: skip


def _mutants(context: SearchContext, begun: bool) -> Mutants:
    settings = context.task.settings
    builder = _builder(context, begun, settings.strict_floats)
    options = MutantOptions(settings.mutant_depth, settings.mutants_kept, seconds=SECONDS, seed=settings.seed)
    if not begun:
        return Mutants(builder, options=options)
    return Mutants(
        builder, background=context.beside, limit=settings.mutant_limit, options=options, most=settings.mutant_operators,
        partial=chosen_partial(context.task.rules, settings.only, settings.disable, settings.strict_floats),
    )  # fmt: skip


def _mutated(context: SearchContext, begun: bool) -> dict[str, RegionRewriter]:
    """Operators by themselves, then those that stand one behind the other."""
    mutants = _mutants(context, begun)
    chains = RegionRewriter(MutantChains(mutants), independent_first=True)
    return {"mutants": RegionRewriter(mutants, forms_first=True), "mutants together": chains}


DERIVED = RegionRewrites(
    name="derivations",
    gain=0.3,
    seconds=10.0,
    rewriters=lambda context, begun: {"derivations": RegionRewriter(_derivations(context, begun))},
)
#: operators that hardly take longer than their operations must, so that a report says what programs would take
FURTHER = RegionRewrites(
    name="further derivations",
    gain=0.02,
    seconds=15.0,
    rewriters=lambda context, begun: {"further derivations": RegionRewriter(_derivations(context, begun, every=True))},
    reported_if_skipped=False,
    every=True,
)
#: two sums of products that read one tensor, derived together (EinNet, Figure 15)
PAIRED = RegionRewrites(
    name="derivations of pairs",
    gain=0.3,
    seconds=8.0,
    rewriters=lambda context, begun: {
        "derivations of pairs": RegionRewriter(PairedDerivation(_derivations(context, begun)), independent_first=True)
    },
)
#: hot linear operators as programs that are almost equal, and corrected where they are not (PET)
MUTATED = RegionRewrites(
    name="mutants",
    gain=0.15,
    seconds=12.0,
    rewriters=_mutated,
    phase="mutating programs",
    how="",
    asks_own_results=True,
)
REGION_REWRITES = (PAIRED, DERIVED, MUTATED)


def _begin_background(context: SearchContext, base: Candidate) -> None:
    """Hot operators of the original are searched beside others' turns, where there is another processor."""
    settings, repeats = context.task.settings, context.run.journal.repeats
    if not context.beside and base is context.start and len(allowed_cpus()) > 1 and not repeats:
        sources: list[Derivations | Mutants] = [_derivations(context, False)] if settings.derive else []
        sources += [_mutants(context, False)] if settings.mutate else []
        tasks: list[tuple[float, Task, Callable[[], DerivedOperator]]] = []
        with suppress(TimeUp):
            for source in sources:
                tasks += source.tasks(base)
        context.beside = BackgroundSearch({task: work for _, task, work in sorted(tasks, key=lambda one: one[0])})
