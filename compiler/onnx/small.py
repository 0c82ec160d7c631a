"""Small models for measuring: inputs that stand for weights become weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx
import onnx.compose
from onnx import helper, numpy_helper


def with_weights(model: bytes, names: Sequence[str], make: Callable[[Any, Sequence[int]], Any]) -> onnx.ModelProto:
    """The model with the named inputs replaced by initializers; `make` gives their elements from dtype and shape."""
    out = onnx.ModelProto()
    out.ParseFromString(model)
    graph = out.graph
    wanted = set(names)
    inputs = [value for value in graph.input if value.name in wanted]
    kept = [value for value in graph.input if value.name not in wanted]
    del graph.input[:]
    graph.input.extend(kept)
    for value in inputs:
        tensor = value.type.tensor_type
        shape = [dim.dim_value for dim in tensor.shape.dim]
        array = make(helper.tensor_dtype_to_np_dtype(tensor.elem_type), shape)
        graph.initializer.append(numpy_helper.from_array(array, value.name))
    return out


def beside(models: Sequence[onnx.ModelProto]) -> onnx.ModelProto:
    """One model that holds the graphs of several side by side, with inputs, weights and outputs of their own.

    All have the opsets of the first one.
    """
    if len(models) == 1:
        return models[0]
    out = onnx.ModelProto(
        ir_version=models[0].ir_version, opset_import=models[0].opset_import, functions=models[0].functions
    )
    out.graph.name = models[0].graph.name
    out.metadata_props.extend(models[0].metadata_props)
    for k, model in enumerate(models):
        own = onnx.compose.add_prefix(model, f"c{k}_", rename_functions=False).graph
        for field in ("node", "input", "output", "initializer"):
            getattr(out.graph, field).extend(getattr(own, field))
    return out
