"""What must survive a trip through dslc: names, order, optional parts, and everything that it does not know."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from small_models import (
    F32,
    I64,
    info,
    model,
    opaque_labels,
    operators,
    ops,
    roundtrip,
    rules,
    run,
    same_results,
    weight,
)

from dslc.ir.graph import Constant, Input
from dslc.onnx.exporter import export
from dslc.onnx.importer import import_model

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
node = helper.make_node


def names(values: object) -> list[str]:
    return [value.name for value in values]  # type: ignore[attr-defined]


def test_an_output_that_is_an_input() -> None:
    before = model([node("Relu", ["x"], ["y"])], [info("x", [2, 3])], [info("x", [2, 3]), info("y", [2, 3])])
    after = roundtrip(before)
    assert names(after.graph.output) == ["x", "y"]
    same_results(before, after, x=X)


def test_an_output_that_is_an_input_under_another_name() -> None:
    before = model([node("Identity", ["x"], ["y"])], [info("x", [2, 3])], [info("y", [2, 3])])
    after = roundtrip(before)
    assert ops(after) == ["Identity"]
    same_results(before, after, x=X)


def test_an_output_that_is_an_initializer() -> None:
    before = model(
        [node("Relu", ["x"], ["y"])], [info("x", [2, 3])], [info("w", [2]), info("y", [2, 3])], [weight("w", X[0, :2])]
    )
    after = roundtrip(before)
    assert names(after.graph.output) == ["w", "y"] and names(after.graph.initializer) == ["w"]
    same_results(before, after, x=X)


def test_one_output_twice() -> None:
    before = model([node("Relu", ["x"], ["y"])], [info("x", [2, 3])], [info("y", [2, 3]), info("y", [2, 3])])
    after = roundtrip(before)
    assert names(after.graph.output) == ["y", "y"] and ops(after) == ["Relu"]
    same_results(before, after, x=X)


def test_one_value_under_two_output_names() -> None:
    nodes = [node("Relu", ["x"], ["y"]), node("Relu", ["x"], ["z"])]
    before = model(nodes, [info("x", [2, 3])], [info("y", [2, 3]), info("z", [2, 3])])
    after = roundtrip(before)
    assert sorted(ops(after)) == ["Identity", "Relu"]
    same_results(before, after, x=X)


def test_a_constant_under_two_output_names() -> None:
    nodes = [node("Constant", [], ["a"], value_float=2.5), node("Constant", [], ["b"], value_float=2.5)]
    before = model(nodes, [], [info("a", []), info("b", [])])
    same_results(before, roundtrip(before))


def test_empty_optional_names() -> None:
    nodes = [node("Clip", ["x", "", "hi"], ["y"]), node("Resize", ["z", "", "scales"], ["r"], mode="cubic")]
    before = model(
        nodes,
        [info("x", [2, 3]), info("z", [1, 1, 2, 2])],
        [info("y", [2, 3]), info("r", [1, 1, 4, 4])],
        [weight("hi", np.float32(1)), weight("scales", np.float32([1, 1, 2, 2]))],
    )
    after = roundtrip(before)
    kept = {n.op_type: list(n.input) for n in after.graph.node}
    assert kept["Resize"] == ["z", "", "scales"] and kept["Clip"][:2] == ["x", ""]
    same_results(before, after, x=X, z=X[:1, :1].reshape(1, 1, 1, 1).repeat(2, 2).repeat(2, 3))


LEFT_OUT = {
    "last state only": node("LSTM", ["x", "w", "r"], ["", "", "y"], hidden_size=1),
    "nothing at the end": node("LSTM", ["x", "w", "r"], ["", "y", ""], hidden_size=1),
    "all steps, optional inputs left out": node("GRU", ["x", "v", "s", "", "", ""], ["y", ""], hidden_size=1),
    "no indices": node("MaxPool", ["x"], ["y", ""], kernel_shape=[1]),
    "no mask": node("Dropout", ["x", "half", "true"], ["y", ""]),
    "of another domain": node("plugin", ["x"], ["", "y", ""], domain="my.own"),
}


@pytest.mark.parametrize("kept", LEFT_OUT.values(), ids=LEFT_OUT)
def test_outputs_that_are_left_out_get_no_names(kept: onnx.NodeProto) -> None:
    """Runtimes compute what has a name, and some know no node with it."""
    weights = [weight("w", np.ones((1, 4, 3), np.float32)), weight("r", np.ones((1, 4, 1), np.float32))]
    weights += [weight("v", np.ones((1, 3, 3), np.float32)), weight("s", np.ones((1, 3, 1), np.float32))]
    weights += [weight("half", np.float32(0.5)), weight("true", np.bool_(True))]
    before = model([node("Neg", ["i"], ["x"]), kept], [info("i", [2, 1, 3])], [info("y", None)], weights)
    assert list(roundtrip(before).graph.node[1].output) == list(kept.output)


def test_unused_inputs_keep_their_place() -> None:
    before = model(
        [node("Relu", ["x"], ["y"])], [info("u", [None, 4]), info("x", [2, 3]), info("v", ["N"])], [info("y", [2, 3])]
    )
    after = roundtrip(before)
    assert list(after.graph.input) == list(before.graph.input)


def test_unused_nodes_and_identities_vanish() -> None:
    chain = [node("Identity", [f"a{k}"], [f"a{k + 1}"]) for k in range(20)]
    nodes = [node("Relu", ["x"], ["a0"]), *chain, node("Exp", ["a3"], ["nobody"]), node("Abs", ["a20"], ["y"])]
    before = model(nodes, [info("x", [2, 3])], [info("y", [2, 3])])
    after = roundtrip(before)
    assert ops(after) == ["Relu", "Abs"]
    same_results(before, after, x=X)


def test_nodes_come_back_word_for_word() -> None:
    conv = node("Conv", ["x", "k", "b"], ["c"], name="first", pads=[1, 1, 1, 1], doc_string="said so", group=1)
    gemm = node("Gemm", ["f", "w"], ["y"], name="second", transB=1, alpha=0.30000001192092896)
    before = model(
        [conv, node("Flatten", ["c"], ["f"], name="flat"), gemm],
        [info("x", [1, 2, 4, 4])],
        [info("y", [1, 5])],
        [
            weight("k", np.ones((3, 2, 3, 3), "f")),
            weight("b", np.arange(3, dtype="f")),
            weight("w", np.ones((5, 48), "f")),
        ],
    )
    after = roundtrip(before)
    assert list(after.graph.node) == list(before.graph.node)
    assert {t.name: t for t in after.graph.initializer} == {t.name: t for t in before.graph.initializer}


def test_metadata_opset_and_versions_survive() -> None:
    before = model(
        [node("Relu", ["x"], ["y"])], [info("x", [2, 3])], [info("y", [2, 3])], opset=11, ir=6, domains=["my.domain"]
    )
    before.producer_name, before.model_version, before.doc_string = "someone", 7, "a model"
    helper.set_model_props(before, {"author": "a", "license": "b"})
    before.graph.doc_string = "a graph"
    after = roundtrip(before)
    assert after == before


def test_value_info_of_what_is_kept_survives() -> None:
    nodes = [node("Relu", ["x"], ["m"]), node("Identity", ["m"], ["i"]), node("Abs", ["i"], ["y"])]
    before = model(nodes, [info("x", [2, 3])], [info("y", [2, 3])], value_info=[info("m", [2, 3]), info("i", [2, 3])])
    assert names(roundtrip(before).graph.value_info) == ["m"]


def test_nodes_out_of_order_are_sorted() -> None:
    before = model([node("Abs", ["m"], ["y"]), node("Relu", ["x"], ["m"])], [info("x", [2, 3])], [info("y", [2, 3])])
    after = roundtrip(before)
    onnx.checker.check_model(after)
    assert ops(after) == ["Relu", "Abs"]


# ---- weights that may change ---------------------------------------------------------------------------------


def overridable(ir: int) -> onnx.ModelProto:
    return model(
        [node("Add", ["x", "w"], ["y"])],
        [info("x", [2, 3]), info("w", [3])],
        [info("y", [2, 3])],
        [weight("w", np.float32([1, 2, 3]))],
        ir=ir,
        opset=9,
    )


def test_an_initializer_that_is_an_input_may_be_overridden() -> None:
    before = overridable(4)
    imported = import_model(before, rules())
    assert all(isinstance(v.node, Input) for v in imported.graph.inputs) and len(imported.graph.inputs) == 2
    after = roundtrip(before)
    assert names(after.graph.input) == ["x", "w"] and names(after.graph.initializer) == ["w"]
    np.testing.assert_array_equal(run(after, x=X, w=np.zeros(3, "f"))[0], X)
    same_results(before, after, x=X)


def test_before_ir_version_4_every_initializer_is_a_constant() -> None:
    before = overridable(3)
    imported = import_model(before, rules())
    assert len(imported.graph.inputs) == 1
    (add,) = (n for n in imported.graph.nodes() if n.args)
    assert isinstance(add.args[1].node, Constant)
    after = roundtrip(before)
    assert names(after.graph.input) == ["x", "w"]
    onnx.checker.check_model(after)


def test_weights_that_training_changes_are_no_constants() -> None:
    before = model(
        [node("Mul", ["x", "w"], ["y"])], [info("x", [3])], [info("y", [3])], [weight("w", np.float32([1, 2, 3]))]
    )
    training = before.training_info.add()
    training.algorithm.CopyFrom(helper.make_graph([node("Identity", ["w"], ["w2"])], "step", [], [info("w2", [3])]))
    training.update_binding.add(key="w", value="w2")
    after = roundtrip(before)
    assert after == before


def test_equal_weights_are_held_once() -> None:
    big = np.random.default_rng(0).standard_normal((200, 200)).astype("f")
    before = model(
        [node("MatMul", ["x", "a"], ["p"]), node("MatMul", ["p", "b"], ["y"])],
        [info("x", [1, 200])],
        [info("y", [1, 200])],
        [weight("a", big), weight("b", big)],
    )
    after = roundtrip(before)
    assert names(after.graph.initializer) == ["a"]
    same_results(before, after, x=big[:1])


def test_quantization_annotations_keep_what_they_name() -> None:
    before = model(
        [node("Relu", ["x"], ["y"])],
        [info("x", [3])],
        [info("y", [3])],
        [weight("s", np.float32(0.5)), weight("z", np.int8(3))],
    )
    annotation = before.graph.quantization_annotation.add(tensor_name="y")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="s")
    annotation.quant_parameter_tensor_names.add(key="ZERO_POINT_TENSOR", value="z")
    assert roundtrip(before) == before


# ---- opaque nodes ----------------------------------------------------------------------------------------------


def test_a_subgraph_keeps_the_names_that_it_captures() -> None:
    then = helper.make_graph([node("Add", ["m", "w"], ["t"])], "then", [], [info("t", [2, 3])])
    other = helper.make_graph([node("Sub", ["m", "w"], ["e"])], "else", [], [info("e", [2, 3])])
    nodes = [
        node("Relu", ["x"], ["n"]),
        node("Identity", ["n"], ["m"]),
        node("Constant", [], ["w"], value_float=2.0),
        node("If", ["c"], ["y"], name="choice", then_branch=then, else_branch=other),
    ]
    before = model(nodes, [info("x", [2, 3]), info("c", [], TensorProto.BOOL)], [info("y", [2, 3])])
    imported = import_model(before, rules())
    assert opaque_labels(imported) == ["If"] and operators(imported) == ["relu"]
    after = roundtrip(before)
    (kept,) = (n for n in after.graph.node if n.op_type == "If")
    assert kept == before.graph.node[-1]
    for choice in (True, False):
        same_results(before, after, x=X, c=np.array(choice))


def test_captured_values_with_equal_contents_keep_both_names() -> None:
    then = helper.make_graph([node("Add", ["v", "w"], ["t"])], "then", [], [info("t", None)])
    other = helper.make_graph([node("Add", ["m", "n"], ["e"])], "else", [], [info("e", None)])
    nodes = [
        node("Constant", [], ["v"], value_float=2.0),
        node("Constant", [], ["w"], value_float=2.0),
        node("Relu", ["x"], ["m"]),
        node("Relu", ["x"], ["n"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    before = model(nodes, [info("x", [2, 3]), info("c", [], TensorProto.BOOL)], [info("y", None)])
    after = roundtrip(before)
    for choice in (True, False):
        same_results(before, after, x=X, c=np.array(choice))


def test_random_nodes_are_never_merged() -> None:
    nodes = [
        node("RandomNormalLike", ["x"], ["a"]),
        node("RandomNormalLike", ["x"], ["b"]),
        node("Sub", ["a", "b"], ["y"]),
    ]
    before = model(nodes, [info("x", [50, 50])], [info("y", [50, 50])])
    after = roundtrip(before)
    assert ops(after).count("RandomNormalLike") == 2
    assert np.abs(run(after, x=np.zeros((50, 50), "f"))[0]).max() > 0


def test_dropout_in_training_stays() -> None:
    nodes = [node("Dropout", ["x", "r", "t"], ["y"])]
    weights = [weight("r", np.float32(0.5)), weight("t", np.array(True))]
    before = model(nodes, [info("x", [3])], [info("y", [3])], weights, opset=13)
    assert opaque_labels(import_model(before, rules())) == ["Dropout"]
    assert roundtrip(before) == before


def test_strings_sequences_and_other_domains_pass() -> None:
    nodes = [
        node("SequenceConstruct", ["x", "x"], ["s"]),
        node("SequenceAt", ["s", "i"], ["a"]),
        node("Relu", ["a"], ["y"]),
        node("Mystery", ["x"], ["q"], domain="my.domain", strange=[1.5, 2.5]),
        node("StringNormalizer", ["t"], ["u"]),
    ]
    text = helper.make_tensor("t", TensorProto.STRING, [2], [b"a", b"b"])
    outputs = [info("y", [2, 3]), info("q", None), info("u", None, TensorProto.STRING)]
    before = model(nodes, [info("x", [2, 3])], outputs, [weight("i", np.int64(0)), text], domains=["my.domain"])
    after = roundtrip(before)
    assert sorted(after.graph.node, key=str) == sorted(before.graph.node, key=str)
    assert list(after.graph.output) == list(before.graph.output)
    assert next(t for t in after.graph.initializer if t.name == "t") == text


def test_model_local_functions_are_inlined() -> None:
    body = helper.make_function(
        "local", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    before = model(
        [node("Twice", ["x"], ["y"], domain="local")], [info("x", [2, 3])], [info("y", [2, 3])], domains=["local"]
    )
    before.functions.append(body)
    after = roundtrip(before)
    assert [each.op_type for each in after.graph.node] == ["Add"]
    assert not after.functions
    same_results(before, after, x=X)


def test_quantized_operators_pass() -> None:
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("Relu", ["d"], ["y"]),
    ]
    before = model(
        nodes, [info("x", [2, 3])], [info("y", [2, 3])], [weight("s", np.float32(0.1)), weight("z", np.uint8(128))]
    )
    after = roundtrip(before)
    assert list(after.graph.node) == list(before.graph.node)
    same_results(before, after, x=X)


def test_a_used_mask_keeps_the_node() -> None:
    before = model(
        [node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2])],
        [info("x", [1, 1, 4, 4])],
        [info("y", None), info("i", None, I64)],
    )
    assert opaque_labels(import_model(before, rules())) == ["MaxPool"]
    same_results(before, roundtrip(before), x=np.random.default_rng(0).standard_normal((1, 1, 4, 4)).astype("f"))


def test_sparse_weights_survive() -> None:
    values = helper.make_tensor("w", F32, [2], [1.0, 2.0])
    sparse = helper.make_sparse_tensor(values, helper.make_tensor("i", I64, [2], [0, 4]), [2, 3])
    before = model(
        [node("Add", ["x", "w"], ["y"])], [info("x", [2, 3])], [info("y", [2, 3])], sparse_initializer=[sparse]
    )
    assert list(roundtrip(before).graph.sparse_initializer) == [sparse]
    # ONNX's inference refuses sparse weights of a product; runtimes don't
    product = model(
        [node("MatMul", ["x", "w"], ["y"])], [info("x", [2, 2])], [info("y", [2, 3])], sparse_initializer=[sparse]
    )
    assert list(roundtrip(product).graph.sparse_initializer) == [sparse]


def test_types_that_the_language_lacks_stay() -> None:
    nodes = [node("Cast", ["x"], ["c"], to=TensorProto.FLOAT8E4M3FN), node("Cast", ["c"], ["y"], to=F32)]
    before = model(nodes, [info("x", [2, 3])], [info("y", [2, 3])], opset=19, ir=9)
    assert list(roundtrip(before).graph.node) == nodes


def test_a_changed_graph_keeps_the_other_nodes() -> None:
    """The second product becomes another term; the first is still the node of the file."""
    nodes = [node("MatMul", ["x", "w"], ["p"], name="kept"), node("Relu", ["p"], ["y"], name="changed")]
    before = model(
        nodes,
        [info("x", [2, 3])],
        [info("y", [2, 3])],
        [weight("w", np.random.default_rng(1).standard_normal((3, 3)).astype("f"))],
    )
    imported = import_model(before, rules())
    from dslc.ir.graph import Graph, call

    old = imported.graph.outputs[0].node
    (new,) = call(old.op.replace("relu", "abs"), old.args, (), old.types)  # type: ignore[attr-defined,arg-type]
    after = export(imported.context, Graph(imported.graph.inputs, (new,)), rules())
    assert after.graph.node[0] == nodes[0]
    assert (after.graph.node[1].op_type, list(after.graph.node[1].output)) == ("Abs", ["y"])


@pytest.mark.parametrize("ir", [3, 8])
def test_new_weights_fit_the_ir_version(ir: int) -> None:
    nodes = [node("Add", ["a", "b"], ["s"]), node("Mul", ["x", "s"], ["y"])]
    inputs = [info("x", [3]), info("a", [3]), info("b", [3])] if ir == 3 else [info("x", [3])]
    weights = [weight("a", np.float32([1, 2, 3])), weight("b", np.float32([4, 5, 6]))]
    before = model(nodes, inputs, [info("y", [3])], weights, ir=ir, opset=8)
    after = roundtrip(before)
    onnx.checker.check_model(after)
    assert ops(after) == ["Mul"] and after.ir_version == ir
    same_results(before, after, x=X[0])
