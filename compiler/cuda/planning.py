"""From a graph to a plan: views cost nothing, what a lowering says is a vendor's call, and groups of the rest are generated kernels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from math import prod

from dslc.cuda.devices import Device
from dslc.cuda.matching import Found, found, target_of
from dslc.cuda.memory import Life, placed, turns
from dslc.cuda.patterns import NotRead, Pattern, pattern_of
from dslc.cuda.plan import Buffer, CallStep, KernelStep, Place, Plan, Step
from dslc.cuda.views import View, looked_at, plain, row_major
from dslc.errors import DslcError
from dslc.fuse.estimate import estimate
from dslc.fuse.groups import Group, Limits, Neighbours, proposals
from dslc.fuse.kernels import Cyclic, fold_of, folded
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
    ScopeNode,
    Value,
    input_value,
    kernel_value,
    replace,
    scope_value,
    with_args,
)
from dslc.ir.scalar import Read, Reduce, as_scalar, read, traversal, walk
from dslc.ir.scalar import rebuild as rebuild_scalar
from dslc.ir.scopes import inline
from dslc.onnx.definitions import definition_of
from dslc.semantics.apply import rules_cache
from dslc.semantics.elaborate import expand, expand_node
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules, load
from dslc.semantics.vendor import function_named
from dslc.syntax import tree as t

#: the library with the lowerings of all targets, and the device of this one there
_LIBRARY, _ON = "targets", "cuda"
#: nodes behind a product that may be computed with it
_EPILOGUE = 3
#: operands of which several layouts are tried
_LAYOUTS = 2


class Why(Enum):
    """Why there is no plan for a graph."""

    OPAQUE = "a node that dslc does not know, which only ONNX Runtime can run"
    SIZES = "sizes that are not known; bind them"
    KERNEL = "a node that no vendor's call computes, and that no kernel is generated for"
    EMPTY = "a graph that computes nothing"


class NotPlanned(Exception):
    """A graph without a plan: why, and which node."""

    def __init__(self, why: Why, detail: str = "") -> None:
        super().__init__(f"{why.value}{f' ({detail})' if detail else ''}")
        self.why, self.detail = why, detail


#: whether a kernel is generated for a group, and the bytes of each piece of memory that it wants meanwhile; None: it is not
Generable = Callable[[Graph], "tuple[int, ...] | None"]


def every_kernel(_: Graph) -> tuple[int, ...] | None:
    """Kernels that need no code: whoever runs the plan interprets them."""
    return ()


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A plan, the programs of its kernels by name, and its weights by the names of their buffers."""

    plan: Plan
    programs: Mapping[str, Graph]
    weights: Mapping[str, tuple[Value, View]]


def planned(
    rules: Rules, graph: Graph, device: Device, *, names: Sequence[str] = (), outputs: Sequence[str] = (),
    generable: Generable = every_kernel,
) -> Planned:  # fmt: skip
    """A plan for a graph whose sizes are known.

    Args:
        names, outputs: of the graph's inputs and outputs, in order; by default `x0`, ... and `y0`, ...
        generable: which groups there are kernels for.

    Raises:
        NotPlanned: with the reason.
    """
    for node in graph.nodes():
        if isinstance(node, Opaque):
            raise NotPlanned(Why.OPAQUE, node.label)
        if not all(type is not None and type.is_static for type in node.types):
            raise NotPlanned(Why.SIZES)
    if not graph.outputs:
        raise NotPlanned(Why.EMPTY)
    return _Planner(rules, graph, device, tuple(names), tuple(outputs), generable).run()


def patterns(rules: Rules) -> tuple[Pattern, ...]:
    """The lowerings of expressions with calls on CUDA, of the library of targets and of `rules`, those that compute most first."""
    known: dict[str, tuple[Pattern, ...]] = rules_cache(rules, "calls on cuda")
    if _ON not in known:
        made: dict[str, Pattern] = {}
        for library in (load(_LIBRARY), rules):
            for name, lowering in library.lowerings.items():
                syntax = lowering.syntax
                if syntax.device != _ON or syntax.expr is None or name in made:
                    continue
                if not any(isinstance(one, t.CallVendor) for one in syntax.statements):
                    continue
                try:
                    made[name] = pattern_of(library, lowering)
                except NotRead:
                    continue
        known[_ON] = tuple(made.values())
    return known[_ON]


