"""Groups of nodes as kernels that are built and measured, as a generator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dslc.cost.targets import OwnKernels
from dslc.deadline import TimeUp
from dslc.fuse.templates import Templates
from dslc.report import KERNELS
from dslc.search.candidates.candidate import Candidate
from dslc.search.candidates.export import no_compiler
from dslc.search.generators.protocol import Generator, Proposal, Proposer, SearchContext
from dslc.search.options.settings import Settings
from dslc.search.region_rewrites.findings import fused
from dslc.search.region_rewrites.fusions import Fusions, describe_kernel, unbuilt
from dslc.search.runs.contenders import kernels_wanted, with_kernels


@dataclass(frozen=True, kw_only=True)
class Kernels(Generator):
    """Groups of a candidate's nodes as kernels.

    The first turn is hurried: kernels are tried at guessed prices, before anything is searched. It takes the share `hurried` of the
    time, and `hurried_most` seconds at most; where kernels decide, most of what there is to gain is known then.
    """

    name: str = "kernels"
    gain: float = 0.35
    seconds: float = 6.0
    share: float = 0.5
    phase: str = "building kernels"
    reported_if_skipped: bool = True
    hurried: float = 0.75
    hurried_most: float = 8.0

    def promise(self, context: SearchContext, base: Candidate) -> float:
        """Promise all of it: kernels are tried on what has none."""
        settings = context.task.settings
        if not kernels_wanted(settings) or has_kernels(base):
            return 0.0
        if why := no_compiler():
            context.run.warn(why)
            return 0.0
        return 1.0

    def begin(self, context: SearchContext) -> Proposer:
        task = context.task
        templates = Templates(task.rules, task.settings.trust)
        context.run.warn(*templates.notes)
        fusions = Fusions(
            task.rules, context.costs, task.imported.context.opset, task.sizes, templates, task.settings.strict_floats
        )

        def of(base: Candidate) -> Iterator[Proposal]:
            late = True
            hurried = base is context.start and context.best is None
            while late:
                made: Sequence[Candidate] = ()
                try:
                    until = context.exploring.part(self.hurried, self.hurried_most) if hurried else context.turn
                    made, found = fusions.of(base, until, hurried)
                except TimeUp:
                    yield Proposal()
                    continue
                late = found.story.late or hurried
                context.run.warn(*templates.notes, *filter(None, [unbuilt(found)]))
                if hurried:
                    fusions.prepare(context.ahead)
                hurried = False
                lines = [describe_kernel(task.rules, kept.tried, kept.places) for kept in found.story.kept]
                yield Proposal(
                    made,
                    kernels=dict.fromkeys(made, lines),
                    findings=[
                        one for kept in found.story.kept for graph in found.graphs for one in fused(kept.tried, graph)
                    ],
                    kernel_seconds=found.spent,
                )

        return of


def has_kernels(candidate: Candidate) -> bool:
    """Return whether groups of a candidate's nodes became kernels."""
    return any(step.rule == KERNELS for step in candidate.path())


def may_be_kernels(context: SearchContext, settings: Settings) -> bool:
    """Return whether what ONNX has no node for can be a kernel: one that is built here, or a function that a target plans."""
    return with_kernels(settings) or (
        context.task.target.kernels is OwnKernels.PLANNED and settings.portable == "functions"
    )
