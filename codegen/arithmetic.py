"""Sums, products and quotients of sizes and positions, some of which are numbers."""

from __future__ import annotations

from dslc.ir.dtype import Dim
from dslc.ir.scalar import Scalar, apply, as_scalar


def plus(*parts: Dim) -> Scalar:
    """The sum."""
    return apply("+", *map(as_scalar, parts))


def times(*parts: Dim) -> Scalar:
    """The product."""
    return apply("*", *map(as_scalar, parts))


def over(size: Dim, by: Dim) -> Scalar:
    """The quotient, rounded down."""
    return apply("//", as_scalar(size), as_scalar(by))


def rest(size: Dim, by: Dim) -> Scalar:
    """The remainder."""
    return apply("%", as_scalar(size), as_scalar(by))


def pieces(size: Dim, by: int) -> Scalar:
    """The quotient, rounded up: pieces of so many that something has."""
    return over(plus(size, by - 1), by)
