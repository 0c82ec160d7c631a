"""`dslc optimize` finds spellings that the runtime then runs as one node."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, helper
from test_optimize import model_of, noise

import dslc
from benchmarks.fusions import runtime_nodes

ROWS, WIDE = 256, 512


def root_mean_square_norm(opset: int, spelling: str) -> ModelProto:
    """x over the root of its mean square, times weights."""
    axes = {"axes": [-1]} if opset < 18 else {}
    divided = {
        "reciprocal": [helper.make_node("Reciprocal", ["d"], ["r"]), helper.make_node("Mul", ["x", "r"], ["n"])],
        "quotient": [helper.make_node("Div", ["x", "d"], ["n"])],
    }
    nodes = [
        helper.make_node("Pow", ["x", "two"], ["p"]),
        helper.make_node("ReduceMean", ["p"] if axes else ["p", "last"], ["m"], **axes),
        helper.make_node("Add", ["m", "e"], ["a"]),
        helper.make_node("Sqrt", ["a"], ["d"]),
        *divided[spelling],
        helper.make_node("Mul", ["n", "w"], ["y"]),
    ]
    weights = {"two": np.float32(2), "e": np.float32(1e-6), "w": 1 + noise(WIDE)}
    weights |= {} if axes else {"last": np.array([-1])}
    return model_of(nodes, {"x": [1, ROWS, WIDE]}, {"y": [1, ROWS, WIDE]}, weights, opset)


@pytest.mark.parametrize("opset", [17, 18])
def test_x_times_reciprocal_of_a_root_becomes_the_norm_that_the_runtime_fuses(opset: int, tmp_path: Path) -> None:
    model = root_mean_square_norm(opset, "reciprocal")
    fused = runtime_nodes(root_mean_square_norm(opset, "quotient"))
    assert fused.total() == 1 and runtime_nodes(model).total() > 5
    found = dslc.optimize(model, budget=60.0, steps=60, threads=1, timing=False, cache=tmp_path, on="ort_cpu")
    assert runtime_nodes(found.model) == fused
    assert found.report.predicted_ratio is not None and found.report.predicted_ratio > 1.3
