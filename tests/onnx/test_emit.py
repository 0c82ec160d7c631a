"""Operators written through their own clauses: as if no node of the file could be kept."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper
from small_models import I64, info, model, ops, rules, same_results, weight

from dslc.errors import DslcError
from dslc.ir.constants import array_value
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Call, Graph, Scope, Value, input_value, scope_value
from dslc.ir.scalar import apply as scalar
from dslc.ir.scalar import iterator, num
from dslc.onnx.exporter import export, exportable, node_model
from dslc.onnx.importer import import_model
from dslc.onnx.runtime import run as run_model
from dslc.semantics.apply import apply

node = helper.make_node
RNG = np.random.default_rng(3)


def rewritten(before: ModelProto) -> ModelProto:
    """Read and written without the nodes of the file."""
    imported = import_model(before, rules())
    context = dataclasses.replace(imported.context, origins={})
    return export(context, imported.graph, rules())


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def check(before: ModelProto, expected: list[str], **feeds: np.ndarray) -> ModelProto:
    after = rewritten(before)
    assert ops(after) == expected
    same_results(before, after, **feeds)
    return after


@pytest.mark.parametrize("opset", [7, 11, 13, 18, 21])
def test_attributes_that_became_inputs(opset: int) -> None:
    """Squeeze, Unsqueeze, Split, Pad and ReduceSum at opsets on both sides of their changes."""
    late = opset >= 13
    weights = [weight("a", np.int64([1])), weight("s", np.int64([1, 2])), weight("p", np.int64([0, 1, 0, 2]))]
    nodes = [
        node("Unsqueeze", ["x", "a"] if late else ["x"], ["u"], **({} if late else {"axes": [1]})),
        node("Squeeze", ["u", "a"] if late else ["u"], ["v"], **({} if late else {"axes": [1]})),
        node("Split", ["v", "s"] if late else ["v"], ["b", "c"], axis=1, **({} if late else {"split": [1, 2]})),
        node("Pad", ["c", "p"] if opset >= 11 else ["c"], ["d"], **({} if opset >= 11 else {"pads": [0, 1, 0, 2]})),
        node("ReduceSum", ["d", "a"] if late else ["d"], ["y"], keepdims=0, **({} if late else {"axes": [1]})),
    ]
    before = model(nodes, [info("x", [2, 3])], [info("b", [2, 1]), info("y", [2])], weights, opset=opset)
    check(before, ["Unsqueeze", "Squeeze", "Split", "Pad", "ReduceSum"], x=draw(2, 3))


def test_a_bias_is_rejoined() -> None:
    before = model(
        [node("Conv", ["x", "k", "b"], ["c"], pads=[1, 0, 1, 0], strides=[2, 1], group=2), node("Relu", ["c"], ["y"])],
        [info("x", [1, 4, 8, 8])],
        [info("y", None)],
        [weight("k", draw(6, 2, 3, 1)), weight("b", draw(6))],
    )
    after = check(before, ["Conv", "Relu"], x=draw(1, 4, 8, 8))
    assert len(after.graph.node[0].input) == 3


def test_a_constant_of_the_shape_of_a_bias_becomes_one() -> None:
    """What folding a batch norm leaves: one number per channel, not written as a reshaped list."""
    k, b, x = draw(6, 3, 1, 1), draw(6), draw(1, 3, 4, 4)
    (value,) = apply(rules(), "std.conv", [tensor("x", 1, 3, 4, 4), array_value(k)], {})
    (value,) = apply(rules(), "std.add", [array_value(b.reshape(6, 1, 1)), value], {})
    made, _ = node_model([value], rules(), 17, inputs=[tensor("x", 1, 3, 4, 4)])
    assert ops(made) == ["Conv"] and [len(n.input) for n in made.graph.node] == [3]
    (y,) = run_model(made, {"x0": x}, ["y0"])
    np.testing.assert_allclose(y, np.einsum("fc,nchw->nfhw", k[:, :, 0, 0], x) + b.reshape(6, 1, 1), rtol=1e-5)


def test_a_constant_that_is_no_bias_stays_beside_the_product() -> None:
    """One number per row has the length of a bias here, and is none."""
    (value,) = apply(rules(), "std.conv", [tensor("x", 1, 3, 6, 6), array_value(draw(6, 3, 1, 1))], {})
    (value,) = apply(rules(), "std.add", [value, array_value(draw(6, 1))], {})
    made, _ = node_model([value], rules(), 17, inputs=[tensor("x", 1, 3, 6, 6)])
    assert ops(made) == ["Conv", "Add"]


def test_a_product_that_something_else_reads_is_not_computed_twice() -> None:
    before = model(
        [node("Conv", ["x", "k", "b"], ["c"]), node("Conv", ["x", "k"], ["d"]), node("Sub", ["c", "d"], ["y"])],
        [info("x", [1, 2, 4, 4])],
        [info("y", None)],
        [weight("k", draw(3, 2, 1, 1)), weight("b", draw(3))],
    )
    after = rewritten(before)
    assert ops(after).count("Conv") == 1


def test_a_product_with_bias_and_transposes_is_one_gemm() -> None:
    before = model(
        [node("Gemm", ["x", "w", "b"], ["y"], transB=1, alpha=0.5)],
        [info("x", [2, 3])],
        [info("y", [2, 4])],
        [weight("w", draw(4, 3)), weight("b", draw(4))],
    )
    check(before, ["Gemm"], x=draw(2, 3))


def test_any_number_of_tensors() -> None:
    nodes = [
        node("Concat", ["x", "x", "x"], ["c"], axis=1),
        node("Split", ["c", "s"], ["p", "q", "r"], axis=1),
        node("Sum", ["p", "q", "r"], ["t"]),
        node("Max", ["t", "p", "q"], ["y"]),
    ]
    before = model(nodes, [info("x", [2, 3])], [info("y", [2, 3])], [weight("s", np.int64([3, 3, 3]))])
    check(before, ["Concat", "Split", "Sum", "Max"], x=draw(2, 3))


def test_defaults_are_left_out_and_float_attributes_keep_their_bits() -> None:
    before = model(
        [node("LeakyRelu", ["x"], ["l"], alpha=0.1234567), node("Elu", ["l"], ["y"])],
        [info("x", [2, 3])],
        [info("y", [2, 3])],
    )
    after = check(before, ["LeakyRelu", "Elu"], x=draw(2, 3))
    assert after.graph.node[0].attribute[0].f == np.float32(0.1234567) and not after.graph.node[1].attribute


def test_no_expand_appears() -> None:
    nodes = [node("Add", ["x", "b"], ["a"]), node("Mul", ["a", "c"], ["m"]), node("MatMul", ["m", "w"], ["y"])]
    before = model(
        nodes,
        [info("x", [2, 4, 3, 5])],
        [info("y", None)],
        [weight("b", draw(4, 1, 1)), weight("c", draw(5)), weight("w", draw(1, 1, 5, 6))],
    )
    check(before, ["Add", "Mul", "MatMul"], x=draw(2, 4, 3, 5))


def test_weights_only_computation_is_done_once() -> None:
    nodes = [node("Transpose", ["w"], ["t"]), node("Mul", ["t", "s"], ["u"]), node("MatMul", ["x", "u"], ["y"])]
    before = model(nodes, [info("x", [2, 4])], [info("y", [2, 3])], [weight("w", draw(3, 4)), weight("s", draw(3))])
    after = check(before, ["MatMul"], x=draw(2, 4))
    assert len(after.graph.initializer) == 1


def test_a_fold_that_would_blow_up_is_left_to_run_time() -> None:
    nodes = [node("Expand", ["w", "s"], ["e"]), node("Mul", ["x", "e"], ["y"])]
    before = model(
        nodes,
        [info("x", [1])],
        [info("y", [2000, 2000])],
        [weight("w", draw(2000, 1)), weight("s", np.int64([2000, 2000]))],
    )
    assert ops(rewritten(before)) == ["Expand", "Mul"]


def test_a_constant_expression_is_computed_by_its_definition() -> None:
    """No node expresses it, and none has to: it depends on nothing."""
    i, j = iterator("i0"), iterator("i1")
    body = scalar("/", scalar("+", i, scalar("*", num(10), j)), num(4))
    weights = scope_value(Scope((3, 5), body, DType.F32), ())
    (value,) = apply(rules(), "std.matmul", [tensor("x", 2, 3), weights], {})
    made, _ = node_model([value], rules(), 17)
    assert ops(made) == ["MatMul"]
    (y,) = run_model(made, {"x0": np.eye(2, 3, dtype="f")}, ["y0"])
    np.testing.assert_array_equal(y, (np.arange(2)[:, None] + 10 * np.arange(5)) / np.float32(4))


def test_a_huge_constant_on_the_way_is_not_made() -> None:
    nodes = [node("ConstantOfShape", ["s"], ["w"]), node("ReduceSum", ["w"], ["r"]), node("Add", ["x", "r"], ["y"])]
    before = model(nodes, [info("x", [1])], [info("y", None)], [weight("s", np.int64([1 << 20, 1 << 20]))])
    assert ops(rewritten(before)) == ["ConstantOfShape", "ReduceSum", "Add"]


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE])
def test_weights_of_other_floats_are_computed_with(dtype: int) -> None:
    nodes = [node("Cast", ["w"], ["c"], to=TensorProto.FLOAT), node("Mul", ["x", "c"], ["y"])]
    before = model(
        nodes, [info("x", [2, 3])], [info("y", [2, 3])], [helper.make_tensor("w", dtype, [3], [1.5, 2.0, -3.0])]
    )
    check(before, ["Mul"], x=draw(2, 3))


def test_an_open_size_as_an_attribute_is_computed_from_the_inputs() -> None:
    """A new application whose attribute is symbolic: the sizes come from the shape of the graph's input."""
    before = model([node("Relu", ["x"], ["y"])], [info("x", ["N", 6]), info("w", [1, 6])], [info("y", None)])
    imported = import_model(before, rules())
    x, w = imported.graph.inputs
    (new,) = apply(rules(), "std.expand", [w], {"shape": (x.type.shape[0], 6)})
    after = export(imported.context, Graph(imported.graph.inputs, (new,)), rules())
    row = draw(1, 6)
    for n in (1, 4):
        (y,) = run_model(after, {"x": draw(n, 6), "w": row}, ["y"])
        np.testing.assert_array_equal(y, row.repeat(n, 0))


