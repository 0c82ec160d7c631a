"""Models for measuring: of one node, of many nodes of one element, side by side, with weights or values as outputs.

ONNX Runtime computes convolutions and what is near them on blocks of channels: the models of its changes of layout are here too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import onnx
import onnx.compose
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from dslc.ir.dtype import TensorType
from dslc.onnx.protos import value_info
from dslc.records import record

#: nodes that ONNX Runtime puts in where a value enters or leaves its blocked layout, and their domain
INTO, OUT_OF, DOMAIN = "ReorderInput", "ReorderOutput", "com.microsoft.nchwc"
#: channels are padded to a multiple of this; a smaller block divides it
_BLOCK = 16
#: axes of what can be in blocks, and its only element type
_AXES, _TYPE = 4, TensorProto.FLOAT
LARGEST = 1 << 30  #: bytes of a model that is copied to see its values


def _model(
    nodes: Sequence[NodeProto], inputs: Sequence[ValueInfoProto], outputs: Sequence[ValueInfoProto],
    name: str = "nodes", ir_version: int = 7,
) -> bytes:  # fmt: skip
    domains = dict.fromkeys(("", *(node.domain for node in nodes)))
    opsets = [helper.make_opsetid(domain, 1 if domain else 13) for domain in domains]
    graph = helper.make_graph(nodes, name, inputs, outputs)
    data: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version).SerializeToString()
    return data


def _floats(name: str, shape: Sequence[int]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, _TYPE, list(shape))


def empty_model(nodes: int = 1) -> bytes:
    """A model whose run does next to nothing: what is left is the run itself, and so many nodes of one element, in a chain."""
    names = ["x", *(f"t{k}" for k in range(1, nodes)), "y"]
    chain = [helper.make_node("Neg", [a], [b]) for a, b in pairwise(names)]
    return _model(chain, [_floats("x", [1])], [_floats("y", [1])])


def addition_model(elements: int) -> bytes:
    """`x0 + x1` on that many 32-bit numbers."""
    return _binary("Add", (elements,))


def product_model(size: int) -> bytes:
    """`x0 @ x1` on square matrices of 32-bit numbers."""
    return _binary("MatMul", (size, size))


def _binary(op: str, shape: Sequence[int]) -> bytes:
    node = helper.make_node(op, ["x0", "x1"], ["y0"])
    return _model([node], [_floats("x0", shape), _floats("x1", shape)], [_floats("y0", shape)])


def kernel_model(
    domain: str, name: str, inputs: Sequence[TensorType], outputs: Sequence[TensorType], code: str = ""
) -> bytes:
    """An operator of a library of kernels by itself, on inputs `x0`, `x1`, ... of static types; `code` tells namesakes apart."""
    ends = [value_info(f"x{k}", type) for k, type in enumerate(inputs)]
    results = [value_info(f"y{k}", type) for k, type in enumerate(outputs)]
    node = helper.make_node(name, [end.name for end in ends], [end.name for end in results], domain=domain)
    return _model([node], ends, results, f"kernel {code}", 8)


def with_weights(model: bytes, names: Collection[str], make: Callable[[Any, Sequence[int]], Any]) -> ModelProto:
    """The model with the named inputs replaced by initializers; `make` gives their elements from dtype and shape."""
    out: ModelProto = ModelProto.FromString(model)
    graph = out.graph
    inputs = list(graph.input)
    del graph.input[:]
    for value in inputs:
        if value.name not in names:
            graph.input.append(value)
            continue
        tensor = value.type.tensor_type
        shape = [dim.dim_value for dim in tensor.shape.dim]
        array = make(helper.tensor_dtype_to_np_dtype(tensor.elem_type), shape)
        graph.initializer.append(numpy_helper.from_array(array, value.name))
    return out


def beside(models: Sequence[ModelProto]) -> ModelProto:
    """One model that holds the graphs of several side by side, with inputs, weights and outputs of their own.

    All have the opsets of the first one.
    """
    first = models[0]
    if len(models) == 1:
        return first
    out = ModelProto(ir_version=first.ir_version, opset_import=first.opset_import, functions=first.functions)
    out.graph.name = first.graph.name
    out.metadata_props.extend(first.metadata_props)
    for k, model in enumerate(models):
        own = onnx.compose.add_prefix(model, f"c{k}_", rename_functions=False).graph
        for field in ("node", "input", "output", "initializer"):
            getattr(out.graph, field).extend(getattr(own, field))
    return out


def with_outputs(model: ModelProto, names: Mapping[str, int]) -> bytes | None:
    """The model with more outputs, given by name and element type; None where it is too large to be copied."""
    if model.ByteSize() > LARGEST:
        return None
    out = ModelProto()
    out.CopyFrom(model)
    known = {value.name for value in out.graph.output}
    more = [helper.make_tensor_value_info(name, kind, None) for name, kind in names.items() if name not in known]
    out.graph.output.extend(more)
    data: bytes = out.SerializeToString()
    return data


# ---- layouts -------------------------------------------------------------------------------------------------------


@record
class Changes:
    """Changes of layout in a model.

    `entering`: names of the inputs that the runtime brings into blocks; `leaving`: all outputs come out of blocks; `between`: some
    value between them changes its layout.
    """

    entering: frozenset[str]
    leaving: bool
    between: bool


def changes(optimized: str | Path) -> Changes:
    """The changes of layout in a model as ONNX Runtime wrote it after all its optimizations."""
    graph = onnx.load(str(optimized), load_external_data=False).graph
    given, wanted = {value.name for value in graph.input}, {value.name for value in graph.output}
    into = [node.input[0] for node in graph.node if node.op_type == INTO and node.domain == DOMAIN]
    out = [node.output[0] for node in graph.node if node.op_type == OUT_OF and node.domain == DOMAIN]
    between = not (given.issuperset(into) and wanted.issuperset(out))
    return Changes(frozenset(given.intersection(into)), wanted <= set(out), between)


def may_be_blocked(model: bytes) -> list[str]:
    """The inputs of a model that could be in blocks."""
    types = {value.name: value.type.tensor_type for value in ModelProto.FromString(model).graph.input}
    return [name for name, one in types.items() if one.elem_type == _TYPE and len(one.shape.dim) == _AXES]


def reorder_model(shape: Sequence[int], into: bool) -> bytes:
    """One change of layout of a tensor of type f32: into blocks, or out of them."""
    batch, channels, *rest = shape
    blocks = [batch, -(-channels // _BLOCK) * _BLOCK, *rest]
    given, wanted = (shape, blocks) if into else (blocks, shape)
    node = helper.make_node(INTO if into else OUT_OF, ["x0"], ["y"], domain=DOMAIN)
    if not into:
        node.attribute.append(helper.make_attribute("channels", channels))
    return _model([node], [_floats("x0", given)], [_floats("y", wanted)])


def with_blocked(model: bytes, names: Collection[str]) -> bytes:
    """The model with the named inputs as they come from an operator that computes on blocks: a pooling over one element."""
    out = ModelProto.FromString(model)
    for node in out.graph.node:
        for k, name in enumerate(node.input):
            if name in names:
                node.input[k] = f"{name}_blocked"
    nodes = [*(_pooling(each.name, f"{each.name}_blocked") for each in out.graph.input if each.name in names)]
    nodes += out.graph.node
    del out.graph.node[:]
    out.graph.node.extend(nodes)
    data: bytes = out.SerializeToString(deterministic=True)
    return data


def pooling_model(shape: Sequence[int]) -> bytes:
    """The pooling over one element alone."""
    return _model([_pooling("x0", "y")], [_floats("x0", shape)], [_floats("y", shape)])


def _pooling(given: str, wanted: str) -> NodeProto:
    return helper.make_node("MaxPool", [given], [wanted], kernel_shape=[1, 1])
