"""Fixing symbolic sizes in graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dslc.ir.constants import FillRef, fill
from dslc.ir.dtype import Dim, TensorType
from dslc.ir.graph import (
    Call,
    Constant,
    Graph,
    Input,
    Kernel,
    Opaque,
    Scope,
    ScopeNode,
    Value,
    call,
    input_value,
    kernel_value,
    opaque,
    scope_value,
    topological,
)
from dslc.ir.scalar import Num, Scalar, Sym, as_scalar, dimension, substitute


def bind_values(outputs: tuple[Value, ...], bind: Mapping[str, Dim]) -> tuple[Value, ...]:
    """The same values with symbols replaced by sizes, all at once, in types, attributes and expressions."""
    table: dict[Scalar, Scalar] = {dimension(name): as_scalar(size) for name, size in bind.items()}

    def size(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(size(v) for v in value)
        if isinstance(value, Scalar):
            found = substitute(value, table)
            return found.value if isinstance(found, Num) else found
        return value

    def type_of(type: TensorType | None) -> TensorType | None:
        return None if type is None else TensorType(type.dtype, size(type.shape))

    mapped: dict[Value, Value] = {}
    for node in topological(value.node for value in outputs):
        args = tuple(mapped[arg] for arg in node.args)
        types = tuple(type_of(t) for t in node.types)
        values: tuple[Value, ...]
        if isinstance(node, Input):
            values = (input_value(node.name, types[0]),)
        elif isinstance(node, Call):
            attrs = tuple((name, size(value)) for name, value in node.attrs)
            values = call(node.op, args, attrs, tuple(t for t in types if t is not None))
        elif isinstance(node, ScopeNode):
            scope = node.scope
            body = substitute(scope.body, table)
            values = (scope_value(Scope(size(scope.extents), body, scope.dtype, scope.groups), args),)
        elif isinstance(node, Kernel):
            values = kernel_value(bind_graph(node.group, bind), args)
        elif isinstance(node, Opaque):
            values = opaque(node.key, node.label, node.payload, args, types)
        elif isinstance(node, Constant) and isinstance(node.data, FillRef) and types[0] is not None:
            values = (fill(node.data.value, types[0]),)
        else:
            values = node.values
        mapped.update(zip(node.values, values, strict=True))
    return tuple(mapped[value] for value in outputs)


def bind_graph(graph: Graph, bind: Mapping[str, Dim]) -> Graph:
    """The same graph with symbols replaced by sizes."""
    values = bind_values((*graph.inputs, *graph.outputs), bind)
    return Graph(values[: len(graph.inputs)], values[len(graph.inputs) :])


__all__ = ["Dim", "Sym", "bind_graph", "bind_values"]
