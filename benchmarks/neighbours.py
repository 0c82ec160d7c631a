"""Writes a small nearest-neighbour model: distances of n points to 64 known ones, as exporters write them.

    python -m benchmarks.neighbours neighbours.onnx [manhattan]

Squared distances, or with `manhattan` sums of absolute differences.
"""

from __future__ import annotations

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def model(dimensions: int = 32, points: int = 64, manhattan: bool = False) -> onnx.ModelProto:
    """``y[i, j] = sum((x[i] - known[j]) ** 2)`` by broadcasting, through a tensor of n x points x dimensions.

    `manhattan`: the sum of absolute differences.
    """
    known = np.random.default_rng(0).standard_normal((points, dimensions)).astype(np.float32)
    constants = {
        "known": known,
        "two": np.float32(2),
        "first": np.array([0]),
        "second": np.array([1]),
        "last": np.array([2]),
    }
    nodes = [
        helper.make_node("Unsqueeze", ["x", "second"], ["a"]),
        helper.make_node("Unsqueeze", ["known", "first"], ["b"]),
        helper.make_node("Sub", ["a", "b"], ["difference"]),
        helper.make_node("Abs", ["difference"], ["square"])
        if manhattan
        else helper.make_node("Pow", ["difference", "two"], ["square"]),
        helper.make_node("ReduceSum", ["square", "last"], ["y"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "neighbours",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", dimensions])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", points])],
        [
            numpy_helper.from_array(np.asarray(value), name)
            for name, value in constants.items()
            if name != "two" or not manhattan
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    onnx.save(model(manhattan="manhattan" in sys.argv[2:]), sys.argv[1])
