"""Polynomials with integer coefficients over atoms of any kind; a class of them says which kind, and in which order these stand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Generic, Self, TypeVar

A = TypeVar("A")


@dataclass(frozen=True)
class Polynomial(Generic[A]):
    """A sum of `coefficient * monomial`; terms are sorted, so equal polynomials of a class are equal objects by value."""

    terms: tuple[tuple[tuple[A, ...], int], ...]

    @staticmethod
    def key(atom: Any) -> Any:
        """Sort key of atoms."""
        raise NotImplementedError

    @classmethod
    def of_terms(cls, coefficients: Mapping[tuple[A, ...], int]) -> Self:
        """The polynomial with these coefficients of monomials, whose atoms are sorted."""
        terms = [(m, c) for m, c in coefficients.items() if c]
        if len(terms) > 1:
            key = cls.key
            terms.sort(key=lambda term: _place(key, term[0]))
        return cls(tuple(terms))

    @classmethod
    def of(cls, value: Self | int) -> Self:
        """A number as a polynomial."""
        return value if isinstance(value, cls) else cls((((), value),) if value else ())  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    @cached_property
    def coefficients(self) -> dict[tuple[A, ...], int]:
        return dict(self.terms)

    @property
    def constant(self) -> int:
        """The number in it."""
        # the terms are sorted: it comes first
        return self.terms[0][1] if self.terms and not self.terms[0][0] else 0

    @property
    def is_constant(self) -> bool:
        return not self.terms or (len(self.terms) == 1 and not self.terms[0][0])

    @property
    def number(self) -> int | None:
        """The number where it is one."""
        return self.constant if self.is_constant else None

    @cached_property
    def atoms(self) -> frozenset[A]:
        return frozenset(atom for monomial, _ in self.terms for atom in monomial)

    @property
    def degree(self) -> int:
        return max((len(monomial) for monomial, _ in self.terms), default=0)

    def degree_in(self, atom: A) -> int:
        return max((monomial.count(atom) for monomial, _ in self.terms), default=0)

    def without(self, atom: A) -> Self:
        """The terms of which an atom is no factor."""
        return type(self)(tuple(term for term in self.terms if atom not in term[0]))

    def split(self, atom: A) -> tuple[Self, Self]:
        """(a, b) with self = a * atom + b, where atom occurs at most once in every monomial."""
        slope = {over(monomial, (atom,)): factor for monomial, factor in self.terms if atom in monomial}
        return self.of_terms(
            {monomial: factor for monomial, factor in slope.items() if monomial is not None}
        ), self.without(atom)

    def substitute(self, atom: A, value: Self) -> Self:
        """Every occurrence of the atom (as a factor) replaced."""
        total = self.of(0)
        for monomial, coefficient in self.terms:
            part = self.of_terms({tuple(a for a in monomial if a is not atom): coefficient})
            for _ in range(monomial.count(atom)):
                part = part * value
            total = total + part
        return total

    def quotient(self, by: Self) -> Self | None:
        """`self / by` where that is a polynomial with integer coefficients: divided by leading terms."""
        if not by.terms:
            return None
        # the order of terms is kept by products, so that a division by the last of them ends
        lead, factor = by.terms[-1]
        total, rest = self.of(0), self
        while rest.terms:
            monomial, coefficient = rest.terms[-1]
            left = over(monomial, lead)
            if left is None or coefficient % factor:
                return None
            part = self.of_terms({left: coefficient // factor})
            total, rest = total + part, rest - part * by
        return total

    def __add__(self, other: Self | int) -> Self:
        return self._plus(self.of(other), 1)

    def __sub__(self, other: Self | int) -> Self:
        return self._plus(self.of(other), -1)

    def _plus(self, other: Self, times: int) -> Self:
        if not other.terms:
            return self
        out = dict(self.terms)
        for monomial, coefficient in other.terms:
            out[monomial] = out.get(monomial, 0) + coefficient * times
        return self.of_terms(out)

    def __neg__(self) -> Self:
        return self * -1

    def __mul__(self, other: Self | int) -> Self:
        if isinstance(other, int):
            return type(self)(tuple((m, c * other) for m, c in self.terms) if other else ())
        out: dict[tuple[A, ...], int] = {}
        for left, a in self.terms:
            for right, b in other.terms:
                monomial = _times(self.key, left, right)
                out[monomial] = out.get(monomial, 0) + a * b
        return self.of_terms(out)

    def __str__(self) -> str:
        parts = [
            " * ".join([*([str(c)] if c != 1 or not m else []), *(f"({atom})" for atom in m)]) for m, c in self.terms
        ]
        return " + ".join(parts) or "0"


def over(monomial: tuple[A, ...], by: tuple[A, ...]) -> tuple[A, ...] | None:
    """A monomial without some factors; None where it has not all of them."""
    rest = list(monomial)
    for factor in by:
        if factor not in rest:
            return None
        rest.remove(factor)
    return tuple(rest)


@lru_cache(maxsize=1 << 15)
def _times(key: Callable[[Any], Any], left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(sorted((*left, *right), key=key)) if left and right else left or right


@lru_cache(maxsize=1 << 15)
def _place(key: Callable[[Any], Any], monomial: tuple[Any, ...]) -> tuple[int, list[Any]]:
    """Rank of a monomial in the order of terms."""
    return len(monomial), [key(atom) for atom in monomial]
