"""Coefficients: rational functions of sizes, with rational numbers. Equal coefficients are mostly equal objects by value.

A common numeric factor and a common monomial are cancelled, and a denominator that divides its numerator; whether a coefficient is zero
is decided exactly, since it is zero where its numerator is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import cache, reduce
from math import gcd, lcm
from operator import add, and_, mul

from dslc.analysis.poly import Monomial, Poly, as_poly, atom
from dslc.ir.polynomials import over
from dslc.ir.scalar import Num, Scalar, Sym
from dslc.records import record

POWERS = 12  #: a power beyond this one is kept as a function
#: decimals with more digits are rounded values: of a fraction with a small denominator, or of a function
DENOMINATOR = 10**12
SIMPLE = 1000  #: denominator of a fraction that a rounded value may stand for, at most


class NotRational(Exception):
    """A number with no exact value: infinite, or the rounded value of a function."""


@record
class Ratio:
    """`top / bottom`; the bottom is never the zero polynomial."""

    top: Poly
    bottom: Poly

    def __add__(self, other: Ratio) -> Ratio:
        if self.bottom == other.bottom:
            return _ratio(self.top + other.top, self.bottom)
        return _ratio(self.top * other.bottom + other.top * self.bottom, self.bottom * other.bottom)

    def __mul__(self, other: Ratio) -> Ratio:
        if self is ONE or self == ONE:
            return other
        if other is ONE or other == ONE:
            return self
        return _ratio(self.top * other.top, self.bottom * other.bottom)

    def __neg__(self) -> Ratio:
        return Ratio(self.top * -1, self.bottom)

    @property
    def inverse(self) -> Ratio:
        return _ratio(self.bottom, self.top)

    @property
    def is_zero(self) -> bool:
        return not self.top.terms

    @property
    def number(self) -> Fraction | None:
        """The value, where it depends on no size."""
        if self.top.is_constant and self.bottom.is_constant:
            return Fraction(self.top.constant, self.bottom.constant)
        return None

    def __str__(self) -> str:
        if self.bottom == as_poly(1):
            return str(self.top)
        return f"({self.top}) / ({self.bottom})"


def _ratio(top: Poly, bottom: Poly) -> Ratio:
    if not top.terms:
        return ZERO
    if bottom.is_constant and abs(bottom.constant) == 1:
        return Ratio(top * bottom.constant, _ONE) if bottom.constant == -1 else Ratio(top, bottom)
    return _cancelled(top, bottom)


@cache
def _cancelled(top: Poly, bottom: Poly) -> Ratio:
    shared = _common([m for m, _ in (*top.terms, *bottom.terms)])
    divisor = reduce(gcd, (abs(c) for _, c in (*top.terms, *bottom.terms)))
    if bottom.terms[0][1] < 0:
        divisor = -divisor
    top, bottom = _divided(top, shared, divisor), _divided(bottom, shared, divisor)
    if not bottom.is_constant and (whole := top.quotient(bottom)):
        return Ratio(whole, _ONE)
    if not top.is_constant and len(top.terms) > 1 and (whole := bottom.quotient(top)):
        return _cancelled(_ONE, whole)
    return Ratio(top, bottom)


def _common(monomials: list[Monomial]) -> Monomial:
    shared = reduce(and_, map(Counter, monomials))
    return tuple(factor for factor in dict.fromkeys(monomials[0]) for _ in range(shared[factor]))


def _divided(poly: Poly, shared: Monomial, divisor: int) -> Poly:
    """A polynomial without factors that each of its terms has."""
    return Poly.of_terms({over(monomial, shared) or (): coefficient // divisor for monomial, coefficient in poly.terms})


_ONE = as_poly(1)
ZERO = Ratio(as_poly(0), _ONE)
ONE = Ratio(_ONE, _ONE)
MINUS_ONE = Ratio(as_poly(-1), _ONE)


def from_number(value: bool | int | Fraction | float) -> Ratio:
    """A number that a program is written with. A rounded `1 / 6` is read as that: as the simple fraction that it is the float of.

    Raises NotRational at infinities, and at what looks like the rounded value of a function: a float, or a fraction, with many digits
    that is no rounded simple fraction.
    """
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        raise NotRational(repr(value))
    number = Fraction(repr(value)) if isinstance(value, float) else Fraction(value)
    if number.denominator > DENOMINATOR:
        simple = number.limit_denominator(SIMPLE)
        if float(simple) != float(number):
            raise NotRational(repr(value))
        number = simple
    return _ratio(as_poly(number.numerator), as_poly(number.denominator))


def from_poly(poly: Poly) -> Ratio:
    """A polynomial as a coefficient."""
    return Ratio(poly, _ONE) if poly.terms else ZERO


def positive_factor(coefficients: Sequence[Ratio]) -> Ratio:
    """The common factor of all coefficients but zeros: a positive number, and powers (also negative ones) of sizes that are at least 1.

    The factor of some coefficients times such a number or size is their factor times that; it is 1 for zeros alone.
    """
    there = [coefficient for coefficient in coefficients if not coefficient.is_zero]
    if all(coefficient == ONE for coefficient in there):
        return ONE
    numbers = [Fraction(_content(each.top), _content(each.bottom)) for each in there]
    powers = [_powers(each) for each in there]
    total = _ratio(as_poly(gcd(*(n.numerator for n in numbers))), as_poly(lcm(*(n.denominator for n in numbers))))
    for size in dict.fromkeys(size for each in powers for size in each):
        power = min(each[size] for each in powers)
        unit = from_poly(atom(size)) if power > 0 else from_poly(atom(size)).inverse
        total = reduce(mul, [unit] * abs(power), total)
    return total


def is_positive(coefficient: Ratio) -> bool:
    """Return whether a coefficient is known to be above 0."""
    return is_positive_poly(coefficient.top) and is_positive_poly(coefficient.bottom)


def is_negative(coefficient: Ratio) -> bool:
    """Return whether a coefficient is written with a minus first: of a number and its negation one is."""
    return str(coefficient).lstrip("(").startswith("-")


def is_positive_poly(poly: Poly) -> bool:
    """Return whether a polynomial is a positive number times powers of sizes that are at least 1."""
    return len(poly.terms) == 1 and poly.terms[0][1] > 0 and all(map(_is_size, poly.terms[0][0]))


def _content(poly: Poly) -> int:
    return gcd(*(c for _, c in poly.terms))


def _powers(coefficient: Ratio) -> Counter[Scalar]:
    """The powers of sizes that are factors: of the numerator, less of the denominator."""
    found = Counter(size for size in _common([m for m, _ in coefficient.top.terms]) if _is_size(size))
    found.subtract(size for size in _common([m for m, _ in coefficient.bottom.terms]) if _is_size(size))
    return found


def _is_size(factor: Scalar) -> bool:
    return isinstance(factor, Sym) and (factor.least or 0) >= 1


@cache
def from_sizes(node: Scalar) -> Ratio:
    """The coefficient that an expression over sizes is (no iterator, no read); unknown functions of sizes are unknowns.

    Raises NotRational at numbers without an exact value.
    """
    if isinstance(node, Num):
        return from_number(node.value)
    if isinstance(node, Sym):
        return from_poly(atom(node))
    if node.op == "+":
        return reduce(add, (from_sizes(arg) for arg in node.args), ZERO)
    if node.op == "*":
        return reduce(mul, (from_sizes(arg) for arg in node.args), ONE)
    if node.op == "/" and not (below := from_sizes(node.args[1])).is_zero:
        return from_sizes(node.args[0]) * below.inverse
    if node.op == "^" and (power := _whole(node.args[1])) is not None:
        base = from_sizes(node.args[0])
        if power >= 0 or not base.is_zero:
            return reduce(mul, [base if power >= 0 else base.inverse] * abs(power), ONE)
    return from_poly(atom(node))


def _whole(node: Scalar) -> int | None:
    """A small whole exponent."""
    value = node.value if isinstance(node, Num) else None
    if value is None or isinstance(value, bool) or not -POWERS <= value <= POWERS:
        return None
    return int(value) if value == int(value) else None
