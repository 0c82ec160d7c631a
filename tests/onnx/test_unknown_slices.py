"""Slices of unknown sizes are read, and what they become is right at every size; integers that stand for numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from dslc.analysis import prove
from dslc.analysis.prove import always
from dslc.ir.graph import Opaque
from dslc.ir.scalar import apply, dimension, num
from dslc.onnx.exporter import function_of
from dslc.onnx.importer import import_model
from dslc.semantics.library import standard

END = np.iinfo(np.int64).max
BEGIN = np.iinfo(np.int64).min


def test_a_condition_on_sizes_is_proved_by_cases() -> None:
    """A slice from 1 on is empty, or starts inside; a size of at least 1 says no more than that."""
    n = dimension("n")
    rest = apply("+", n, num(-1))
    assert always(apply("or", apply("==", rest, num(0)), apply("<", num(1), n)))
    assert not always(apply("<", num(1), n))


def test_a_case_that_contradicts_another_is_not_gone_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `Slice` and `Pad` say of one unknown size is many choices, and nearly all of them are decided by the first."""
    n = dimension("n")
    longer, missing = apply("max", n, num(256)), apply("max", apply("-", num(256), n), num(0))
    proofs = []

    class Counted(prove._Prover):
        def __init__(self, *given: Any) -> None:
            proofs.append(given)
            super().__init__(*given)

    monkeypatch.setattr(prove, "_Prover", Counted)
    assert always(apply("<=", longer, apply("+", n, missing)))
    assert len(proofs) == 2


@pytest.mark.parametrize(("start", "step"), [(1, 1), (0, 2), (1, 2)])
def test_a_slice_of_an_unknown_size(start: int, step: int) -> None:
    weights = [
        numpy_helper.from_array(np.array([v]), name) for v, name in ((start, "s"), (END, "e"), (1, "a"), (step, "t"))
    ]
    nodes = [helper.make_node("Slice", ["x", "s", "e", "a", "t"], ["v"]), helper.make_node("Neg", ["v"], ["y"])]
    x, y = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, "n"]), helper.make_empty_tensor_value_info("y")
    own = helper.make_graph(nodes, "g", [x], [y], weights)
    made = helper.make_model(own, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    graph = import_model(made, standard(), {}).graph
    assert not any(isinstance(node, Opaque) for node in graph.nodes())
    function = function_of(standard(), graph, 17).proto
    call = helper.make_node(function.name, ["x"], ["y"], domain=function.domain)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(function.domain, 1)]
    written = helper.make_model(
        helper.make_graph([call], "g", [x], [y]), opset_imports=opsets, ir_version=8, functions=[function]
    )
    session = onnxruntime.InferenceSession(written.SerializeToString(), providers=["CPUExecutionProvider"])
    for size in (1, 2, 5, 8):
        array = np.arange(2 * size, dtype=np.float32).reshape(2, size)
        (found,) = session.run(None, {"x": array})
        np.testing.assert_array_equal(found, -array[:, start::step])


FLIP = ([-1], [BEGIN], [1], [-1])


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        FLIP, ([END], [BEGIN], [1], [-1]), ([-1], [-(2**31)], [1], [-1]), ([END], [BEGIN], [-1], [-2]), ([-1], [0], [1], [-1]),
        ([0], [BEGIN], [1], [-1]), ([1], [BEGIN], [1], [-1]), ([-2], [BEGIN], [1], [-1]), ([-4], [-100], [1], [-1]),
        ([-4], [END], [1], [1]), ([-100], [END], [1], [1]), ([BEGIN], [END], [1], [2]), ([1], [-1], [1], [1]), ([-3], [-1], [1], [1]),
        ([0], [BEGIN], [1], [1]), ([100], [END], [1], [1]), ([100], [0], [1], [-1]), ([-1, -1], [BEGIN, BEGIN], [0, 1], [-1, -1]),
        ([1, -1], [END, BEGIN], [0, 1], [1, -1]), ([0, -3], [1, END], [-1, -2], [1, 2]), ([-1], [BEGIN], [1], [-3]),
    ],
    ids=str,
)  # fmt: skip
def test_every_form_of_a_slice_over_an_unknown_size(
    starts: list[int], ends: list[int], axes: list[int], steps: list[int]
) -> None:
    """Ends that are counted from behind, beyond the tensor, as large as integers are; backwards (`torch.flip`); on several axes."""
    lists = (("s", starts), ("e", ends), ("a", axes), ("t", steps))
    weights = [numpy_helper.from_array(np.array(values), name) for name, values in lists]
    nodes = [helper.make_node("Slice", ["x", "s", "e", "a", "t"], ["v"]), helper.make_node("Neg", ["v"], ["y"])]
    x, y = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, "n"]), helper.make_empty_tensor_value_info("y")
    own = helper.make_graph(nodes, "g", [x], [y], weights)
    made = helper.make_model(own, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    graph = import_model(made, standard()).graph
    assert not any(isinstance(node, Opaque) for node in graph.nodes())
    function = function_of(standard(), graph, 17).proto
    call = helper.make_node(function.name, ["x"], ["y"], domain=function.domain)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(function.domain, 1)]
    written = helper.make_model(
        helper.make_graph([call], "g", [x], [y]), opset_imports=opsets, ir_version=8, functions=[function]
    )
    sessions = [
        onnxruntime.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"])
        for each in (made, written)
    ]
    for size in (1, 2, 3, 4, 5, 8):
        array = np.arange(2 * size, dtype=np.float32).reshape(2, size)
        (expected,), (found,) = (session.run(None, {"x": array}) for session in sessions)
        np.testing.assert_array_equal(found, expected)
        bound = import_model(made, standard(), {"n": size}).graph
        assert bound.outputs[0].type.shape == expected.shape


@pytest.mark.parametrize("end", [END, 2**31 - 1])
@pytest.mark.parametrize("size", ["n", 5])
def test_backwards_to_the_largest_integer_stays_as_it_is(end: int, size: int | str) -> None:
    """By ONNX's text it is empty; ONNX Runtime goes to the beginning."""
    lists = (("s", [-1]), ("e", [end]), ("a", [0]), ("t", [-1]))
    weights = [numpy_helper.from_array(np.array(values), name) for name, values in lists]
    nodes = [helper.make_node("Slice", ["x", "s", "e", "a", "t"], ["y"])]
    x, y = helper.make_tensor_value_info("x", TensorProto.FLOAT, [size]), helper.make_empty_tensor_value_info("y")
    own = helper.make_graph(nodes, "g", [x], [y], weights)
    made = helper.make_model(own, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert any(isinstance(node, Opaque) for node in import_model(made, standard()).graph.nodes())


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
