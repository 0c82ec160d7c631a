"""The node that is written for each value of a graph: one of the file, or a node through its operator's clause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from onnx import NodeProto, helper, numpy_helper

from dslc.errors import DslcError, error
from dslc.ir.constants import NUMPY, FillRef
from dslc.ir.dtype import TensorType
from dslc.ir.graph import (
    Call,
    Constant,
    Graph,
    Input,
    Kernel,
    Node,
    Opaque,
    ScopeNode,
    Value,
    Values,
    nodes_of,
    rebuild,
    with_args,
)
from dslc.onnx.broadcasting import NotLowered, Symbols, symbolic
from dslc.onnx.context import OpaqueNode, OpaqueTensor, Origin
from dslc.onnx.emit import Spec, write_call
from dslc.onnx.functions import Function
from dslc.onnx.fuse_nodes import fuse_node
from dslc.onnx.lower_scopes import lower_scope, picked
from dslc.onnx.metadata import DOMAIN
from dslc.onnx.protos import small_constant
from dslc.semantics.elaborate import elaborate
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules

#: which nodes of the file are written anew that read computed sizes: none, those that need none of these, or all
Resolved: TypeAlias = Literal["file", "inferred", "shapes"]


class Cycle(Exception):
    """A node of the file, the argument, that cannot be kept, because what it reads is now computed from it."""


class NestedModels(NamedTuple):
    """Writers of models inside a model that is planned: the functions of kernels, and what computes constants."""

    function: Callable[[Rules, Graph, int, str], Function]
    compute: Callable[[Sequence[Value], Rules, int], dict[Value, Any]]


@dataclass(eq=False)
class WritePlan:
    """Producers of values: a node (`Spec`), another value, or nothing (inputs and constants).

    `folded` holds the constants that are computed when the model is written, `functions` what kernels mean, by name. With `scopes`
    expressions are written in plain nodes where no operator has one. `resolved` says which nodes of the file that read computed sizes
    are written anew.
    """

    rules: Rules
    opset: int
    origins: Mapping[Value, Origin]
    symbols: Symbols
    outputs: InitVar[Sequence[Value]]
    where: str
    _write: NestedModels
    fold: bool = True
    scopes: bool = False
    resolved: Resolved = "file"
    folded: set[Value] = field(default_factory=set)
    #: what depends on weights alone and is written as nodes
    _held: set[Value] = field(default_factory=set)
    functions: dict[str, Function] = field(default_factory=dict)
    banned: set[Origin] = field(default_factory=set)
    _kept: dict[str, Node] = field(default_factory=dict)
    _origin_specs: dict[Origin, Spec] = field(default_factory=dict)
    _word_for_word: set[Spec] = field(default_factory=set)
    #: the nodes of each, its own the last; none where it is written as what defines it
    _specs: dict[Node, tuple[Spec, ...]] = field(default_factory=dict)
    _extra: dict[Value, Spec] = field(default_factory=dict)
    #: values that are written as others: those of operators without a node of their own, as what defines them
    aliases: dict[Value, Value] = field(default_factory=dict)
    #: calls that no ONNX nodes express, where they are collected (see `unsaid`) and no mistake
    _unsaid: set[Node] | None = None
    #: nodes that say what an operator without one node of its own means, and a result of that
    inside: dict[Node, Value] = field(default_factory=dict)

    def __post_init__(self, outputs: Sequence[Value]) -> None:
        self.users = Counter(outputs)
        for node in nodes_of(outputs):
            self.users.update(set(node.args))
        self._picked = picked(outputs)

    def canonical(self, value: Value) -> Value:
        """The value that stands for this one in the written model."""
        while True:
            node = value.node
            if isinstance(node, Opaque) and isinstance(node.payload, OpaqueNode) and node.payload.from_file:
                return Value(self._kept.setdefault(node.key, node), value.index)
            if value not in self.aliases:
                return value
            value = self.aliases[value]

    def kept(self, spec: Spec) -> bool:
        """Return whether a node is written as the file has it."""
        return spec in self._word_for_word or any(isinstance(value.node, Opaque) for value in spec.gives)

    def order(self, outputs: Sequence[Value]) -> list[Spec]:
        """Nodes to write, producers first.

        Raises:
            DslcError: E0814 for what no ONNX node can express.
        """
        while True:
            try:
                return self._order(outputs)
            except Cycle as cycle:
                self.banned.add(cycle.args[0])

    def hold(self, value: Value) -> None:
        """Writes a weights-only application as nodes from now on, and those below it whose results are larger than their arguments."""
        for node in nodes_of([value]):
            if isinstance(node, Call):
                self._held.update(one for one in node.values if one == value or grown(one))
        self.folded.clear()

    def unsaid(self, outputs: Sequence[Value]) -> frozenset[Node]:
        """The calls among the nodes of `outputs` that no ONNX nodes express: what the file says of a node counts."""
        found = self._unsaid = set()
        self.order(outputs)
        self._unsaid = None
        return frozenset(found)

    def _order(self, outputs: Sequence[Value]) -> list[Spec]:
        done: dict[Spec, None] = {}
        # what is on the path, with the values that are left of what it reads
        opened: dict[Spec | None, Iterator[Value]] = {None: iter(outputs)}
        while opened:
            reader, reads = opened.popitem()
            value = next(reads, None)
            if value is not None:
                opened[reader] = reads
                spec = self.producer(value)
                if spec and spec in opened:
                    raise Cycle(self._breakable(opened, spec))
                if spec and spec not in done:
                    opened[spec] = iter(spec.reads)
            elif reader:
                done[reader] = None
        return list(done)

    def _breakable(self, opened: Iterable[Spec | None], spec: Spec) -> Origin:
        on_path = list(opened)[list(opened).index(spec) :]
        for origin, made in self._origin_specs.items():
            if made in on_path and origin not in self.banned:
                return origin
        raise error("E0806", f"the optimized graph of {self.where} has a cycle", path=self.where)

    def producer(self, value: Value) -> Spec | None:
        """The node that gives a value; None for inputs, weights and constants that are computed now."""
        value = self.canonical(value)
        node = value.node
        if isinstance(node, Input):
            return None
        if isinstance(node, Constant):
            return self._constant(value)
        if node.constant and self.fold and value not in self._held and foldable(value):
            self.folded.add(value)
            return None
        if value in self._extra:
            return self._extra[value]
        origin = self.origins.get(value)
        if origin and origin not in self.banned:
            return self._anew(value, origin) or self._origin(origin)
        if isinstance(node, Opaque):
            return self._opaque(node)
        if isinstance(node, Kernel):
            return self._kernel(node)
        if isinstance(node, Call):
            return self._call(node, value)
        if node.constant and self.fold:
            self.folded.add(value)
            return None
        if isinstance(node, ScopeNode) and self.scopes:
            return self.producer(self._lowered(node))
        what = str(node.scope)[:80] if isinstance(node, ScopeNode) else type(node).__name__
        raise error("E0814", f"no ONNX node expresses {what}", path=self.where)

    def _constant(self, value: Value) -> Spec | None:
        """Large constants with one number everywhere are written as ConstantOfShape, all others as weights."""
        data = value.node.data  # type: ignore[attr-defined]
        if not isinstance(data, FillRef):
            return None
        symbolic = not value.type.is_static
        if not symbolic and value.type.elements <= 1024:
            return None
        origin = self.origins.get(value) if symbolic else None
        if origin and origin not in self.banned:
            return self._origin(origin)
        if value not in self._extra:
            self._extra[value] = fill_spec(value, self.symbols.at(value.node))
        return self._extra[value]

    def _anew(self, value: Value, origin: Origin) -> Spec | None:
        """An application of the file, written without the sizes that the file computes for it; None where it has to read them."""
        node = value.node
        if self.resolved == "file" or not isinstance(node, Call) or not symbolic(node.attrs):
            return None
        if any(one is not None and one.node is not node for one in origin.outputs) or not {*node.args} <= {
            *origin.inputs
        }:
            return None
        if all(read is None or read.constant or read in node.args for read in origin.inputs):
            return None
        found = self._call(node, value)
        if not found or self.resolved == "shapes" or all(read.constant or read in node.args for read in found.reads):
            return found
        return None

    def _origin(self, origin: Origin) -> Spec:
        if origin not in self._origin_specs:
            self._origin_specs[origin] = Spec(origin.proto, origin.inputs, origin.outputs)
            self._word_for_word.add(self._origin_specs[origin])
        return self._origin_specs[origin]

    def _opaque(self, node: Opaque) -> Spec | None:
        payload = node.payload
        if isinstance(payload, OpaqueTensor):
            return None
        if node not in self._specs:
            count = sum(slot is not None for slot in payload.slots)
            inputs = tuple(None if slot is None else node.args[slot] for slot in payload.slots)
            names = tuple(zip(payload.captured, node.args[count:], strict=True))
            kept = payload.proto.output if payload.from_file else ("y",) * len(node.values)
            outputs = tuple(value if name else None for value, name in zip(node.values, kept, strict=True))
            self._specs[node] = (Spec(payload.proto, inputs, outputs, names),)
        return self._specs[node][0]

    def _kernel(self, node: Kernel) -> Spec:
        """A node of a domain of its own, whose function says what it means."""
        if node not in self._specs:
            function = self._write.function(self.rules, node.group, self.opset, self.where)
            self.functions[function.name] = function
            self._specs[node] = (Spec(NodeProto(op_type=function.name, domain=DOMAIN), node.args, node.values),)
        return self._specs[node][0]

    def _call(self, node: Call, value: Value) -> Spec | None:
        if node not in self._specs:
            joined = fuse_node(self.rules, node, self.opset, self.users, self._elements)
            written = (joined,) if joined else self._own(node)
            if not written:
                # an import-only clause whose right side is this one application
                found = fuse_node(self.rules, node, self.opset, self.users, self._elements, single=True)
                written = (found,) if found else ()
            self._specs[node] = written
            for spec in written[:-1]:
                for output in spec.gives:
                    self._extra[output] = spec
                    self.inside.setdefault(output.node, node.values[0])
            if not written:
                self._specs[node] = self._defined(node)
        specs = self._specs[node]
        return specs[-1] if specs else self.producer(self.aliases[value])

    def _elements(self, value: Value) -> Any:
        if isinstance(value.node, Constant):
            return value.node.data.load()
        return self._write.compute([value], self.rules, self.opset)[value]

    def _own(self, node: Call) -> tuple[Spec, ...] | None:
        """A node of the file that is alike, which keeps its names and needs no sizes that are unknown, or nodes through a clause."""
        if alike := self._alike.get(alike_key(node)):
            return (written_alike(alike, node),)
        outer = self.inside.get(node)
        symbols = self.symbols.at(outer.node if outer else node)
        return write_call(self.rules, node, self.opset, symbols)

    @cached_property
    def _alike(self) -> dict[Key, tuple[Origin, Call]]:
        return alike_origins(self.origins)

    def _defined(self, node: Call) -> tuple[Spec, ...]:
        """Nothing where the operator's definition is written; where unsaid calls are collected, a stand-in that reads the same."""
        try:
            self._inline(node)
        except DslcError:
            if self._unsaid is None:
                raise
            outer = self.inside.get(node)
            self._unsaid.add(outer.node if outer else node)
            return (Spec(NodeProto(), node.args, node.values),)
        return ()

    def _lowered(self, node: ScopeNode) -> Value:
        """An expression in plain nodes, after those that it reads: it may read what these are made of."""
        stack = [node]
        while stack:
            one = stack[-1]
            below = [
                arg.node
                for arg in one.args
                if isinstance(arg.node, ScopeNode) and not arg.constant and arg not in self.aliases
            ]
            if below:
                stack += below
                continue
            stack.pop()
            if Value(one) in self.aliases:
                continue
            args = tuple(arg if arg.constant else self.aliases.get(arg, arg) for arg in one.args)
            first: Collection[int] = self._picked.get(Value(one), ())
            try:
                value = lower_scope(one.scope, args, self.opset, self.symbols.at(one), first)
                self.aliases[Value(one)] = value
            except NotLowered as problem:
                text = f"no ONNX nodes of opset {self.opset} express {problem} in {str(one.scope)[:80]}"
                raise error("E0814", text, path=self.where) from None
        return self.aliases[Value(node)]

    def _inline(self, node: Call) -> None:
        """An operator without a node of its own: what it is defined by."""
        try:
            instance = elaborate(self.rules, node.op, tuple(arg.type for arg in node.args), node.attrs)
        except (Mismatch, DslcError):
            raise error("E0814", f"no ONNX node expresses `{node.op}` at opset {self.opset}", path=self.where) from None

        def made(below: Node, args: Values) -> Values:
            if isinstance(below, ScopeNode) and not self.scopes and not all(arg.constant for arg in args):
                raise error("E0814", f"no ONNX node expresses `{node.op}` at opset {self.opset}", path=self.where)
            values = with_args(below, args)
            self.inside.setdefault(values[0].node, self.inside.get(node, node.values[0]))
            return values

        known = dict(zip(instance.params, node.args, strict=True))
        self.aliases.update(zip(node.values, rebuild(instance.outputs, made, known), strict=True))


