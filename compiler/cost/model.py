"""The cost model: what a graph takes is the sum of what its groups of operators were measured to take."""

from __future__ import annotations

import hashlib
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from math import inf, log2
from typing import Any

from dslc.cost import kinds
from dslc.cost.confirm import confirmed
from dslc.cost.evaluation import Evaluation
from dslc.cost.groups import Group, groups_of
from dslc.cost.guess import Work
from dslc.cost.layout import Info
from dslc.cost.lowered import Arguments, Lowered, Lowerings
from dslc.cost.machine import farthest_cache
from dslc.cost.measure import TUNING as MEASURE_TUNING
from dslc.cost.measure import Measured, Measurer, Sample
from dslc.cost.pairs import Pair
from dslc.cost.process import WorkerFailed
from dslc.cost.start import Key, Start
from dslc.cost.targets import Target, target_named
from dslc.cost.weights import DRIVEN, kind_of, room, spilled
from dslc.cost.weights import TUNING as WEIGHTS_TUNING
from dslc.deadline import TimeUp
from dslc.ir.constants import number_of
from dslc.ir.dtype import Dim, TensorType
from dslc.ir.graph import (
    AttrValue,
    Call,
    Constant,
    Graph,
    Input,
    Kernel,
    Node,
    ScopeNode,
    Value,
    call,
    constant_value,
    input_value,
    topological,
)
from dslc.ir.scalar import Num, Scalar, Sym, num, substitute, walk
from dslc.ir.sizes import node_at
from dslc.semantics.library import Rules

#: builds the serialized model that computes outputs from inputs (all types static); None where ONNX cannot say it
Build = Callable[[tuple[Value, ...], tuple[Value, ...]], "bytes | None"]


@dataclass(frozen=True, slots=True)
class _Tuning:
    """Numbers that decide what is measured of a group in one model, and the least that a price may be.

    Attributes:
        kept: elements; smaller constants of integers keep their values in what is measured: indices decide what is touched.
        tiny: bytes; what touches no more is measured several times at once: a run's own time would drown it.
        tiny_copies: how often it is measured at once then.
        weights: bytes; larger weights that are read fast are measured as they are in the model: out of the farther caches, because
            other weights come between two uses. What lies beyond the farthest cache is not imitated (see `dslc.cost.weights`).
        streamed: bytes a second from which on weights are read fast.
        most_copies: copies of such a group that are measured in one model, at most.
        own_share: share of a group with its changes of layout that it takes for itself, at least.
        slack: how many times what a guess says a group may take.
        least_left: share of the original that a graph costs at least.
    """

    kept: int = 4096
    tiny: int = 1 << 16
    tiny_copies: int = 8
    weights: int = 1 << 15
    streamed: float = 4e9
    most_copies: int = 16
    own_share: float = 0.1
    slack: float = 4.0
    least_left: float = 0.02


_TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class Small:
    """A group on its own: what it works on, weights, and what it computes."""

    inputs: tuple[Value, ...]
    weights: tuple[Value, ...]
    outputs: tuple[Value, ...]


