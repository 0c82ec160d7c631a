"""Groups that the functions of models mean: what is known of one before it is read, and what it may consist of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx import FunctionProto

from dslc.errors import DslcError
from dslc.ir.dtype import Dim, TensorType
from dslc.ir.graph import Graph, Kernel, Opaque, input_value, replace
from dslc.ir.scalar import Scalar, Sym, dimension, walk
from dslc.onnx.bindings import bind_graph
from dslc.onnx.exporter import function_of
from dslc.onnx.functions import nodes_of
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules


def defined(rules: Rules, function: FunctionProto, types: Sequence[TensorType], definition: str) -> Graph | None:
    """The group of a definition at types, where its equation is what the function spells out."""
    from dslc.onnx.definitions import equation_of

    group = equation_of(rules, definition) if definition else None
    opset = next((entry.version for entry in function.opset_import if not entry.domain), 0)
    if group is None or len(group.inputs) != len(types):
        return None
    try:
        if nodes_of(function_of(rules, group, opset).proto) != nodes_of(function):
            return None
        sizes = {
            size.name: given
            for value, type in zip(group.inputs, types, strict=True)
            for size, given in zip(value.type.shape, type.shape, strict=False)
            if isinstance(size, Sym)
        }
        bound = bind_graph(group, sizes) if sizes else group
    except (DslcError, Mismatch, RecursionError, ArithmeticError, ValueError):
        return None
    return bound if [value.type for value in bound.inputs] == list(types) else None


def named_size(size: Scalar, terms: dict[str, Dim]) -> Sym:
    """A name for the time being for a size that is an expression; `terms` has those that there are."""
    name = next((name for name, term in terms.items() if term is size), f"size of a kernel {len(terms)}")
    terms[name] = size
    return dimension(name)


def closed(graph: Graph, terms: Mapping[str, Dim], types: Sequence[TensorType]) -> Graph | None:
    """The group over numbered holes, where it consists of what a group may consist of."""
    bound = bind_graph(graph, terms) if terms else graph
    if any(isinstance(node, Opaque | Kernel) for node in bound.nodes()) or not all(
        value.known for value in bound.outputs
    ):
        return None
    known = {part for type in types for size in type.shape if isinstance(size, Scalar) for part in walk(size)}
    for value in bound.outputs:
        for size in value.type.shape:
            if isinstance(size, Scalar) and any(isinstance(part, Sym) and part not in known for part in walk(size)):
                return None
    if len(bound.inputs) < len(types):
        return None
    holes = tuple(input_value(f"h{k}", type) for k, type in enumerate(types))
    return Graph(holes, replace(bound.outputs, dict(zip(bound.inputs, holes, strict=True))))
