"""Fixing symbolic sizes in graphs."""

from __future__ import annotations

from collections.abc import Mapping

from dslc.ir.dtype import Dim
from dslc.ir.graph import Graph, Value
from dslc.ir.scalar import Scalar, as_scalar, dimension, substitute
from dslc.ir.sizes import with_sizes


def bind_values(outputs: tuple[Value, ...], bind: Mapping[str, Dim]) -> tuple[Value, ...]:
    """The same values with symbols replaced by sizes, all at once, in types, attributes and expressions."""
    table: dict[Scalar, Scalar] = {dimension(name): as_scalar(size) for name, size in bind.items()}
    return with_sizes(outputs, lambda item: substitute(item, table))


def bind_graph(graph: Graph, bind: Mapping[str, Dim]) -> Graph:
    """The same graph with symbols replaced by sizes."""
    values = bind_values((*graph.inputs, *graph.outputs), bind)
    return Graph(values[: len(graph.inputs)], values[len(graph.inputs) :])
