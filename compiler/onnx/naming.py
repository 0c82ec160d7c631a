"""Names of values and nodes in a written model: as in the file, or after what they replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from onnx import NodeProto

from dslc.ir.graph import Node, Value
from dslc.onnx.context import Context, Origin
from dslc.records import record

#: the entry of a node's metadata that names the rule which made it, and the version of ONNX's format that knows such entries
RULE, METADATA = "dslc.rule", 10


@record
class CalledNode:
    """The origin of a node: `name` of the file's node that it is, or that was replaced by it; `rule` made it, if any.

    `place` says where that was, also where the file's node has no name. An operator inside such a node, or inside a replacement, is
    not `whole`: what it computes is no result of the file's node. `file` is that node, whose notes go with it.
    """

    name: str
    place: str
    rule: str = ""
    whole: bool = True
    file: NodeProto | None = None

    def made_by(self, rule: str, whole: bool) -> CalledNode:
        return replace(self, rule=rule, whole=whole, file=None)

    def text(self, op_type: str) -> str:
        """A name for a node of some type; none for the file's own nameless ones.

        `conv_1`, `conv_1/merge_convs` for what replaced it, `conv_1/merge_convs/Concat` for what else that needed.
        """
        if not self.rule:
            return self.name if self.whole or not self.name else f"{self.name}/{op_type}"
        return self.text_of_result(op_type)

    def text_of_result(self, op_type: str) -> str:
        """A name for what it computes, where that is no result of the file."""
        short = "+".join(one.rpartition(".")[2] for one in self.rule.split(" + "))
        made = f"{self.place}/{short}" if self.rule else self.place
        return made if self.rule and self.whole else f"{made}/{op_type}"


@dataclass(frozen=True, slots=True, eq=False)
class Naming:
    """Names of a graph: of values (as far as they are results of the file), and what its nodes come from."""

    values: Mapping[Value, str] = field(default_factory=dict)
    nodes: Mapping[Node, CalledNode] = field(default_factory=dict)


def naming_of(context: Context) -> Naming:
    """The names of the model as it was imported; of values that are equal, that of the first."""
    nodes: dict[Node, CalledNode] = {}
    origins = dict.fromkeys(context.origins.values())
    for origin in origins:
        called = CalledNode(origin.proto.name, origin.proto.name or _first(origin), file=origin.proto)
        for value in origin.outputs:
            if value:
                nodes.setdefault(value.node, called)
    for origin in origins:
        _inside(origin, nodes)
    for value, name in context.names.items():
        if value.node.args:
            nodes.setdefault(value.node, CalledNode("", name))
    return Naming(context.names, nodes)


def _first(origin: Origin) -> str:
    return next((name for name in origin.proto.output if name), origin.proto.op_type)


def _inside(origin: Origin, nodes: dict[Node, CalledNode]) -> None:
    """The nodes between a file's node's results and what it reads: where several operators say what it means."""
    ends = {value.node for value in origin.inputs if value}
    roots = [value.node for value in origin.outputs if value]
    stack = [arg.node for node in roots for arg in node.args]
    while stack:
        node = stack.pop()
        if node not in ends and node not in nodes and node.args:
            nodes[node] = replace(nodes[roots[0]], whole=False)
            stack.extend(arg.node for arg in node.args)


@dataclass(eq=False)
class Namer:
    """Gives values and nodes their names; nodes that the file did not have get each theirs once."""

    _naming: Naming
    ir_version: int
    _taken: set[str] = field(default_factory=set)
    #: values by those that are written in their place
    stands_for: Mapping[Value, Value] = field(default_factory=dict)
    #: nodes by a result of the operator that they are part of
    inside: Mapping[Node, Value] = field(default_factory=dict)

    def keep(self, names: Iterable[str]) -> None:
        """Names of nodes that are written as the file has them."""
        self._taken.update(names)

    def known(self, value: Value) -> str | None:
        """The name that a value has in the file."""
        return self._naming.values.get(self._meant(value))

    def _meant(self, value: Value) -> Value:
        while value not in self._naming.values and value in self.stands_for:
            value = self.stands_for[value]
        return value

    def _called(self, value: Value) -> CalledNode | None:
        """The origin of the node of a value, or the operator that it is written for."""
        found = self._naming.nodes.get(value.node) or self._naming.nodes.get(self._meant(value).node)
        if not found and value.node in self.inside:
            outer = self._called(self.inside[value.node])
            return replace(outer, whole=False) if outer else None
        return found

    def result(self, value: Value, op_type: str) -> str:
        """A name for a value that the file does not have; empty where nothing is known of it."""
        called = self._called(value)
        return called.text_of_result(op_type) if called else ""

    def operand(self, user: Value) -> str:
        """A name for a weight that something needs which the file does not have; empty where nothing is known of that."""
        called = self._called(user)
        return replace(called, whole=False).text_of_result("weight") if called else ""

    def name(self, node: NodeProto, value: Value | None) -> None:
        """Names a node after the value that it gives, and says by which rule it was made."""
        called = self._called(value) if value else None
        if not called:
            return
        if wanted := called.text(node.op_type):
            node.name = self._once(wanted)
        if called.rule:
            if self.ir_version >= METADATA:
                node.metadata_props.add(key=RULE, value=called.rule)
        elif called.whole and called.file is not None:
            node.doc_string = called.file.doc_string
            node.metadata_props.extend(called.file.metadata_props)

    def _once(self, wanted: str) -> str:
        name, count = wanted, 1
        while name in self._taken:
            count += 1
            name = f"{wanted}_{count}"
        self._taken.add(name)
        return name
