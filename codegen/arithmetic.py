"""Sums, products and quotients of sizes and positions, some of which are numbers."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from dslc.ir.dtype import Dim
from dslc.ir.scalar import Num, Scalar, apply, as_scalar

USUAL = 64  #: what an unknown size is taken to be


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


def ceiling(size: Dim, by: int) -> Scalar:
    """The quotient, rounded up: pieces of so many that something has."""
    return over(plus(size, by - 1), by)


def count(sizes: Iterable[Dim]) -> float:
    """The number of positions, as far as it is known."""
    return prod(float(size.value) if isinstance(size, Num) else float(USUAL) for size in map(as_scalar, sizes))
