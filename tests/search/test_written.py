"""What ONNX has nodes for stays as it is; what it has none for becomes a kernel of its own."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto, helper

from dslc.ir.graph import Graph, Kernel
from dslc.onnx.importer import import_model
from dslc.search.candidates.export import as_kernels, graph_as_kernels
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules, load_many


def model_of(
    nodes: list[onnx.NodeProto], x: list[int | str], y: list[int | str], opset: int, *weights: TensorProto
) -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in (("x", x), ("y", y))]
    graph = helper.make_graph(nodes, "m", ends[:1], ends[1:], list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def numbers(name: str, values: list[float], type: int = TensorProto.INT64) -> TensorProto:
    return helper.make_tensor(name, type, [len(values)], values)


def test_a_reshape_to_sizes_of_the_model_is_a_reshape(std: Rules) -> None:
    """`[batch * sequence, 6]` alone doesn't say what the batch is; the model does."""
    nodes = [
        helper.make_node("Reshape", ["x", "flat"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Reshape", ["b", "sizes"], ["y"]),
    ]
    model = model_of(nodes, ["batch", "sequence", 6], ["batch", "sequence", 6], 17, numbers("flat", [-1, 6]))
    imported = import_model(model, std, {})
    assert as_kernels(std, imported.graph.outputs, 17) == imported.graph.outputs
    assert graph_as_kernels(std, imported.graph, imported.context) is imported.graph


def test_what_the_file_says_of_a_node_counts(std: Rules, tmp_path: Path) -> None:
    """A resize by scales of unknown sizes has no clause that writes it anew: the node of the file does. What is added has no node."""
    attributes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    nodes = [
        helper.make_node("Resize", ["x", "", "scales"], ["a"], **attributes),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    scales = numbers("scales", [1.0, 1.0, 2.0, 2.0], TensorProto.FLOAT)
    model = model_of(nodes, [1, 3, "h", 5], [1, 3, "2 * h", 10], 11, scales)
    own = tmp_path / "own.rules"
    own.write_text("""dslc 1

operator cubed(X: T[*S]) -> Y: T[*S] {
  Y[*i] = X[*i] * X[*i] * X[*i]
}
""")
    rules = load_many(["std", str(own)])
    imported = import_model(model, rules, {})
    assert graph_as_kernels(rules, imported.graph, imported.context) is imported.graph
    more = Graph(imported.graph.inputs, apply(rules, "own.cubed", imported.graph.outputs))
    made = graph_as_kernels(rules, more, imported.context)
    (kernel,) = (node for node in made.nodes() if isinstance(node, Kernel))
    assert kernel.args == imported.graph.outputs
