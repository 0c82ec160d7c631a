"""Models as they are drawn: nodes by name, and which of two models' nodes the other one has as well."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from onnx import AttributeProto, ModelProto, NodeProto

from dslc.onnx.naming import RULE
from dslc.onnx.protos import captured
from dslc.reporting.data import DrawnNode, Picture

NUMBERS = 8  #: attributes of so many numbers are written out


def pictured(model: ModelProto) -> Picture:
    """The nodes of a model's main graph; constants are weights, and not drawn."""
    weights = {tensor.name for tensor in model.graph.initializer}
    held = [node for node in model.graph.node if node.op_type == "Constant" and node.domain in {"", "ai.onnx"}]
    weights.update(name for node in held for name in node.output)
    known = {id(node) for node in held}
    nodes = tuple(_drawn(node, weights) for node in model.graph.node if id(node) not in known)
    inputs = tuple(value.name for value in model.graph.input if value.name not in weights)
    return Picture(inputs, tuple(value.name for value in model.graph.output), nodes)


def compared(
    before: Picture, after: Picture, replaced: Mapping[str, Collection[str]], rules: Iterable[str] = ()
) -> tuple[Picture, Picture]:
    """Both, with what the other one has not marked.

    Args:
        replaced: rules by the nodes of the first one that they replaced, by name or first output.
        rules: that had a part, for nodes whose file has no room to say which one made them.
    """
    first, second = _programs(before), _programs(after)
    old: set[object] = {*map(_identity, before.nodes), *first}
    new: set[object] = {*map(_identity, after.nodes), *second}
    short = {rule.rpartition(".")[2]: rule for rule in rules}

    def left(node: DrawnNode, program: str) -> DrawnNode:
        found = tuple(dict.fromkeys((*replaced.get(node.name, ()), *replaced.get(next(iter(node.outputs), ""), ()))))
        return replace(node, rules=found, changed=bool(found) or not {_identity(node), program} & new)

    def right(node: DrawnNode, program: str) -> DrawnNode:
        if {_identity(node), program} & old:
            return replace(node, rules=())
        # `conv_1/merge_convs/Concat` is named after its rule
        named = [short[part] for part in node.name.split("/") if part in short]
        return replace(node, rules=node.rules or tuple(named[-1:]), changed=True)

    kept = _with_what_is_above(tuple(map(left, before.nodes, first)))
    return replace(before, nodes=kept), replace(after, nodes=tuple(map(right, after.nodes, second)))


def _with_what_is_above(nodes: tuple[DrawnNode, ...]) -> tuple[DrawnNode, ...]:
    """Give changed nodes without a rule that of their readers: a step may name only the results of a region."""
    readers: dict[str, tuple[str, ...]] = {}
    out: list[DrawnNode] = []
    for node in reversed(nodes):
        found = node
        if node.changed and not node.rules:
            found = replace(
                node, rules=tuple(dict.fromkeys(rule for name in node.outputs for rule in readers.get(name, ())))
            )
        out.append(found)
        for name in found.inputs if found.changed else ():
            readers[name] = tuple(dict.fromkeys((*readers.get(name, ()), *found.rules)))
    return tuple(reversed(out))


def _identity(node: DrawnNode) -> tuple[object, ...]:
    return node.name, node.operator, tuple(sorted(node.attributes.items()))


def _programs(picture: Picture) -> list[str]:
    """Digests of the computation of each node from the model's inputs: equal ones are equal programs, weights left out."""
    known: dict[str, str] = {name: name for name in picture.inputs}
    out: list[str] = []
    for node in picture.nodes:
        inputs = [known.get(name, name) for name in node.inputs]
        text = repr((node.operator, sorted(node.attributes.items()), inputs))
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        known.update((name, f"{digest} {k}") for k, name in enumerate(node.outputs))
        out.append(digest)
    return out


def _drawn(node: NodeProto, weights: Collection[str]) -> DrawnNode:
    outputs = tuple(name for name in node.output if name)
    made = tuple(entry.value for entry in node.metadata_props if entry.key == RULE)
    inputs = tuple(dict.fromkeys(name for name in (*node.input, *captured(node)) if name and name not in weights))
    operator = f"{node.domain}.{node.op_type}".removeprefix("ai.onnx.").removeprefix(".")
    attributes = {attribute.name: _text(attribute) for attribute in node.attribute}
    return DrawnNode(
        node.name or next(iter(outputs), node.op_type), operator, inputs, outputs, made, attributes=attributes
    )


def _text(attribute: AttributeProto) -> str:
    kind = attribute.type
    if kind == AttributeProto.INT:
        return str(attribute.i)
    if kind == AttributeProto.FLOAT:
        return f"{attribute.f:g}"
    if kind == AttributeProto.STRING:
        return _short(attribute.s.decode("utf-8", "replace"))
    if kind == AttributeProto.TENSOR:
        return f"tensor {list(attribute.t.dims)}"
    if kind == AttributeProto.GRAPH:
        return f"graph of {len(attribute.g.node)} nodes"
    numbers = [*attribute.ints, *(f"{one:g}" for one in attribute.floats)]
    if numbers:
        shown = ", ".join(map(str, numbers[:NUMBERS]))
        return f"[{shown}{', ...' if len(numbers) > NUMBERS else ''}]"
    return _short(", ".join(one.decode("utf-8", "replace") for one in attribute.strings))


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
