"""When two models count as the same, and inputs that are valid for a model nobody gave inputs for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dslc.cost.compare import Comparison, Reference, compare, difference, meaning, outputs_of, silent, steady
from dslc.cost.inputs import drawn_inputs, inputs_at_other_sizes, special_inputs
from dslc.cost.process import ModelFile
from dslc.onnx.describe import computed_types
from dslc.onnx.importer import import_model
from dslc.onnx.inputs import draw, input_specs, only_numbers
from dslc.semantics.library import standard

NAN, INF = float("nan"), float("inf")


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_error_is_relative_to_the_largest_value() -> None:
    error, problem = difference(f32(100, 0.001), f32(100, 0.002))
    assert (problem, error) == ("", pytest.approx(1e-5, rel=1e-3))


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        (f32(1, NAN), f32(NAN, 1), "NaN at other positions"),
        (f32(1, INF), f32(1, -INF), "infinities"),
        (f32(1, INF), f32(1, 3e38), "infinities"),
        (np.array([1, 2]), np.array([1, 3]), "1 of 2 elements"),
        (np.array([True]), np.array([False]), "1 of 1 elements"),
        (f32(1, 2), f32(1, 2).reshape(2, 1), "shape"),
        (f32(1), np.array([1.0]), "type float64"),
        ([f32(1)], [], "lengths"),
    ],
)
def test_what_no_tolerance_excuses(a: object, b: object, says: str) -> None:
    assert says in difference(a, b)[1]


def test_equal_nans_and_infinities_are_equal() -> None:
    assert difference(f32(1, NAN, INF), f32(1, NAN, INF)) == (0.0, "")


@pytest.mark.parametrize(
    ("dtype", "error", "same"),
    [
        (np.float32, 5e-5, True),
        (np.float32, 2e-4, False),
        (np.float16, 5e-3, True),
        (np.float64, 1e-7, False),
        (ml_dtypes.bfloat16, 4e-2, True),
    ],
)
def test_tolerance_follows_the_data_type(dtype: type, error: float, same: bool) -> None:
    a = Reference(("y",), ((np.ones(4, dtype),),))
    b = Reference(("y",), ((np.array([1, 1, 1, 1 + error]).astype(dtype),),))
    assert compare(a, b).same is same
    assert compare(a, b, tolerance=1.0).same


def lookup_model(rows: int) -> onnx.ModelProto:
    """An embedding, reached through a cast and a reshape, with a mask."""
    nodes = [
        helper.make_node("Cast", ["ids"], ["wide"], to=TensorProto.INT64),
        helper.make_node("Unsqueeze", ["wide", "axis"], ["column"]),
        helper.make_node("Gather", ["table", "column"], ["found"], axis=0),
        helper.make_node("Cast", ["mask"], ["kept"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["kept"], ["total"]),
        helper.make_node("Mul", ["found", "total"], ["y"]),
    ]
    table = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT32, ["N", "S"]),
            helper.make_tensor_value_info("mask", TensorProto.INT64, ["N", "S"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.array([2]), "axis")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_integers_are_drawn_from_the_range_their_uses_prove_valid() -> None:
    model = lookup_model(50)
    specs, assumed, strange = input_specs(model, {"S": 200})
    assert [(s.name, s.shape, s.low, s.high) for s in specs] == [("ids", (1, 200), 0, 50), ("mask", (1, 200), 0, 2)]
    assert ([(a.name, a.size) for a in assumed], strange) == ([("N", 1)], [])
    feeds = [draw(specs, seed) for seed in range(3)]
    assert feeds[0]["ids"].dtype == np.int32 and feeds[0]["ids"].max() > 40
    assert not np.array_equal(feeds[0]["ids"], feeds[1]["ids"])
    np.testing.assert_array_equal(draw(specs, 2)["ids"], feeds[2]["ids"])
    ran = outputs_of(ModelFile(model.SerializeToString()), feeds, threads=1)
    assert ran.outputs[0][0].shape == (1, 200, 1, 3)
    assert compare(ran, ran).same


def test_a_size_may_be_bound_by_input_and_axis_and_a_number_by_its_input() -> None:
    specs, assumed, _ = input_specs(lookup_model(50), {"ids.0": 4, "N": 2, "S": 3, "mask": 1})
    assert [s.shape for s in specs] == [(4, 3), (2, 3)]
    assert (specs[1].low, specs[1].high, assumed) == (1, 2, [])


def test_a_one_hot_depth_and_a_comparison_bound_integers() -> None:
    nodes = [
        helper.make_node("OneHot", ["label", "depth", "values"], ["hot"]),
        helper.make_node("Equal", ["rate", "k16"], ["is16"]),
        helper.make_node("Where", ["is16", "hot", "hot"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("label", TensorProto.INT64, [7]),
            helper.make_tensor_value_info("rate", TensorProto.INT64, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [7, 5])],
        [
            numpy_helper.from_array(np.array(5), "depth"),
            numpy_helper.from_array(f32(0, 1), "values"),
            numpy_helper.from_array(np.array(16000), "k16"),
        ],
    )
    specs, _, _ = input_specs(helper.make_model(graph), {})
    assert [(s.low, s.high) for s in specs] == [(0, 5), (16000, 16001)]


def small(nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, list[int]]], output: int) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, *type) for name, type in inputs.items()],
        [helper.make_tensor_value_info("y", output, None)],
        [numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), "table")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


I64, F32, F64, F16, BOOL = (
    TensorProto.INT64,
    TensorProto.FLOAT,
    TensorProto.DOUBLE,
    TensorProto.FLOAT16,
    TensorProto.BOOL,
)


def test_a_condition_of_rank_zero_is_an_array() -> None:
    model = small([helper.make_node("Where", ["c", "x", "x"], ["y"])], {"c": (BOOL, []), "x": (F32, [2])}, F32)
    feeds = drawn_inputs(model, {}).feeds
    assert all(type(one["c"]) is np.ndarray and one["c"].shape == () for one in feeds)
    assert {bool(one["c"]) for one in (draw(input_specs(model, {})[0], seed) for seed in range(20))} == {True, False}
    assert len(outputs_of(ModelFile(model.SerializeToString()), feeds, threads=1).outputs) == 3


def test_what_was_assumed_is_said_as_a_shell_takes_it() -> None:
    model = small([helper.make_node("Relu", ["x"], ["y"])], {"x": (F32, ["batch size", "n"])}, F32)
    first, second = drawn_inputs(model, {}).notes
    assert first.endswith("; set it with, say, --bind 'batch size=16'") and second.endswith("say, --bind n=16")


def test_integers_that_are_only_numbers_cover_their_type() -> None:
    model = small([helper.make_node("Add", ["a", "b"], ["y"])], {"a": (I64, [50]), "b": (I64, [50])}, I64)
    large, zeros = (one.feeds for one in special_inputs(model, {}))
    ends = np.iinfo(np.int64)
    for name in "ab":
        assert {ends.min, ends.max, 0} <= set(large[name].tolist()) and not zeros[name].any()
        assert len(set(large[name].tolist())) > 20, "and numbers from anywhere in the range"
    assert (large["a"] == large["b"]).any(), "equal operands, where a comparison changes"


def test_numbers_are_at_the_ends_of_their_type_too() -> None:
    model = small([helper.make_node("Exp", ["x"], ["y"])], {"x": (F32, [50])}, F32)
    zeros, edges, logarithms = special_inputs(model, {})
    info, x = np.finfo(np.float32), edges.feeds["x"]
    assert {
        info.tiny,
        info.smallest_subnormal,
        np.nextafter(np.float32(1), np.float32(2)),
        np.float32(2**24 - 1),
    } <= set(x.tolist())
    denormal = np.exp(logarithms.feeds["x"])
    assert (denormal > 0).all() and (denormal < info.tiny).all()
    # their digits are few: they are compared by their size
    assert zeros.tolerance is None and (edges.tolerance or 0) > 0.01 and (logarithms.tolerance or 0) > 0.01


def test_a_size_that_is_bound_is_one_of_several() -> None:
    model = small([helper.make_node("Relu", ["x"], ["y"])], {"x": (F32, ["n", 4]), "z": (F32, ["n", "m"])}, F32)
    found = [(one.sizes, one.feeds["x"].shape, one.feeds["z"].shape) for one in inputs_at_other_sizes(model, {"n": 64})]
    assert found == [
        ("n = 3, m = 101", (3, 4), (3, 101)), ("n = 101, m = 3", (101, 4), (101, 3)), ("n = 65, m = 9", (65, 4), (65, 9)),
    ]  # fmt: skip
    fixed = small([helper.make_node("Relu", ["x"], ["y"])], {"x": (F32, [8, 4])}, F32)
    assert list(inputs_at_other_sizes(fixed, {})) == []


def test_a_huge_element_hides_no_other() -> None:
    right = np.array([1e6, 0.5, -1.0, 2.0, 1e-7, 3.0], np.float32)
    wrong = right.copy()
    wrong[1] = 0.8
    assert compared(right, wrong).problem == "output y: 1 elements are off by more than 25% of themselves"
    # what is next to nothing may be the rounding of what it was subtracted from
    wrong[1], wrong[4] = 0.5, -1e-7
    assert compared(right, wrong).same


def test_sequences_of_floats_are_compared_as_floats_are() -> None:
    right = np.array([1.0, 2.0], np.float32)
    assert compared([right], [right * np.float32(1 + 1e-6)]).same and not compared([right], [right * 2]).same


def test_outputs_that_say_nothing_are_known() -> None:
    some, none = f32(0, NAN, 1), f32(0, NAN, INF)
    assert silent([Reference(("a", "b"), ((some, none),)), Reference(("a", "b"), ((none, none),))]) == ["b"]
    assert silent([Reference(("a",), ((np.zeros(0, np.int64),),))]) == ["a"]
    assert silent([Reference(("a",), ((np.zeros(2, bool),),))]) == []


def compared(right: Any, wrong: Any) -> Comparison:
    return compare(Reference(("y",), ((right,),)), Reference(("y",), ((wrong,),)))


@pytest.mark.parametrize(
    ("nodes", "plain"),
    [
        ([("Add", ["i", "i"], "t"), ("Gather", ["table", "t"], "y")], False),
        ([("Neg", ["i"], "t"), ("Range", ["t", "i", "i"], "y")], False),
        ([("Div", ["i", "i"], "y")], False),
        ([("Neg", ["i"], "t"), ("ConstantOfShape", ["t"], "y")], False),
        ([("Less", ["i", "i"], "t"), ("Where", ["t", "table", "table"], "y")], True),
        ([("Shape", ["i"], "t"), ("ConstantOfShape", ["t"], "y")], True),
        ([("Neg", ["i"], "t"), ("Abs", ["t"], "y")], True),
        ([("FromElsewhere", ["i"], "y")], False),
    ],
)
def test_positions_lengths_and_divisors_are_no_plain_numbers(
    nodes: list[tuple[str, list[str], str]], plain: bool
) -> None:
    made = [helper.make_node(op, inputs, [output]) for op, inputs, output in nodes]
    assert ("i" in only_numbers(small(made, {"i": (I64, [])}, F32))) is plain


@pytest.mark.parametrize(
    ("nodes", "types", "tolerance"),
    [
        ([("Sin", ["x"], "t"), ("Cast", ["t"], "y")], (F32, F64), 1e-4),
        ([("Cast", ["x"], "t"), ("Sqrt", ["t"], "y")], (F32, F64), 1e-8),
        ([("Sqrt", ["x"], "y")], (F64, F64), 1e-8),
        ([("Neg", ["x"], "t"), ("Cast", ["t"], "y")], (F16, F32), 1e-2),
        ([("Neg", ["x"], "t"), ("Cast", ["t"], "y")], (F32, I64), 0.0),
    ],
)
def test_the_tolerance_is_that_of_the_weakest_type_on_the_way(
    nodes: list[tuple[str, list[str], str]], types: tuple[int, int], tolerance: float
) -> None:
    made = [
        helper.make_node(op, inputs, [output], **({"to": types[1]} if op == "Cast" else {}))
        for op, inputs, output in nodes
    ]
    model = small(made, {"x": (types[0], [4])}, types[1])
    computed = computed_types(import_model(model, standard()))
    dtype = helper.tensor_dtype_to_np_dtype(types[1])
    one = Reference(("y",), ((np.array([1000], dtype),),))

    def same(error: float) -> bool:
        return compare(one, Reference(("y",), ((np.array([1000 * (1 + error)], dtype),),)), None, computed).same

    assert (same(tolerance / 2) and not same(tolerance * 2)) if tolerance else not same(0.01)


def is_steady(model: onnx.ModelProto, **feeds: np.ndarray) -> bool:
    file = ModelFile(model.SerializeToString())
    imported = import_model(model, standard())
    meant = meaning(standard(), imported.graph, ("y",))

    def run(given: Mapping[str, Any], plain: bool) -> Reference:
        return outputs_of(file, [given], 1, plain=plain)

    return steady(run, feeds, run(feeds, False), {}, None, meant)


def test_what_the_runtime_rounds_or_reorders_by_itself_says_nothing() -> None:
    """Its sums of integers go through floating-point numbers; what is left of equal numbers is noise."""
    total = small([helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)], {"x": (I64, [3])}, I64)
    ends = np.iinfo(np.int64)
    assert is_steady(total, x=np.array([1, 2, 3]))
    assert not is_steady(total, x=np.array([ends.max - 2, 1, 0]))
    mean = [helper.make_node("ReduceMean", ["x"], ["m"], axes=[0]), helper.make_node("Sub", ["x", "m"], ["d"])]
    noise = small([*mean, helper.make_node("Mul", ["d", "d"], ["y"])], {"x": (F32, [7])}, F32)
    assert is_steady(noise, x=f32(1, 2, 4, 8, 1, 2, 3))
    equal = np.full(7, 0.1, np.float32)
    assert outputs_of(ModelFile(noise.SerializeToString()), [{"x": equal}], 1).outputs[0][0].any()
    assert not is_steady(noise, x=equal)
