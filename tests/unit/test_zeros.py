"""Numbers that Python calls equal and that are not the same: zeros of two signs; True, 1 and 1.0. And NaN, which equals nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from dslc.ir.constants import array_value, fill, number_of
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import call
from dslc.ir.holes import hole, program
from dslc.ir.scalar import apply, exactly, iterator, num, table
from dslc.ir.text import program_text
from dslc.onnx.exporter import export
from dslc.onnx.importer import import_model
from dslc.semantics.apply import apply as apply_operator
from dslc.semantics.library import standard
from dslc.semantics.written import read_program

TYPE = TensorType(DType.F32, (2,))
APART: tuple[tuple[Any, Any], ...] = ((0.0, -0.0), (0, 0.0), (1, True), (1, 1.0), (True, 1.0), (0, False))


def sign(value: Any) -> float:
    return math.copysign(1.0, float(value))


@pytest.mark.parametrize(("one", "other"), APART)
def test_what_is_not_the_same_is_told_apart(one: Any, other: Any) -> None:
    assert (
        num(one) is not num(other) and type(num(other).value) is type(other) and sign(num(other).value) == sign(other)
    )
    assert exactly((1, (one,))) != exactly((1, (other,)))
    i = iterator("i0")
    assert table((one, 2), (i,)) is not table((other, 2), (i,))
    (x,) = (hole(0, TYPE),)
    assert call("a.b", (x,), (("p", one),), (TYPE,)) != call("a.b", (x,), (("p", other),), (TYPE,))
    assert call("a.b", (x,), (("p", (one,)),), (TYPE,)) != call("a.b", (x,), (("p", (other,)),), (TYPE,))


def test_what_is_the_same_is_one() -> None:
    i, x = iterator("i0"), hole(0, TYPE)
    alike = (
        (math.nan, -math.nan),
        (math.nan, np.float64("nan")),
        (0.5, np.float64(0.5)),
        (3, np.int64(3)),
        (-0.0, -0.0),
    )
    for one, other in alike:
        assert num(one) is num(other)
    assert table((math.nan, 1), (i,)) is table((float("nan"), 1), (i,))
    assert call("a.b", (x,), (("p", math.nan),), (TYPE,)) == call("a.b", (x,), (("p", float("nan")),), (TYPE,))


def test_folding_keeps_the_sign_of_zero() -> None:
    for name in ("tanh", "sin", "erf", "asinh"):
        assert sign(apply(name, num(-0.0)).value) == -1  # type: ignore[attr-defined]
    for args, wanted in (((-0.0, -0.0), -1), ((-0.0, 0), -1), ((0, -0.0), -1), ((-0.0, 0.0), 1), ((0.0, -0.0), 1)):
        assert sign(apply("+", *map(num, args)).value) == wanted  # type: ignore[attr-defined]
    assert sign(apply("-", num(0.0)).value) == -1 and sign(apply("*", num(-0.0), num(2)).value) == -1  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, ml_dtypes.bfloat16])
def test_a_constant_has_the_zeros_that_it_was_given(dtype: Any) -> None:
    for elements in ([0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0], [0.0, 0.0], [-0.0]):
        array = np.array(elements, dtype)
        data = array_value(array).node.data  # type: ignore[attr-defined]
        assert data.load().tobytes() == array.tobytes()
    assert number_of(array_value(np.array([-0.0, -0.0], dtype))) is not None
    assert number_of(array_value(np.array([-0.0, 0.0], dtype))) is None


def test_zeros_are_the_same_when_they_are_read_again() -> None:
    x, rules = hole(0, TYPE), standard()
    for constant in (fill(-0.0, TYPE), fill(0.0, TYPE), array_value(np.array([0.0, -0.0], np.float32))):
        written = program([x], apply_operator(rules, "std.add", [x, constant]))
        assert read_program(rules, program_text(written)).outputs == written.outputs
    for alpha in (0.0, -0.0):
        written = program([x], apply_operator(rules, "std.leaky_relu", [x], {"alpha": alpha}))
        assert read_program(rules, program_text(written)).outputs == written.outputs


def test_zeros_come_out_of_a_model_as_they_went_in() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y, float[2] z, float[2] w)
        { a = Constant<value = float[2] {-0.0, -0.0}>() y = Div(x, a)
          b = Constant<value = float[2] {0.0, -0.0}>() z = Div(x, b)
          c = Constant<value = float[2] {0.0, 0.0}>() w = Div(x, c) }"""
    model = onnx.parser.parse_model(text)
    imported = import_model(model, standard(), {})
    # products instead of quotients, so that all nodes are written anew
    outputs = tuple(apply_operator(standard(), "std.mul", value.node.args)[0] for value in imported.graph.outputs)
    written = export(imported.context, replace(imported.graph, outputs=outputs), standard())
    found = ReferenceEvaluator(written).run(None, {"x": np.ones(2, np.float32)})
    assert [np.signbit(one).tolist() for one in found] == [[True, True], [False, True], [False, False]]
    again = import_model(written, standard(), {}).graph.outputs
    assert [value.node.args[1] for value in again] == [value.node.args[1] for value in imported.graph.outputs]