@dataclass(slots=True)
class _Draft:
    """A step before it has a stream: what it reads and writes are views of buffers."""

    rule: str
    seconds: float
    reads: tuple[View, ...]
    writes: tuple[View, ...]
    scratch: tuple[int, ...]
    call: Found | None = None
    arguments: tuple[tuple[str, object], ...] = ()
    name: str = ""


class _Planner:
    def __init__(
        self, rules: Rules, graph: Graph, device: Device, names: tuple[str, ...], outputs: tuple[str, ...], generable: Generable
    ) -> None:
        self.rules, self.graph, self.device, self.generable = rules, graph, device, generable
        self.names = names or tuple(f"x{k}" for k in range(len(graph.inputs)))
        self.outputs = outputs or tuple(f"y{k}" for k in range(len(graph.outputs)))
        self.profiles = Profiles(rules, {})
        self.patterns = patterns(rules)
        self.buffers: list[Buffer] = []
        self.where: dict[Value, View] = {}
        self.drafts: list[_Draft] = []
        self.programs: dict[str, Graph] = {}
        self.weights: dict[str, tuple[Value, View]] = {}
        self.known: dict[Graph, tuple[int, ...] | None] = {}
        self.around = Neighbours(graph)

    # ---- what runs as one ---------------------------------------------------------------------------------------------

    def run(self) -> Planned:
        for value, name in zip(self.graph.inputs, self.names, strict=True):
            self.where[value] = self._new(value.type, Place.INPUT, name)
        graph = self._grouped()
        self.around = Neighbours(graph)
        for node in graph.nodes():
            if isinstance(node, Input) or node.constant:
                continue
            self._one(node)
        ends = tuple((name, self._end(value)) for name, value in zip(self.outputs, graph.outputs, strict=True))
        return Planned(self._plan(ends), self.programs, self.weights)

    def _grouped(self) -> Graph:
        """The graph with every vendor's call and every group of other nodes as one kernel node."""
        around = Neighbours(self.graph)
        calls = self._calls(around)
        taken = {node for group in calls for node in group.nodes}
        # with groups that share a node, or that depend on each other, there is no order
        groups = list(calls)
        for group in proposals(self.graph, self.rules, Limits(), self.profiles):
            if len(group.nodes) < 2 or not taken.isdisjoint(group.nodes) or all(self._only_looks(node) for node in group.nodes):
                continue
            if self._scratch(fold_of(group).kernel.group) is None:
                continue
            try:
                folded(self.graph, [*groups, group])
            except Cyclic:
                continue
            groups.append(group)
            taken.update(group.nodes)
        return folded(self.graph, groups)

    def _calls(self, around: Neighbours) -> list[Group]:
        """Products with what is computed of them at once, as far as some lowering says so."""
        views = self._assumed(around)
        out: list[Group] = []
        taken: set[Node] = set()
        for node in around.nodes:
            if node in taken or len(node.types) != 1 or not self._sums(node):
                continue
            chain = [node]
            best: Group | None = None
            while True:
                group = around.group(chain)
                last = Value(chain[-1])
                if len(group.outputs) == 1 and any(True for _ in self._found(group, views, self._turnable(around, last))):
                    best = group
                users = around.users[chain[-1]]
                if len(chain) > _EPILOGUE or last in around.final or len(set(users)) != 1 or len(users[0].types) != 1:
                    break
                if users[0] in taken or isinstance(users[0], Opaque):
                    break
                chain.append(users[0])
            if best is not None:
                out.append(best)
                taken.update(best.nodes)
        return out

    def _assumed(self, around: Neighbours) -> dict[Value, View]:
        """Where everything would be if all but views lay in row-major order."""
        views: dict[Value, View] = {}
        for value in self.graph.inputs:
            views[value] = plain(len(views), value.type.dtype, _shape(value.type))
        for node in around.nodes:
            seen = self._look(node, views)
            for value in node.values:
                views[value] = seen or plain(len(views), value.type.dtype, _shape(value.type))
        return views

    def _turnable(self, around: Neighbours, value: Value) -> bool:
        """Whether a result may lie in any order: those who use it only look at it."""
        users = around.used.get(value, ())
        return value not in around.final and bool(users) and all(self._only_looks(user) for user in users)

    def _found(self, group: Group, views: dict[Value, View], turnable: bool) -> Iterator[Found]:
        kernel = fold_of(group).kernel
        args = [views[arg] if arg in views else plain(-1, arg.type.dtype, _shape(arg.type)) for arg in kernel.args]
        # operands that no call takes as they lie may be copied into order first
        for tried in dict.fromkeys((tuple(args), tuple(plain(one.buffer, one.dtype, one.shape) for one in args))):
            for operands, result in self._layouts(kernel, tried, turnable):
                yield from self._matches(kernel.group, operands, result)

    def _sums(self, node: Node) -> bool:
        """Whether a node sums products of two tensors that vary, or of one with weights."""
        return any(self._is_product(scope) for scope in self._scopes(node))

    @staticmethod
    def _is_product(node: ScopeNode) -> bool:
        return any(
            isinstance(one, Reduce) and one.kind == "sum" and len([r for r in walk(one.body) if isinstance(r, Read)]) == 2
            for one in walk(node.scope.body)
        )

    def _scopes(self, node: Node) -> list[ScopeNode]:
        return _scopes(self.rules, node)

    # ---- views --------------------------------------------------------------------------------------------------------

    def _only_looks(self, node: Node) -> bool:
        return looks_only(self.rules, node)

    def _look(self, node: Node, views: Mapping[Value, View]) -> View | None:
        """A node's result as a view of its argument, where it is one."""
        if isinstance(node, Kernel) or len(node.types) != 1 or not node.args or not self._only_looks(node):
            return None
        holes = {arg: input_value(f"h{k}", arg.type) for k, arg in enumerate(node.args)}
        try:
            (value,) = expand_node(self.rules, node, tuple(holes[arg] for arg in node.args))
        except (Mismatch, DslcError):
            return None
        back = {hole: arg for arg, hole in holes.items()}
        chain: list[ScopeNode] = []
        while isinstance(value.node, ScopeNode):
            # a value outside or an index that is data is no view
            if len(value.node.args) != 1:
                return None
            chain.append(value.node)
            value = value.node.args[0]
        arg = back.get(value)
        if arg is None or arg not in views:
            return None
        view: View | None = views[arg]
        for one in reversed(chain):
            view = looked_at(one.scope, view) if view is not None else None
        return view

    # ---- one node after the other -------------------------------------------------------------------------------------

    def _one(self, node: Node) -> None:
        seen = self._look(node, self.where)
        if seen is not None:
            self.where[Value(node)] = seen
            return
        if all(prod(_shape(value.type)) == 0 for value in node.values):
            for value in node.values:
                self.where[value] = self._new(value.type, Place.SHARED)
            return
        if len(node.types) == 1 and self._call(node):
            return
        self._kernel(node, self._program(node))

    def _call(self, node: Node) -> bool:
        """Takes a vendor's call for a node, where a lowering says so; operands that no call takes are copied into order first."""
        program = node.group if isinstance(node, Kernel) else fold_of(Group((node,), node.values)).kernel.group
        args = node.args if isinstance(node, Kernel) else fold_of(Group((node,), node.values)).kernel.args
        # a weight has no place yet, since it may lie in any layout
        views = [
            plain(-3 - k, arg.type.dtype, _shape(arg.type)) if arg.constant else self.where[arg] for k, arg in enumerate(args)
        ]
        if self._scope(program) is None:
            return False
        for copied in (False, True):
            if copied:
                loose = [k for k, view in enumerate(views) if not view.plain]
                if not loose:
                    return False
                tried = [plain(view.buffer, view.dtype, view.shape) for view in views]
                # nothing is copied for a call that does not take it then
                if self._best(node, program, args, tried) is None:
                    return False
                for k in loose:
                    views[k] = self._copied(args[k])
            best = self._best(node, program, args, views)
            if best is not None:
                self._take(node, program, args, best)
                return True
        return False

    def _best(
        self, node: Node, program: Graph, args: Sequence[Value], views: Sequence[View]
    ) -> tuple[Found, tuple[View, ...], View, float] | None:
        """The fastest call by the roofline, with the layouts that it is for."""
        best: tuple[Found, tuple[View, ...], View, float] | None = None
        holes = dict(zip(args, views, strict=True))
        kernel = kernel_value(program, tuple(args))[0].node
        assert isinstance(kernel, Kernel)
        turnable = self._turnable(self.around, Value(node))
        for operands, result in self._layouts(kernel, [holes[arg] for arg in args], turnable):
            for one in self._matches(program, operands, result):
                seconds = self._seconds(one)
                if best is None or seconds < best[3]:
                    best = (one, operands, result, seconds)
            if best is not None:
                return best
        return best

    def _layouts(self, kernel: Kernel, views: Sequence[View], turnable: bool) -> Iterator[tuple[tuple[View, ...], View]]:
        """Layouts of weights, which may lie in any, and of a result that may: first row-major, then with another axis the fastest."""
        result = plain(-2, kernel.types[0].dtype, _shape(kernel.types[0])) if kernel.types[0] is not None else None
        assert result is not None
        weights = [k for k, arg in enumerate(kernel.args) if arg.constant][:_LAYOUTS]
        choices = [list(_turned(result)) if turnable else [result], *(list(_turned(views[k])) for k in weights)]
        for chosen in sorted(product(*(range(len(one)) for one in choices)), key=sum):
            operands = list(views)
            for k, place in zip(weights, chosen[1:], strict=True):
                operands[k] = choices[1 + weights.index(k)][place]
            yield tuple(operands), choices[0][chosen[0]]

    def _matches(self, program: Graph, operands: Sequence[View], result: View) -> Iterator[Found]:
        scope = self._scope(program)
        if scope is None:
            return
        value, order = scope
        by_hole = dict(zip(program.inputs, operands, strict=True))
        target = target_of(value, [by_hole[one] for one in order], result)
        if target is None:
            return
        for pattern in self.patterns:
            yield from found(pattern, target)

    def _scope(self, program: Graph) -> tuple[Scope, tuple[Value, ...]] | None:
        """A program of one result as one scope over its holes; None where it is more."""
        known: dict[Graph, tuple[Scope, tuple[Value, ...]] | None] = rules_cache(self.rules, "programs as one scope")
        if program not in known:
            known[program] = self._as_scope(program)
        return known[program]

    def _as_scope(self, program: Graph) -> tuple[Scope, tuple[Value, ...]] | None:
        if len(program.outputs) != 1:
            return None
        try:
            (value,) = expand(self.rules, program.outputs)
        except (Mismatch, DslcError):
            return None
        for _ in range(64):
            if not isinstance(value.node, ScopeNode):
                return None
            value = _with_numbers(value)
            below = next((k for k, arg in enumerate(value.node.args) if isinstance(arg.node, ScopeNode)), None)
            if below is None:
                node = value.node
                return (node.scope, node.args) if isinstance(node, ScopeNode) and set(node.args) <= set(program.inputs) else None
            try:
                value = inline(value, below)
            except TypeError:
                return None
        return None

    def _seconds(self, one: Found) -> float:
        views = [value for _, value in one.arguments if isinstance(value, View)]
        calls = 1 + len(one.moves)
        moved = sum(_touched(view) * view.dtype.bytes for view in views)
        return calls * self.device.call(one.flops / calls, moved, views[0].dtype, one.sizes, one.window)

    def _take(self, node: Node, program: Graph, args: Sequence[Value], best: tuple[Found, tuple[View, ...], View, float]) -> None:
        one, operands, result, seconds = best
        value = Value(node)
        made = self._new(value.type, Place.SHARED)
        self.where[value] = View(made.buffer, made.dtype, result.shape, result.strides)
        buffers = {result.buffer: made.buffer}
        for arg, view in zip(args, operands, strict=True):
            if arg.constant:
                buffers[view.buffer] = self._weight(arg, view).buffer
        function = function_named(one.function)
        written = (function.result,) if function is not None else ()
        rule = f"{one.rule}: {_words(program)}"
        for arguments in one.calls():
            own = tuple(
                (name, View(buffers.get(v.buffer, v.buffer), v.dtype, v.shape, v.strides, v.offset) if isinstance(v, View) else v)
                for name, v in arguments
            )
            scratch: tuple[int, ...] = ()
            if function is not None and function.workspace:
                self.buffers.append(Buffer(Place.SHARED, function.workspace))
                scratch = (len(self.buffers) - 1,)
            reads = tuple(v for name, v in own if isinstance(v, View) and name not in written)
            writes = tuple(v for name, v in own if isinstance(v, View) and name in written)
            self.drafts.append(_Draft(rule, seconds / (1 + len(one.moves)), reads, writes, scratch, one, own))

    # ---- kernels ------------------------------------------------------------------------------------------------------

    def _program(self, node: Node) -> Kernel:
        return node if isinstance(node, Kernel) else fold_of(Group((node,), node.values)).kernel

    def _scratch(self, program: Graph) -> tuple[int, ...] | None:
        if program not in self.known:
            self.known[program] = self.generable(program)
        return self.known[program]

    def _kernel(self, node: Node, kernel: Kernel) -> None:
        """A kernel for a node, which reads what lies in order: views are looked at by the kernel itself."""
        values = dict(zip(fold_of(Group((node,), node.values)).old, kernel.values, strict=True)) if kernel is not node else {}
        kernel = self._over_plain(kernel)
        scratch = self._scratch(kernel.group)
        if scratch is None:
            self._split(node, kernel)
            return
        outs = self._emit(kernel, scratch)
        for value in node.values:
            made = values.get(value)
            self.where[value] = outs[value.index if made is None else made.index]

    def _split(self, node: Node, kernel: Kernel) -> None:
        """A group that no kernel is generated for, node by node."""
        inner = [one for one in kernel.group.nodes() if not isinstance(one, Input) and not one.constant]
        if len(inner) < 2:
            raise NotPlanned(Why.KERNEL, _words(kernel.group))
        new = dict(zip(kernel.group.inputs, kernel.args, strict=True))
        for one in inner:
            own = with_args(one, tuple(new.get(arg, arg) for arg in one.args))
            new.update(zip(one.values, own, strict=True))
            if own[0] not in self.where:
                self._one(own[0].node)
        for value, out in zip(node.values, kernel.group.outputs, strict=True):
            self.where[value] = self.where[new[out]]

    def _over_plain(self, kernel: Kernel) -> Kernel:
        """A kernel over arguments in row-major order: those that are views are computed in it from what they look at."""
        new: dict[Value, Value] = {}
        for arg in kernel.args:
            new[arg] = self._to_plain(arg)
        if all(new[arg] is arg for arg in kernel.args):
            return kernel
        outputs = replace(kernel.group.outputs, {hole: new[arg] for hole, arg in zip(kernel.group.inputs, kernel.args, strict=True)})
        return self._closed(outputs)

    def _to_plain(self, arg: Value) -> Value:
        """A value as an expression of values that lie in row-major order."""
        if arg.constant or self.where[arg].plain:
            return arg
        node = arg.node
        if isinstance(node, Kernel) or self._look(node, self.where) is None:
            # a call's result in another order: its axes as they lie, and back
            view = self.where[arg]
            order = sorted(range(len(view.shape)), key=lambda k: (-view.strides[k], k))
            type = TensorType(view.dtype, tuple(view.shape[k] for k in order))
            lies = input_value(f"lies{len(self.where)}", type)
            self.where[lies] = plain(view.buffer, view.dtype, _shape(type))
            index = tuple(traversal(k) for k in order)
            return scope_value(Scope(view.shape, read(0, index), view.dtype), (lies,))
        return with_args(node, tuple(self._to_plain(one) for one in node.args))[0]

    def _closed(self, outputs: tuple[Value, ...]) -> Kernel:
        """Values as a kernel over what has a place already."""
        holes: dict[Value, Value] = {}
        stack, seen = list(reversed(outputs)), set[Value]()
        while stack:
            value = stack.pop()
            if value in seen:
                continue
            seen.add(value)
            if value.constant:
                if number_of(value) is None:
                    holes[value] = input_value(f"h{len(holes)}", value.type)
            elif value in self.where and self.where[value].plain:
                holes[value] = input_value(f"h{len(holes)}", value.type)
            else:
                stack.extend(reversed(value.node.args))
        return _kernel_of(replace(outputs, holes), holes)

    def _emit(self, kernel: Kernel, scratch: tuple[int, ...]) -> list[View]:
        reads = tuple(self._operand(arg) for arg in kernel.args)
        outs = [self._new(value.type, Place.SHARED) for value in kernel.values]
        held = []
        for size in scratch:
            self.buffers.append(Buffer(Place.SHARED, size))
            held.append(len(self.buffers) - 1)
        name = self._named(kernel.group)
        work = estimate(kernel, self.profiles)
        seconds = self.device.kernel(work.operations, work.bytes, outs[0].dtype, max(1, work.rounds))
        self.drafts.append(_Draft(f"kernel: {_words(kernel.group)}", seconds, reads, tuple(outs), tuple(held), name=name))
        return outs

    def _named(self, program: Graph) -> str:
        text = definition_of(self.rules, "k", program)
        name = "k_" + hashlib.sha256(text.encode()).hexdigest()[:12]
        while self.programs.setdefault(name, program) != program:
            # the language cannot say all of either
            name += "_"
        return name

    def _copied(self, arg: Value) -> View:
        """A view copied into row-major order."""
        whole = self._to_plain(arg)
        kernel = self._closed((whole,))
        scratch = self._scratch(kernel.group)
        if scratch is None:
            raise NotPlanned(Why.KERNEL, _words(kernel.group))
        return self._emit(kernel, scratch)[0]

    def _end(self, value: Value) -> View:
        """Where an output of the model is, in row-major order."""
        if value.constant:
            return self._operand(value)
        view = self.where[value]
        return view if view.plain else self._copied(value)

    # ---- buffers ------------------------------------------------------------------------------------------------------

    def _operand(self, value: Value) -> View:
        if value.constant:
            return self._weight(value, plain(-1, value.type.dtype, _shape(value.type)))
        return self.where[value]

    def _weight(self, value: Value, view: View) -> View:
        """The buffer of a weight in some layout."""
        for known, own in self.weights.values():
            if known == value and own.strides == view.strides and own.shape == view.shape:
                return View(own.buffer, own.dtype, own.shape, own.strides)
        name = f"w{len(self.weights)}"
        self.buffers.append(Buffer(Place.WEIGHT, value.type.bytes, name))
        made = View(len(self.buffers) - 1, view.dtype, view.shape, view.strides)
        self.weights[name] = (value, made)
        return made

    def _new(self, type: TensorType, place: Place, name: str = "") -> View:
        self.buffers.append(Buffer(place, type.bytes, name))
        return plain(len(self.buffers) - 1, type.dtype, _shape(type))

    # ---- streams and memory -------------------------------------------------------------------------------------------

    def _plan(self, ends: tuple[tuple[str, View], ...]) -> Plan:
        writers: dict[int, list[int]] = {}
        users: dict[int, list[int]] = {}
        needs: list[set[int]] = []
        for k, draft in enumerate(self.drafts):
            needs.append({one for view in draft.reads for one in writers.get(view.buffer, ())})
            for view in draft.writes:
                writers.setdefault(view.buffer, []).append(k)
            for buffer in (*(view.buffer for view in (*draft.reads, *draft.writes)), *draft.scratch):
                users.setdefault(buffer, []).append(k)
        order = turns(needs)
        kept = {view.buffer for _, view in ends}
        shared = [b for b, buffer in enumerate(self.buffers) if buffer.place is Place.SHARED and (b in users or b in kept)]
        lives = [Life(self.buffers[b].bytes, tuple(users.get(b, ())), b in kept) for b in shared]
        places, total = placed(lives, order)
        buffers = list(self.buffers)
        for b, life, at in zip(shared, lives, places, strict=True):
            last = len(self.drafts) if life.kept else max(life.steps, default=0)
            buffers[b] = Buffer(Place.SHARED, life.bytes, "", at, min(life.steps, default=0), last)
        steps: list[Step] = []
        for draft, turn in zip(self.drafts, order, strict=True):
            if draft.call is None:
                steps.append(
                    KernelStep(draft.rule, draft.name, draft.reads, draft.writes, draft.scratch, turn.stream, turn.waits, draft.seconds)
                )
                continue
            function = function_named(draft.call.function)
            written = (function.result,) if function is not None else ()
            workspace = draft.scratch[0] if draft.scratch else None
            steps.append(
                CallStep(
                    draft.rule, draft.call.function, draft.arguments, written, workspace, turn.stream, turn.waits, draft.seconds  # type: ignore[arg-type]
                )
            )
        kernels = tuple((name, definition_of(self.rules, name, program)) for name, program in sorted(self.programs.items()))
        inputs = tuple((name, self.where[value]) for name, value in zip(self.names, self.graph.inputs, strict=True))
        streams = 1 + max((turn.stream for turn in order), default=0)
        return Plan(self.device.name, inputs, ends, tuple(buffers), tuple(steps), kernels, total, streams)