class CostModel:
    """Costs of nodes and graphs in seconds on one target.

    What depends on weights only costs nothing, and so do opaque nodes, which never change. What ONNX cannot say at the model's
    opset costs infinitely much, unless the original graph already had it (`excuse`, `begin`). `bind` gives the sizes at which a
    graph with symbolic dimensions is measured.
    """

    def __init__(
        self,
        rules: Rules,
        measurer: Measurer,
        build: Build,
        opset: int,
        bind: Mapping[str, int] | None = None,
        other: int = 1,
        lowerings: Lowerings | None = None,
        target: Target | None = None,
    ) -> None:
        self.rules = rules
        self.target = target or target_named()
        #: what the target runs as one
        self.lowerings = self.target.lowerings(rules) if lowerings is None else lowerings
        self.measurer = measurer
        self._build = build
        self._opset = opset
        self._meanings: dict[str, str] = {}
        self._bind: dict[Scalar, Scalar] = {}
        self._sizes = dict(bind or {})
        self._other = other
        self._infos: dict[Key, Info] = {}
        self._longer: dict[Key, float] = {}
        self._excused: set[Key] = set()
        #: what others have measured, which cannot be measured here
        self._told: dict[Key, Info] = {}
        self._footprint = self._read = 0
        self._together: Mapping[Hashable, float] = {}
        #: what other graphs are compared with, where that is known as a whole
        self.start: Start | None = None
        self._alone: float | None = None
        #: seconds of a run without nodes, as of the last `confirm`
        self.overhead = 0.0
        self._local: weakref.WeakKeyDictionary[Node, int] = weakref.WeakKeyDictionary()
        self._numbers: dict[Any, int] = {}
        self._pointwise: dict[int, bool] = {}
        self._view: dict[int, bool] = {}
        self._work = Work(lambda node: kinds.flops(rules, self._static(node)), self.number, self.bytes_of)
        self._whole_work = 0.0

    @property
    def opset(self) -> int:
        """The version of ONNX's operators that models have."""
        return self._opset

    @property
    def measured(self) -> int:
        """How many groups were measured (and not found in the cache)."""
        return self.measurer.count

    def cost(self, node: Node) -> float:
        """The cost of one node on its own, in seconds."""
        if node.constant or not node.args:
            return 0.0
        (info,) = self.infos([Group((node,), (node.args,))])
        return info.alone

    def evaluate(self, graph: Graph) -> Evaluation:
        """The cost of a graph, ready to be compared with rewritten ones."""
        if self.start is not None and graph is self.start.evaluation.graph:
            self.start.evaluation.refresh()
            return self.start.evaluation
        return Evaluation(self, graph)

    def graph_cost(self, graph: Graph) -> float:
        """The cost of a graph in seconds; infinite where something in it cannot be run."""
        return self.evaluate(graph).cost

    def excuse(self, graph: Graph) -> None:
        """Takes the original graph: what it has and cannot be measured counts as nothing, instead of infinitely much; and its
        weights are what the processor's caches hold while it runs."""
        self._weigh(graph)
        found = self.evaluate(graph)
        for group, info in zip(found.groups, found.infos, strict=True):
            if info is not None and info.body == inf:
                self._excused.add(self.key(group))

    def begin(self, graph: Graph, seconds: float) -> None:
        """Takes the original graph, which takes so many seconds as a whole. From now on only those groups are measured that other
        graphs have more or fewer of, or that a rewrite is tried on."""
        self._weigh(graph)
        self._start(graph, seconds)
        self._read = 0 if self.start is None else self.start.evaluation.weights

    def _start(self, graph: Graph, seconds: float) -> None:
        self._whole_work = 0.0
        found = Evaluation(self, graph, seconds)
        keys = Counter(self.key(group) for group in found.groups)
        self.start = Start(seconds, found, keys, {self.key(group): group for group in found.groups})

    def within(self, graph: Graph) -> CostModel:
        """The same costs for a part of the original as a graph of its own, whose seconds are what is known or guessed of its groups."""
        if self.start is None:
            return self
        found = copy(self)
        groups = Evaluation(self, graph, 0.0).groups
        known = [self.known(self.key(group)) for group in groups]
        seconds = sum(
            self.guess(group) if info is None else info.alone for group, info in zip(groups, known, strict=True)
        )
        found._start(graph, seconds)
        return found

    def part(self) -> float:
        """Seconds of those groups of the original that were measured, each by itself: at times more than the whole takes."""
        return 0.0 if self.start is None else self.start.part(self._infos, self._excused)

    @property
    def share(self) -> float:
        """Which part of what groups take by themselves they take in the original."""
        return 1.0 if self.start is None else self.start.share(self.part(), self._run_alone)

    def believed(self, seconds: float) -> float:
        """What a graph takes for which the sums of groups say so many seconds: a gain counts as far as groups take less by it than
        they do in the original."""
        if self.start is None or seconds == inf:
            return seconds
        whole = self.start.seconds
        # noise must not leave nothing of a graph
        return max(whole + self.share * (seconds - whole), _TUNING.least_left * whole)

    def _run_alone(self) -> float:
        """Seconds of a run without nodes, where that is known."""
        if self._alone is None:
            try:
                self._alone = self.measurer.run_alone()
            except (WorkerFailed, TimeUp):
                self._alone = 0.0
        return self._alone

    def most(self, group: Group) -> float:
        """More seconds than a group takes: what was measured, or several times its part of the original by operations and bytes."""
        info = self.known(self.key(group))
        if info is not None or self.start is None:
            return inf if info is None else info.alone
        return _TUNING.slack * self.guess(group)

    def guess(self, group: Group) -> float:
        """A group's part of what the original takes, by operations and bytes, in seconds; 0 where that is not known."""
        if self.start is None:
            return 0.0
        if not self._whole_work:
            self._whole_work = sum(map(self._work.of, self.start.evaluation.groups))
        return self.start.seconds * self._work.of(group) / max(self._whole_work, 1e-30)

    def known(self, key: Key) -> Info | None:
        """What a group costs, where that was asked for before."""
        return Info(0.0) if key in self._excused else self._infos.get(key)

    def _weigh(self, graph: Graph) -> None:
        below = topological(value.node for value in graph.outputs)
        self._footprint = sum(_bytes(node.values[0]) for node in below if isinstance(node, Constant))

    def confirm(self, *graphs: Graph) -> bool:
        """Measures what these graphs are made of again, so that their costs can be compared; see `dslc.cost.confirm`.

        Nothing of what was measured before counts for them any more. True where time was up before it was done.
        """
        if not self.target.measured:
            return False
        self._together = {}
        found = confirmed(self, graphs)
        self._infos.update(found.infos)
        self._together, self.overhead = found.together, found.overhead
        if self.start is not None:
            self.start.forget()
        if self.start is not None:
            self.start.evaluation.refresh()
        return found.cut

    @property
    def _near(self) -> bool:
        """Whether the original's weights are measured, and held, by the caches of a processor."""
        return self.start is not None and self.target.measured and self._read < room()

    def spill(self, bytes: int) -> float:
        """Seconds that a graph takes more since the weights that it reads, so many bytes, are more than the original's and than caches
        hold."""
        if not self._near or self.start is None:
            return 0.0
        return max(0.0, spilled(self._read + bytes - self.start.evaluation.weights) - spilled(self._read))

    def crowded(self, bytes: int) -> bool:
        """Whether weights of so many bytes are more than caches hold, which hold those of the original."""
        return self._near and bytes > room()

    def weight(self, value: Value, node: Node) -> float:
        """What it may add at most that nodes like one read a weight, in seconds: where caches are full. Nothing where such nodes of the
        original read it."""
        bytes = self.bytes_of(value) if self._near else 0
        if (
            bytes < WEIGHTS_TUNING.large
            or self.start is None
            or (value, kind_of(node)) in self.start.evaluation.readers
        ):
            return 0.0
        return bytes * DRIVEN

    def together(self, pairs: Iterable[Pair]) -> float:
        """Seconds that pairs of groups take more or less than each of both by itself, where that was measured."""
        return sum(self._together.get(self.pair_key(pair), 0.0) for pair in pairs) if self._together else 0.0

    @property
    def pairs_known(self) -> bool:
        """Whether pairs of groups were measured."""
        return bool(self._together)

    def bytes_of(self, value: Value) -> int:
        """How large a tensor is at the sizes at which it is measured; 0 where that is not known."""
        return self._static_type(value.type).bytes if value.known else 0

    def groups(
        self,
        nodes: Sequence[Node],
        args_of: Arguments,
        uses: Callable[[Value], int],
        among: Collection[Node] | None = None,
        known: Sequence[Lowered] = (),
    ) -> list[Group]:
        """What of some nodes, producers first, is measured together. What runs as one is looked for among some of them only, where
        the rest is known."""
        looked = nodes if among is None else [node for node in nodes if node in among]
        return groups_of(nodes, args_of, uses, self.pointwise, [*known, *self.lowerings.fused(looked, args_of, uses)])

    def pair_key(self, pair: Pair) -> Hashable:
        """Equal for equal groups that follow each other in the same way."""
        return (self.key(pair.first), self.key(pair.group), pair.shared)

    def pointwise(self, node: Node) -> bool:
        """Whether an application is pointwise, weights aside."""
        if not isinstance(node, Call):
            return False
        local = self.number(node)
        found = self._pointwise.get(local)
        if found is None:
            found = self._pointwise[local] = kinds.pointwise(
                self.rules, self._static(node), tuple(arg.constant for arg in node.args)
            )
        return found

    def infos(self, groups: Sequence[Group]) -> list[Info]:
        """What each group costs; new ones are measured."""
        out = []
        for group in groups:
            key = self.key(group)
            found = self._infos.get(key)
            if found is None:
                self._note(group, self.measure(group))
                found = self._infos[key]
                if found.body == inf and self.start is not None and key in self.start.keys:
                    self._excused.add(key)
            out.append(Info(0.0) if key in self._excused else found)
        return out

    # ---- keys ------------------------------------------------------------------------------------------------

    def number(self, node: Node) -> int:
        """Equal numbers: the same operator, attributes, types and pattern of constants."""
        found = self._local.get(node)
        if found is None:
            found = self._numbers.setdefault(self._describe(node, node.args), len(self._numbers))
            self._local[node] = found
        return found

    def _describe(self, node: Node, args: tuple[Value, ...]) -> Any:
        what: Any = (node.op, _tagged(node.attrs)) if isinstance(node, Call) else _program(node)
        return (type(node).__name__, what, tuple(map(self.argument, args)), node.types)

    @staticmethod
    def argument(arg: Value) -> Any:
        """What of an argument decides about times: its type, and of a constant what the runtime may see in it."""
        if not arg.constant:
            return arg.node.types[arg.index]
        number = number_of(arg) if arg.known else None
        if number is not None:
            return (arg.type, type(number).__name__, number)
        return (arg.type, _kept_key(arg))

    def key(self, group: Group) -> Key:
        """The nodes' numbers, and which argument of each is which earlier node or which value from outside."""
        outside: dict[Value, int] = {}
        place = {node: k for k, node in enumerate(group.nodes)}
        out: list[int] = [len(place)]
        for node, args in zip(group.nodes, group.args, strict=True):
            if args == node.args or all(a.constant == b.constant for a, b in zip(args, node.args, strict=True)):
                out.append(self.number(node))
            else:
                out.append(self._numbers.setdefault(self._describe(node, args), len(self._numbers)))
            for arg in args:
                if not arg.node.constant:
                    inner = place.get(arg.node)
                    out.append(~outside.setdefault(arg, len(outside)) if inner is None else inner)
        return tuple(out)

    def _note(self, group: Group, info: Info) -> None:
        """Keeps what a group costs, which is no more than any longer group that begins with it.

        More work does not take less time: where it seems to, the shorter group was measured at a bad moment. What a search has
        already asked for stays as it is until `confirm`, so that the costs of two graphs can be compared.
        """
        key = self.key(group)
        self._infos[key] = info.at_most(self._longer.get(key, inf))
        self.bound(group, info.alone, self._longer)

    def tell(self, group: Group, seconds: float) -> None:
        """Says what a group takes by itself that somebody else has built and measured, unless it is known."""
        key = self.key(group)
        self._told.setdefault(key, Info(seconds))
        self._infos.setdefault(key, self._told[key])

    def can_price(self, graph: Graph) -> bool:
        """Whether all kernels of a graph are known, which cannot be measured here."""
        return all(
            self.key(Group((node,), (node.args,))) in self._told for node in graph.nodes() if isinstance(node, Kernel)
        )

    def bound(self, group: Group, seconds: float, longer: dict[Key, float]) -> None:
        """Notes what every shorter group that begins a group costs at most."""
        for count in range(group.fused, len(group.nodes)):
            part = self.key(Group(group.nodes[:count], group.args[:count], group.fused))
            longer[part] = min(seconds, longer.get(part, inf))

    # ---- measuring -------------------------------------------------------------------------------------------

    def measure(self, group: Group, turn: str = "") -> Info:
        """What a group costs on the target; each `turn` is another measurement."""
        told = self._told.get(self.key(group)) if self._told else None
        return self.target.price(self, group, turn) if told is None else told

    def timed(self, group: Group, turn: str = "") -> Info:
        """What a group costs, from the cache or measured."""
        if self.is_view(group):
            return Info(MEASURE_TUNING.least)
        small = self.small(group)
        found, copies = self.alone(small, turn)
        return self._info(small, found, copies, turn)

    def says(self, small: Small) -> bool:
        """Whether ONNX can say a group at the model's opset."""
        return self._build((*small.inputs, *small.weights), small.outputs) is not None

    def is_view(self, group: Group) -> bool:
        """Whether the runtime only passes memory on: a lowering says that it costs nothing."""
        first = group.nodes[0]
        if len(group.nodes) > 1 or not isinstance(first, Call):
            return False
        local = self.number(first)
        if local not in self._view:
            self._view[local] = self.lowerings.passes_on(first)
        return self._view[local]

    def alone(self, small: Small, turn: str) -> tuple[Measured, int]:
        """What a group takes as a graph of its own, and how many copies of it were measured at once."""
        touched = sum(map(_bytes, (*small.inputs, *small.weights, *small.outputs)))
        copies = _TUNING.tiny_copies if touched <= _TUNING.tiny else 1
        # the first measurement decides how it is measured at every turn
        first = self._measured(small, copies, "")
        once, weights = copies, sum(map(_bytes, small.weights))
        if weights >= _TUNING.weights and weights > _TUNING.streamed * first.seconds:
            # powers of two, so that models of other sizes find it in the cache; the nearest one: more weights than the model has
            # lie farther away than its own
            times = max(1.0, min(self._footprint, farthest_cache()) / weights)
            copies = max(copies, min(_TUNING.most_copies, 1 << round(log2(times))))
        return first if copies == once and not turn else self._measured(small, copies, turn), copies

    def _measured(self, small: Small, copies: int, turn: str, blocked: Sequence[int] = ()) -> Measured:
        """What a group takes; with some of its inputs, by position, coming in blocks, whatever brings them there included."""
        weights = [f"x{len(small.inputs) + k}" for k in range(len(small.weights))]

        def build() -> bytes | None:
            model = self._build((*small.inputs, *small.weights), small.outputs)
            if model is None or not blocked:
                return model
            from dslc.onnx.layout import with_blocked

            return with_blocked(model, [f"x{k}" for k in blocked])

        text = self.text(small)
        text = text if not blocked else f"in blocks: {', '.join(f'x{k}' for k in blocked)}\n{text}"
        text = text if copies == 1 else f"{copies} times\n{text}"
        return self.measurer.measured(Sample(text, build, copies, tuple(weights)), turn)

    def _info(self, small: Small, found: Measured, copies: int, turn: str) -> Info:
        """What a group takes, its changes of layout set apart."""
        if not found.entering and not found.leaving and not found.blocked:
            return Info(found.seconds)
        types = [value.type for value in small.inputs]
        result = small.outputs[0].type
        enters = tuple(self._reorder(type, True, turn) if k in found.entering else 0.0 for k, type in enumerate(types))
        leave = self._reorder(result, False, turn) if found.leaving else 0.0

        def rest(seconds: float, changes: float) -> float:
            # noise must not leave nothing of a group
            return max(MEASURE_TUNING.least, seconds - changes, _TUNING.own_share * seconds)

        body = rest(found.seconds, sum(enters) + leave)
        if not found.blocked:
            return Info(body, enters, leave)
        leaves = self._reorder(result, False, turn)
        others = [k for k in range(len(types)) if k not in found.entering]
        if not found.entering:
            return Info(body, (), leave, body, leaves)
        joined = self._measured(small, copies, turn, others).seconds
        before = sum(self._pooled(types[k], turn) - self._reorder(types[k], False, turn) for k in others)
        return Info(body, enters, leave, rest(joined, before + sum(enters) + leaves), leaves)

    def _reorder(self, type: TensorType, into: bool, turn: str) -> float:
        """Seconds for bringing a tensor into blocks or out of them."""
        from dslc.onnx.layout import reorder_model

        text = f"{'into' if into else 'out of'} blocks"
        seconds = self._by_itself(text, type, lambda shape: reorder_model(shape, into), turn)
        return seconds if seconds < inf else MEASURE_TUNING.least

    def _pooled(self, type: TensorType, turn: str) -> float:
        """Seconds for what brings inputs into blocks, from plain to plain."""
        from dslc.onnx.layout import pooling_model

        return self._by_itself("pooled", type, pooling_model, turn)

    def _by_itself(self, text: str, type: TensorType, build: Callable[[tuple[int, ...]], bytes], turn: str) -> float:
        """Seconds of what no rule speaks of, from one tensor to one of its size."""
        shape = tuple(size for size in type.shape if isinstance(size, int))
        copies = _TUNING.tiny_copies if 2 * type.bytes <= _TUNING.tiny else 1
        return self.measurer.measured(Sample(f"{text}: {type}", lambda: build(shape), copies), turn).seconds

    def text(self, small: Small) -> str:
        """What is measured, in words that are the same in every run."""
        place: dict[Value, str] = {value: f"x{k}" for k, value in enumerate(small.inputs)}
        place.update({value: f"w{k}" for k, value in enumerate(small.weights)})
        lines = [f"opset {self._opset}", *(f"{name}: {value.type}" for value, name in place.items())]
        for node in topological(value.node for value in small.outputs):
            if isinstance(node, Input):
                continue
            for value in node.values:
                place[value] = f"v{len(place)}"
            args = ", ".join(place[arg] for arg in node.args)
            if isinstance(node, Call):
                attrs = ", ".join(f"{name}={_shown(value)}" for name, value in node.attrs)
                what = f"{node.op}#{self._meaning(node.op)}({args}; {attrs})"
            elif isinstance(node, Constant):
                what = f"constant {node.data.key}"
            elif isinstance(node, Kernel):
                inside = self.text(Small(node.group.inputs, (), node.group.outputs)).replace("\n", "; ")
                what = f"kernel {{{inside}}}({args})"
            else:
                what = f"{_program(node)}({args})"
            lines.append(f"{place[node.values[0]]} = {what}: {', '.join(map(str, node.types))}")
        if len({value.node for value in small.outputs}) > 1:
            lines.append(f"results {', '.join(place[value] for value in small.outputs)}")
        return "\n".join(lines)

    def _meaning(self, op: str) -> str:
        """A hash of an operator's definition."""
        found = self._meanings.get(op)
        if found is None:
            text = self.rules.operators[op].syntax.span.text
            found = self._meanings[op] = hashlib.sha256(text.encode()).hexdigest()[:16]
        return found

    def _static(self, node: Call) -> Call:
        """The same application on inputs of static types."""
        small = self.small(Group((node,), (node.args,)))
        found = small.outputs[0].node
        assert isinstance(found, Call)
        return found

    def small(self, group: Group, shared: Sequence[Value] = ()) -> Small:
        """A group on its own; `shared` are results beside those of its last node."""
        inputs: list[Value] = []
        weights: list[Value] = []
        new: dict[Value, Value] = {}

        def from_outside(arg: Value) -> Value:
            type = self._static_type(arg.type)
            if arg.constant and (kept := _kept(arg, type)) is not None:
                return kept
            listed, letter = (weights, "w") if arg.constant else (inputs, "x")
            listed.append(input_value(f"{letter}{len(listed)}", type))
            return listed[-1]

        for node, args in zip(group.nodes, group.args, strict=True):
            for arg in args:
                if arg not in new:
                    new[arg] = from_outside(arg)
            new.update(zip(node.values, self._rebuilt(node, tuple(new[arg] for arg in args)), strict=True))
        return Small(tuple(inputs), tuple(weights), tuple(new[value] for value in (*group.nodes[-1].values, *shared)))

    def _rebuilt(self, node: Node, args: tuple[Value, ...]) -> tuple[Value, ...]:
        if isinstance(node, Call):
            types = tuple(self._static_type(type) for type in node.types if type is not None)
            attrs = tuple((name, self._static_attr(value)) for name, value in node.attrs)
            return call(node.op, args, attrs, types)
        assert isinstance(node, ScopeNode | Kernel)
        return node_at(node, args, self._bound, self._bound)

    def size(self, name: str) -> int:
        """What stands for an open size where costs are measured."""
        return self._sizes.get(name, self._other)

    def _bound(self, root: Scalar) -> Scalar:
        """An expression at the sizes that are measured."""
        for part in walk(root):
            if isinstance(part, Sym) and part not in self._bind:
                self._bind[part] = num(self.size(part.name))
        return substitute(root, self._bind)

    def _static_type(self, type: TensorType) -> TensorType:
        return type if type.is_static else TensorType(type.dtype, tuple(self._static_size(size) for size in type.shape))

    def _static_size(self, size: Dim) -> Dim:
        return size if isinstance(size, int) else self._value(size)

    def _static_attr(self, value: AttrValue) -> AttrValue:
        if isinstance(value, tuple):
            return tuple(self._static_attr(item) for item in value)
        return self._value(value) if isinstance(value, Scalar) else value

    def _value(self, size: Scalar) -> int:
        found = self._bound(size)
        return int(found.value) if isinstance(found, Num) else self._other


