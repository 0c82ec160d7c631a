"""Slices of unknown sizes are read, and what they become is right at every size; integers that stand for numbers."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from dslc.analysis.prove import always
from dslc.ir.graph import Opaque
from dslc.ir.scalar import apply, dimension, num
from dslc.onnx.functions import function_of
from dslc.onnx.importer import import_model
from dslc.semantics.library import standard

END = np.iinfo(np.int64).max


def test_a_condition_on_sizes_is_proved_by_cases() -> None:
    """A slice from 1 on is empty, or starts inside; a size of at least 1 says no more than that."""
    n = dimension("n")
    rest = apply("+", n, num(-1))
    assert always(apply("or", apply("==", rest, num(0)), apply("<", num(1), n)))
    assert not always(apply("<", num(1), n))


@pytest.mark.parametrize(("start", "step"), [(1, 1), (0, 2), (1, 2)])
def test_a_slice_of_an_unknown_size(start: int, step: int) -> None:
    weights = [numpy_helper.from_array(np.array([v]), name) for v, name in ((start, "s"), (END, "e"), (1, "a"), (step, "t"))]
    nodes = [helper.make_node("Slice", ["x", "s", "e", "a", "t"], ["v"]), helper.make_node("Neg", ["v"], ["y"])]
    x, y = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, "n"]), helper.make_empty_tensor_value_info("y")
    own = helper.make_graph(nodes, "g", [x], [y], weights)
    made = helper.make_model(own, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    graph = import_model(made, standard(), {}).graph
    assert not any(isinstance(node, Opaque) for node in graph.nodes())
    function = function_of(standard(), graph, 17).proto
    call = helper.make_node(function.name, ["x"], ["y"], domain=function.domain)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(function.domain, 1)]
    written = helper.make_model(helper.make_graph([call], "g", [x], [y]), opset_imports=opsets, ir_version=8, functions=[function])
    session = onnxruntime.InferenceSession(written.SerializeToString(), providers=["CPUExecutionProvider"])
    for size in (1, 2, 5, 8):
        array = np.arange(2 * size, dtype=np.float32).reshape(2, size)
        (found,) = session.run(None, {"x": array})
        np.testing.assert_array_equal(found, -array[:, start::step])


def test_a_weight_of_small_integers_stays_for_the_runtime() -> None:
    """Numbers are read from integers on the way, and not from weights, which runtimes join with the product behind them."""
    scale = numpy_helper.from_array(np.float32(0.5), "s")
    zero, weight = numpy_helper.from_array(np.uint8(3), "z"), numpy_helper.from_array(np.ones((4, 4), np.uint8), "w")
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"]), helper.make_node("DequantizeLinear", ["w", "s", "z"], ["b"]),
        helper.make_node("MatMul", ["a", "b"], ["y"]),
    ]  # fmt: skip
    x, y = helper.make_tensor_value_info("x", TensorProto.UINT8, ["n", 4]), helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph(nodes, "g", [x], [y], [scale, zero, weight])
    made: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    found = [node for node in import_model(made, standard(), {}).graph.nodes() if isinstance(node, Opaque)]
    assert [node.label for node in found] == ["DequantizeLinear"]