def _scopes(rules: Rules, node: Node) -> list[ScopeNode]:
    """The scopes that a node is made of; none where it has none."""
    try:
        values = expand_node(rules, node, tuple(input_value(f"h{k}", arg.type) for k, arg in enumerate(node.args)))
    except (Mismatch, DslcError):
        return []
    return [one for one in Graph((), values).nodes() if isinstance(one, ScopeNode)]


def looks_only(rules: Rules, node: Node) -> bool:
    """Whether a node computes nothing: every element of its result is one of an argument's."""
    scopes = _scopes(rules, node)
    return bool(scopes) and all(isinstance(one.scope.body, Read) for one in scopes)


def _kernel_of(outputs: tuple[Value, ...], holes: Mapping[Value, Value]) -> Kernel:
    node = kernel_value(Graph(tuple(holes.values()), outputs), tuple(holes))[0].node
    assert isinstance(node, Kernel)
    return node


def _with_numbers(value: Value) -> Value:
    """A scope with its operands that are one number everywhere as that number."""
    node = value.node
    assert isinstance(node, ScopeNode)
    numbers = {k: number_of(arg) for k, arg in enumerate(node.args) if arg.constant}
    if all(found is None for found in numbers.values()):
        return value
    kept = [k for k in range(len(node.args)) if numbers.get(k) is None]
    place = {k: at for at, k in enumerate(kept)}

    def leaf(one: object) -> object:
        if isinstance(one, Read):
            number = numbers.get(one.operand)
            if number is not None:
                return as_scalar(number)
            return read(place[one.operand], one.index, one.other)
        return None

    body = rebuild_scalar(node.scope.body, leaf)  # type: ignore[arg-type]
    scope = Scope(node.scope.extents, body, node.scope.dtype, node.scope.groups)
    return scope_value(scope, tuple(node.args[k] for k in kept))


