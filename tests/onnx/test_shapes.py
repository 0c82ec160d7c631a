"""Shape computations: known where shapes are known, kept where they are not."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper
from small_models import I64, info, model, opaque_labels, operators, ops, roundtrip, rules, run, same_results, weight

from dslc.errors import DslcError
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, input_value
from dslc.ir.scalar import Scalar, dimension, num
from dslc.ir.scalar import apply as scalar
from dslc.onnx.constant_propagation import KnownValues
from dslc.onnx.exporter import export, node_model
from dslc.onnx.importer import import_model
from dslc.semantics.apply import apply

node = helper.make_node


def chain(batch: int | str | None = "N") -> ModelProto:
    """reshape(x, [batch, -1]) as PyTorch exports `x.view(x.size(0), -1)`, with a relu below it."""
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Shape", ["r"], ["s"]),
        node("Gather", ["s", "zero"], ["n"], axis=0),
        node("Unsqueeze", ["n", "axes"], ["n1"]),
        node("Concat", ["n1", "rest"], ["shape"], axis=0),
        node("Reshape", ["r", "shape"], ["y"]),
    ]
    weights = [weight("zero", np.int64(0)), weight("axes", np.int64([0])), weight("rest", np.int64([-1]))]
    return model(nodes, [info("x", [batch, 3, 4])], [info("y", [batch, 12])], weights)


X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype("f")


def test_a_static_chain_folds() -> None:
    before = chain(2)
    after = roundtrip(before)
    assert ops(after) == ["Relu", "Reshape"]
    same_results(before, after, x=X)


def test_a_bound_dimension_folds_the_chain() -> None:
    before = chain("N")
    after = roundtrip(before, N=2)
    assert ops(after) == ["Relu", "Reshape"]
    assert after.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2
    same_results(before, after, x=X)


def test_an_open_dimension_keeps_the_chain() -> None:
    before = chain("N")
    after = roundtrip(before)
    assert after.graph.input[0] == before.graph.input[0]
    same_results(before, after, x=X)
    same_results(before, after, x=X[:1])


def test_unnamed_dimensions_are_named_by_input_and_axis() -> None:
    before = chain(None)
    imported = import_model(before, rules())
    assert imported.graph.inputs[0].type.shape == (dimension("x.0"), 3, 4)
    after = export(*(lambda i: (i.context, i.graph))(import_model(before, rules(), {"x.0": 2})), rules())
    same_results(before, after, x=X)
    assert after.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2


@pytest.mark.parametrize(("bind", "hint"), [({"M": 1}, "N"), ({"x.1": 1}, "N"), ({"N": -1}, "")])
def test_a_binding_must_name_a_dimension(bind: dict[str, int], hint: str) -> None:
    with pytest.raises(DslcError) as caught:
        import_model(chain("N"), rules(), bind)
    (finding,) = caught.value.diagnostics
    assert finding.code == "E0906" and hint in finding.hint


def shape_math() -> ModelProto:
    """Sizes through arithmetic, comparison and choice, as exporters write `x.view(-1, x.size(1) // 2)` and `expand(-1, ...)`."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "one", "two", "zero"], ["c"]),
        node("Div", ["c", "two"], ["half"]),
        node("Concat", ["minus", "half"], ["p"], axis=0),
        node("Reshape", ["x", "p"], ["r"]),
        node("Shape", ["r"], ["rs"]),
        node("ConstantOfShape", ["two"], ["ones"], value=helper.make_tensor("v", I64, [1], [1])),
        node("Mul", ["ones", "minus"], ["minuses"]),
        node("Concat", ["minus", "half"], ["wanted"], axis=0),
        node("Equal", ["wanted", "minuses"], ["keep"]),
        node("Where", ["keep", "ones", "wanted"], ["shape"]),
        node("Expand", ["r", "shape"], ["y"]),
        node("Cast", ["rs"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["f", "scale"], ["g"]),
        node("Cast", ["g"], ["z"], to=I64),
    ]
    weights = [weight(n, np.int64([v])) for n, v in (("zero", 0), ("one", 1), ("two", 2), ("minus", -1))]
    weights.append(weight("scale", np.float32(2.5)))
    return model(nodes, [info("x", [2, 4])], [info("y", None), info("z", None, I64)], weights)


