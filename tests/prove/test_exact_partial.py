"""Divisors, roots, logarithms and infinities: a rule is no rule where one side has a value and the other has none.

What holds where no divisor is 0 and no argument is negative is proved only if both sides ask for that, or nothing can go wrong.
"""

from __future__ import annotations

from typing import Any

import pytest

from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Scope, Value, input_value, scope_value
from dslc.ir.scalar import Scalar, dimension, num, sym
from dslc.ir.scalar import apply as scalar
from dslc.prove.exact import Equal, compare
from dslc.semantics.apply import apply
from dslc.semantics.elaborate import expand
from dslc.semantics.library import standard

STD = standard()
N, M = dimension("n"), dimension("m")
X, Z, W = (input_value(name, TensorType(DType.F32, (N, M))) for name in "XZW")
C = input_value("c", TensorType(DType.F32, (N, 1)))
ROW = input_value("r", TensorType(DType.F32, (M,)))


def op(name: str, *args: Any, **attrs: Any) -> Value:
    return apply(STD, f"std.{name}", args, attrs)[0]


def number(value: Scalar) -> Value:
    """A number that stays unknown, as a tensor."""
    return scope_value(Scope((), value, DType.F32), ())


def add(a: Any, b: Any) -> Value:
    return op("add", a, b)


def sub(a: Any, b: Any) -> Value:
    return op("sub", a, b)


def mul(a: Any, b: Any) -> Value:
    return op("mul", a, b)


def div(a: Any, b: Any) -> Value:
    return op("div", a, b)


def rows(name: str, x: Any) -> Value:
    return op(name, x, axes=(1,), keepdims=True)


def is_proved(left: Value, right: Value, *conditions: Scalar) -> bool:
    return isinstance(compare(expand(STD, (left,)), expand(STD, (right,)), conditions), Equal)


PARTIAL = {
    "a quotient of equals": (div(X, X), add(mul(X, 0), 1)),
    "a product with its quotient": (mul(div(X, Z), Z), X),
    "the inverse of an inverse": (op("reciprocal", op("reciprocal", X)), X),
    "a quotient by a quotient": (div(X, div(Z, W)), div(mul(X, W), Z)),
    "a quotient less itself": (sub(div(X, Z), div(X, Z)), mul(X, 0)),
    "a quotient by 0 times 0": (mul(div(X, Z), 0), mul(X, 0)),
    "the square of a root": (mul(op("sqrt", X), op("sqrt", X)), X),
    "a root less itself": (sub(op("sqrt", X), op("sqrt", X)), mul(X, 0)),
    "the exponential of a logarithm": (op("exp", op("log", X)), X),
    "the logarithm of a product": (op("log", mul(X, Z)), add(op("log", X), op("log", Z))),
    "the logarithm of a square": (op("log", mul(X, X)), mul(op("log", X), 2)),
    "powers that cancel": (mul(op("pow", X, 2), op("pow", X, -2)), add(mul(X, 0), 1)),
    "an infinity less itself": (sub(add(X, float("inf")), float("inf")), X),
    "infinity times 0": (mul(mul(X, 0), float("inf")), mul(X, 0)),
    "a maximum with infinity": (sub(op("maximum", X, float("inf")), float("inf")), mul(X, 0)),
}


@pytest.mark.parametrize("name", PARTIAL)
def test_what_needs_a_guard_is_not_proved(name: str) -> None:
    left, right = PARTIAL[name]
    assert not is_proved(left, right)
    assert not is_proved(right, left)


TOTAL = {
    "two quotients in one": (div(div(X, Z), W), div(X, mul(Z, W))),
    "quotients by the same": (add(div(X, Z), div(W, Z)), div(add(X, W), Z)),
    "quotients that stay": (mul(div(X, Z), Z), mul(X, div(Z, Z))),
    "a quotient by sizes": (mul(rows("reduce_mean", X), 1), mul(rows("reduce_sum", X), number(scalar("/", num(1), M)))),
    "the root of a square": (op("sqrt", mul(X, X)), op("abs", X)),
    "the logarithm of an exponential": (op("log", op("exp", X)), X),
    "exponentials that cancel": (mul(op("exp", X), op("exp", op("neg", X))), add(mul(X, 0), 1)),
    "the maximum with the smallest": (op("maximum", X, float("-inf")), X),
    "softmax without its maximum": (op("softmax", X), div(op("exp", X), rows("reduce_sum", op("exp", X)))),
    "softmax of shifted rows": (op("softmax", add(X, C)), op("softmax", X)),
    "the maximum of shifted rows": (rows("reduce_max", add(X, C)), add(rows("reduce_max", X), C)),
    "the minimum of shifted rows": (rows("reduce_min", sub(X, C)), sub(rows("reduce_min", X), C)),
    "a maximum of two shifted": (op("maximum", add(X, Z), Z), add(op("relu", X), Z)),
    "a maximum of shifted maxima": (
        op("reduce_max", add(X, C), axes=(0, 1), keepdims=True),
        op("reduce_max", add(rows("reduce_max", X), C), axes=(0, 1), keepdims=True),
    ),
    "tanh by a sigmoid": (op("tanh", X), sub(mul(op("sigmoid", mul(X, 2)), 2), 1)),
    "a sigmoid by tanh": (op("sigmoid", X), mul(add(op("tanh", mul(X, 0.5)), 1), 0.5)),
    "tanh by exponentials": (
        op("tanh", X),
        div(sub(op("exp", X), op("exp", op("neg", X))), add(op("exp", X), op("exp", op("neg", X)))),
    ),
    "a mean as a sum by the size": (rows("reduce_mean", X), div(rows("reduce_sum", X), number(M))),
    "a running sum as a product with a triangle": (
        op("cumsum", X, axis=1),
        op("matmul", X, op("upper_triangle", op("ones", dtype=DType.F32, shape=(M, M)))),
    ),
    "a running sum from the end": (
        op("cumsum", X, axis=1, reverse=True),
        op("matmul", X, op("lower_triangle", op("ones", dtype=DType.F32, shape=(M, M)))),
    ),
    "log of a sum of exponentials": (rows("reduce_log_sum_exp", X), op("log", rows("reduce_sum", op("exp", X)))),
}


@pytest.mark.parametrize("name", TOTAL)
def test_what_is_defined_alike_is_proved(name: str) -> None:
    assert is_proved(*TOTAL[name])


def test_tanh_is_no_other_function_of_the_exponential() -> None:
    assert not is_proved(op("tanh", X), sub(mul(op("sigmoid", X), 2), 1))
    assert not is_proved(op("tanh", X), sub(mul(op("sigmoid", mul(X, 2)), 2), 2))


def test_shifts_that_differ_within_a_row_stay_in_the_maximum() -> None:
    assert not is_proved(rows("reduce_max", add(X, ROW)), add(rows("reduce_max", X), op("reduce_max", ROW)))
    assert not is_proved(op("softmax", add(X, ROW)), op("softmax", X))


def test_a_number_that_may_be_zero_needs_a_guard() -> None:
    a = sym("a")
    left, right = div(mul(X, number(a)), number(a)), X
    assert not is_proved(left, right)
    assert is_proved(left, right, scalar(">=", a, num(1)))
    assert is_proved(div(div(X, number(a)), number(N)), div(X, number(scalar("*", a, N))))
    assert not is_proved(mul(X, div(number(a), number(a))), X)
