"""From a graph to a plan: views cost nothing, what a lowering says is a vendor's call, and groups of the rest are generated kernels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from enum import Enum
from math import prod

from dslc.cost.targets import NoPlan
from dslc.cuda.cpu_parts import Hosted, opaque
from dslc.cuda.devices import Device
from dslc.cuda.grouping import Grouping, turnable
from dslc.cuda.memory import assembled
from dslc.cuda.plan import Buffer, BufferPlace, CallStep, HostStep, KernelStep, Plan, PlanStep
from dslc.cuda.programs import as_kernel, lifted, view_of_node
from dslc.cuda.vendor_calls import RESULT, Calls, TakenCall
from dslc.cuda.views import StridedView, plain
from dslc.fuse.estimate import estimate
from dslc.fuse.groups import Neighbours, NodeGroup
from dslc.fuse.kernels import fold_of, unfold
from dslc.fuse.profile import Profiles
from dslc.ir.constants import number_of
from dslc.ir.dtype import TensorType
from dslc.ir.graph import (
    Graph,
    Input,
    Kernel,
    Node,
    Opaque,
    Scope,
    Value,
    Values,
    input_value,
    kernel_value,
    replace,
    scope_value,
    unfolded,
    with_args,
)
from dslc.ir.scalar import read, traversal
from dslc.onnx.functions import definition_of
from dslc.records import record
from dslc.semantics.library import Rules, rules_cache
from dslc.semantics.vendor import function_named

#: what kernels are called until their text says what they are
_NAMELESS = "kernel"


class WhyUnplanned(Enum):
    """Reason why there is no plan for a graph."""

    OPAQUE = "a node that dslc does not know, which only ONNX Runtime can run"
    SIZES = "sizes that are not known; bind them"
    KERNEL = "a node that no vendor's call computes, and that no kernel is generated for"
    TYPE = "a tensor of a type that no device computes with, or of unknown sizes"
    EMPTY = "a graph that computes nothing"


class NotPlanned(NoPlan):
    """A graph without a plan: why, and which node."""

    def __init__(self, why: WhyUnplanned, detail: str = "") -> None:
        super().__init__(f"{why.value}{f' ({detail})' if detail else ''}")
        self.why, self.detail = why, detail


@record
class Wants:
    """A kernel: bytes of each piece of scratch memory, and its estimated seconds, where known.

    `lowering`: the lowering of its template, empty where it is generated.
    """

    scratch: tuple[int, ...] = ()
    seconds: float | None = None
    lowering: str = ""


#: what is generated for a group; None: nothing is
Generable = Callable[[Graph], "Wants | None"]
#: groups of a graph that a library may have written a kernel for
Places = Callable[[Graph, Neighbours], Iterable[NodeGroup]]


def every_kernel(_: Graph) -> Wants | None:
    """Kernels that need no code: whoever runs the plan interprets them."""
    return Wants()


def nowhere(_graph: Graph, _around: Neighbours) -> Iterable[NodeGroup]:
    """No library wrote a kernel."""
    return ()


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A plan, the programs of its kernels by name, and its weights by the names of their buffers."""

    plan: Plan
    programs: Mapping[str, Graph]
    weights: Mapping[str, tuple[Value, StridedView]]
    #: models of the parts that ONNX Runtime runs on the CPU, by the names of their steps
    hosts: Mapping[str, bytes] = field(default_factory=dict)
    #: programs that a library may have written a kernel for
    tried: tuple[Graph, ...] = ()


