"""Types of all values of a model: ONNX's own shape inference, once, on a copy without weights.

Used for inputs and for the outputs of nodes that stay opaque; everything else gets its type from its operator's definition.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TensorShapeProto,
    TypeProto,
    ValueInfoProto,
    checker,
    shape_inference,
)

from dslc.errors import error
from dslc.ir.dtype import Dim, TensorType
from dslc.ir.scalar import dimension as unknown_size
from dslc.onnx.protos import DTYPES, subgraphs

_KEEP = 1024


@dataclass(frozen=True)
class Types:
    """Type by value name (None: no type of the language), and which input axis a symbolic size comes from."""

    by_name: Mapping[str, TensorType | None]
    dims: Mapping[str, tuple[str, int]] = field(default_factory=dict)


def dim_name(dimension: TensorShapeProto.Dimension) -> str:
    """The name of a symbolic dimension; empty where it has none (`?` and `-1` are no names: each stands for another size)."""
    name: str = dimension.dim_param
    return name if any(c.isalpha() or c == "_" for c in name) else ""


def bound_type(type: TypeProto, name: str, bind: Mapping[str, int], *, is_input: bool) -> TypeProto:
    """A copy of a tensor's type with bound dimensions as numbers; unnamed ones of inputs are named `INPUT.AXIS`."""
    out = TypeProto()
    out.CopyFrom(type)
    if not out.HasField("tensor_type") or not out.tensor_type.HasField("shape"):
        return out
    for axis, dimension in enumerate(out.tensor_type.shape.dim):
        if dimension.HasField("dim_value") and dimension.dim_value >= 0:
            continue
        own = f"{name}.{axis}"
        label = dim_name(dimension) or (own if is_input else "")
        size = bind.get(label, bind.get(own) if is_input else None)
        if size is not None:
            dimension.Clear()
            dimension.dim_value = size
        elif label:
            dimension.dim_param = label
        else:
            dimension.Clear()
    return out


def complete_bind(model: ModelProto, bind: Mapping[str, int], where: str) -> dict[str, int]:
    """`bind` by the names that dimensions have: `x.0` becomes the name of that dimension where it has one.

    Raises:
        DslcError: E0906 for a name that is no dimension of an input, or a size below 0.
    """
    labels: dict[str, str] = {}
    for value in model.graph.input:
        if not value.type.HasField("tensor_type"):
            continue
        for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
            if not dimension.HasField("dim_value") or dimension.dim_value < 0:
                own = f"{value.name}.{axis}"
                labels[own] = dim_name(dimension) or own
                labels[labels[own]] = labels[own]
    for other in (*model.graph.output, *model.graph.value_info):
        if other.type.HasField("tensor_type"):
            for dimension in other.type.tensor_type.shape.dim:
                if dim_name(dimension):
                    labels.setdefault(dim_name(dimension), dim_name(dimension))
    out: dict[str, int] = {}
    for name, size in bind.items():
        if name not in labels:
            known = ", ".join(sorted(set(labels.values()))) or "none"
            raise error("E0906", f"{where} has no dimension `{name}` to bind", path=where, hint=f"its dimensions: {known}")
        if size < 0:
            raise error("E0906", f"`{name}` is bound to {size}, which is no size", path=where)
        out[labels[name]] = int(size)
    return out


def tensor_type(type: TypeProto, name: str) -> TensorType | None:
    """A type of the language, or None (no tensor, unknown rank, other element type). Unknown sizes are `NAME.AXIS`."""
    if not type.HasField("tensor_type") or not type.tensor_type.HasField("shape"):
        return None
    dtype = DTYPES.get(type.tensor_type.elem_type)
    if dtype is None:
        return None
    shape: list[Dim] = []
    for axis, dimension in enumerate(type.tensor_type.shape.dim):
        if dimension.HasField("dim_value") and dimension.dim_value >= 0:
            shape.append(int(dimension.dim_value))
        else:
            shape.append(unknown_size(dim_name(dimension) or f"{name}.{axis}"))
    return TensorType(dtype, tuple(shape))


def _stripped_tensor(tensor: TensorProto, small: Mapping[str, np.ndarray]) -> TensorProto:
    out = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    if tensor.name in small:
        out.raw_data = np.ascontiguousarray(small[tensor.name]).tobytes()
    elif tensor.data_location != TensorProto.EXTERNAL and math.prod(tensor.dims) <= _KEEP:
        out.CopyFrom(tensor)
    return out