def fill_spec(value: Value, symbols: Symbols) -> Spec:
    """A constant with one number everywhere, as a node of its shape."""
    one = FillRef(value.node.data.value, TensorType(value.type.dtype, (1,))).load()  # type: ignore[attr-defined]
    tensor = numpy_helper.from_array(one.astype(NUMPY[value.type.dtype]))
    sizes = value.type.shape
    shape = small_constant(np.array(sizes, np.int64)) if value.type.is_static else symbols.tensor(sizes, True)
    return Spec(helper.make_node("ConstantOfShape", [""], [""], value=tensor), (shape,), (value,))


LARGEST = 1 << 30  #: bytes that are computed at once, weights in files not counted


def grown(value: Value) -> bool:
    """Return whether a result is larger than what it is computed from."""
    read = sum(arg.type.bytes for arg in value.node.args if arg.known and arg.type.is_static)
    return value.known and value.type.is_static and value.type.bytes > read


def foldable(value: Value) -> bool:
    """Return whether a weights-only value is computed now: not where it, or a step to it, would be much larger than the weights."""
    if not value.known or not value.type.is_static:
        return False
    weights = 0
    for node in nodes_of([value]):
        sizes = [type.bytes for type in node.types if type and type.is_static]
        if isinstance(node, Constant) and not isinstance(node.data, FillRef):
            weights += sum(sizes)
        elif isinstance(node, Call) and not node.args and len(sizes) == len(node.types):
            # it is made of nothing: a weight itself
            weights += sum(sizes)
        elif len(sizes) < len(node.types) or sum(sizes) > LARGEST:
            return False
    return value.type.bytes <= max(1 << 20, 4 * weights)