def tensor(name: str, *shape: int) -> Value:
    return input_value(name, TensorType(DType.F32, shape))


def test_a_model_of_one_node() -> None:
    k = array_value(draw(4, 3, 3, 3))
    (value,) = apply(rules(), "std.conv", [tensor("anything", 1, 3, 8, 8), k], {"pads": 1})
    made, inputs = node_model([value], rules(), 17)
    assert inputs == ["x0"] and [o.name for o in made.graph.output] == ["y0"] and ops(made) == ["Conv"]
    (y,) = run_model(made, {"x0": draw(1, 3, 8, 8)}, ["y0"])
    assert y.shape == (1, 4, 8, 8)


def test_an_operator_without_a_node_is_written_as_what_it_is_defined_by() -> None:
    args = [tensor("q", 1, 2, 4, 8), tensor("k", 1, 2, 5, 8), tensor("v", 1, 2, 5, 8)]
    (value,) = apply(rules(), "std.attention", args, {})
    if exportable(value.node, rules(), 13):  # type: ignore[arg-type]
        made, inputs = node_model([value], rules(), 13)
        feeds = {name: draw(*arg.type.shape) for name, arg in zip(inputs, args, strict=True)}  # type: ignore[arg-type]
        (y,) = run_model(made, feeds, ["y0"])
        assert y.shape == (1, 2, 4, 8)
    else:
        with pytest.raises(DslcError):
            node_model([value], rules(), 13)


def test_what_no_node_expresses_is_said() -> None:
    (value,) = apply(rules(), "std.gbmm", [tensor("a", 1, 4, 3), tensor("b", 1, 4, 5)], {})
    assert isinstance(value.node, Call) and not exportable(value.node, rules(), 17)
    with pytest.raises(DslcError) as caught:
        node_model([value], rules(), 17)
    assert [d.code for d in caught.value.diagnostics] == ["E0814"]


def test_a_top_k_keeps_both_results() -> None:
    before = model(
        [node("TopK", ["x", "k"], ["v", "i"])],
        [info("x", [2, 5])],
        [info("v", None), info("i", None, I64)],
        [weight("k", np.int64([2]))],
    )
    check(before, ["TopK"], x=draw(2, 5))
