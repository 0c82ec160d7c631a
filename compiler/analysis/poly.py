"""Polynomials with integer coefficients over atoms: sizes, iterators, and whatever is not `+` or `*`."""

from __future__ import annotations

from functools import cache, reduce
from math import gcd
from operator import add, mul

from dslc.ir.polynomials import Polynomial
from dslc.ir.scalar import Iter, Num, Read, Scalar, Sym, Table, apply, num, walk

Monomial = tuple[Scalar, ...]


class Poly(Polynomial[Scalar]):
    """A polynomial over scalar expressions."""

    @staticmethod
    def key(atom: Scalar) -> str:
        return str(atom)


def as_poly(value: Poly | int) -> Poly:
    """A number as a polynomial."""
    return Poly.of(value)


ZERO = Poly.of(0)


@cache
def atom(value: Scalar) -> Poly:
    """An expression as an unknown."""
    return Poly((((value,), 1),))


class NotIntegral(Exception):
    """The expression is no polynomial with integer coefficients."""


@cache
def polynomial(node: Scalar) -> Poly:
    """The polynomial of an integer expression; raises NotIntegral at fractions, floats and truth values."""
    if isinstance(node, Num):
        if isinstance(node.value, bool) or not isinstance(node.value, int):
            raise NotIntegral(str(node))
        return as_poly(node.value)
    if node.op == "+":
        return reduce(add, (polynomial(arg) for arg in node.args), ZERO)
    if node.op == "*":
        return reduce(mul, (polynomial(arg) for arg in node.args), as_poly(1))
    if not is_integral(node):
        raise NotIntegral(str(node))
    return atom(node)


@cache
def is_integral(node: Scalar) -> bool:
    """Return whether an expression is an integer at all sizes and positions, and no data."""
    if isinstance(node, Num):
        return isinstance(node.value, int) and not isinstance(node.value, bool)
    if node.op in {"//", "floor", "ceil", "round", "trunc"}:
        return not any(isinstance(part, Read | Table) for part in walk(node))
    if node.op in {"+", "*", "%", "min", "max", "abs"}:
        return all(is_integral(arg) for arg in node.args)
    return isinstance(node, Sym | Iter) or (node.op == "select" and all(map(is_integral, node.args[1:])))


#: comparisons, each with the one that holds where it does not
COMPARISONS = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def compared(name: str, left: Scalar, right: Scalar) -> Poly:
    """The polynomial that a comparison of integers says is at least 0, or (un)equal to 0: `a < b` → `b - a - 1`.

    Raises NotIntegral.
    """
    if name in {">", ">="}:
        left, right = right, left
    return polynomial(right) - polynomial(left) - (1 if name in {"<", ">"} else 0)


def primitive(poly: Poly) -> Poly:
    """`poly >= 0` with the coefficients' common divisor taken out (the constant rounded down: values are integers)."""
    divisor = reduce(gcd, (abs(c) for m, c in poly.terms if m), 0)
    if divisor <= 1:
        return poly
    return Poly(tuple((m, c // divisor) for m, c in poly.terms if c // divisor))


def monomial_of(factors: Monomial) -> Poly:
    """A product of sorted atoms."""
    return Poly(((factors, 1),))


def scalar_of(poly: Poly) -> Scalar:
    """The expression that a polynomial stands for."""
    terms = [apply("*", num(coefficient), *monomial) for monomial, coefficient in poly.terms]
    return apply("+", *terms) if terms else num(0)