Key = tuple[Any, ...]


def alike_key(node: Call) -> Key:
    """A key that is equal for applications that one node of a file writes in the same way.

    It has the operator, attributes, types, weights, and which of the arguments are one value.
    """
    args = node.args
    first: dict[Value, int] = {}
    same = tuple([first.setdefault(arg, k) for k, arg in enumerate(args)])
    weights = tuple([arg if arg.constant else None for arg in args])
    return (node.op, node.tag, tuple([arg.type_or_none for arg in args]), node.types, weights, same)


def alike_origins(origins: Mapping[Value, Origin]) -> dict[Key, tuple[Origin, Call]]:
    """Nodes of the file that are one application each, by what they apply."""
    out: dict[Key, tuple[Origin, Call]] = {}
    for value, origin in origins.items():
        node = value.node
        if not isinstance(node, Call) or any(o is not None and o.node is not node for o in origin.outputs):
            continue
        if all(read is None or read.constant or read in node.args for read in origin.inputs):
            out.setdefault(alike_key(node), (origin, node))
    return out


def written_alike(found: tuple[Origin, Call], node: Call) -> Spec:
    """The node of the file with the arguments of another application."""
    origin, old = found
    args = dict(zip(old.args, node.args, strict=True))
    inputs = tuple(args.get(read, read) if read else None for read in origin.inputs)
    outputs = tuple(Value(node, output.index) if output else None for output in origin.outputs)
    proto = NodeProto()
    proto.CopyFrom(origin.proto)
    # notes are of one node, and are its own where that is the one
    for note in ("name", "doc_string", "metadata_props"):
        proto.ClearField(note)
    return Spec(proto, inputs, outputs)
