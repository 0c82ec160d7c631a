"""Integer polynomials: positions in tensors as functions of loop variables and unknown sizes.

A position keeps `//` as an atom, and `x % m` is `x - m * (x // m)`, so that an address in which the parts of a number meet again
(a reshape, a merged pair of loops) loses both. Everything is immutable and compared by structure.

Atoms are what generated code has (loop variables, quotients of polynomials, integers that it loaded), in the order in which it
computes them; those of `dslc.analysis.poly` are expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import gcd, prod

from dslc.ir.dtype import Dim
from dslc.ir.polynomials import Polynomial, over
from dslc.ir.scalar import Num, Scalar, Sym
from dslc.records import record


@record
class Var:
    """A loop variable of the generated code, at least 0."""

    name: str


@record
class Quotient:
    """`top // bottom`, rounded down; the bottom is positive."""

    top: Poly
    bottom: Poly


@record
class Datum:
    """An integer that the code computes: `name` is its variable; `lanes` where it is a vector of them."""

    name: str
    lanes: bool


Atom = Var | Sym | Quotient | Datum
Monomial = tuple[Atom, ...]


class Poly(Polynomial[Atom]):
    """A polynomial over atoms of generated code."""

    @staticmethod
    def key(atom: Atom) -> tuple[int, str]:
        if isinstance(atom, Var | Datum):
            return (1, atom.name)
        if isinstance(atom, Sym):
            return (0, atom.name)
        return (2, repr(atom))

    @cached_property
    def deep(self) -> frozenset[Atom]:
        """Every atom, those inside quotients too."""
        inside = [atom.top.deep | atom.bottom.deep for atom in self.atoms if isinstance(atom, Quotient)]
        return self.atoms.union(*inside)

    def coefficient(self, atom: Atom) -> Poly | None:
        """Coefficient of an atom; None where it occurs in a power, or inside a quotient."""
        inside = any(isinstance(part, Quotient) and atom in part.top.deep | part.bottom.deep for part in self.atoms)
        return None if inside or self.degree_in(atom) > 1 else self.split(atom)[0]


def const(value: int) -> Poly:
    """A constant polynomial."""
    return Poly.of(value)


def of(atom: Atom) -> Poly:
    """The polynomial of one atom."""
    return Poly((((atom,), 1),))


def product(parts: Iterable[Poly]) -> Poly:
    """The product of polynomials."""
    out = const(1)
    for part in parts:
        out = out * part
    return out


def _mapped(value: Poly, put: Callable[[Atom], Poly]) -> Poly:
    """The same with a polynomial in the place of each atom."""
    return sum((product(map(put, monomial)) * factor for monomial, factor in value.terms), const(0))


class NotPolynomial(Exception):
    """An integer expression that is no polynomial with quotients."""


def of_size(size: Dim) -> Poly:
    """A size as a polynomial. Raises NotPolynomial for one that is none."""
    if isinstance(size, int):
        return const(size)
    return of_scalar(size, lambda node: None, Ranges({}))


@dataclass
class Ranges:
    """The extents of loop variables: `v` is in [0, extents[v])."""

    extents: dict[Var, Poly]

    def bound(self, value: Poly, upper: bool) -> Poly | None:
        """An upper or lower bound over all loop variables, a polynomial of sizes; None where none is known."""
        total = const(0)
        for monomial, factor in value.terms:
            part = const(factor)
            for atom in monomial:
                if isinstance(atom, Sym):
                    if (atom.least or -1) < 0:
                        return None
                    part = part * of(atom)
                    continue
                limit = self._atom(atom, upper == (factor > 0))
                if not limit:
                    return None
                if len(monomial) > 1 and not self.positive(self._low(atom), 0):
                    return None
                part = part * limit
            total = total + part
        return total

    def _low(self, atom: Atom) -> Poly:
        low = self._atom(atom, False)
        return low or const(-1)

    def _atom(self, atom: Atom, upper: bool) -> Poly | None:
        if isinstance(atom, Var):
            extent = self.extents.get(atom)
            return const(0) if not upper else extent - 1 if extent else None
        if isinstance(atom, Quotient):
            limit = self.bound(atom.top, upper)
            if not limit:
                return None
            top, bottom = limit.number, atom.bottom.number
            if top is not None and bottom is not None:
                return const(top // bottom)
            if top == 0:
                return const(0)
            if upper and self.positive(limit, 0):
                quotient, rest = divided(limit, atom.bottom)
                return quotient if rest.terms == () else limit
        return None

    @staticmethod
    def positive(value: Poly | None, least: int = 0) -> bool:
        """Return whether a polynomial of sizes is `least` or more for all of them, as far as is seen at once."""
        if not value or any(not isinstance(atom, Sym) or atom.least is None for atom in value.atoms):
            return False
        total = _mapped(value, lambda atom: of(atom) + (atom.least or 0 if isinstance(atom, Sym) else 0))
        return all(factor >= 0 for monomial, factor in total.terms if monomial) and total.constant >= least

    def within(self, value: Poly, size: Poly) -> bool:
        """Return whether 0 <= value < size is certain."""
        low = self.bound(value, False)
        if not low or not self.positive(low):
            return False
        return self.below(value, size)

    def below(self, value: Poly, size: Poly) -> bool:
        """Return whether value < size is certain."""
        # a common part of both is no obstacle
        high = self.bound(value - size, True)
        return high is not None and self.positive(high * -1, 1)

    def at_least(self, value: Poly, least: int) -> bool:
        return self.positive(self.bound(value, False), least)


def divided(value: Poly, by: Poly) -> tuple[Poly, Poly]:
    """`q, r` with `value = q * by + r` term by term; `by` is one monomial, else q is 0."""
    if len(by.terms) != 1:
        return (const(1), const(0)) if value == by else (const(0), value)
    (factors, number) = by.terms[0]
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, factor in value.terms:
        left = over(monomial, factors)
        whole = 0
        if left is not None and (factor % number == 0 or not factors):
            # towards zero: what is small stays small
            whole = abs(factor) // number * (1 if factor > 0 else -1)
            quotient[left] = quotient.get(left, 0) + whole
        rest[monomial] = factor - whole * number
    return Poly.of_terms(quotient), Poly.of_terms(rest)


def floordiv(top: Poly, bottom: Poly, ranges: Ranges) -> Poly:
    """`top // bottom`, what divides taken out."""
    if bottom.number == 1:
        return top
    a, b = top.number, bottom.number
    if a is not None and b:
        return const(a // b)
    quotient, rest = divided(top, bottom)
    if ranges.within(rest, bottom):
        return quotient
    if b is not None and b > 0:
        # (4 i + c) // 8 with c < 4 is i // 2
        for common in sorted({gcd(b, factor) for monomial, factor in rest.terms if monomial} - {1}, reverse=True):
            whole, small = divided(rest, const(common))
            if ranges.within(small, const(common)) and b % common == 0:
                return quotient + floordiv(whole, const(b // common), ranges)
    for atom in rest.atoms:
        if isinstance(atom, Quotient) and rest == of(atom):
            return quotient + floordiv(atom.top, atom.bottom * bottom, ranges)
    return quotient + of(Quotient(rest, bottom))


def of_scalar(node: Scalar, leaf: Callable[[Scalar], Poly | None], ranges: Ranges) -> Poly:
    """An integer expression. `leaf` gives what iterators are, and what it likes for other nodes.

    Raises:
        NotPolynomial: it is no polynomial with quotients.
    """
    found = leaf(node)
    if found:
        return found
    if isinstance(node, Num):
        if isinstance(node.value, int):
            return const(int(node.value))
        raise NotPolynomial(str(node))
    if isinstance(node, Sym):
        return of(node)
    if node.op == "+":
        return sum((of_scalar(arg, leaf, ranges) for arg in node.args), const(0))
    if node.op == "*":
        return product(of_scalar(arg, leaf, ranges) for arg in node.args)
    if node.op in {"//", "%"}:
        top, bottom = (of_scalar(arg, leaf, ranges) for arg in node.args)
        if not _is_positive(bottom):
            raise NotPolynomial(str(node))
        quotient = floordiv(top, bottom, ranges)
        return quotient if node.op == "//" else top - quotient * bottom
    if node.op in {"floor", "ceil"}:
        top, bottom = ratio(node.args[0], leaf, ranges)
        return floordiv(top, bottom, ranges) if node.op == "floor" else -floordiv(-top, bottom, ranges)
    raise NotPolynomial(str(node))


def _is_positive(value: Poly) -> bool:
    return Ranges.positive(value, 1)


def ratio(node: Scalar, leaf: Callable[[Scalar], Poly | None], ranges: Ranges) -> tuple[Poly, Poly]:
    """An exact fraction of polynomials with a positive denominator. Raises NotPolynomial."""
    if isinstance(node, Num) and isinstance(node.value, Fraction):
        return const(node.value.numerator), const(node.value.denominator)
    if isinstance(node, Num) and isinstance(node.value, float) and node.value == node.value and abs(node.value) < 1e15:
        exact = Fraction(node.value)
        if exact.denominator < 1 << 20:
            return const(exact.numerator), const(exact.denominator)
    if node.op in {"+", "*", "/"}:
        parts = [ratio(arg, leaf, ranges) for arg in node.args]
        if node.op == "/":
            (a, b), (c, d) = parts
            if not _is_positive(c):
                raise NotPolynomial(str(node))
            return a * d, b * c
        if node.op == "*":
            return product(top for top, _ in parts), product(bottom for _, bottom in parts)
        total, below = parts[0]
        for top, bottom in parts[1:]:
            if bottom == below:
                total = total + top
            else:
                total, below = total * bottom + top * below, below * bottom
        return _lowest(total, below)
    return of_scalar(node, leaf, ranges), const(1)


def _lowest(top: Poly, bottom: Poly) -> tuple[Poly, Poly]:
    number = bottom.number
    if number is None:
        return top, bottom
    common = gcd(number, *(factor for _, factor in top.terms))
    if common <= 1:
        return top, bottom
    return Poly(tuple((monomial, factor // common) for monomial, factor in top.terms)), const(number // common)


def replaced(value: Poly, new: Mapping[Atom, Poly], ranges: Ranges) -> Poly:
    """The same with other polynomials in the place of atoms."""
    if not (value.deep & new.keys()):
        return value

    def put(atom: Atom) -> Poly:
        if isinstance(atom, Quotient) and atom not in new:
            return floordiv(replaced(atom.top, new, ranges), replaced(atom.bottom, new, ranges), ranges)
        return new.get(atom, of(atom))

    return _mapped(value, put)


def known(sizes: Iterable[Poly]) -> int | None:
    """The product of sizes where all are numbers."""
    numbers = [size.number for size in sizes]
    return None if None in numbers else prod(number for number in numbers if number is not None)
