"""Differences in functions of single elements: max, comparisons, quotients and roots, decided over the reals by Z3.

Where everything that a difference reads at a position is one element each (no sum is left inside), it is a formula in as many real
unknowns: each read is one, each opaque function is one that is constrained by what it means. That the difference is zero is then asked
of Z3's decision procedure for real arithmetic, with few resources. What is not constrained is free, so a proof is a proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any

from dslc.analysis.poly import Poly, as_poly
from dslc.ir.dtype import DTYPES
from dslc.ir.scalar import Scalar, Sym
from dslc.prove.exact.coefficient import ONE, ZERO, Ratio, from_poly
from dslc.prove.exact.element_types import fits
from dslc.prove.exact.functions import Functions
from dslc.prove.exact.terms import Atom, Sum, Term

RESOURCES = 300_000  #: what Z3 may take, counted by itself (some tenths of a second, mostly)
MILLISECONDS = 3000  #: milliseconds that end it where its steps take far longer than they should
UNKNOWNS = 40  #: unknown numbers of one question

_TWO = from_poly(as_poly(2))


class _NotPointwise(Exception):
    pass


def vanishes(terms: Sum, domain: Any, functions: Functions) -> bool:
    """Return whether a sum is proved to be zero at every position of the domain."""
    try:
        return all(_Formula(functions).is_zero(here) for _, here in functions.regions(terms, domain) if here)
    except _NotPointwise:
        return False


class _Formula:
    """One region, in which every term reads one element of each of its atoms."""

    def __init__(self, functions: Functions) -> None:
        import z3

        self._z3: Any = z3
        self._functions = functions
        self._solver: Any = self._z3.SolverFor("QF_NRA")
        self._elements: dict[Atom, list[tuple[Any, Any]]] = {}
        self._places: dict[tuple[str, tuple[tuple[tuple[Atom, ...], Ratio], ...]], list[tuple[list[Any], Any]]] = {}
        self._sizes: dict[Scalar, Any] = {}
        self._count = 0

    def is_zero(self, parts: Sequence[Term]) -> bool:
        self._solver.add(self._sum(parts) != 0)
        self._solver.set("rlimit", RESOURCES)
        self._solver.set("timeout", MILLISECONDS)
        return bool(self._solver.check() == self._z3.unsat)

    def _sum(self, parts: Sequence[Term]) -> Any:
        return sum(map(self._product, parts), self._z3.RealVal(0))

    def _product(self, term: Term) -> Any:
        if not term.map.is_single_valued():
            raise _NotPointwise
        factors = self._functions.algebra.factors(term)
        return prod((self._element(*each) for each in factors), start=self._coefficient(term.coefficient))

    def _coefficient(self, coefficient: Ratio) -> Any:
        number = coefficient.number
        if number is not None:
            return self._number(number)
        return self._poly(coefficient.top) / self._poly(coefficient.bottom)

    def _number(self, number: Fraction) -> Any:
        return self._z3.Q(number.numerator, number.denominator)

    def _poly(self, poly: Poly) -> Any:
        terms = (prod(map(self._size, monomial), start=self._z3.RealVal(c)) for monomial, c in poly.terms)
        return sum(terms, self._z3.RealVal(0))

    def _size(self, size: Scalar) -> Any:
        if size not in self._sizes:
            self._sizes[size] = self._fresh("s")
            if isinstance(size, Sym) and size.least is not None:
                self._solver.add(self._sizes[size] >= size.least)
        return self._sizes[size]

    def _fresh(self, name: str) -> Any:
        self._count += 1
        if self._count > UNKNOWNS:
            raise _NotPointwise
        return self._z3.Real(f"{name}{self._count}")

    def _element(self, atom: Atom, index: Any) -> Any:
        """The unknown for an atom at an index: the same one for the same element."""
        known = self._elements.setdefault(atom, [])
        for where, variable in known:
            if where.is_equal(index):
                return variable
        variable = self._fresh("x")
        known.append((index, variable))
        if atom.truth:
            self._solver.add(self._z3.Or(variable == 0, variable == 1))
        self._define(atom, index, variable)
        return variable

    def _define(self, atom: Atom, index: Any, value: Any) -> None:
        z3, add = self._z3, self._solver.add
        if atom.name.startswith("1/"):
            below = self._element(self._functions.resolve(Atom(atom.name[2:], atom.arity, atom.opaque)), index)
            add(z3.Implies(below != 0, below * value == 1))
            return
        found = self._functions.definition(atom)
        if found is None:
            return
        name, terms = found[0], tuple(t.read(index) for t in found[1])
        first = [t for t in terms if t.argument == 0]
        match name.partition(":")[0]:
            case "largest" if name == "largest":
                members = list(map(self._product, terms))
                add(z3.Or(*(value == member for member in members)), *(value >= member for member in members))
            case "largest" | "smallest":
                self._among_integers(name, atom, index, value, terms)
            case "less" if ":" in name:
                smaller, larger = (self._place([t for t in terms if t.argument == side], name) for side in (0, 1))
                add(z3.If(smaller < larger, value == 1, value == 0))
            case "sum":
                add(value == self._sum(first))
            case "positive" if name == "positive":
                add(z3.If(self._sum(first) > 0, value == 1, value == 0))
            case "zero" if name == "zero":
                add(z3.If(self._sum(first) == 0, value == 1, value == 0))
            case "inverse":
                below = self._sum(first)
                add(z3.Implies(below != 0, below * value == 1))
            case "sqrt" if name == "sqrt":
                below = self._sum(first)
                add(z3.Implies(below >= 0, z3.And(value >= 0, value * value == below)))
            case "exp" if name == "exp":
                add(value > 0)
            case "tanh" if name == "tanh":
                twice = tuple(replace(t, coefficient=t.coefficient * _TWO) for t in first)
                power = self._sum(self._functions.applied("exp", [twice], index.domain()))
                add(power > 0, value * (power + 1) == power - 1)

    def _among_integers(self, name: str, atom: Atom, index: Any, value: Any, members: Sequence[Term]) -> None:
        """An integer that is one of some, by an order that has nothing to do with what their sums and products are.

        So each element has a place in that order, besides its value: but for an element of a tensor, and what is one of such, for which
        the value may be the number of the type. What holds for all places and values holds in the ring.
        """
        z3, largest = self._z3, name.startswith("largest:")
        own = self._place([Term(ONE, (atom,), index)], name)
        both = [(self._place([member], name), self._product(member)) for member in members]
        self._solver.add(z3.Or(*(z3.And(value == each, own == place) for place, each in both)))
        self._solver.add(*(own >= place if largest else own <= place for place, _ in both))

    def _place(self, terms: Sequence[Term], name: str) -> Any:
        """The unknown for the place of a sum among the numbers of a type: that of a number is the number."""
        type_ = name.partition(":")[2]
        if not any(term.atoms for term in terms):
            number = sum((term.coefficient for term in terms), ZERO).number
            if number is not None and fits(number, DTYPES[type_]):
                return self._number(number)
        if len(terms) == 1 and self._is_plain(terms[0], type_):
            return self._product(replace(terms[0], coefficient=ONE))
        key = type_, tuple((term.atoms, term.coefficient) for term in terms)
        known = self._places.setdefault(key, [])
        for maps, variable in known:
            if all(a.is_equal(b.map) for a, b in zip(maps, terms, strict=True)):
                return variable
        variable = self._fresh("o")
        known.append(([term.map for term in terms], variable))
        return variable

    def _is_plain(self, term: Term, type_: str) -> bool:
        """Return whether a term is an element, or one of some elements and numbers of the type: no sum and no product."""
        if not term.atoms:
            return (number := term.coefficient.number) is not None and fits(number, DTYPES[type_])
        if len(term.atoms) > 1 or term.coefficient != ONE:
            return False
        atom = self._functions.resolve(term.atoms[0])
        name = self._functions.name(atom)
        head, _, of_type = name.partition(":")
        if head not in {"largest", "smallest"} or not of_type:
            return name.startswith(("$", "read ")) or (bool(of_type) and head != "sum")
        found = self._functions.definition(atom)
        return found is not None and all(self._is_plain(inner, type_) for inner in found[1])
