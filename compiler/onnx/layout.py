"""The runtime's own layout: ONNX Runtime computes convolutions and what is near them on blocks of channels."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto, helper

#: nodes that ONNX Runtime puts in where a value enters or leaves its blocked layout, and their domain
INTO, OUT_OF, DOMAIN = "ReorderInput", "ReorderOutput", "com.microsoft.nchwc"
#: channels are padded to a multiple of this; a smaller block divides it
_BLOCK = 16
#: axes of what can be in blocks, and its only element type
_AXES, _TYPE = 4, TensorProto.FLOAT


@dataclass(frozen=True, slots=True)
class Changes:
    """Which inputs of a model the runtime brings into blocks, by name; whether all outputs come out of blocks; and whether some
    value between them changes its layout."""

    entering: frozenset[str]
    leaving: bool
    between: bool


def changes(optimized: str | Path) -> Changes:
    """The changes of layout in a model as ONNX Runtime wrote it after all its optimizations."""
    graph = onnx.load(str(optimized), load_external_data=False).graph
    given, wanted = {value.name for value in graph.input}, {value.name for value in graph.output}
    into = [node.input[0] for node in graph.node if node.op_type == INTO and node.domain == DOMAIN]
    out = [node.output[0] for node in graph.node if node.op_type == OUT_OF and node.domain == DOMAIN]
    return Changes(
        frozenset(given.intersection(into)),
        wanted <= set(out),
        not (given.issuperset(into) and wanted.issuperset(out)),
    )


def may_be_blocked(model: bytes) -> list[str]:
    """The inputs of a model that could be in blocks."""
    return [
        value.name
        for value in onnx.ModelProto.FromString(model).graph.input
        if value.type.tensor_type.elem_type == _TYPE and len(value.type.tensor_type.shape.dim) == _AXES
    ]


def reorder_model(shape: Sequence[int], into: bool) -> bytes:
    """One change of layout of a tensor of type f32: into blocks, or out of them."""
    batch, channels, *rest = shape
    plain, blocks = list(shape), [batch, -(-channels // _BLOCK) * _BLOCK, *rest]
    ends = (plain, blocks) if into else (blocks, plain)
    node = helper.make_node(INTO if into else OUT_OF, ["x0"], ["y"], domain=DOMAIN)
    if not into:
        node.attribute.append(helper.make_attribute("channels", channels))
    given, wanted = (
        helper.make_tensor_value_info(name, _TYPE, end) for name, end in zip(("x0", "y"), ends, strict=True)
    )
    graph = helper.make_graph([node], "reorder", [given], [wanted])
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid(DOMAIN, 1)]
    data: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=7).SerializeToString()
    return data


def with_blocked(model: bytes, names: Collection[str]) -> bytes:
    """The model with the named inputs as they come from an operator that computes on blocks: a pooling over one element."""
    out = onnx.ModelProto.FromString(model)
    given = [value.name for value in out.graph.input if value.name in names]
    for node in out.graph.node:
        for k, name in enumerate(node.input):
            if name in names:
                node.input[k] = f"{name}_blocked"
    pools = [helper.make_node("MaxPool", [name], [f"{name}_blocked"], kernel_shape=[1, 1]) for name in given]
    nodes = [*pools, *out.graph.node]
    del out.graph.node[:]
    out.graph.node.extend(nodes)
    data: bytes = out.SerializeToString(deterministic=True)
    return data


def pooling_model(shape: Sequence[int]) -> bytes:
    """The pooling over one element alone."""
    ends = [helper.make_tensor_value_info(name, _TYPE, list(shape)) for name in ("x0", "y")]
    graph = helper.make_graph(
        [helper.make_node("MaxPool", ["x0"], ["y"], kernel_shape=[1, 1])], "pooling", ends[:1], ends[1:]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7)
    data: bytes = model.SerializeToString()
    return data