def test_arithmetic_on_sizes_folds() -> None:
    before = shape_math()
    after = roundtrip(before)
    assert set(ops(after)) <= {"Reshape", "Expand"}
    same_results(before, after, x=np.arange(8, dtype="f").reshape(2, 4))


def test_known_values_hold_symbols() -> None:
    before = model(
        [
            node("Shape", ["x"], ["s"]),
            node("Mul", ["s", "k"], ["m"]),
            node("Add", ["m", "s"], ["t"]),
            node("Slice", ["t", "a", "b"], ["y"]),
        ],
        [info("x", ["N", 3])],
        [info("y", [1], I64)],
        [weight("k", np.int64([4, 5])), weight("a", np.int64([0])), weight("b", np.int64([1]))],
    )
    imported = import_model(before, rules())
    known = KnownValues(rules())
    shape = next(
        n for n in imported.graph.nodes() if not hasattr(n, "name") and n.args and n.args[0] == imported.graph.inputs[0]
    )
    known.put(shape.values[0], imported.graph.inputs[0].type.shape)
    assert [str(item) for item in known.get(imported.graph.outputs[0]) or ()] == ["5 * N"]


def test_constant_of_shape_is_a_lazy_constant() -> None:
    before = model(
        [
            node("ConstantOfShape", ["s"], ["w"], value=helper.make_tensor("v", TensorProto.FLOAT, [1], [0.5])),
            node("Mul", ["x", "w"], ["y"]),
        ],
        [info("x", [1, 1])],
        [info("y", [3000, 4000])],
        [weight("s", np.int64([3000, 4000]))],
    )
    after = roundtrip(before)
    assert sorted(ops(after)) == ["ConstantOfShape", "Mul"] and after.ByteSize() < 1000
    same_results(before, after, x=np.ones((1, 1), "f"))


def test_reshape_takes_zero_and_minus_one() -> None:
    before = model(
        [node("Reshape", ["x", "s"], ["y"])],
        [info("x", [2, 3, 4])],
        [info("y", None)],
        [weight("s", np.int64([0, -1, 2]))],
    )
    imported = import_model(before, rules())
    assert operators(imported) == ["reshape"] and imported.graph.outputs[0].type.shape == (2, 6, 2)


def test_a_shape_that_is_data_stays_opaque() -> None:
    before = model(
        [node("Reshape", ["x", "s"], ["y"])], [info("x", [2, 3]), info("s", [2], I64)], [info("y", ["A", "B"])]
    )
    assert opaque_labels(import_model(before, rules())) == ["Reshape"]
    same_results(before, roundtrip(before), x=np.ones((2, 3), "f"), s=np.int64([3, 2]))


def test_negative_zero_stays() -> None:
    before = model(
        [node("Div", ["x", "w"], ["y"])], [info("x", [1])], [info("y", [2])], [weight("w", np.float32([-0.0, -0.0]))]
    )
    same_results(before, roundtrip(before), x=np.ones(1, "f"))


def test_slices_to_the_end_of_an_open_axis() -> None:
    """What `x[:, 1:]` is exported as: the end is the largest integer, or any other huge one."""
    for end in (2**31 - 1, 2**63 - 1, 10**9):
        before = model(
            [node("Slice", ["x", "a", "b", "c"], ["s"]), node("Concat", ["s", "x"], ["y"], axis=1)],
            [info("x", ["N", 4])],
            [info("y", None)],
            [weight("a", np.int64([0, 1])), weight("b", np.int64([end, end])), weight("c", np.int64([0, 1]))],
        )
        imported = import_model(before, rules())
        assert operators(imported) == ["slice", "concat"]
        assert imported.graph.outputs[0].type.shape == (dimension("N"), 7)
        same_results(before, roundtrip(before), x=X[:, 0])


