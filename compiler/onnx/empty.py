"""The smallest model there is."""

from __future__ import annotations

from itertools import pairwise


def empty_model(nodes: int = 1) -> bytes:
    """A model whose run does next to nothing: what is left is the run itself, and so many nodes of one element, in a chain."""
    from onnx import TensorProto, helper

    names = ["x", *(f"t{k}" for k in range(1, nodes)), "y"]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    chain = [helper.make_node("Neg", [a], [b]) for a, b in pairwise(names)]
    graph = helper.make_graph(chain, "empty", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7)
    data: bytes = model.SerializeToString()
    return data