def planned(
    rules: Rules, graph: Graph, device: Device, *, names: Sequence[str] = (), outputs: Sequence[str] = (),
    generable: Generable = every_kernel, hosted: Hosted | None = None, written: Places = nowhere,
) -> Planned:  # fmt: skip
    """A plan for a graph whose sizes are known.

    Args:
        names, outputs: of the graph's inputs and outputs, in order; by default `x0`, ... and `y0`, ...
        generable: which groups there are kernels for.
        written: groups that a library may have written a kernel for, which `generable` then takes where it is the best one.
        hosted: models of what neither a call nor a kernel computes, which ONNX Runtime then runs on the CPU; None: there are none.

    Raises:
        NotPlanned: with the reason.
    """
    # which nodes run together is another matter here than where the file was written
    graph = unfold(graph)
    used = {arg for node in graph.nodes() for arg in node.args} | set(graph.outputs)
    for node in graph.nodes():
        if isinstance(node, Opaque) and (
            hosted is None or any(value in used and not value.known for value in node.values)
        ):
            raise NotPlanned(WhyUnplanned.OPAQUE, node.label)
        if not all(
            value.known and value.type.is_static
            for value in node.values
            if value in used or not isinstance(node, Opaque)
        ):
            raise NotPlanned(WhyUnplanned.SIZES)
    if not graph.outputs:
        raise NotPlanned(WhyUnplanned.EMPTY)
    names = names or [f"x{k}" for k in range(len(graph.inputs))]
    outputs = outputs or [f"y{k}" for k in range(len(graph.outputs))]
    return _Planner(rules, graph, device, names, outputs, generable, hosted, written).run()