def test_a_size_that_only_onnx_names_is_the_one_that_is_known() -> None:
    """The opaque node's output has a size by inference; it is the product that the operators before it gave."""
    nodes = [
        node("Reshape", ["x", "s"], ["r"]),
        node("Mystery", ["r"], ["m"], domain="d"),
        node("Add", ["r", "m"], ["y"]),
    ]
    before = model(
        nodes,
        [info("x", ["N", 6])],
        [info("y", None)],
        [weight("s", np.int64([-1]))],
        domains=["d"],
        value_info=[info("r", ["L"]), info("m", ["L"])],
    )
    imported = import_model(before, rules())
    assert operators(imported) == ["reshape", "add"] and str(imported.graph.outputs[0].type.shape[0]) == "6 * N"


@pytest.mark.parametrize(
    ("shape", "wanted", "allow", "result"),
    [
        ((3, 0), [0, 3], 1, (0, 3)),
        ((3, 0), [0, 0], 0, (3, 0)),
        ((5, 0), [0, 0], 1, (0, 0)),
        ((2, 3, 0), [0, -1], 0, (2, 0)),
        ((2, 3, 0), [-1, 0], 0, (0, 3)),
        ((2, 0, 3), [0, 0, 2], 0, (2, 0, 2)),
    ],
)
def test_a_size_of_zero_is_no_copy(
    shape: tuple[int, ...], wanted: list[int], allow: int, result: tuple[int, ...]
) -> None:
    """ONNX's Reshape takes a 0 for the operand's size; dslc's shape is what it says."""
    nodes = [node("Relu", ["x"], ["r"]), node("Reshape", ["r", "s"], ["y"], allowzero=allow)]
    before = model(nodes, [info("x", list(shape))], [info("y", None)], [weight("s", np.int64(wanted))])
    imported = import_model(before, rules())
    assert imported.graph.outputs[0].type.shape == result and not opaque_labels(imported)
    turned = apply(rules(), "std.reshape", [imported.graph.outputs[0]], {"shape": result[::-1]})
    x = np.zeros(shape, np.float32)
    for graph, sizes in ((imported.graph, result), (Graph(imported.graph.inputs, turned), result[::-1])):
        written, _ = node_model(graph.outputs, rules(), 17, inputs=graph.inputs)
        assert run(before, x=x)[0].shape == result and run(written, x0=x)[0].shape == sizes


def test_a_reshape_to_a_size_of_zero_has_no_node_before_opset_14() -> None:
    value = input_value("x", TensorType(DType.F32, (3, 0)))
    (turned,) = apply(rules(), "std.reshape", [value], {"shape": (0, 3)})
    with pytest.raises(DslcError):
        node_model((turned,), rules(), 13)
    (kept,) = apply(rules(), "std.reshape", [value], {"shape": (1, 3, 0)})
    with pytest.raises(DslcError):
        node_model((kept,), rules(), 13)


