"""Small models for the tests of import and export."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from dslc.ir.graph import Call, Opaque
from dslc.onnx.context import Imported
from dslc.onnx.exporter import export
from dslc.onnx.importer import import_model
from dslc.semantics.library import Rules, standard

F32 = TensorProto.FLOAT
I64 = TensorProto.INT64


def info(name: str, shape: Sequence[int | str | None] | None, dtype: int = F32) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def weight(name: str, array: Any) -> TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    weights: Sequence[TensorProto] = (),
    *,
    opset: int = 17,
    ir: int = 8,
    domains: Sequence[str] = (),
    **graph: Any,
) -> ModelProto:
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(name, 1) for name in domains)]
    made = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(weights), **graph)
    return helper.make_model(made, ir_version=ir, opset_imports=imports)


def rules() -> Rules:
    return standard()


def roundtrip(proto: ModelProto, **bind: int) -> ModelProto:
    imported = import_model(proto, rules(), bind)
    return export(imported.context, imported.graph, rules())


def run(proto: ModelProto, **feeds: Any) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def same_results(before: ModelProto, after: ModelProto, **feeds: Any) -> None:
    """Both models give exactly the same."""
    for a, b in zip(run(before, **feeds), run(after, **feeds), strict=True):
        np.testing.assert_array_equal(a, b)


def ops(proto: ModelProto) -> list[str]:
    return [node.op_type for node in proto.graph.node]


def operators(imported: Imported) -> list[str]:
    """The operators of a graph, by short name."""
    return [node.op.rpartition(".")[2] for node in imported.graph.nodes() if isinstance(node, Call)]


def opaque_labels(imported: Imported) -> list[str]:
    return [node.label for node in imported.graph.nodes() if isinstance(node, Opaque)]
