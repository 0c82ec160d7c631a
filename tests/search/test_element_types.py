"""Models in half precision, in bfloat16 and with quantized layers pass through the whole pipeline."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import dslc


def _model(nodes: list[onnx.NodeProto], element: int, weights: list[TensorProto]) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", element, [8, 64])],
        [helper.make_tensor_value_info("y", element, [8, 4])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _weight(name: str, element: int, *shape: int) -> TensorProto:
    values = np.random.default_rng(len(name) + shape[-1]).standard_normal(shape).astype(np.float32) / 8
    if element == TensorProto.FLOAT16:
        return numpy_helper.from_array(values.astype(np.float16), name)
    if element == TensorProto.BFLOAT16:
        return helper.make_tensor(name, element, shape, values.ravel())
    return numpy_helper.from_array(values, name)


def two_layers(element: int) -> ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("MatMul", ["h", "u"], ["z"]),
        helper.make_node("Add", ["z", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    return _model(
        nodes, element, [_weight("w", element, 64, 64), _weight("u", element, 64, 4), _weight("b", element, 4)]
    )


def quantized() -> ModelProto:
    """A layer between QuantizeLinear and DequantizeLinear, as exporters write int8 models."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        helper.make_node("DequantizeLinear", ["weights", "scale", "zero"], ["w"]),
        helper.make_node("MatMul", ["d", "w"], ["h"]),
        helper.make_node("Identity", ["h"], ["i"]),
        helper.make_node("Add", ["i", "nothing"], ["y"]),
    ]
    weights = np.random.default_rng(0).integers(-128, 128, (64, 4)).astype(np.int8)
    tensors = {"scale": np.float32(0.05), "zero": np.int8(0), "weights": weights, "nothing": np.zeros(4, np.float32)}
    return _model(
        nodes, TensorProto.FLOAT, [numpy_helper.from_array(np.asarray(a), name) for name, a in tensors.items()]
    )


def _optimized(model: ModelProto, cache: Path) -> dslc.Optimized:
    return dslc.optimize(model, budget=60, steps=60, timing=False, cache=cache, threads=1)


def _outputs(model: ModelProto, x: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(None, {"x": x})[0]
    return found.astype(np.float32)


@pytest.mark.parametrize(
    ("element", "dtype", "tolerance"), [(TensorProto.FLOAT16, np.float16, 1e-2), (TensorProto.FLOAT, np.float32, 1e-4)]
)
def test_layers_in_half_and_single_precision_are_joined(
    element: int, dtype: type, tolerance: float, tmp_path: Path
) -> None:
    model = two_layers(element)
    result = _optimized(model, tmp_path)
    assert not result.report.kept_original
    assert sum(node.op_type in {"MatMul", "Gemm"} for node in result.model.graph.node) == 1
    x = np.random.default_rng(1).standard_normal((8, 64)).astype(dtype)
    before, after = _outputs(model, x), _outputs(result.model, x)
    assert np.abs(before - after).max() <= tolerance * np.abs(before).max()
    assert result.model.graph.input[0].type.tensor_type.elem_type == element


def test_bfloat16_comes_through(tmp_path: Path) -> None:
    model = two_layers(TensorProto.BFLOAT16)
    canonical = dslc.optimize(model, budget=0).model
    assert [node.op_type for node in canonical.graph.node] == ["MatMul", "MatMul", "Add", "Relu"]
    assert {tensor.data_type for tensor in canonical.graph.initializer} == {TensorProto.BFLOAT16}
    result = _optimized(model, tmp_path)
    # ONNX Runtime has no bfloat16 product on the CPU: nothing can be measured, and the report says so
    assert result.report.kept_original == (result.model == model)
    assert not result.report.kept_original or result.report.reason


def test_quantized_layers_stay_as_they_are(tmp_path: Path) -> None:
    model = quantized()
    result = _optimized(model, tmp_path)
    kinds = [node.op_type for node in result.model.graph.node]
    assert kinds.count("QuantizeLinear") == 1 and kinds.count("DequantizeLinear") == 2
    x = np.random.default_rng(2).standard_normal((8, 64)).astype(np.float32)
    np.testing.assert_array_equal(_outputs(model, x), _outputs(result.model, x))
