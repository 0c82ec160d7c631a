"""A positive factor is taken out of the largest and the smallest; a factor that may be negative or 0 is not."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from dslc.analysis.poly import as_poly, atom
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Value, input_value
from dslc.ir.scalar import Scalar, apply, dimension, num, sym
from dslc.prove.exact import Equal, compare
from dslc.prove.exact.coefficient import ONE, ZERO, from_number, from_poly, is_positive, positive_factor
from dslc.semantics.apply import apply as applied
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules, standard

N, C, H, S = dimension("N"), dimension("C"), dimension("H"), sym("s")


@cache
def _rules() -> Rules:
    return standard()


def _tensor(name: str, *shape: Scalar) -> Value:
    return input_value(name, TensorType(DType.F32, shape))


def op(name: str, *args: Any, **attrs: Any) -> Value:
    return applied(_rules(), f"std.{name}", args, attrs)[0]


X, Y = _tensor("X", N, C, H), _tensor("Y", N, C, H)
FACTOR = _tensor("a")
FITS = (apply(">=", H, num(2)),)


def times(x: Value, *factors: Any) -> Value:
    for factor in factors:
        x = op("mul", x, factor)
    return x


def twice(x: Value) -> Value:
    return op("add", x, x)


def largest(x: Value) -> Value:
    """Of elements 2 apart, with -inf around: with one element only, the window that starts before it has none."""
    return op("max_pool", x, kernel=(2,), pads=(1, 1), dilation=(2,))


def smallest(x: Value) -> Value:
    return op("reduce_min", x, axes=(2,))


def relu(x: Value) -> Value:
    return op("relu", x)


def magnitude(x: Value) -> Value:
    return op("abs", x)


def both(x: Value, y: Value) -> Value:
    return op("maximum", x, y)


def _equal(left: Value, right: Value, conditions: tuple[Scalar, ...] = FITS) -> bool:
    sides = [expand(_rules(), (side,)) for side in (left, right)]
    return compare(*sides, conditions, 3.0) == Equal()


@pytest.mark.parametrize("function", [largest, smallest, relu, magnitude])
@pytest.mark.parametrize(
    "scaled", [twice, lambda x: times(x, 3), lambda x: times(x, 0.1), lambda x: times(twice(x), 0.25)]
)
def test_a_positive_factor_leaves_the_largest(
    function: Callable[[Value], Value], scaled: Callable[[Value], Value]
) -> None:
    assert _equal(function(scaled(X)), scaled(function(X)))


def test_a_common_factor_leaves_sums_and_chains() -> None:
    assert _equal(largest(op("add", times(X, 6), times(Y, 4))), twice(largest(op("add", times(X, 3), twice(Y)))))
    assert _equal(largest(twice(largest(X))), twice(largest(largest(X))))
    assert _equal(both(twice(both(X, Y)), times(X, 4)), twice(both(both(twice(X), X), Y)))
    assert _equal(op("relu", twice(op("relu", X))), twice(op("relu", X)))


def test_the_mean_of_a_window_leaves_the_largest() -> None:
    """Its factor is 1 over a size, which is at least 1; a vector with zeros behind its first element has the mean x / H."""
    sums = op("reduce_max", op("reduce_sum", X, axes=(2,)), axes=(1,))
    divided = op("reduce_mean", op("pad", sums, before=(0, 0, 0), after=(0, 0, apply("-", H, num(1)))), axes=(2,))
    assert _equal(op("reduce_max", op("reduce_mean", X, axes=(2,)), axes=(1,)), divided, ())


def test_a_negative_factor_turns_the_largest_into_the_smallest() -> None:
    least = lambda x: op("reduce_min", x, axes=(2,))  # noqa: E731
    most = lambda x: op("reduce_max", x, axes=(2,))  # noqa: E731
    assert _equal(most(times(X, -2)), times(least(X), -2))
    assert not _equal(most(times(X, -2)), times(most(X), -2))
    assert not _equal(largest(times(X, -2)), times(largest(X), -2))
    assert not _equal(op("relu", times(X, -1)), times(op("relu", X), -1))


def test_other_functions_are_not_homogeneous() -> None:
    assert not _equal(both(twice(X), Y), twice(both(X, Y)))
    assert not _equal(both(times(X, 6), times(Y, 4)), twice(both(times(X, 2), times(Y, 3))))
    assert not _equal(op("exp", twice(X)), twice(op("exp", X)))
    assert not _equal(op("maximum", twice(X), 3.0), twice(op("maximum", X, 3.0)))
    assert _equal(op("maximum", twice(X), 3.0), twice(op("maximum", X, 1.5)))


def test_a_factor_that_is_data_stays() -> None:
    assert not _equal(largest(times(X, FACTOR)), times(largest(X), FACTOR))


def test_zero_times_a_window_of_pads_is_not_zero() -> None:
    """Where a window lies in the pads alone its largest is -inf."""
    assert _equal(largest(times(X, 0)), times(largest(X), 0))
    assert not _equal(largest(times(X, 0)), times(largest(X), 0), ())


def test_pads_of_zeros_are_not_pads_of_minus_infinity() -> None:
    def padded(x: Value) -> Value:
        return op("max_pool", op("pad", x, before=(0, 0, 1), after=(0, 0, 1)), kernel=(2,), dilation=(2,))

    assert _equal(padded(twice(X)), twice(padded(X)))
    assert not _equal(padded(twice(X)), twice(largest(X)))


def test_the_factor_that_coefficients_share() -> None:
    def number(value: Any) -> Any:
        return from_number(value)

    size, unknown = from_poly(atom(N)), from_poly(atom(S))
    assert positive_factor([]) == positive_factor([ZERO]) == positive_factor([ONE, number(-1)]) == ONE
    assert positive_factor([number(6), number(-4), ZERO]) == number(2)
    assert positive_factor([number(Fraction(3, 4)), number(Fraction(1, 6))]) == number(Fraction(1, 12))
    assert positive_factor([size * number(2), size * size * number(4)]) == size * number(2)
    assert positive_factor([size.inverse, ONE]) == size.inverse
    # what may be negative or 0 stays
    assert positive_factor([unknown * number(2), unknown * number(4)]) == number(2)
    assert positive_factor([from_poly(atom(N) - 1) * number(2)]) == number(2)
    assert is_positive(size * number(2)) and is_positive(size.inverse)
    assert not any(map(is_positive, (ZERO, unknown, number(-2), size * unknown, from_poly(atom(N) - as_poly(1)))))
