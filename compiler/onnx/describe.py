"""A model's size, its identity, and what dslc notes in its metadata."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnx import ModelProto, TensorProto, helper

from dslc.ir.constants import NUMPY
from dslc.ir.dtype import DType
from dslc.ir.graph import Constant, Input, Node
from dslc.onnx.context import Imported
from dslc.onnx.external import byte_size, entries, is_external
from dslc.onnx.protos import copy_fields, graphs


def counts(model: ModelProto) -> tuple[int, int, int, dict[str, int]]:
    """Operators (those of subgraphs included, constants not), elements of the weights, and their bytes; and operators by type.

    A type is written with its domain where that is not ONNX's own (`com.microsoft.FusedConv`).
    """
    nodes = parameters = size = 0
    types: Counter[str] = Counter()
    for graph in graphs(model.graph):
        held = [node for node in graph.node if node.op_type == "Constant" and node.domain in {"", "ai.onnx"}]
        nodes += len(graph.node) - len(held)
        types.update(f"{node.domain}.{node.op_type}".removeprefix("ai.onnx.").removeprefix(".") for node in graph.node)
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
        own = (
            -1
            if isinstance(node, Input | Constant)
            else max((_rank(type.dtype) for type in node.types if type), default=-1)
        )
        weakest[node] = max([own, *(weakest[arg.node] for arg in node.args)])
    names = [output.name for output in model.context.model.graph.output]
    found = zip(names, (weakest[value.node] for value in model.graph.outputs), strict=True)
    return {name: NUMPY[_DIGITS[rank]] for name, rank in found if rank >= 0}


def _rank(dtype: DType) -> int:
    return _DIGITS.index(dtype) if dtype in _DIGITS else -1
