"""A model's size, its identity, and what dslc notes in its metadata."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, helper

from dslc.onnx.external import byte_size, entries, is_external


def counts(model: ModelProto) -> tuple[int, int, int, dict[str, int]]:
    """Operators (those of subgraphs included, constants not), elements of the weights, and their bytes; and operators by type.

    A type is written with its domain where that is not ONNX's own (`com.microsoft.FusedConv`).
    """
    nodes = parameters = size = 0
    types: Counter[str] = Counter()
    for graph in _graphs(model.graph):
        held = [node for node in graph.node if node.op_type == "Constant" and node.domain in {"", "ai.onnx"}]
        nodes += len(graph.node) - len(held)
        types.update(f"{node.domain}.{node.op_type}".removeprefix("ai.onnx.").removeprefix(".") for node in graph.node)
        types.subtract({"Constant": len(held)})
        constants = (attribute.t for node in held for attribute in node.attribute if attribute.HasField("t"))
        for tensor in (*graph.initializer, *constants):
            parameters += math.prod(tensor.dims)
            size += byte_size(tensor) or 0
    return nodes, parameters, size, {name: types[name] for name in sorted(types) if types[name]}


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _graphs(attribute.g)


def digest(model: ModelProto, folder: Path | None) -> str:
    """A hash of the model's contents; external data counts by its file's name, size and time."""
    total = hashlib.sha256()
    for tensor in model.graph.initializer:
        _add(total, tensor, folder)
    rest = ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            _copy(field.name, value, rest)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _copy(field.name, value, rest.graph)
    total.update(rest.SerializeToString(deterministic=True))
    return total.hexdigest()


def _copy(name: str, value: object, target: ModelProto | GraphProto) -> None:
    if hasattr(value, "extend"):
        getattr(target, name).extend(value)
    elif hasattr(value, "CopyFrom"):
        getattr(target, name).CopyFrom(value)
    else:
        setattr(target, name, value)


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
