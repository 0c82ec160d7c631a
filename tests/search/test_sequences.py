"""Inputs that are sequences of tensors: drawn, from a file, and from Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dslc
from dslc.cost.inputs import drawn_inputs, given_inputs, identity_of
from dslc.errors import DslcError

ONES = [np.ones((2, 3), np.float32), np.ones((1, 3), np.float32)]


def joined(type: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """Y = -(-concat(S))."""
    nodes = [
        helper.make_node("ConcatFromSequence", ["S"], ["c"], axis=0),
        helper.make_node("Neg", ["c"], ["t"]),
        helper.make_node("Neg", ["t"], ["Y"]),
    ]
    ends = (
        [helper.make_tensor_sequence_value_info("S", type, None)],
        [helper.make_tensor_value_info("Y", type, ["n", 3])],
    )
    seen = [helper.make_tensor_value_info(name, type, ["n", 3]) for name in "ct"]
    graph = helper.make_graph(nodes, "g", *ends, value_info=seen)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("type", [TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING])
def test_two_tensors_are_drawn(type: int) -> None:
    (found,) = drawn_inputs(joined(type), {"S.1": 3}, draws=1).feeds
    assert [(one.shape, one.dtype) for one in found["S"]] == [((1, 3), helper.tensor_dtype_to_np_dtype(type))] * 2


def test_arrays_of_a_file_are_numbered(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", **{f"S.{k}": one for k, one in enumerate(ONES)})
    (found,) = given_inputs(tmp_path / "in.npz", joined()).feeds
    assert identity_of([found]) == identity_of([{"S": ONES}])


@pytest.mark.parametrize("wrong", [ONES[0], [ONES[0].astype(np.float64)]], ids=["a tensor", "another type"])
def test_what_does_not_fit_is_an_error(wrong: object) -> None:
    with pytest.raises(DslcError, match="E0810"):
        given_inputs({"S": wrong}, joined())


@pytest.mark.parametrize("inputs", [None, {"S": ONES}], ids=["drawn", "given"])
def test_rules_are_applied(inputs: dict[str, object] | None) -> None:
    found = dslc.optimize(joined(), apply=True, budget=0, inputs=inputs)
    assert [node.op_type for node in found.model.graph.node] == ["ConcatFromSequence"]
