"""Nodes of the file that say how an operator is written which no clause can write: the same one on other arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnx import NodeProto

from dslc.ir.graph import Call, Value
from dslc.onnx.context import Origin
from dslc.onnx.emit import Spec

Key = tuple[Any, ...]


def alike_key(node: Call) -> Key:
    """Equal for applications that one node of a file writes in the same way: operator, attributes, types, weights, and which of the
    arguments are one value."""
    args = node.args
    first: dict[Value, int] = {}
    same = tuple([first.setdefault(arg, k) for k, arg in enumerate(args)])
    weights = tuple([arg if arg.constant else None for arg in args])
    return (node.op, node.tag, tuple([arg.node.types[arg.index] for arg in args]), node.types, weights, same)


def alike_origins(origins: Mapping[Value, Origin]) -> dict[Key, tuple[Origin, Call]]:
    """Nodes of the file that are one application each, by what they apply."""
    out: dict[Key, tuple[Origin, Call]] = {}
    for value, origin in origins.items():
        node = value.node
        if not isinstance(node, Call) or any(o is not None and o.node is not node for o in origin.outputs):
            continue
        if all(read is None or read.constant or read in node.args for read in origin.inputs):
            out.setdefault(alike_key(node), (origin, node))
    return out


def written_alike(found: tuple[Origin, Call], node: Call) -> Spec:
    """The node of the file with the arguments of another application."""
    origin, old = found
    args = dict(zip(old.args, node.args, strict=True))
    inputs = tuple(None if read is None else args.get(read, read) for read in origin.inputs)
    outputs = tuple(None if output is None else Value(node, output.index) for output in origin.outputs)
    proto = NodeProto()
    proto.CopyFrom(origin.proto)
    # notes are of one node, and are its own where that is the one
    for note in ("name", "doc_string", "metadata_props"):
        proto.ClearField(note)
    return Spec(proto, inputs, outputs)
