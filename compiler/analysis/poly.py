"""Polynomials with integer coefficients over atoms: sizes, iterators, and whatever is not `+` or `*`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, reduce
from math import gcd

from dslc.ir.scalar import Apply, Iter, Num, Read, Scalar, Sym, Table, walk

Monomial = tuple[Scalar, ...]


@dataclass(frozen=True)
class Poly:
    """A sum of `coefficient * monomial`; terms are sorted, so equal polynomials are equal objects by value."""

    terms: tuple[tuple[Monomial, int], ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    @cached_property
    def coefficients(self) -> dict[Monomial, int]:
        return dict(self.terms)

    @property
    def constant(self) -> int:
        # the terms are sorted: it comes first
        return self.terms[0][1] if self.terms and not self.terms[0][0] else 0

    @property
    def is_constant(self) -> bool:
        return not self.terms or (len(self.terms) == 1 and not self.terms[0][0])

    @cached_property
    def atoms(self) -> frozenset[Scalar]:
        return frozenset(atom for monomial, _ in self.terms for atom in monomial)

    @property
    def degree(self) -> int:
        return max((len(monomial) for monomial, _ in self.terms), default=0)

    def degree_in(self, atom: Scalar) -> int:
        return max((monomial.count(atom) for monomial, _ in self.terms), default=0)

    def split(self, atom: Scalar) -> tuple[Poly, Poly]:
        """(a, b) with self = a * atom + b, where atom occurs at most once in every monomial."""
        slope: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms:
            if atom in monomial:
                at = monomial.index(atom)
                slope[(*monomial[:at], *monomial[at + 1 :])] = coefficient
            else:
                rest[monomial] = coefficient
        return _of(slope), _of(rest)

    def substitute(self, atom: Scalar, value: Poly) -> Poly:
        """Every occurrence of the atom (as a factor) replaced."""
        total = ZERO
        for monomial, coefficient in self.terms:
            part = _of({tuple(a for a in monomial if a is not atom): coefficient})
            for _ in range(monomial.count(atom)):
                part = part * value
            total = total + part
        return total

    def __add__(self, other: Poly | int) -> Poly:
        return self._plus(as_poly(other), 1)

    def __sub__(self, other: Poly | int) -> Poly:
        return self._plus(as_poly(other), -1)

    def _plus(self, other: Poly, times: int) -> Poly:
        if not other.terms:
            return self
        out = dict(self.terms)
        for monomial, coefficient in other.terms:
            out[monomial] = out.get(monomial, 0) + coefficient * times
        return _of(out)

    def __neg__(self) -> Poly:
        return self * -1

    def __mul__(self, other: Poly | int) -> Poly:
        if isinstance(other, int):
            return Poly(tuple((m, c * other) for m, c in self.terms) if other else ())
        out: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in other.terms:
                monomial = _times(left, right)
                out[monomial] = out.get(monomial, 0) + a * b
        return _of(out)

    def __str__(self) -> str:
        parts = [
            " * ".join([*([str(c)] if c != 1 or not m else []), *(f"({atom})" for atom in m)]) for m, c in self.terms
        ]
        return " + ".join(parts) or "0"


@lru_cache(maxsize=1 << 15)
def _times(left: Monomial, right: Monomial) -> Monomial:
    return tuple(sorted((*left, *right), key=str)) if left and right else left or right


@lru_cache(maxsize=1 << 15)
def _place(monomial: Monomial) -> tuple[int, list[str]]:
    """Where a monomial stands in the order of terms."""
    return len(monomial), [str(atom) for atom in monomial]


def _order(item: tuple[Monomial, int]) -> tuple[int, list[str]]:
    return _place(item[0])


def _of(coefficients: dict[Monomial, int]) -> Poly:
    terms = [(m, c) for m, c in coefficients.items() if c]
    if len(terms) > 1:
        terms.sort(key=_order)
    return Poly(tuple(terms))


def as_poly(value: Poly | int) -> Poly:
    return value if isinstance(value, Poly) else Poly((((), value),) if value else ())


ZERO = _of({})


@cache
def atom(value: Scalar) -> Poly:
    return _of({(value,): 1})


class NotIntegral(Exception):
    """The expression is no polynomial with integer coefficients."""


@cache
def polynomial(node: Scalar) -> Poly:
    """The polynomial of an integer expression; raises NotIntegral at fractions, floats and truth values."""
    if isinstance(node, Num):
        if isinstance(node.value, bool) or not isinstance(node.value, int):
            raise NotIntegral(str(node))
        return as_poly(node.value)
    if isinstance(node, Apply) and node.name == "+":
        return reduce(lambda a, b: a + b, (polynomial(arg) for arg in node.args), ZERO)
    if isinstance(node, Apply) and node.name == "*":
        return reduce(lambda a, b: a * b, (polynomial(arg) for arg in node.args), as_poly(1))
    if not is_integral(node):
        raise NotIntegral(str(node))
    return atom(node)


@cache
def is_integral(node: Scalar) -> bool:
    """Whether an expression is an integer at all sizes and positions, and no data."""
    if isinstance(node, Num):
        return isinstance(node.value, int) and not isinstance(node.value, bool)
    if isinstance(node, Apply):
        if node.name in {"//", "floor", "ceil", "round", "trunc"}:
            return not any(isinstance(part, Read | Table) for part in walk(node))
        if node.name in {"+", "*", "%", "min", "max", "abs"}:
            return all(is_integral(arg) for arg in node.args)
        return node.name == "select" and all(is_integral(arg) for arg in node.args[1:])
    return isinstance(node, Sym | Iter)


def primitive(poly: Poly) -> Poly:
    """`poly >= 0` with the coefficients' common divisor taken out (the constant rounded down: values are integers)."""
    divisor = reduce(gcd, (abs(c) for m, c in poly.terms if m), 0)
    if divisor <= 1:
        return poly
    return _of({m: c // divisor for m, c in poly.terms})
