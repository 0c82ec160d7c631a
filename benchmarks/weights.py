"""Random weights for networks that ship with constant ones."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

# The role of a weight is its first use: (operator, input position).
_MATRIX = {("Conv", 1), ("Gemm", 1)}
_VARIANCE = {("BatchNormalization", 4)}
_SCALE = {("BatchNormalization", 1), ("Mul", 0), ("Mul", 1)}


def with_random_weights(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """A copy of ``model`` with seeded normal values in place of constant-filled weights.

    A weight is what ConstantOfShape makes from an initializer, or a floating-point initializer of equal elements.
    Matrices and kernels get He's scale sqrt(2 / fan-in), so that activations keep their size through any depth;
    variances lie in [1, 2], scales in [0.5, 1.5], in residual networks lower, where sums would else grow until the last
    softmax says nothing; biases and means have deviation 0.1. The order of the nodes fixes which values each gets.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    shapes = {i.name: i for i in graph.initializer}
    generator = np.random.default_rng(seed)
    roles = _roles(graph)
    filled = [n for n in graph.node if n.op_type == "ConstantOfShape" and n.input[0] in shapes]
    sizes = {n.output[0]: tuple(int(d) for d in numpy_helper.to_array(shapes[n.input[0]])) for n in filled}
    for tensor in graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and _constant(tensor):
            sizes[tensor.name] = tuple(tensor.dims)
    scale = 0.6 if any(n.op_type == "Sum" for n in graph.node) else 1.0
    weights = {name: _draw(generator, roles.get(name, ("", 0)), shape, scale) for name, shape in sizes.items()}

    for tensor in graph.initializer:
        if tensor.name in weights:
            tensor.CopyFrom(numpy_helper.from_array(weights[tensor.name], tensor.name))
    for node in filled:
        graph.initializer.append(numpy_helper.from_array(weights[node.output[0]], node.output[0]))
        graph.node.remove(node)
        # In IR version 3 each initializer is an input too.
        if result.ir_version < 4:
            value = onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, sizes[node.output[0]])
            graph.input.append(value)
    used = {name for node in graph.node for name in node.input}
    for name in {n.input[0] for n in filled} - used:
        graph.initializer.remove(shapes[name])
        for value in [v for v in graph.input if v.name == name]:
            graph.input.remove(value)
    return result


def _constant(tensor: onnx.TensorProto) -> bool:
    values = numpy_helper.to_array(tensor)
    return bool(values.size > 1 and np.all(values == values.flat[0]))


def _roles(graph: onnx.GraphProto) -> dict[str, tuple[str, int]]:
    """The first use of each value; one that only changes a weight's shape passes the role of its result on."""
    roles: dict[str, tuple[str, int]] = {}
    for node in reversed(graph.node):
        for position, name in enumerate(node.input):
            if node.op_type in ("Unsqueeze", "Reshape") and position == 0:
                roles[name] = roles.get(node.output[0], (node.op_type, position))
            else:
                roles[name] = (node.op_type, position)
    return roles


def _draw(
    generator: np.random.Generator, role: tuple[str, int], shape: tuple[int, ...], scale: float
) -> npt.NDArray[np.float32]:
    if role in _VARIANCE:
        values = generator.uniform(1.0, 2.0, shape)
    elif role in _SCALE:
        values = scale * generator.uniform(0.5, 1.5, shape)
    elif role in _MATRIX or len(shape) > 1:
        # A kernel is [filters, channels, ...] and a Gemm's weight [outputs, inputs] here (transB): fan-in is the rest.
        values = generator.normal(0.0, np.sqrt(2.0 / max(1, int(np.prod(shape[1:])))), shape)
    else:
        values = generator.normal(0.0, 0.1, shape)
    return values.astype(np.float32)