def _turned(view: View) -> Iterator[View]:
    """A view as it is, and as it would lie with each axis the fastest."""
    yield view
    if not view.plain or view.buffer >= 0:
        return
    for axis in range(len(view.shape) - 1):
        order = [k for k in range(len(view.shape)) if k != axis] + [axis]
        steps = row_major([view.shape[k] for k in order])
        strides = tuple(steps[order.index(k)] for k in range(len(order)))
        yield View(view.buffer, view.dtype, view.shape, strides)


def _touched(view: View) -> int:
    """Elements that are read once: what is repeated at a stride of 0 is not read again."""
    return prod(size for size, stride in zip(view.shape, view.strides, strict=True) if stride)


def _shape(type: TensorType | None) -> tuple[int, ...]:
    assert type is not None
    return tuple(int(str(size)) for size in type.shape)


def _words(program: Graph) -> str:
    """A program as the names of its operators, for people."""
    words = [getattr(node, "op", type(node).__name__) for node in program.nodes() if not isinstance(node, Input) and not node.constant]
    return " + ".join(word.rpartition(".")[2] for word in words[:8]) + (" + ..." if len(words) > 8 else "")


__all__ = ["Generable", "NotPlanned", "Planned", "Why", "every_kernel", "looks_only", "patterns", "planned"]
