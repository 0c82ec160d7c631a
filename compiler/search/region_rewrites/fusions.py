"""Kernels for what a search found: groups of nodes that run as one, built and measured, as candidates beside the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from dslc.codegen.host.background import BackgroundCompiler
from dslc.cost.model import CostModel
from dslc.deadline import Deadline
from dslc.derivation.programs import calls_of
from dslc.fuse.autotune import TunedKernel, WhyUnused
from dslc.fuse.fusion import KERNELS as FUSED_KERNELS
from dslc.fuse.fusion import Fused, Fusing
from dslc.fuse.kernels import kernels, unfold
from dslc.fuse.templates import Templates
from dslc.ir.facts import Fact
from dslc.ir.graph import Graph, Kernel, Value, Values, kernel_value, replace
from dslc.match.forms import stated_error
from dslc.records import record
from dslc.report import KERNELS
from dslc.search.candidates.candidate import Candidate
from dslc.semantics.library import Rules

LEAST = 0.02  #: share of what it was made of that a graph takes at least, by prediction


#: what became of kernels that a compiler made
_BUILT = (WhyUnused.DIFFERS, WhyUnused.SLOWER, WhyUnused.NOT_RUN)


@record
class Fusions:
    """A search for kernels.

    The model's opset, the sizes at which it is measured, the clock of the run, and the templates of lowerings.
    """

    rules: Rules
    costs: CostModel
    opset: int
    sizes: Mapping[str, int]
    templates: Templates | None = None
    strict: bool = False
    #: where it began by now, and where there was no time for all of it
    begun: dict[Candidate, Fusing] = field(default_factory=dict)
    unfinished: set[Candidate] = field(default_factory=set)

    def of(self, base: Candidate, until: Deadline, hurried: bool = False) -> tuple[list[Candidate], Fused]:
        """A candidate with some of its nodes as kernels, the best by prediction first, and the story.

        Asked again about one for which there was no time, it goes on there. `hurried`: kernels are tried at once, at guessed prices.
        """
        begun = self.begun.get(base)
        if not begun:
            begun = self.begun[base] = Fusing(
                base.graph, self.rules, self.costs, self.opset, until, dict(self.sizes), None,
                FUSED_KERNELS, self.templates, self.strict, hurried,
            )  # fmt: skip
            found = begun.run()
        else:
            found = begun.again(until)
        (self.unfinished.add if found.story.late else self.unfinished.discard)(base)
        saved = {name(kept.tried.program): kept.saving for kept in found.story.kept}
        taken = {name(kept.tried.program): kept.tried.kernel * kept.places for kept in found.story.kept}
        made = []
        for graph in found.graphs:
            programs = list(kernels(graph))
            gain = self.costs.share * sum(saved.get(name(program), 0.0) for program in programs)
            facts = tuple(fact_of_kernel(program) for program in programs)
            # what their nodes take by themselves may be more than the whole graph takes
            least = sum(taken.get(name(program), 0.0) for program in programs)
            cost = max(base.cost - gain, min(least, base.cost), LEAST * base.cost)
            made.append(Candidate(graph, cost, base, KERNELS, len(programs), facts, {**base.kernels, **found.texts}))
        return made, found

    def prepare(self, ahead: BackgroundCompiler) -> None:
        """Have other variants of the kernels that were tried compiled in the time of others."""
        for fusing in self.begun.values():
            fusing.trials.prepare(ahead)


def name(program: Graph) -> int:
    """Equal programs are equal here."""
    return hash((program.inputs, program.outputs))


def fact_of_kernel(program: Graph) -> Fact:
    """A kernel means its program: `old` are the nodes, `new` is the kernel, over the same holes."""
    return Fact(KERNELS, program, Graph(program.inputs, kernel_value(program, program.inputs)))


def kernel_facts(program: Graph, leaves: Sequence[Value]) -> Iterator[tuple[Fact, Values]]:
    """Yield a fact for each kernel of a program over some leaves."""
    given = dict(zip(program.inputs, leaves, strict=True))
    for node in program.nodes():
        if isinstance(node, Kernel):
            yield fact_of_kernel(node.group), replace(unfold(Graph(program.inputs, node.args)).outputs, given)


def describe_kernel(rules: Rules, tried: TunedKernel, places: int) -> str:
    """A line of a report about a kernel in so many places: its nodes, and what was measured."""
    words = " + ".join(node.op.rpartition(".")[2] for node in calls_of(*tried.program.outputs))
    how = "" if places == 1 else f", in {places} places"
    how += f", by the template of {tried.lowering}" if tried.lowering else ""
    was, now = tried.nodes * 1e3, tried.kernel * 1e3
    form = tried.variant.form if tried.variant else ""
    how += f", by {form}" if form else ""
    line = f"kernel {tried.name}: {words}{how}: {now:.4g} ms instead of {was:.4g} ms by itself"
    stated = stated_error(rules, form)
    if stated is not None:
        line += f", off by {tried.error:.2g} of the largest element ({stated:g} is what the rule says)"
    return line


def unbuilt(found: Fused) -> str:
    """The reason why a compiler made none of the kernels; empty where it made one, or was not asked."""
    dropped = found.story.dropped
    failed = [one for one in dropped if one.why is WhyUnused.NOT_BUILT]
    if not failed or found.story.kept or any(one.why in _BUILT for one in dropped):
        return ""
    return f"no kernels: {failed[0].detail}"