@dataclass(eq=False)
class _Planner:
    rules: Rules
    graph: Graph
    device: Device
    names: Sequence[str]
    outputs: Sequence[str]
    generable: Generable
    hosted: Hosted | None
    written: Places

    def __post_init__(self) -> None:
        self.tried: list[Graph] = []
        self.hosts: dict[str, bytes] = {}
        self.profiles = Profiles(self.rules)
        self.calls = Calls(self.rules, self.device)
        self.buffers: list[Buffer] = []
        self.where: dict[Value, StridedView] = {}
        self.drafts: list[PlanStep] = []
        #: what parts on the CPU compute, of what, by the numbers of their steps
        self.parts: dict[int, tuple[Values, Values]] = {}
        self.names_of: dict[Graph, str] = {}
        self.kernels: dict[str, str] = {}
        self.weights: dict[str, tuple[Value, StridedView]] = {}
        self.known: dict[Graph, Wants | None] = {}
        self.around = Neighbours(self.graph)

    # ---- what runs as one ---------------------------------------------------------------------------------------------

    def run(self) -> Planned:
        for value, name in zip(self.graph.inputs, self.names, strict=True):
            number = self._buffer(value.type.bytes, BufferPlace.INPUT, name)
            self.where[value] = plain(number, value.type.dtype, value.type.sizes)
        own = [group for group in self.written(self.graph, self.around) if self._is_written(group)]
        grouping = Grouping(self.rules, self.graph, self.device, self.calls, self.profiles, self._wants)
        graph = grouping.grouped(own)
        self.around = Neighbours(graph)
        for node in graph.nodes():
            if isinstance(node, Input) or node.constant:
                continue
            self._one(node)
        ends = tuple((name, self._end(value)) for name, value in zip(self.outputs, graph.outputs, strict=True))
        self._settle({view.buffer for _, view in ends})
        inputs = tuple((name, self.where[value]) for name, value in zip(self.names, self.graph.inputs, strict=True))
        plan = assembled(self.device.name, self.drafts, self.buffers, inputs, ends, tuple(sorted(self.kernels.items())))
        programs = {name: program for program, name in self.names_of.items()}
        return Planned(plan, programs, self.weights, self.hosts, tuple(self.tried))

    # ---- one node after the other -------------------------------------------------------------------------------------

    def _one(self, node: Node) -> None:
        if isinstance(node, Opaque):
            self._host(tuple(value for value in node.values if value.known), node.args)
            return
        if isinstance(node, Kernel) and opaque(node.group):
            values = unfolded(node)
            self._host(values, node.args)
            self.where.update((value, self.where[made]) for value, made in zip(node.values, values, strict=True))
            return
        seen = view_of_node(self.rules, node, self.where)
        if seen:
            self.where[Value(node)] = seen
            return
        if all(prod(value.type.sizes) == 0 for value in node.values):
            for value in node.values:
                self.where[value] = self._new(value.type)
            return
        if len(node.types) == 1 and self._call(node):
            return
        self._kernel(node, as_kernel(node))

    def _call(self, node: Node) -> bool:
        """Takes a vendor's call for a node, where a lowering says so; operands that no call takes are copied into order first."""
        kernel, turns = as_kernel(node), turnable(self.rules, self.around, Value(node))
        views = [plain(-1, arg.type.dtype, arg.type.sizes) if arg.constant else self.where[arg] for arg in kernel.args]
        taken = self.calls.best(kernel, views, turns)
        if not taken:
            ordered = [plain(view.buffer, view.dtype, view.shape) for view in views]
            # nothing is copied for a call that does not take it then
            if self.calls.best(kernel, ordered, turns):
                views = [view if view.plain else self._copied(kernel.args[k]) for k, view in enumerate(views)]
                taken = self.calls.best(kernel, views, turns)
        if taken:
            self._take(node, kernel, views, taken)
        return taken is not None

    def _take(self, node: Node, kernel: Kernel, views: Sequence[StridedView], taken: TakenCall) -> None:
        one = taken.found
        made = self._new(Value(node).type)
        self.where[Value(node)] = StridedView(made.buffer, made.dtype, taken.result.shape, taken.result.strides)
        kernel = lifted(kernel) if taken.whole else kernel
        buffers = {RESULT: made.buffer}
        for k, (arg, view) in enumerate(zip(kernel.args, taken.operands, strict=True)):
            buffers[RESULT - 1 - k] = self._weight(arg, view).buffer if arg.constant else views[k].buffer
        function = function_named(one.function)
        written = (function.result,) if function else ()
        rule = f"{one.rule}: {_words(kernel.group)}" + (f", priced with {taken.algorithm}" if taken.algorithm else "")
        for arguments in one.calls():
            own = tuple(
                (name, replaced(v, buffer=buffers[v.buffer]) if isinstance(v, StridedView) else v)
                for name, v in arguments
            )
            wanted = function.workspace if function else 0
            scratch = (self._buffer(wanted),) if wanted else ()
            seconds = taken.seconds / len(one.moves)
            self.drafts.append(CallStep.of(rule, one.function, own, written, scratch, seconds))

    # ---- kernels ------------------------------------------------------------------------------------------------------

    def _is_written(self, group: NodeGroup) -> bool:
        program = fold_of(group).kernel.group
        self.tried.append(program)
        wants = self._wants(program)
        return wants is not None and wants.lowering != ""

    def _wants(self, program: Graph) -> Wants | None:
        if program not in self.known:
            self.known[program] = self.generable(program)
        return self.known[program]

    def _kernel(self, node: Node, kernel: Kernel) -> None:
        """A kernel for a node, which reads what lies in order: views are looked at by the kernel itself."""
        values = (
            dict(zip(fold_of(NodeGroup((node,), node.values)).old, kernel.values, strict=True))
            if kernel is not node
            else {}
        )
        kernel = self._over_plain(kernel)
        wants = self._wants(kernel.group)
        if not wants:
            self._split(node, kernel)
            return
        outs = self._emit(kernel, wants)
        for value in node.values:
            made = values.get(value)
            self.where[value] = outs[made.index if made else value.index]

    def _split(self, node: Node, kernel: Kernel) -> None:
        """A group that no kernel is generated for, node by node."""
        inner = [one for one in kernel.group.nodes() if not isinstance(one, Input) and not one.constant]
        if len(inner) < 2:
            if self.hosted is None:
                raise NotPlanned(WhyUnplanned.KERNEL, _words(kernel.group))
            values = replace(kernel.group.outputs, dict(zip(kernel.group.inputs, kernel.args, strict=True)))
            self._host(values, kernel.args)
            for value, made in zip(node.values, values, strict=True):
                self.where[value] = self.where[made]
            return
        new = dict(zip(kernel.group.inputs, kernel.args, strict=True))
        for one in inner:
            own = with_args(one, tuple(new.get(arg, arg) for arg in one.args))
            new.update(zip(one.values, own, strict=True))
            if own[0] not in self.where:
                self._one(own[0].node)
        for value, out in zip(node.values, kernel.group.outputs, strict=True):
            self.where[value] = self.where[new[out]]

    # ---- the CPU ------------------------------------------------------------------------------------------------------

    def _host(self, values: Values, args: Sequence[Value]) -> None:
        """A part for the CPU; together with the one before it, where nothing is between them."""
        inputs = tuple(dict.fromkeys(arg for arg in args if not arg.constant))
        outputs, writes = values, tuple(self._new(value.type) for value in values)
        before = self.parts.pop(len(self.drafts) - 1, None)
        if before is not None:
            last = self.drafts.pop()
            own = {view.buffer for view in last.writes}
            # what is only looked at between the two is computed by the CPU as well
            new = tuple(arg for arg in inputs if arg not in before[1] and self.where[arg].buffer not in own)
            inputs, outputs, writes = (*before[1], *new), (*before[0], *values), (*last.writes, *writes)
        self.where.update(zip(outputs, writes, strict=True))
        rule = f"ONNX Runtime: {_words(Graph(inputs, _above(outputs, inputs)))}"
        self.parts[len(self.drafts)] = outputs, inputs
        self.drafts.append(HostStep(rule, "", tuple(self.where[arg] for arg in inputs), writes, (), 0.0))

    def _settle(self, kept: set[int]) -> None:
        """Make models of the parts for the CPU, without unread results, with their times."""
        for k, (values, inputs) in self.parts.items():
            draft = self.drafts[k]
            read = kept.union(*({view.buffer for view in one.reads} for one in self.drafts if one is not draft))
            wanted = [(value, view) for value, view in zip(values, draft.writes, strict=True) if view.buffer in read]
            model = self.hosted([value for value, _ in wanted], inputs) if self.hosted is not None else None
            if model is None:
                raise NotPlanned(WhyUnplanned.OPAQUE, draft.rule)
            name, writes = f"host{k}", tuple(view for _, view in wanted)
            self.hosts[name] = model
            seconds = self.device.host(*(sum(view.bytes for view in views) for views in (draft.reads, writes)))
            self.drafts[k] = replaced(draft, name=name, writes=writes, seconds=seconds)

    def _over_plain(self, kernel: Kernel) -> Kernel:
        """A kernel over arguments in row-major order: those that are views are computed in it from what they look at."""
        new = {arg: self._to_plain(arg) for arg in kernel.args}
        if all(new[arg] is arg for arg in kernel.args):
            return kernel
        outputs = replace(
            kernel.group.outputs, {hole: new[arg] for hole, arg in zip(kernel.group.inputs, kernel.args, strict=True)}
        )
        return self._closed(outputs)

    def _to_plain(self, arg: Value) -> Value:
        """A value as an expression of values that lie in row-major order."""
        if arg.constant or self.where[arg].plain:
            return arg
        node = arg.node
        if isinstance(node, Kernel) or not view_of_node(self.rules, node, self.where):
            # a call's result in another order: its axes as they lie, and back
            view = self.where[arg]
            order = sorted(range(len(view.shape)), key=lambda k: (-view.strides[k], k))
            type = TensorType(view.dtype, tuple(view.shape[k] for k in order))
            lies = input_value(f"lies{len(self.where)}", type)
            self.where[lies] = plain(view.buffer, view.dtype, type.sizes)
            index = tuple(traversal(k) for k in order)
            return scope_value(Scope(view.shape, read(0, index), view.dtype), (lies,))
        return with_args(node, tuple(self._to_plain(one) for one in node.args))[0]

    def _closed(self, outputs: Values) -> Kernel:
        """Values as a kernel over what has a place already."""
        holes: dict[Value, Value] = {}
        stack, seen = list(reversed(outputs)), set[Value]()
        while stack:
            value = stack.pop()
            if value in seen:
                continue
            seen.add(value)
            there = number_of(value) is None if value.constant else value in self.where and self.where[value].plain
            if there:
                holes[value] = input_value(f"h{len(holes)}", value.type)
            elif not value.constant:
                stack.extend(reversed(value.node.args))
        node = kernel_value(Graph(tuple(holes.values()), replace(outputs, holes)), tuple(holes))[0].node
        assert isinstance(node, Kernel)
        return node

    def _emit(self, kernel: Kernel, wants: Wants) -> list[StridedView]:
        reads = tuple(self._operand(arg) for arg in kernel.args)
        outs = [self._new(value.type) for value in kernel.values]
        held = tuple(map(self._buffer, wants.scratch))
        name = self._named(kernel.group)
        seconds = wants.seconds
        if seconds is None:
            work = estimate(kernel, self.profiles)
            seconds = self.device.kernel(work.operations, work.bytes, outs[0].dtype, max(1, work.rounds))
        by = f", by the template of {wants.lowering}" if wants.lowering else ""
        self.drafts.append(KernelStep(f"kernel: {_words(kernel.group)}{by}", name, reads, tuple(outs), held, seconds))
        return outs

    def _named(self, program: Graph) -> str:
        if program not in self.names_of:
            known: dict[Graph, str] = rules_cache(self.rules, "definitions of kernels")
            text = known.get(program) or known.setdefault(program, definition_of(self.rules, _NAMELESS, program))
            name = "k_" + hashlib.sha256(text.encode()).hexdigest()[:12]
            while name in self.kernels:
                # the language cannot say all of either
                name += "_"
            self.names_of[program] = name
            self.kernels[name] = text.replace(f"operator {_NAMELESS}(", f"operator {name}(", 1)
        return self.names_of[program]

    def _copied(self, arg: Value) -> StridedView:
        """A view copied into row-major order."""
        whole = self._to_plain(arg)
        kernel = self._closed((whole,))
        wants = self._wants(kernel.group)
        if not wants:
            raise NotPlanned(WhyUnplanned.KERNEL, _words(kernel.group))
        return self._emit(kernel, wants)[0]

    def _end(self, value: Value) -> StridedView:
        """Place of a model output, in row-major order."""
        if value.constant:
            return self._operand(value)
        view = self.where[value]
        return view if view.plain else self._copied(value)

    # ---- buffers ------------------------------------------------------------------------------------------------------

    def _operand(self, value: Value) -> StridedView:
        if value.constant:
            return self._weight(value, plain(-1, value.type.dtype, value.type.sizes))
        return self.where[value]

    def _weight(self, value: Value, view: StridedView) -> StridedView:
        """The buffer of a weight in some layout."""
        for known, own in self.weights.values():
            if known == value and own.strides == view.strides and own.shape == view.shape:
                return own
        name = f"w{len(self.weights)}"
        number = self._buffer(value.type.bytes, BufferPlace.WEIGHT, name)
        made = StridedView(number, view.dtype, view.shape, view.strides)
        self.weights[name] = (value, made)
        return made

    def _buffer(self, bytes: int, place: BufferPlace = BufferPlace.SHARED, name: str = "") -> int:
        """The number of a new buffer."""
        self.buffers.append(Buffer(place, bytes, name))
        return len(self.buffers) - 1

    def _new(self, type: TensorType) -> StridedView:
        return plain(self._buffer(type.bytes), type.dtype, type.sizes)


def _above(outputs: Values, inputs: Values) -> Values:
    """Values over holes in the place of others."""
    return replace(outputs, {value: input_value(f"h{k}", value.type) for k, value in enumerate(inputs)})


def _words(program: Graph) -> str:
    """A program as the names of its operators, for people."""
    nodes = [node for node in program.nodes() if not isinstance(node, Input) and not node.constant]
    words = [getattr(node, "op", "") or getattr(node, "label", type(node).__name__) for node in nodes]
    return " + ".join(word.rpartition(".")[2] for word in words[:8]) + (" + ..." if len(words) > 8 else "")
