"""Models of one node: what a machine can do, and what a kernel takes."""

from __future__ import annotations

from collections.abc import Sequence

from dslc.ir.dtype import TensorType


def addition_model(elements: int) -> bytes:
    """`x0 + x1` on that many 32-bit numbers."""
    return _model("Add", [(elements,), (elements,)], (elements,))


def product_model(size: int) -> bytes:
    """`x0 @ x1` on square matrices of 32-bit numbers."""
    return _model("MatMul", [(size, size), (size, size)], (size, size))


def kernel_model(
    domain: str, name: str, inputs: Sequence[TensorType], outputs: Sequence[TensorType], code: str = ""
) -> bytes:
    """An operator of a library of kernels by itself, on inputs `x0`, `x1`, ... of static types; `code` tells namesakes apart."""
    from onnx import helper

    from dslc.onnx.exporter import value_info

    ends = [value_info(f"x{k}", type) for k, type in enumerate(inputs)]
    results = [value_info(f"y{k}", type) for k, type in enumerate(outputs)]
    node = helper.make_node(name, [end.name for end in ends], [end.name for end in results], domain=domain)
    graph = helper.make_graph([node], f"kernel {code}", ends, results)
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid(domain, 1)]
    data: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return data


def _model(op: str, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> bytes:
    from onnx import TensorProto, helper

    ends = [helper.make_tensor_value_info(f"x{k}", TensorProto.FLOAT, shape) for k, shape in enumerate(inputs)]
    result = helper.make_tensor_value_info("y0", TensorProto.FLOAT, output)
    node = helper.make_node(op, [end.name for end in ends], ["y0"])
    graph = helper.make_graph([node], "plain", ends, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7)
    data: bytes = model.SerializeToString()
    return data
