"""The model around an imported graph: everything that export needs to write the rest back word for word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from onnx import ModelProto, NodeProto, SparseTensorProto, TensorProto

from dslc.ir.dtype import Dim
from dslc.ir.graph import Graph, Value, Values
from dslc.ir.scalar import Scalar, as_scalar, dimension, substitute
from dslc.ir.sizes import with_sizes

#: what a node reads or gives, by place; None where that is left out
ValuesByPlace: TypeAlias = tuple[Value | None, ...]


@dataclass(frozen=True, eq=False)
class OpaqueNode:
    """Payload of a node that is kept.

    `slots` says for each input which argument it is (None: left out); the arguments after them are `captured`, in that order.
    """

    proto: NodeProto
    slots: tuple[int | None, ...]
    captured: tuple[str, ...]
    #: a node of the file: it is written once, whatever its arguments have become
    from_file: bool = False


@dataclass(frozen=True, eq=False)
class OpaqueTensor:
    """Payload of a weight that the language has no type for, or that is sparse."""

    tensor: TensorProto | SparseTensorProto


@dataclass(frozen=True, eq=False)
class Origin:
    """The node of the file that computed a value, with the values that it read (None: left out)."""

    proto: NodeProto
    inputs: ValuesByPlace
    outputs: ValuesByPlace


@dataclass(frozen=True, eq=False)
class Context:
    """The model around a graph.

    `names`: the name that a value had; `tensors`: the weight that a constant was; `origins`: the node that computed a value;
    `variables`: weights that a caller may override or training changes, by name (they are inputs of the graph, no constants);
    `pinned`: weights that are referred to by name and must stay; `dims`: the value and axis that a symbolic size can be read from.
    """

    model: ModelProto
    folder: Path | None
    where: str
    opsets: Mapping[str, int]
    bind: Mapping[str, int] = field(default_factory=dict)
    names: Mapping[Value, str] = field(default_factory=dict)
    tensors: Mapping[Value, TensorProto] = field(default_factory=dict)
    origins: Mapping[Value, Origin] = field(default_factory=dict)
    variables: Mapping[str, TensorProto | SparseTensorProto] = field(default_factory=dict)
    pinned: Mapping[str, Value] = field(default_factory=dict)
    dims: Mapping[str, tuple[Value, int]] = field(default_factory=dict)

    @property
    def opset(self) -> int:
        return self.opsets.get("", 0)

    @property
    def ir_version(self) -> int:
        return int(self.model.ir_version)


@dataclass(frozen=True, eq=False)
class Imported:
    """A model as a graph of the language, and what export needs."""

    graph: Graph
    context: Context


def bind_values(outputs: Values, bind: Mapping[str, Dim]) -> Values:
    """The same values with symbols replaced by sizes, all at once, in types, attributes and expressions."""
    table: dict[Scalar, Scalar] = {dimension(name): as_scalar(size) for name, size in bind.items()}
    return with_sizes(outputs, lambda item: substitute(item, table))


def open_sizes(values: Iterable[Value]) -> list[Scalar]:
    """The sizes of some values that are no numbers."""
    return [size for value in values for size in value.type.shape if isinstance(size, Scalar)]


def bind_graph(graph: Graph, bind: Mapping[str, Dim]) -> Graph:
    """The same graph with symbols replaced by sizes."""
    values = bind_values((*graph.inputs, *graph.outputs), bind)
    return Graph(values[: len(graph.inputs)], values[len(graph.inputs) :])