def _tagged(value: Any) -> Any:
    """True, 1 and 1.0 are three attributes."""
    return (type(value).__name__, tuple(_tagged(v) for v in value) if isinstance(value, tuple) else value)


def _program(node: Node) -> Any:
    """What a scope or a kernel computes; None for other nodes."""
    return node.scope if isinstance(node, ScopeNode) else node.group if isinstance(node, Kernel) else None


def _kept_key(arg: Value) -> str:
    """The contents of a constant whose elements decide what is touched: small integers."""
    node = arg.node
    if isinstance(node, Constant) and arg.known and not arg.type.dtype.is_float and arg.type.is_static:
        return node.data.key if arg.type.elements <= _TUNING.kept else ""
    return ""


def _kept(arg: Value, type: TensorType) -> Value | None:
    """The constant itself where its contents matter to the runtime: one number everywhere, or small integers."""
    node = arg.node
    number = number_of(arg)
    if number is not None:
        from dslc.ir.constants import fill

        return fill(number, type)
    return constant_value(node.data, type) if isinstance(node, Constant) and _kept_key(arg) else None


def _shown(value: AttrValue) -> str:
    return f"[{', '.join(map(_shown, value))}]" if isinstance(value, tuple) else f"{type(value).__name__} {value}"


def _bytes(value: Value) -> int:
    """Of a tensor of static size; 0 where it is not known."""
    return value.type.bytes if value.known and value.type.is_static else 0
