"""Texts that are no call end with one error at its place; any names of tensors will do."""

from __future__ import annotations

import pytest

from dslc.derivation.calls import read_call
from dslc.errors import DslcError
from dslc.semantics.library import Rules, standard


@pytest.fixture(scope="module")
def rules() -> Rules:
    return standard()


@pytest.mark.parametrize(
    "text, code, marked",
    [
        ("matmul(A: f32[4, 5], B: f32[5, 6]))", "E0104", ")"),
        ("matmul(A: f32[4, 5)], B: f32[5, 6])", "E0104", ")"),
        ("conv(X: f32[1, 2, 4, 4], K: f32[2, 2, 3, 3], pads=[1, 1", "E0104", "["),
        ("matmul(A: f32[4, 5], B: f32[5, 6])\n}\noperator x() -> y {", "E0911", "}"),
        ("matmul(for: f32[4, 5], let: f32[5, 6])", "E0205", "let"),
        ("matmul(A: f32[4, 5], sum: f32[5, 6])", "E0205", "sum"),
        ("matmul(A: f32[99999999999999999999, 2], B: f32[2, 3])", "E0329", "99999999999999999999"),
        (
            "conv(X: f32[1, 1, 4, 4], K: f32[1, 1, 3, 3], pads=[9223372036854775808, 0, 0, 0])",
            "E0329",
            "9223372036854775808",
        ),
        ("matmul(A: f32[4, 5], B: f32[5, 6]); import os", "E0102", ";"),
        ("matmul(A\u200b: f32[4, 5], B: f32[5, 6])", "E0102", "\u200b"),
        ("relu(" * 300 + "X: f32[4]" + ")" * 300, "E0109", "("),
        ("model.onnx", "E0911", "model.onnx"),
        ("matmul(A: f32[-1, 3], B: f32[3, 4])", "E0306", "matmul"),
        ("conv(X: f32[1, 2, 4, 4], K: f32[2, 2, 3, 3], stride=[0, 0])", "E0306", "conv"),
    ],
)
def test_what_is_no_call_is_one_error_at_its_place(rules: Rules, text: str, code: str, marked: str) -> None:
    with pytest.raises(DslcError) as raised:
        read_call(rules, text)
    (problem,) = raised.value.diagnostics
    assert problem.code == code and problem.span is not None and problem.span.text.startswith(marked)


@pytest.mark.parametrize("names", ["w v", "w0 w1", "y0 h0", "y z", "program wv", "w0 v0", "T s0"])
def test_tensors_have_any_names(rules: Rules, names: str) -> None:
    left, right = names.split()
    called = read_call(rules, f"matmul({left}: f32[4, 5], {right}: f32[5, 6])")
    assert called.names == (left, right)
    assert [str(value.type) for value in called.graph.inputs] == ["f32[4, 5]", "f32[5, 6]"]
    assert str(called.value.type) == "f32[4, 6]"
