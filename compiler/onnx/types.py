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
    checker,
    shape_inference,
)

from dslc.errors import error
from dslc.ir.dtype import Dim, TensorType
from dslc.ir.scalar import dimension as unknown_size
from dslc.onnx.protos import DTYPES, copy_fields, subgraphs

KEEP = 1024  #: elements of a tensor that is kept


@dataclass(frozen=True)
class ModelTypes:
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
            raise error(
                "E0906", f"{where} has no dimension `{name}` to bind", path=where, hint=f"its dimensions: {known}"
            )
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
    elif tensor.data_location != TensorProto.EXTERNAL and math.prod(tensor.dims) <= KEEP:
        out.CopyFrom(tensor)
    return out


def _stripped_node(node: NodeProto) -> NodeProto:
    heavy = any(a.type == AttributeProto.TENSOR and math.prod(a.t.dims) > KEEP for a in node.attribute)
    if not heavy and next(subgraphs(node), None) is None:
        return node
    out = NodeProto()
    copy_fields(node, out, {"attribute"})
    for attribute in node.attribute:
        made = out.attribute.add(name=attribute.name, type=attribute.type)
        if attribute.type == AttributeProto.TENSOR:
            made.t.CopyFrom(_stripped_tensor(attribute.t, {}))
        elif attribute.type == AttributeProto.GRAPH:
            made.g.CopyFrom(_stripped_graph(attribute.g, attribute.g.node, {}))
        else:
            made.CopyFrom(attribute)
    return out


def _stripped_graph(graph: GraphProto, nodes: Sequence[NodeProto], small: Mapping[str, np.ndarray]) -> GraphProto:
    out = GraphProto(name=graph.name or "graph")
    out.node.extend(map(_stripped_node, nodes))
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
) -> ModelTypes:
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
    inferred = _run(copy, bind, where)
    by_name: dict[str, TensorType | None] = {}
    for value in (*inferred.value_info, *inferred.output, *inferred.input):
        by_name[value.name] = tensor_type(value.type, value.name)
    return ModelTypes(by_name, dims)


def _run(copy: ModelProto, bind: Mapping[str, int], where: str) -> GraphProto:
    """The graph with ONNX's types.

    Propagated contents of tensors add to these types and never judge a model: ONNX's rules for them take some tensors of rank 2 for
    lists of sizes (an `Unsqueeze` of a list), so what contradicts has to do so without them.
    """
    plain = _attempt(copy, where, contents=False)
    # contents are asked for only where they are needed: of a list of a million numbers ONNX propagates each, which takes seconds
    if not isinstance(plain, str) and _whole(plain):
        return plain
    message = _attempt(copy, where, contents=True)
    if isinstance(message, str) and "existing" in message:
        # ONNX Runtime, too, lets declared shapes be wrong
        del copy.graph.value_info[:]
        for value in copy.graph.output:
            if value.type.HasField("tensor_type"):
                value.type.tensor_type.ClearField("shape")
        message = _attempt(copy, where, contents=True)
    if not isinstance(message, str):
        return message
    sure = _attempt(copy, where, contents=False)
    if isinstance(sure, str):
        _refuse_contradiction(copy, sure, bind, where)
    more = _attempt(copy, where, contents=True, strict=False)
    if isinstance(sure, str) or isinstance(more, str):
        return copy.graph if isinstance(more, str) else more
    return _completed(sure, more)


def _attempt(copy: ModelProto, where: str, *, contents: bool, strict: bool = True) -> GraphProto | str:
    """ONNX's inference, or what it says against the model."""
    try:
        return shape_inference.infer_shapes(copy, strict_mode=strict, data_prop=contents).graph
    except checker.ValidationError as problem:
        # functions that call themselves, or of one name; no runtime takes them
        raise error("E0808", f"{where} is invalid: {(str(problem).splitlines() or [''])[0]}", path=where) from None
    except (shape_inference.InferenceError, RuntimeError, ValueError, TypeError) as problem:
        return str(problem)


def _whole(graph: GraphProto) -> bool:
    """Return whether the size of every dimension of every result is known."""
    types = {value.name: value.type for value in (*graph.value_info, *graph.output)}
    results = [name for node in graph.node for name in node.output if name]
    return all(name in types and _sized(types[name]) for name in results)


def _sized(type: TypeProto) -> bool:
    shaped = type.tensor_type
    return shaped.HasField("shape") and all(dimension.HasField("dim_value") for dimension in shaped.shape.dim)


def _completed(sure: GraphProto, more: GraphProto) -> GraphProto:
    """`sure`, with the shapes that only `more` has."""
    known = {value.name: value for value in (*more.value_info, *more.output)}
    for values in (sure.value_info, sure.output):
        for value in values:
            other = known.pop(value.name, None)
            if other is not None and _unshaped(value.type) and not _unshaped(other.type):
                value.type.CopyFrom(other.type)
    sure.value_info.extend(known.values())
    return sure


def _unshaped(type: TypeProto) -> bool:
    return not type.WhichOneof("value") or (type.HasField("tensor_type") and not type.tensor_type.HasField("shape"))


_REFUSED = re.compile(r"\(op_type:(\w+)(?:, node name: ([^)]*))?\): \[ShapeInferenceError\] ([^\n]*)")


def _refuse_contradiction(copy: ModelProto, message: str, bind: Mapping[str, int], where: str) -> None:
    found = _REFUSED.search(message)
    if not found or "existing" in found.group(3) or found.group(3).startswith("Inference error"):
        return
    bound = ", ".join(f"`{name}` = {size}" for name, size in sorted(bind.items()))
    text = f"the shapes of {where} contradict each other at {_at_node(copy, found, where)}: {found.group(3)}"
    raise error("E0805", text, path=where, hint=f"it was read with {bound}; it may need other sizes" if bound else "")


def _at_node(copy: ModelProto, found: re.Match[str], where: str) -> str:
    """A phrase for the node of a message, which tells no more than its operator and a name that it need not have."""
    names = [node.name for node in copy.graph.node]
    for position, node in enumerate(copy.graph.node):
        node.name = str(position)
    again = _REFUSED.search(str(_attempt(copy, where, contents=False)))
    loose = _attempt(copy, where, contents=False, strict=False)
    place = int(again.group(2)) if again and (again.group(2) or "").isdigit() else len(names)
    if place >= len(names) or copy.graph.node[place].op_type != found.group(1):  # a node inside another one
        return (
            f"a node `{found.group(2)}` ({found.group(1)})" if found.group(2) else f"one of its {found.group(1)} nodes"
        )
    node = copy.graph.node[place]
    typed = copy.graph if isinstance(loose, str) else loose
    types = {value.name: tensor_type(value.type, value.name) for value in (*typed.value_info, *typed.input)}
    weights = [tensor for tensor in typed.initializer if tensor.data_type in DTYPES]
    types |= {tensor.name: TensorType(DTYPES[tensor.data_type], tuple(tensor.dims)) for tensor in weights}
    shapes = {name: f" [{', '.join(map(str, type.shape))}]" for name, type in types.items() if type}
    given = [f"`{name}`{shapes.get(name, '')}" for name in node.input if name]
    operands = f"{', '.join(given[:-1])} and {given[-1]}" if len(given) > 1 else "".join(given)
    call = f"{node.op_type} of {operands}" if given else node.op_type
    return f"the node `{names[place]}` ({call})" if names[place] else f"the {call}"