@pytest.mark.parametrize(("kernel", "stride", "known"), [(3, 2, True), (1, 2, True), (2, 5, False)])
def test_same_padding_of_an_open_size(kernel: int, stride: int, known: bool) -> None:
    weights = [weight("k", np.ones((1, 1, kernel, kernel), "f"))]
    conv = node("Conv", ["x", "k"], ["y"], auto_pad="SAME_UPPER", strides=[stride, stride])
    before = model([conv], [info("x", [1, 1, "H", "W"])], [info("y", None)], weights)
    assert (not opaque_labels(import_model(before, rules()))) == known


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("op", ["Conv", "LpPool", "MaxPool", "AveragePool"])
@pytest.mark.parametrize("size", [8, 9, 10, 11, 12])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 2), (1, 2), (2, 5), (1, 4)])
def test_same_padding_with_strides_above_the_kernel(op: str, mode: str, size: int, kernel: int, stride: int) -> None:
    """Where strides leave out elements at the ends ONNX Runtime pads negatively, in several ways: such nodes stay as they are."""
    attrs = {"auto_pad": mode, "strides": [stride]} | ({} if op == "Conv" else {"kernel_shape": [kernel]})
    weights = [weight("k", np.arange(1, kernel + 1, dtype="f").reshape(1, 1, kernel))] if op == "Conv" else []
    before = model(
        [node(op, ["x", *(w.name for w in weights)], ["y"], **attrs)],
        [info("x", [1, 1, size])],
        [info("y", None)],
        weights,
    )
    imported = import_model(before, rules())
    missing = (-(-size // stride) - 1) * stride + kernel - size
    assert bool(opaque_labels(imported)) == (missing < -1)
    if missing >= 0 or (missing == -1 and op in {"Conv", "LpPool"}):
        x = np.random.default_rng(0).standard_normal((1, 1, size)).astype("f")
        plain, _ = node_model(imported.graph.outputs, rules(), 17, inputs=imported.graph.inputs)
        np.testing.assert_allclose(run(before, x=x)[0], run(plain, x0=x)[0], rtol=1e-5)


def counted(start: int, more: int, step: int) -> ModelProto:
    """x + range(start, N + more, step), as exporters number the positions of a sequence."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"], axis=0),
        node("Add", ["n", "more"], ["end"]),
        node("Range", ["start", "end", "step"], ["places"]),
        node("Cast", ["places"], ["numbers"], to=TensorProto.FLOAT),
        node("Neg", ["numbers"], ["y"]),
    ]
    weights = [
        weight(name, np.int64(value)) for name, value in (("zero", 0), ("more", more), ("start", start), ("step", step))
    ]
    return model(nodes, [info("x", ["N"])], [info("y", [None])], weights)


def of_length(more: int) -> Scalar:
    return scalar("+", dimension("N"), num(more))


@pytest.mark.parametrize(("start", "more", "step"), [(0, 0, 1), (2, 2, 1), (0, 3, 1)])
def test_a_range_up_to_a_size_has_that_many_numbers(start: int, more: int, step: int) -> None:
    before = counted(start, more, step)
    (output,) = import_model(before, rules()).graph.outputs
    assert output.type.shape == (of_length(more - start),)
    same_results(before, roundtrip(before), x=np.ones(4, "f"))


@pytest.mark.parametrize(("start", "more", "step"), [(3, 0, 1), (0, 0, 2), (0, -1, 1)])
def test_a_range_that_may_be_empty_or_skips_has_a_size_of_its_own(start: int, more: int, step: int) -> None:
    before = counted(start, more, step)
    (output,) = import_model(before, rules()).graph.outputs
    assert output.type.shape not in {(dimension("N"),), (of_length(more - start),)}
    for size in (1, 4):
        same_results(before, roundtrip(before), x=np.ones(size, "f"))


@pytest.mark.parametrize("opset", [13, 14, 18])
def test_lists_of_sizes_are_not_mistaken_for_matrices(opset: int) -> None:
    """ONNX's propagation of contents takes the list that `Unsqueeze` makes a column of for a list still (box IoU of torchvision)."""
    nodes = [node("Unsqueeze", ["p", "axes"], ["u"]), node("Add", ["u", "b"], ["y"])]
    before = model(
        nodes,
        [info("p", [64], I64), info("b", [128], I64)],
        [info("y", [64, 128], I64)],
        [weight("axes", np.int64([1]))],
    )
    before.opset_import[0].version = opset
    imported = import_model(before, rules())
    assert imported.graph.outputs[0].type == TensorType(DType.I64, (64, 128)) and opaque_labels(imported) == []
    same_results(before, roundtrip(before), p=np.arange(64), b=np.arange(128))


def test_contents_that_are_mistaken_elsewhere_still_give_shapes() -> None:
    """Beside such a node, a shape that only follows from the contents of a tensor is known."""
    nodes = [
        node("Unsqueeze", ["p", "axes"], ["u"]),
        node("Add", ["u", "b"], ["v"]),
        node("Concat", ["three", "four"], ["s"], axis=0),
        node("NonZero", ["x"], ["positions"]),
        node("ConstantOfShape", ["s"], ["z"]),
        node("CumSum", ["z", "one"], ["y"]),
    ]
    weights = [
        weight("axes", np.int64([1])),
        weight("three", np.int64([3])),
        weight("four", np.int64([4])),
        weight("one", np.int64(1)),
    ]
    inputs = [info("p", [6], I64), info("b", [2], I64), info("x", [3])]
    before = model(nodes, inputs, [info("v", [6, 2], I64), info("positions", None, I64), info("y", None)], weights)
    graph = import_model(before, rules()).graph
    assert graph.outputs[0].type.shape == (6, 2)
    assert graph.outputs[2].type.shape == (3, 4)
