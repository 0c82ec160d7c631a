"""Models as they are drawn: nodes by name, and which of two models' nodes the other one has as well."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

from dslc.ir.constants import NUMPY
from dslc.ir.dtype import DType
from dslc.ir.graph import Constant, Input, Node
from dslc.onnx.context import Imported
from dslc.onnx.naming import RULE
from dslc.onnx.protos import byte_size, captured, copy_fields, entries, graphs, is_external
from dslc.reporting.data import DrawnNode, Picture

# ---- nodes by name -------------------------------------------------------------------------------------------------

NUMBERS = 8  #: attributes of so many numbers are written out


def pictured(model: ModelProto) -> Picture:
    """The nodes of a model's main graph; constants are weights, and not drawn."""
    weights = {tensor.name for tensor in model.graph.initializer}
    held = _constants(model.graph)
    weights.update(name for node in held for name in node.output)
    known = set(map(id, held))
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

    kept, made = tuple(map(left, before.nodes, first)), tuple(map(right, after.nodes, second))
    return replace(before, nodes=kept), replace(after, nodes=made)


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
    attributes = {attribute.name: _text(attribute) for attribute in node.attribute}
    name = node.name or next(iter(outputs), node.op_type)
    return DrawnNode(name, _operator(node), inputs, outputs, made, attributes=attributes)


def _operator(node: NodeProto) -> str:
    """The operator of a node, with its domain where that is not ONNX's own."""
    return f"{node.domain}.{node.op_type}".removeprefix("ai.onnx.").removeprefix(".")


def _constants(graph: GraphProto) -> list[NodeProto]:
    return [node for node in graph.node if node.op_type == "Constant" and node.domain in {"", "ai.onnx"}]


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


# ---- size, identity, metadata --------------------------------------------------------------------------------------


def counts(model: ModelProto) -> tuple[int, int, int, dict[str, int]]:
    """Operators (those of subgraphs included, constants not), elements of the weights, and their bytes; and operators by type.

    A type is written with its domain where that is not ONNX's own (`com.microsoft.FusedConv`).
    """
    nodes = parameters = size = 0
    types: Counter[str] = Counter()
    for graph in graphs(model.graph):
        held = _constants(graph)
        nodes += len(graph.node) - len(held)
        types.update(map(_operator, graph.node))
        types.subtract({"Constant": len(held)})
        constants = (attribute.t for node in held for attribute in node.attribute if attribute.HasField("t"))
        for tensor in (*graph.initializer, *constants):
            parameters += math.prod(tensor.dims)
            size += byte_size(tensor) or 0
    return nodes, parameters, size, {name: types[name] for name in sorted(types) if types[name]}


def digest(model: ModelProto, folder: Path | None) -> str:
    """A hash of the model's contents; external data counts by its file's name, size and time."""
    total = hashlib.sha256()
    for tensor in model.graph.initializer:
        _add(total, tensor, folder)
    rest = ModelProto()
    copy_fields(model, rest, {"graph"})
    copy_fields(model.graph, rest.graph, {"initializer"})
    total.update(rest.SerializeToString(deterministic=True))
    return total.hexdigest()


def _add(total: hashlib._Hash, tensor: TensorProto, folder: Path | None) -> None:
    if not is_external(tensor):
        total.update(tensor.SerializeToString(deterministic=True))
        return
    total.update(repr((tensor.name, tensor.data_type, list(tensor.dims), sorted(entries(tensor).items()))).encode())
    path = (folder or Path.cwd()) / entries(tensor).get("location", "")
    if path.is_file():
        status = path.stat()
        total.update(f"{status.st_size} {status.st_mtime_ns}".encode())


def note(model: ModelProto, values: Mapping[str, str]) -> None:
    """Writes entries into the model's metadata, in place of those of the same key."""
    kept = {entry.key: entry.value for entry in model.metadata_props}
    helper.set_model_props(model, {**kept, **values})


#: from the one with the most digits to the one with the fewest
_DIGITS = (DType.F64, DType.F32, DType.F16, DType.BF16)


def computed_types(model: Imported) -> Mapping[str, Any]:
    """The numpy type with the fewest digits that any node on the way to an output computes in, by the output's name.

    Inputs and weights that are of such a type do not count: they are the same numbers in every model.
    """
    weakest: dict[Node, int] = {}
    for node in model.graph.nodes():
        types = () if isinstance(node, Input | Constant) else node.types
        own = [_DIGITS.index(type.dtype) for type in types if type and type.dtype in _DIGITS]
        weakest[node] = max([-1, *own, *(weakest[arg.node] for arg in node.args)])
    names = [output.name for output in model.context.model.graph.output]
    found = zip(names, (weakest[value.node] for value in model.graph.outputs), strict=True)
    return {name: NUMPY[_DIGITS[rank]] for name, rank in found if rank >= 0}