def _stripped_node(node: NodeProto) -> NodeProto:
    heavy = any(a.type == AttributeProto.TENSOR and math.prod(a.t.dims) > _KEEP for a in node.attribute)
    if not heavy and next(subgraphs(node), None) is None:
        return node
    out = NodeProto(
        op_type=node.op_type, domain=node.domain, name=node.name, input=node.input, output=node.output,
        overload=node.overload,
    )
    for attribute in node.attribute:
        made = out.attribute.add()
        if attribute.type == AttributeProto.TENSOR:
            made.name, made.type = attribute.name, attribute.type
            made.t.CopyFrom(_stripped_tensor(attribute.t, {}))
        elif attribute.type == AttributeProto.GRAPH:
            made.name, made.type = attribute.name, attribute.type
            made.g.CopyFrom(_stripped_graph(attribute.g, attribute.g.node, {}))
        else:
            made.CopyFrom(attribute)
    return out


def _stripped_graph(graph: GraphProto, nodes: Sequence[NodeProto], small: Mapping[str, np.ndarray]) -> GraphProto:
    out = GraphProto(name=graph.name or "graph")
    out.node.extend(_stripped_node(node) for node in nodes)
    out.input.extend(graph.input)
    out.output.extend(graph.output)
    out.value_info.extend(graph.value_info)
    out.initializer.extend(_stripped_tensor(tensor, small) for tensor in graph.initializer)
    # runtimes read a sparse weight as a tensor; ONNX's inference takes it for a type of its own, which hardly an operator has
    for sparse in graph.sparse_initializer:
        out.initializer.add(name=sparse.values.name, data_type=sparse.values.data_type, dims=sparse.dims)
    return out


def infer(
    model: ModelProto,
    nodes: Sequence[NodeProto],
    bind: Mapping[str, int],
    small: Mapping[str, np.ndarray],
    where: str,
) -> Types:
    """Types of all values at the bound sizes.

    Args:
        nodes: the model's nodes, producers first.
        small: contents of small integer weights that are in external data, by name (shapes depend on them).

    Raises:
        DslcError: E0805 where an operator cannot work on the shapes that it is given.
    """
    copy = ModelProto(ir_version=model.ir_version)
    copy.opset_import.extend(model.opset_import)
    copy.functions.extend(model.functions)
    copy.graph.CopyFrom(_stripped_graph(model.graph, nodes, small))
    dims: dict[str, tuple[str, int]] = {}
    weights = {tensor.name for tensor in model.graph.initializer}
    for value in copy.graph.input:
        value.type.CopyFrom(bound_type(value.type, value.name, bind, is_input=True))
        if value.name not in weights and value.type.HasField("tensor_type"):
            for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
                if dimension.dim_param:
                    dims.setdefault(dimension.dim_param, (value.name, axis))
    for value in (*copy.graph.output, *copy.graph.value_info):
        value.type.CopyFrom(bound_type(value.type, value.name, bind, is_input=False))
    inferred = _run(copy, where)
    by_name: dict[str, TensorType | None] = {}
    for value in (*inferred.value_info, *inferred.output, *inferred.input):
        by_name[value.name] = tensor_type(value.type, value.name)
    return Types(by_name, dims)


def _run(copy: ModelProto, where: str) -> GraphProto:
    message = ""
    for attempt in ("strict", "undeclared", "lenient"):
        try:
            strict = attempt != "lenient"
            return shape_inference.infer_shapes(copy, strict_mode=strict, data_prop=True).graph
        except checker.ValidationError as problem:
            # functions that call themselves, or of one name; no runtime takes them
            raise error("E0808", f"{where} is invalid: {(str(problem).splitlines() or [''])[0]}", path=where) from None
        except (shape_inference.InferenceError, RuntimeError, ValueError, TypeError) as problem:
            message = str(problem)
        if attempt == "strict" and "existing" in message:
            _forget_declared(copy.graph)  # ONNX Runtime, too, lets declared shapes be wrong
        elif attempt == "undeclared" or "existing" not in message:
            _refuse_contradiction(message, where)
    return copy.graph


def _forget_declared(graph: GraphProto) -> None:
    del graph.value_info[:]
    for value in graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")


def _refuse_contradiction(message: str, where: str) -> None:
    found = re.search(r"\(op_type:(\w+)(?:, node name: ([^)]*))?\): \[ShapeInferenceError\] ([^\n]*)", message)
    if found and "existing" not in found.group(3) and not found.group(3).startswith("Inference error"):
        node = f"{found.group(1)} node" + (f" `{found.group(2)}`" if found.group(2) else "")
        raise error("E0805", f"the shapes of {where} contradict each other at a {node}: {found.group(3)}", path=where)


def declared(name: str, value: ValueInfoProto) -> TensorType | None:
    return tensor_type(value.type, name)
