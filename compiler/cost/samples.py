"""Groups of nodes as graphs of their own, at the sizes at which they are measured."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from dslc.cost.groups import Group
from dslc.ir.constants import fill, number_of
from dslc.ir.dtype import Dim, TensorType
from dslc.ir.graph import (
    AttrValue,
    Call,
    Constant,
    Input,
    Kernel,
    Node,
    ScopeNode,
    Value,
    Values,
    call,
    constant_value,
    input_value,
    nodes_of,
)  # fmt: skip
from dslc.ir.scalar import Num, Scalar, Sym, num, substitute, walk
from dslc.ir.sizes import node_at
from dslc.records import record
from dslc.semantics.library import Rules

#: elements; smaller constants of integers keep their values in what is measured: indices decide what is touched
KEPT = 4096


@record
class Small:
    """A group on its own: what it works on, weights, and what it computes."""

    inputs: Values
    weights: Values
    outputs: Values


class Samples:
    """Makes graphs of groups.

    Args:
        rules, opset: of the model.
        bind: sizes of symbolic dimensions; `other` stands for those that are not said.
    """

    def __init__(self, rules: Rules, opset: int, bind: Mapping[str, int] | None = None, other: int = 1) -> None:
        self.rules, self.opset = rules, opset
        self._bind: dict[Scalar, Scalar] = {}
        self._sizes, self._other = dict(bind or {}), other

    def bytes_of(self, value: Value) -> int:
        """Bytes of a tensor at the sizes at which it is measured; 0 where that is not known."""
        return self._static_type(value.type).bytes if value.known else 0

    def text(self, small: Small) -> str:
        """A description of the measured group that is the same in every run."""
        place: dict[Value, str] = {value: f"x{k}" for k, value in enumerate(small.inputs)}
        place.update({value: f"w{k}" for k, value in enumerate(small.weights)})
        lines = [f"opset {self.opset}", *(f"{name}: {value.type}" for value, name in place.items())]
        for node in nodes_of(small.outputs):
            if isinstance(node, Input):
                continue
            for value in node.values:
                place[value] = f"v{len(place)}"
            args = ", ".join(place[arg] for arg in node.args)
            if isinstance(node, Call):
                attrs = ", ".join(f"{name}={shown_attribute(value)}" for name, value in node.attrs)
                what = f"{node.op}#{self._meaning(node.op)}({args}; {attrs})"
            elif isinstance(node, Constant):
                what = f"constant {node.data.key}"
            elif isinstance(node, Kernel):
                inside = self.text(Small(node.group.inputs, (), node.group.outputs)).replace("\n", "; ")
                what = f"kernel {{{inside}}}({args})"
            else:
                what = f"{program(node)}({args})"
            lines.append(f"{place[node.values[0]]} = {what}: {', '.join(map(str, node.types))}")
        if len({value.node for value in small.outputs}) > 1:
            lines.append(f"results {', '.join(place[value] for value in small.outputs)}")
        return "\n".join(lines)

    def _meaning(self, op: str) -> str:
        """A hash of an operator's definition."""
        return hashlib.sha256(self.rules.operators[op].syntax.span.text.encode()).hexdigest()[:16]

    def static(self, node: Call) -> Call:
        """The same application on inputs of static types."""
        small = self.small(Group((node,), (node.args,)))
        found = small.outputs[0].node
        assert isinstance(found, Call)
        return found

    def small(self, group: Group) -> Small:
        """A group on its own."""
        inputs: list[Value] = []
        weights: list[Value] = []
        new: dict[Value, Value] = {}

        def from_outside(arg: Value) -> Value:
            type = self._static_type(arg.type)
            if arg.constant and (kept := _kept(arg, type)):
                return kept
            listed, letter = (weights, "w") if arg.constant else (inputs, "x")
            listed.append(input_value(f"{letter}{len(listed)}", type))
            return listed[-1]

        for node, args in zip(group.nodes, group.args, strict=True):
            for arg in args:
                if arg not in new:
                    new[arg] = from_outside(arg)
            new.update(zip(node.values, self._rebuilt(node, tuple(new[arg] for arg in args)), strict=True))
        return Small(tuple(inputs), tuple(weights), tuple(new[value] for value in group.nodes[-1].values))

    def _rebuilt(self, node: Node, args: Values) -> Values:
        if isinstance(node, Call):
            types = tuple(self._static_type(type) for type in node.types if type)
            attrs = tuple((name, self._static_attr(value)) for name, value in node.attrs)
            return call(node.op, args, attrs, types)
        assert isinstance(node, ScopeNode | Kernel)
        return node_at(node, args, self._bound, self._bound)

    def size(self, name: str) -> int:
        """Size in the place of an open one where costs are measured."""
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


def program(node: Node) -> Any:
    """Expression of a scope or kernel node; None for other nodes."""
    return node.scope if isinstance(node, ScopeNode) else node.group if isinstance(node, Kernel) else None


def kept_key(arg: Value) -> str:
    """The contents of a constant whose elements decide what is touched: small integers."""
    node = arg.node
    if isinstance(node, Constant) and arg.known and arg.type.is_static and not arg.type.dtype.is_float:
        return node.data.key if arg.type.elements <= KEPT else ""
    return ""


def _kept(arg: Value, type: TensorType) -> Value | None:
    """The constant itself where its contents matter to the runtime: one number everywhere, or small integers."""
    node = arg.node
    number = number_of(arg)
    if number is not None:
        return fill(number, type)
    return constant_value(node.data, type) if isinstance(node, Constant) and kept_key(arg) else None


def shown_attribute(value: AttrValue) -> str:
    """An attribute as text that tells numbers from truth values and words."""
    return (
        f"[{', '.join(map(shown_attribute, value))}]" if isinstance(value, tuple) else f"{type(value).__name__} {value}"
    )


def bytes_in(value: Value) -> int:
    """Of a tensor of static size; 0 where it is not known."""
    return value.type.bytes if value.known and value.type.is_static else 0
