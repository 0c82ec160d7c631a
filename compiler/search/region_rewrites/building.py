"""Programs as they run: scopes and what is next to them as kernels, operators in the fastest of their forms, estimated or measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import TypeVar

from dslc.codegen.host.library import Library
from dslc.cost.groups import Group
from dslc.cost.model import CostModel
from dslc.deadline import FOREVER, Deadline, TimeUp
from dslc.fuse.autotune import MARGIN, Autotuner, Dropped, TunedKernel, WhyUnused
from dslc.fuse.estimate import EVERYDAY, Speeds, machine, seconds_of
from dslc.fuse.groups import Neighbours, NodeGroup
from dslc.fuse.kernels import Cyclic, fold_of, folded
from dslc.fuse.offers import form_estimates
from dslc.fuse.profile import Profiles, Reach
from dslc.fuse.timings import KernelForm, Subject
from dslc.ir.facts import Fact
from dslc.ir.graph import Call, Graph, Input, Kernel, Node, ScopeNode, Value, Values, nodes_of
from dslc.ir.holes import abstracted
from dslc.ir.scalar import Read
from dslc.match.forms import forms, has_form
from dslc.search.candidates.export import readable
from dslc.search.region_rewrites.fusions import fact_of_kernel
from dslc.search.region_rewrites.region_log import HotRegion, MeasuredRewrite
from dslc.search.region_rewrites.validate import Known, validate
from dslc.semantics.library import Rules

#: part that another form takes of what is estimated for it: its products are those of matrices, of which caches
#: hold both
FORMED = 0.4
SAVED = 5e-5  #: seconds that it is to save: building it takes some
#: times what its operations take at the runtime's best that an operator takes which is measured again, where it
#: alone decides against a program: others had the machine for a while
DOUBTFUL = 1.2
BUILT = 3  #: programs of one region that are built

#: further measurements of what decides
TURNS = ("again", "once more")

T = TypeVar("T")


@dataclass(slots=True)
class Builder:
    """Builds and measures programs until a moment; `sizes` are those of symbolic dimensions, at which is measured.

    A program must be `margin` times as fast as its region; `built` of one region are built. `spent`: seconds of the kernel that
    computes a node by now; `strict`: infinities, NaN and overflows must stay what they are; `library_only`: what is faster with its
    library alone will do; `known` is what was proved in this run.
    """

    rules: Rules
    costs: CostModel
    opset: int
    until: Deadline = FOREVER
    strict: bool = False
    sizes: Mapping[str, int] = field(default_factory=dict)
    machine: Speeds = EVERYDAY
    margin: float = MARGIN
    built: int = BUILT
    spent: Mapping[Node, float] = field(default_factory=dict)
    library_only: bool = False
    known: Known = field(default_factory=dict)
    #: notes of a report
    notes: dict[str, None] = field(init=False, default_factory=dict)
    profiles: Profiles = field(init=False)
    trials: Autotuner = field(init=False)
    #: seconds of operators in another form
    _forms: dict[Graph, float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.profiles = Profiles(self.rules, self.sizes)
        sizes, costs, footprint = self.profiles.sizes, self.costs, self.costs.timer.footprint
        self.trials = Autotuner(
            self.rules, costs.measurer, sizes, self.opset, until=self.until, strict=self.strict, footprint=footprint
        )

    def begin(self) -> None:
        """Measures the machine. Raises TimeUp."""
        self.machine = machine(self.costs.measurer)

    # ---- estimates ---------------------------------------------------------------------------------------------

    def least(self, node: Node) -> float:
        """Seconds that the operations of a sum of products take at the runtime's best.

        0 where that is not known, or many of them are by nothing.
        """
        profile = self.profiles.of(node)
        return 0.0 if not profile or profile.loose else self._operating(node)

    def _operating(self, node: Node) -> float:
        """Seconds of an operator's operations, those by nothing included, at the machine's best; 0 where that is not known."""
        profile = self.profiles.of(node)
        if not profile or self.machine is EVERYDAY or not self.costs.target.measured:
            return 0.0
        return profile.operations / self.machine.peak

    def calls(self, nodes: Sequence[Node], most: float = inf) -> float:
        """Seconds of those nodes that are operators and no weights, each in its fastest form. Raises TimeUp.

        Where their operations alone take longer than `most`, these seconds: nothing is measured. An operator that takes longer as it
        was measured than its operations say is measured once more where it decides.
        """
        own = [node for node in nodes if isinstance(node, Call) and not node.constant]
        least = sum(map(self._operating, own))
        if least > most:
            # another form has fewer operations
            least = sum(min([self._operating(node), *self.forms_of(node)]) for node in own)
        if least > most:
            return least
        found = [min(self.form(node), self.costs.cost(node)) for node in own]
        if most <= sum(found) < inf and DOUBTFUL * least < most:
            for k, node in enumerate(own):
                if self.costs.cost(node) > DOUBTFUL * self._operating(node) > 0:
                    found[k] = min(found[k], self.costs.measure(Group((node,), (node.args,)), TURNS[0]).alone)
        return sum(found)

    def cheapest(
        self, options: Iterable[tuple[Values, T]], most: float, other_forms: bool = False
    ) -> list[tuple[float, T]]:
        """Options whose programs take less than `most` seconds by estimate, with these, the cheapest first. Raises TimeUp.

        `other_forms`: each of their operators has another form.
        """
        worth: list[tuple[float, T]] = []
        for results, option in options:
            nodes = nodes_of(results)
            seconds = self.in_other_forms(nodes) if other_forms else self.calls(nodes, most)
            if seconds * self.margin < most:
                seconds += self.generated(results)
                if seconds * self.margin < most:
                    worth.append((seconds, option))
        return sorted(worth, key=lambda each: each[0])

    def formed(self, region: HotRegion) -> float:
        """Seconds of a region, or of the kernel of another form that its only operator may be."""
        place = region.places[0]
        return region.price if len(place) > 1 else min(region.price, self.form(place[0]))

    def in_other_forms(self, nodes: Sequence[Node]) -> float:
        """Estimated seconds of those nodes that are operators and no weights, each in another form; infinite where one has none."""
        own = [node for node in nodes if isinstance(node, Call) and not node.constant]
        return sum(min(self.forms_of(node), default=inf) for node in own) if own else inf

    def generated(self, results: Sequence[Value]) -> float:
        """Estimated seconds of a program's scopes as kernels; what another scope only looks up is part of that."""
        nodes = [node for node in nodes_of(results) if not node.constant]
        stored = {arg.node for node in nodes if isinstance(node, Call) for arg in node.args} | {
            value.node for value in results
        }
        scopes = [node for node in nodes if isinstance(node, ScopeNode)]
        total = 0.0
        for node in scopes:
            if node in stored or not isinstance(node.scope.body, Read):
                kernel = fact_of_kernel(abstracted(node.values, node.args)[0]).new.outputs[0].node
                assert isinstance(kernel, Kernel)
                total += self.as_kernel(kernel)
        return total

    def as_kernel(self, node: Kernel) -> float:
        """Estimated seconds of a kernel."""
        if not self.costs.target.measured:
            return self.computed(fact_of_kernel(node.group).new)
        return seconds_of(node, self.profiles, self.machine)

    def computed(self, program: Graph) -> float:
        """Seconds of a program by itself, on a target whose times are computed."""
        nodes = tuple(Neighbours(program).nodes)
        return self.costs.target.price(self.costs, Group(nodes, tuple(node.args for node in nodes))).alone

    # ---- forms -------------------------------------------------------------------------------------------------

    def form(self, node: Call) -> float:
        """Seconds of an operator by itself as a kernel of another form (minimal filtering); infinite where none saves any.

        By estimate, until one was measured.
        """
        kernel = fold_of(NodeGroup((node,), node.values)).kernel
        if kernel.group not in self._forms:
            least = min(self.forms_of(node), default=inf)
            self._forms[kernel.group] = least if least + SAVED < self.costs.cost(node) else inf
        return self._forms[kernel.group]

    def forms_of(self, node: Node) -> list[float]:
        """Estimated seconds of each other form that a node's kernel has."""
        kernel = fold_of(NodeGroup((node,), node.values)).kernel
        if not self.costs.target.measured or not has_form(self.rules, kernel.group, self.strict):
            return []
        return [FORMED * each.seconds(self.machine) for each in form_estimates(kernel, self.profiles, self.strict)]

    def _learnt(self, group: Graph, seconds: float) -> bool:
        """Keeps what the kernel of an operator takes that was estimated; False where it is no such kernel, or known to be slower."""
        if not isfinite(self._forms.get(group, inf)):
            return False
        self._forms[group] = seconds
        return True

    # ---- measurements ------------------------------------------------------------------------------------------

    def measured(self, fact: Fact) -> MeasuredRewrite | None:
        """A program that was proved, built and measured; None where that fails. Raises TimeUp."""
        with_kernels = self.with_kernels(fact.new)
        if not with_kernels or any(
            node.constant and not all(value.type.is_static for value in node.values) for node in with_kernels.nodes()
        ):
            # what weights give at unknown sizes cannot be written
            return None
        if not self.costs.target.measured:
            if not all(
                readable(self.rules, one.group, self.opset) for one in with_kernels.nodes() if isinstance(one, Kernel)
            ):
                # a plan of the file would not know what it computes
                return None
            before, after = self.computed(fact.old), self.computed(with_kernels)
            return MeasuredRewrite(fact, with_kernels, (), before, after) if before < inf and after < inf else None
        own = [node for node in with_kernels.nodes() if isinstance(node, Kernel)]
        subjects = {node.group: Subject(node.group, tuple(arg.constant for arg in node.args)) for node in own}
        kernels: list[TunedKernel] = []
        again = False
        for one in self.trials.tried(subjects.values()).values():
            if isinstance(one, TunedKernel):
                kernels.append(one)
                self._learnt(one.program, one.kernel)
            elif one.why is WhyUnused.LATE:
                raise TimeUp
            elif self._learnt(one.program, inf):
                again = True
            elif one.why is not WhyUnused.SLOWER:
                # its nodes will do where they are faster
                return None
        if again:
            return self.measured(fact)
        library = self.trials.library(kernels) if kernels else None
        if kernels and not library:
            return None
        before, after = self.seconds(fact.old, None), self.seconds(with_kernels, library)
        if before == inf or after == inf:
            return None
        spelled = {one.program: one.nodes - one.kernel for one in kernels}
        bare = after + sum(spelled.get(node.group, 0.0) for node in own)
        return MeasuredRewrite(fact, with_kernels, tuple(kernels), before, after, bare=bare)

    def one_kernel(self, fact: Fact) -> MeasuredRewrite | None:
        """A program as another form of the kernel of its nodes, in the first form that its operators have. Raises TimeUp.

        None where that is no kernel.
        """
        if not self.costs.target.measured:
            return None
        named = ((f"{name} of {fact.rule}", program) for name, program in forms(self.rules, fact.new, self.strict))
        form = KernelForm(*next(named, (fact.rule, fact.new)))
        whole = fact_of_kernel(fact.old).new
        subject = Subject(fact.old, tuple(value.constant for value in whole.inputs), form)
        found = self.trials.tried([subject]).get(fact.old)
        if isinstance(found, Dropped) and found.why is WhyUnused.LATE:
            raise TimeUp
        if not isinstance(found, TunedKernel) or not isinstance(whole.outputs[0].node, Kernel):
            return None
        return MeasuredRewrite(fact, whole, (found,), found.nodes, found.kernel, whole=True)

    def is_proved(self, fact: Fact) -> bool:
        """Return whether a fact is proved by the exact prover."""
        return validate(self.rules, [fact], known=self.known).how.get(fact.rule) == "exact"

    def seconds(self, program: Graph, library: Library | None) -> float:
        """Seconds of a program by itself, weights and what is computed of them aside. Raises TimeUp."""
        running = [node for node in program.nodes() if not node.constant]
        ends = dict.fromkeys(arg for node in running for arg in node.args if arg.constant)
        inputs = [value for value in program.inputs if not value.constant]
        # one number is part of the model, unless it is a hole
        stored = [
            value for value in ends if isinstance(value.node, Input) or not value.known or value.type.elements > 1
        ]
        whole, leaves = abstracted(program.outputs, [*inputs, *stored])
        weights = tuple(leaf.constant for leaf in leaves)
        return min(self.trials.whole(whole, weights, library, turn) for turn in ("", *TURNS))

    def with_kernels(self, program: Graph) -> Graph | None:
        """The program with each connected group of scopes, and of pointwise nodes next to them, as one kernel.

        Operators that are faster so are kernels of another form.
        """
        around = Neighbours(program)
        inside = [node for node in around.nodes if isinstance(node, ScopeNode) or self.is_pointwise(node)]
        parts = [part for part in around.connected(inside) if any(isinstance(node, ScopeNode) for node in part)]
        parts += [
            [node]
            for node in around.nodes
            if isinstance(node, Call) and not node.constant and isfinite(self.form(node))
        ]
        try:
            return folded(program, [around.group(part) for part in parts])
        except Cyclic:
            return None

    def is_pointwise(self, node: Node) -> bool:
        """Return whether a node computes each element of its result of one of each operand."""
        profile = self.profiles.of(node) if isinstance(node, Call) and len(node.types) == 1 else None
        return profile is not None and all(reach is Reach.OWN for reach in profile.reach)
