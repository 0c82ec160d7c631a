"""Constant positions in arithmetic progression are an operator's, and no data; a model is written with its weights again."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from dslc.ir.graph import Call, Constant, Graph
from dslc.onnx.exporter import function_of
from dslc.onnx.importer import import_model
from dslc.semantics.library import standard

WINDOWS = np.arange(6)[:, None] + np.arange(4)


def gathered(positions: np.ndarray, axis: int = 1) -> onnx.ModelProto:
    weights = [numpy_helper.from_array(positions, "at")]
    nodes = [helper.make_node("Gather", ["x", "at"], ["v"], axis=axis), helper.make_node("Neg", ["v"], ["y"])]
    x, y = helper.make_tensor_value_info("x", TensorProto.FLOAT, [12, 12]), helper.make_empty_tensor_value_info("y")
    own = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(own, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def read(model: onnx.ModelProto) -> tuple[Graph, list[str]]:
    graph = import_model(model, standard()).graph
    return graph, [node.op for node in graph.nodes() if isinstance(node, Call)]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    "positions",
    [
        WINDOWS, np.arange(4)[:, None] + np.arange(4) * 2, WINDOWS[::-1], WINDOWS[:, ::-1].copy(), WINDOWS - 12,
        np.arange(9), np.arange(11, -1, -1), np.arange(-5, 6), np.arange(4)[:, None] - np.arange(4) * 2,
        np.arange(12).reshape(1, 12), np.arange(12).reshape(2, 1, 6), np.zeros((3, 4), int) + np.arange(3)[:, None],
        np.arange(6)[:, None, None] + np.arange(2)[:, None] * 3 + np.arange(3),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_positions_in_arithmetic_progression(positions: np.ndarray, dtype: type, axis: int) -> None:
    """They run as they did, forwards and backwards, counted from behind, over an axis of one, in both types of positions."""
    model = gathered(positions.astype(dtype), axis)
    graph, ops = read(model)
    assert ops.count("std.places") == 1
    assert not any(isinstance(node, Constant) for node in graph.nodes())
    function = function_of(standard(), graph, 17).proto
    call = helper.make_node(function.name, ["x"], ["y"], domain=function.domain)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(function.domain, 1)]
    own = helper.make_graph([call], "g", list(model.graph.input), list(model.graph.output))
    written = helper.make_model(own, opset_imports=opsets, ir_version=8, functions=[function])
    array = np.random.default_rng(0).standard_normal((12, 12), dtype=np.float32)
    before, after = (
        onnxruntime.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, {"x": array}
        )[0]
        for each in (model, written)
    )
    np.testing.assert_array_equal(after, before)


def test_the_step_of_an_axis_is_an_attribute() -> None:
    graph, _ = read(gathered(3 + WINDOWS * 2 - np.arange(4)))
    (places,) = [node for node in graph.nodes() if isinstance(node, Call) and node.op == "std.places"]
    named = dict(places.attrs)
    assert (named["shape"], named["step"], named["start"]) == ((6, 4), (2, 1), 3)


@pytest.mark.parametrize(
    "positions",
    [np.array([0, 1, 2, 3, 4, 5, 6, 7, 9]), np.arange(8), WINDOWS % 5, np.zeros((4, 4), int), np.array(3)],
    ids=["none", "few", "wrapped", "one", "scalar"],
)
def test_other_positions_stay_data(positions: np.ndarray) -> None:
    graph, ops = read(gathered(positions))
    assert "std.places" not in ops
    assert any(isinstance(node, Constant) for node in graph.nodes())
