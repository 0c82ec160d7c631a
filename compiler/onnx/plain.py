"""Models that say what a machine can do: one addition, one product."""

from __future__ import annotations

from collections.abc import Sequence


def addition_model(elements: int) -> bytes:
    """`x0 + x1` on that many 32-bit numbers."""
    return _model("Add", [(elements,), (elements,)], (elements,))


def product_model(size: int) -> bytes:
    """`x0 @ x1` on square matrices of 32-bit numbers."""
    return _model("MatMul", [(size, size), (size, size)], (size, size))


def _model(op: str, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> bytes:
    from onnx import TensorProto, helper

    ends = [helper.make_tensor_value_info(f"x{k}", TensorProto.FLOAT, shape) for k, shape in enumerate(inputs)]
    result = helper.make_tensor_value_info("y0", TensorProto.FLOAT, output)
    node = helper.make_node(op, [end.name for end in ends], ["y0"])
    graph = helper.make_graph([node], "plain", ends, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7)
    data: bytes = model.SerializeToString()
    return data
