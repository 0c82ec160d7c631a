"""Groups of nodes as kernels that are built and measured, as a generator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from dslc.cost.targets import OwnKernels
from dslc.deadline import TimeUp
from dslc.fuse.templates import Templates
from dslc.search.generators.protocol import Prior, Proposer
from dslc.search.region_rewrites.findings import fused
from dslc.search.region_rewrites.fusions import Fusions, describe_kernel, unbuilt
from dslc.search.rewrites.candidate import KERNELS, Candidate
from dslc.search.runs.compiling import no_compiler, wanted, with_kernels
from dslc.search.runs.context import SearchContext
from dslc.search.runs.settings import Settings


@dataclass(frozen=True, slots=True)
class Kernels:
    """Some nodes of a candidate as kernels. The first turn is hurried: kernels are tried at guessed prices, before anything is
    searched. It takes the share `hurried` of the time, and so many `seconds` at most; where kernels decide, most of what there is to
    gain is known then."""

    name: str = "kernels"
    phase: str = "building kernels"
    needed: bool = True
    again: bool = False
    gathers: bool = False
    prior: Prior = field(default_factory=lambda: Prior(gain=0.35, seconds=6.0, share=0.5))
    hurried: float = 0.4
    seconds: float = 8.0

    def promise(self, context: SearchContext, base: Candidate) -> float:
        """All of it: kernels are tried on what has none."""
        settings = context.task.settings
        if not wanted(settings) or has_kernels(base):
            return 0.0
        if why := no_compiler():
            context.run.note(why)
            return 0.0
        return 1.0

    def begin(self, context: SearchContext) -> Proposer:
        task, run = context.task, context.run

        def begun() -> Fusions:
            if run.fusions is None:
                templates = Templates(task.rules, task.settings.trust)
                for note in templates.notes:
                    run.note(note)
                run.fusions = Fusions(
                    task.rules, context.costs, task.imported.context.opset, task.sizes, templates,
                    task.settings.strict_floats,
                )  # fmt: skip
            return run.fusions

        def of(base: Candidate) -> Iterator[Sequence[Candidate]]:
            fusions, late = begun(), True
            hurried = base is context.start and context.best is None
            while late:
                made: Sequence[Candidate] = ()
                try:
                    until = context.exploring.part(self.hurried, self.seconds) if hurried else context.turn
                    made, found = fusions.of(base, until, hurried)
                except TimeUp:
                    yield ()
                    continue
                late = found.story.late or hurried
                assert fusions.templates is not None
                for note in (*fusions.templates.notes, *filter(None, [unbuilt(found)])):
                    run.note(note)
                for node, spent in found.spent.items():
                    run.spent[node] = min(spent, run.spent.get(node, inf))
                lines = [describe_kernel(task.rules, kept.tried, kept.places) for kept in found.story.kept]
                run.kernels.update((one, lines) for one in made)
                for kept in found.story.kept:
                    for finding in (one for graph in found.graphs for one in fused(kept.tried, graph)):
                        run.found.add(finding)
                if hurried and context.ahead is not None:
                    fusions.prepare(context.ahead)
                hurried = False
                yield made

        return of


def has_kernels(candidate: Candidate) -> bool:
    """Whether groups of a candidate's nodes became kernels."""
    return any(step.rule == KERNELS for step in candidate.path())


def may_be_kernels(context: SearchContext, settings: Settings) -> bool:
    """Whether what ONNX has no node for can be a kernel: one that is built here, or a function that a target plans."""
    return with_kernels(settings) or (
        context.task.target.kernels is OwnKernels.PLANNED and settings.portable == "functions"
    )
