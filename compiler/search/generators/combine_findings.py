"""Findings of all generators, and the rules, in one program, as a generator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dslc.deadline import TimeUp
from dslc.report import KERNELS
from dslc.search.candidates.candidate import Candidate
from dslc.search.generators.kernels import has_kernels
from dslc.search.generators.protocol import Generator, Proposal, SearchContext
from dslc.search.generators.rules import searched
from dslc.search.region_rewrites.findings import Findings, gathered


@dataclass(frozen=True, kw_only=True)
class CombineFindings(Generator):
    """Kernels, derived programs and mutants that were measured, wherever they fit in what rules made.

    First as many as gain at once, then as moves of the strategy beside the rules; asked again whenever more was found. `least` is the
    share of the candidate's time that all of it together must save beyond the best so far, `brief` the share of the budget after which
    its search may give way.
    """

    name: str = "all together"
    gain: float = 0.5
    seconds: float = 1.0
    uses_findings: bool = True
    least: float = 0.01
    brief: float = 0.05

    def promise(self, context: SearchContext, base: Candidate) -> float:
        """The share that all findings save together, beyond the best so far."""
        if base is not context.reached or has_kernels(base) or not context.run.found.count:
            return 0.0
        least = min((one.candidate.cost for one in context.run.checked), default=context.start.cost)
        left = base.cost - context.costs.share * context.run.found.saving(base.graph)
        promised = (least - max(left, 0.0)) / base.cost
        return promised if promised >= self.least else 0.0

    def propose(self, context: SearchContext, base: Candidate) -> Iterator[Proposal]:
        run = context.run

        def made(found: Candidate) -> Proposal:
            """A candidate as it is proposed, with what a report says of it."""
            steps = found.path()[len(base.path()) :]
            return Proposal(
                (found,) if steps else (),
                costly=[step for step in steps if step.facts and step.rule != KERNELS],
                kernels={step: findings.describe(step) for step in steps},
            )

        findings = Findings(run.found.fitting(base.graph), context.costs)
        found, late = base, True
        while late:
            try:
                limits = context.limits(self.name, None)
                found, late = findings.with_texts(gathered(base, findings, context.costs, limits)), False
            except TimeUp:
                yield Proposal()
        yield made(found)
        if run.journal.repeats:
            return
        more = searched(context, "rules and all together", base, context.task.settings.steps, self.brief, findings)
        yield made(more) if more.cost < found.cost else Proposal()
