"""`dslc diff` where functions are no polynomials, where bounds change with positions, and on tensors of few elements or none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from dslc.cli.diff import command

LAWS = {
    "a largest is a smallest of negatives": ("reduce_max(X: f32[5, 6], axes=[1])", "neg(reduce_min(neg(X), axes=[1]))", 0),
    "exponentials of sums": ("exp(add(X: f32[4], Y: f32[4]))", "mul(exp(X), exp(Y))", 0),
    "logarithms of quotients": ("log_softmax(X: f32[3, 4], axis=1)", "log(softmax(X, axis=1))", 0),
    "except on the diagonal": ("maximum(X: f32[3, 3], transpose(X, perm=[1, 0]))", "X", 6 / 9),
    "where a largest is hidden nearly always": ("max_pool(X: f32[1, 1, 6, 6], kernel=[3, 3], pads=[1, 1, 1, 1])",
        "max_pool(pad(X, before=[0, 0, 1, 1], after=[0, 0, 1, 1]), kernel=[3, 3])", 20 / 36),
    "integers, where divisors are not 0": ("modulo(X: int32[2, 3], Y: int32[3])", "sub(X, mul(div_int(X, Y), Y))", 1),
}  # fmt: skip


def said(*args: str) -> Any:
    found = CliRunner().invoke(command, [*args, "--output-format", "json"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


@pytest.mark.parametrize("name", LAWS)
def test_laws_of_functions_are_proved(name: str) -> None:
    one, other, share = LAWS[name]
    found = said(one, other)
    assert found["share"] == pytest.approx(share, abs=1e-12)
    assert found["proved"]


def test_a_law_that_no_prover_knows_is_seen_and_not_proved() -> None:
    found = said("cos(X: f32[4])", "cos(neg(X))")
    assert (found["share"], found["proved"]) == (0.0, False)
    # and what differs anywhere else still does
    assert said("cos(X: f32[4])", "cos(reverse(X, axis=0))")["share"] == 1


def test_weights_that_change_with_the_position_are_proved_on_a_basis() -> None:
    one = "resize_linear(X: f32[4], size=[8])"
    found = said(one, "reverse(resize_linear(reverse(X, axis=0), size=[8]), axis=0)")
    assert (found["share"], found["proved"]) == (0, True)
    found = said(one, "resize_linear_asymmetric(X, size=[8])")
    assert (found["share"], found["proved"]) == (6 / 8, True)


def test_a_tensor_alone_is_a_program() -> None:
    found = said("reverse(X: f32[5], axis=0)", "X")
    assert found["share"] == 4 / 5
    # the types may stand in either
    assert said("X", "reverse(X: f32[5], axis=0)")["boxes"] == found["boxes"]


def test_scalars_and_tensors_without_elements_are_read() -> None:
    assert said("clip(X: f32[3, 4], a: f32[], b: f32[])", "minimum(maximum(X, a), b)")["share"] == 0
    assert said("mul(X: f32[2, 3], a: f32[])", "mul(reshape(X, shape=[2, 3]), a)")["agree"]
    assert said("concat(X: f32[0, 4], Y: f32[3, 4], axis=0)", "Y")["share"] == 0


def test_sizes_that_only_operands_have_stay_unknown() -> None:
    rows = "gather(X: f32[N, 3], I: int64[4], axis=0)"
    assert said(rows, "neg(gather(neg(X), I, axis=0))")["share"] == 0
    assert said(rows, "gather(neg(X), I, axis=0)")["share"] is None
