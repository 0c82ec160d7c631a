"""Parts of a graph that ONNX Runtime computes on the CPU in the middle of a plan, and their sizes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, ValueInfoProto, helper

from dslc.errors import DslcError
from dslc.ir.graph import Graph, Opaque, Value
from dslc.onnx.context import Imported
from dslc.onnx.exporter import node_model
from dslc.onnx.importer import import_model
from dslc.semantics.library import Rules

#: a model that computes values from others, as ONNX Runtime loads it; None: no nodes of ONNX express it
Hosted = Callable[[Sequence[Value], Sequence[Value]], "bytes | None"]


LARGEST = 1 << 30  #: bytes of a model that is run with all values as outputs


def hosted(rules: Rules, opset: int, opsets: Mapping[str, int], ir_version: int) -> Hosted:
    """Models with nodes of the versions that a model has."""

    def model(outputs: Sequence[Value], inputs: Sequence[Value]) -> bytes | None:
        try:
            found, _ = node_model(outputs, rules, opset, ir_version, inputs=inputs)
        except DslcError:
            return None
        known = {one.domain for one in found.opset_import}
        for domain in {node.domain for node in found.graph.node} - known:
            found.opset_import.append(helper.make_opsetid(domain, opsets.get(domain, 1)))
        data: bytes = found.SerializeToString()
        return data

    return model


def hosted_of(rules: Rules, imported: Imported) -> Hosted:
    """As `hosted`, for a model that was imported."""
    context = imported.context
    return hosted(rules, context.opset, context.opsets, context.ir_version)


def at_feeds(
    source: str | os.PathLike[str] | ModelProto, rules: Rules, imported: Imported, feeds: Mapping[str, Any]
) -> Imported:
    """Import a model again at the sizes of some inputs, where it has nodes with sizes that only a run can tell.

    Their sizes may differ for other inputs of the same shapes: each run checks them.
    """
    if not any(isinstance(node, Opaque) for node in imported.graph.nodes()):
        return imported
    model = imported.context.model
    if not isinstance(source, ModelProto) and any(one.data_location for one in model.graph.initializer):
        return imported
    found = _shaped(model, feeds)
    if found is None:
        return imported
    try:
        return import_model(found, rules)
    except DslcError:
        return imported


def _shaped(model: ModelProto, feeds: Mapping[str, Any]) -> ModelProto | None:
    """A copy in which every value has the type and the sizes that a run shows; None where it cannot be run so."""
    if model.ByteSize() > LARGEST:
        return None
    out = ModelProto()
    out.CopyFrom(model)
    names = {name for node in out.graph.node for name in node.output if name} - {one.name for one in out.graph.output}
    out.graph.output.extend(ValueInfoProto(name=name) for name in sorted(names))
    try:
        session = runtime(out.SerializeToString())
        arrays = session.run(
            None, {name: feeds[name] for name in (one.name for one in session.get_inputs()) if name in feeds}
        )
    except Exception:  # the runtime has a class for each of its errors
        return None
    shown = dict(zip((one.name for one in session.get_outputs()), arrays, strict=True))
    shown |= dict(feeds)
    del out.graph.output[len(model.graph.output) :]
    del out.graph.value_info[:]
    for value in (*out.graph.input, *out.graph.output):
        if isinstance(shown.get(value.name), np.ndarray):
            value.CopyFrom(_info(value.name, shown[value.name]))
    out.graph.value_info.extend(
        _info(name, shown[name]) for name in sorted(names) if isinstance(shown.get(name), np.ndarray)
    )
    return out


def _info(name: str, array: Any) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def runtime(data: bytes) -> Any:
    """A session on the CPU that says nothing."""
    import onnxruntime

    ort: Any = onnxruntime
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def opaque(graph: Graph) -> bool:
    """Return whether a graph has nodes that only ONNX Runtime can run."""
    return any(isinstance(node, Opaque) for node in graph.nodes())
