"""Findings of a run, measured to be faster, as facts over holes: moves and unions of every strategy, in whatever graph they fit.

Kernels, derived programs and corrected mutants are each found in some candidate. Their facts hold wherever their programs stand, so
those of different sources, and the rules, meet in one program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields

from dslc.cost.groups import Group
from dslc.cost.model import CostModel
from dslc.fuse.autotune import TunedKernel
from dslc.fuse.kernels import kernels
from dslc.ir.facts import Fact
from dslc.ir.graph import Graph, Kernel, Node, Value, Values, rebuild, with_args
from dslc.ir.holes import instantiated
from dslc.ir.places import places_of
from dslc.report import KERNELS
from dslc.search.candidates.candidate import Candidate, Limits, Progress, disjoint, least_gain, rewritten
from dslc.search.region_rewrites.fusions import describe_kernel, fact_of_kernel, kernel_facts
from dslc.search.region_rewrites.region_log import MeasuredRewrite


def places_in(graph: Graph, one: MeasuredRewrite) -> Iterator[tuple[Values, dict[Value, Value]]]:
    """The places of its old program in a graph: values of its holes, and what may stand for which values there."""
    for holes, values in places_of(one.fact.old, graph):
        if tuple(value.constant for value in holes) == _weights(one):
            new = dict(zip(values, instantiated(one.program, holes), strict=True))
            if any(old != value for old, value in new.items()):
                yield holes, new


def _weights(one: MeasuredRewrite) -> tuple[bool, ...]:
    """Return which holes must stand for weights; the others must not."""
    return tuple(hole.constant for hole in one.fact.old.inputs) if one.weights is None else one.weights


def fused(tried: TunedKernel, graph: Graph) -> Iterator[MeasuredRewrite]:
    """A kernel of a graph, for each pattern of weights in which it stands there."""
    fact = fact_of_kernel(tried.program)
    own = [node for node in graph.nodes() if isinstance(node, Kernel) and node.group == tried.program]
    for weights in dict.fromkeys(tuple(arg.constant for arg in node.args) for node in own):
        yield MeasuredRewrite(fact, fact.new, (tried,), tried.nodes, tried.kernel, weights=weights)


@dataclass(slots=True)
class FindingStore:
    """All findings of a run: of each program the fastest few."""

    #: programs that are kept in the place of one
    most: int = 3
    by_program: dict[tuple[Graph, tuple[bool, ...]], list[MeasuredRewrite]] = field(default_factory=dict)
    #: grows with every finding
    count: int = 0

    def add(self, one: MeasuredRewrite) -> None:
        """Keeps one more, unless its program is known."""
        own = self.by_program.setdefault((one.fact.old, _weights(one)), [])
        if one.saving > 0 and not any(each.program == one.program and each.after <= one.after for each in own):
            own[:] = sorted([*(each for each in own if each.program != one.program), one], key=lambda each: each.after)[
                : self.most
            ]
            self.count += one in own

    def all(self) -> list[MeasuredRewrite]:
        """The ones that save most by themselves first."""
        return sorted((one for own in self.by_program.values() for one in own), key=lambda one: -one.saving)

    def fitting(self, graph: Graph) -> tuple[MeasuredRewrite, ...]:
        """Findings that fit somewhere in a graph."""
        return tuple(one for one in self.all() if next(places_in(graph, one), None) is not None)

    def saving(self, graph: Graph) -> float:
        """Seconds that all of them save together, where each node is part of one of them at most."""
        own: set[Node] = set()
        saved = 0.0
        for one in self.all():
            for holes, new in places_in(graph, one):
                region = _between(new, holes)
                if not region & own:
                    own |= region
                    saved += one.saving
        return saved


@dataclass(slots=True, eq=False)
class Findings:
    """Findings as a source; what their kernels take is known to the costs wherever one of them is placed."""

    found: tuple[MeasuredRewrite, ...]
    costs: CostModel

    def facts(self, graph: Graph) -> Iterator[tuple[Fact, Values]]:
        """Yield the facts that each finding rests on, at each of its places."""
        for one, holes, _ in self.moves(graph):
            yield one.fact, holes
            if one.fact.new != one.program:
                yield from kernel_facts(one.program, holes)

    def moves(self, graph: Graph) -> Iterator[tuple[MeasuredRewrite, Values, dict[Value, Value]]]:
        """Each finding at each of its places: the values of its holes, and what may stand for which values."""
        for one in self.found:
            for holes, new in places_in(graph, one):
                self._tell_costs(one, holes)
                yield one, holes, new

    def with_texts(self, candidate: Candidate) -> Candidate:
        """A candidate with the C++ of its kernels, of two for one kernel the faster one."""
        there = set(kernels(candidate.graph))
        best: dict[str, TunedKernel] = {}
        for each in (tried for one in self.found for tried in one.kernels):
            known = best.get(each.name)
            if each.program in there and (not known or each.kernel < known.kernel):
                best[each.name] = each
        texts = {name: each.text for name, each in best.items()}
        return replace_fields(candidate, kernels={**candidate.kernels, **texts}) if texts else candidate

    def describe(self, step: Candidate) -> list[str]:
        """Lines of a report about the findings that a step rests on."""
        return [
            describe_kernel(self.costs.rules, one.kernels[0], step.count)
            if one.fact.rule == KERNELS
            else one.describe("derived by ")
            for one in self.found
            if one.fact in step.facts
        ]

    def _tell_costs(self, one: MeasuredRewrite, holes: Sequence[Value]) -> None:
        """Has the costs know what its kernels take where it is placed."""
        seconds = {each.program: each.kernel for each in one.kernels}
        memo: dict[Node, Sequence[Value]] = {}
        rebuild(one.program.outputs, with_args, dict(zip(one.program.inputs, holes, strict=True)), memo)
        for node, values in memo.items():
            # what was slower as a kernel runs as its nodes, and costs what they cost
            if isinstance(node, Kernel) and node.group in seconds:
                made = values[0].node
                self.costs.tell(Group((made,), (made.args,)), seconds[node.group])


def _between(values: Iterable[Value], holes: Iterable[Value]) -> set[Node]:
    """The nodes from values down to what the holes stand for."""
    ends, found = set(holes), set[Node]()
    stack = [value for value in values if value not in ends]
    while stack:
        node = stack.pop().node
        if node not in found:
            found.add(node)
            stack += [arg for arg in node.args if arg not in ends and not arg.constant]
    return found


def gathered(
    start: Candidate, findings: Findings, costs: CostModel, limits: Limits, on_best: Progress = lambda _: None
) -> Candidate:
    """A candidate with everything that was found and gains, wherever it fits: what gains most first, and no node twice."""
    at, more = start, True
    while more and not limits.over:
        more = False
        evaluation = costs.evaluate(at.graph)
        worth: dict[MeasuredRewrite, list[tuple[float, dict[Value, Value]]]] = {}
        for one, _, new in findings.moves(at.graph):
            if not limits.step():
                break
            gain = evaluation.cost - evaluation.after(new)[0]
            if gain > least_gain(evaluation.cost):
                worth.setdefault(one, []).append((gain, new))
        for one in sorted(worth, key=lambda one: -sum(gain for gain, _ in worth[one])):
            found = taken(at, one, [new for _, new in worth[one]], costs)
            if found.cost < at.cost - least_gain(at.cost):
                limits.on_built(found)
                on_best(found)
                at, more = found, True
                break
    return at


def taken(
    base: Candidate, one: MeasuredRewrite, places: Sequence[Mapping[Value, Value]], costs: CostModel
) -> Candidate:
    """A candidate with a finding at some places, as one step."""
    graph = rewritten(base.graph, disjoint(places))
    texts = {each.name: each.text for each in one.kernels}
    return Candidate(
        graph, costs.graph_cost(graph), base, one.fact.rule, len(places), one.facts, {**base.kernels, **texts}
    )
