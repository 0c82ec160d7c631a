"""Differences in functions of single elements: max, comparisons, quotients and roots, decided over the reals by Z3.

Where everything that a difference reads at a position is one element each (no sum is left inside), it is a formula in as many real
unknowns: each read is one, each opaque function is one that is constrained by what it means. That the difference is zero is then asked
of Z3's decision procedure for real arithmetic, with few resources. What is not constrained is free, so a proof is a proof.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from dslc.analysis.poly import Poly, as_poly
from dslc.ir.dtype import DTYPES
from dslc.ir.scalar import Scalar, Sym
from dslc.prove.exact.coefficient import ONE, ZERO, Ratio, from_poly
from dslc.prove.exact.element_types import ends
from dslc.prove.exact.functions import Functions, Label
from dslc.prove.exact.terms import Atom, Sum, Term

RESOURCES = 300_000  #: what Z3 may take, counted by itself (some tenths of a second, mostly)
MILLISECONDS = 3000  #: milliseconds that end it where its steps take far longer than they should
UNKNOWNS = 40  #: unknown numbers of one question

_TWO = from_poly(as_poly(2))


class _NotPointwise(Exception):
    pass


def vanishes(terms: Sum, domain: Any, functions: Functions) -> bool:
    """Whether a sum is proved to be zero at every position of the domain."""
    parts: list[tuple[Label, Any]] = [((0, t.atoms, t.coefficient), t.map) for t in terms]
    try:
        return all(_Formula(functions).is_zero(here) for _, here in functions.regions(parts, domain) if here)
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

    def is_zero(self, parts: list[tuple[Label, Any]]) -> bool:
        difference = self._sum(parts)
        self._solver.add(difference != 0)
        self._solver.set("rlimit", RESOURCES)
        self._solver.set("timeout", MILLISECONDS)
        return bool(self._solver.check() == self._z3.unsat)

    def _sum(self, parts: list[tuple[Label, Any]]) -> Any:
        total = self._z3.RealVal(0)
        for (_, atoms, coefficient), map in parts:
            total = total + self._product(atoms, coefficient, map)
        return total

    def _product(self, atoms: tuple[Atom, ...], coefficient: Ratio, map: Any) -> Any:
        if not map.is_single_valued():
            raise _NotPointwise
        value = self._coefficient(coefficient)
        frame = self._functions.algebra.frame
        start, total = 0, sum(atom.arity for atom in atoms)
        for atom in atoms:
            index = map.apply_range(frame.move(total, tuple(range(start, start + atom.arity))))
            start += atom.arity
            value = value * self._element(self._functions.resolve(atom), index)
        return value

    def _coefficient(self, coefficient: Ratio) -> Any:
        number = coefficient.number
        if number is not None:
            return self._number(number)
        return self._poly(coefficient.top) / self._poly(coefficient.bottom)

    def _number(self, number: Fraction) -> Any:
        return self._z3.Q(number.numerator, number.denominator)

    def _poly(self, poly: Poly) -> Any:
        total = self._z3.RealVal(0)
        for monomial, coefficient in poly.terms:
            part = self._z3.RealVal(coefficient)
            for factor in monomial:
                part = part * self._size(factor)
            total = total + part
        return total

    def _size(self, size: Scalar) -> Any:
        found = self._sizes.get(size)
        if found is None:
            found = self._sizes[size] = self._fresh("s")
            if isinstance(size, Sym) and size.least is not None:
                self._solver.add(found >= size.least)
        return found

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
        z3 = self._z3
        if atom.name.startswith("1/"):
            below = self._element(self._functions.resolve(Atom(atom.name[2:], atom.arity, atom.opaque)), index)
            self._solver.add(z3.Implies(below != 0, below * value == 1))
            return
        found = self._functions.definition(atom)
        if found is None:
            return
        name, labels, bodies = found
        arguments = [(label, index.apply_range(body)) for label, body in zip(labels, bodies, strict=True)]
        if name == "largest":
            members = [self._product(atoms, c, map) for (_, atoms, c), map in arguments]
            self._solver.add(z3.Or(*(value == member for member in members)), *(value >= member for member in members))
            return
        if name.startswith(("largest:", "smallest:")):
            self._among_integers(name, atom, index, value, arguments)
            return
        if name.startswith("less:"):
            smaller, larger = (
                self._place([(label, map) for label, map in arguments if label[0] == side], name) for side in (0, 1)
            )
            self._solver.add(z3.If(smaller < larger, value == 1, value == 0))
            return
        first = [(label, map) for label, map in arguments if label[0] == 0]
        if name.partition(":")[0] == "sum":
            self._solver.add(value == self._sum(first))
        elif name == "positive":
            self._solver.add(z3.If(self._sum(first) > 0, value == 1, value == 0))
        elif name == "zero":
            self._solver.add(z3.If(self._sum(first) == 0, value == 1, value == 0))
        elif name == "inverse":
            below = self._sum(first)
            self._solver.add(z3.Implies(below != 0, below * value == 1))
        elif name == "sqrt":
            below = self._sum(first)
            self._solver.add(z3.Implies(below >= 0, z3.And(value >= 0, value * value == below)))
        elif name == "exp":
            self._solver.add(value > 0)
        elif name == "tanh":
            twice = tuple(Term(c * _TWO, atoms, map) for (_, atoms, c), map in first)
            power = self._sum(
                [((0, t.atoms, t.coefficient), t.map) for t in self._functions.applied("exp", [twice], index.domain())]
            )
            self._solver.add(power > 0, value * (power + 1) == power - 1)

    def _among_integers(self, name: str, atom: Atom, index: Any, value: Any, members: list[tuple[Label, Any]]) -> None:
        """An integer that is one of some, by an order that has nothing to do with what their sums and products are.

        So each element has a place in that order, besides its value: but for an element of a tensor, and what is one of such, for which
        the value may be the number of the type. What holds for all places and values holds in the ring.
        """
        z3, largest = self._z3, name.startswith("largest:")
        own = self._place([((0, (atom,), ONE), index)], name)
        both = [(self._place([(label, map)], name), self._product(label[1], label[2], map)) for label, map in members]
        self._solver.add(z3.Or(*(z3.And(value == each, own == place) for place, each in both)))
        self._solver.add(*(own >= place if largest else own <= place for place, _ in both))

    def _place(self, terms: list[tuple[Label, Any]], name: str) -> Any:
        """The unknown for the place of a sum among the numbers of a type: that of a number is the number."""
        type_ = name.partition(":")[2]
        key = tuple((atoms, coefficient) for (_, atoms, coefficient), _ in terms)
        if all(not atoms for atoms, _ in key):
            number = sum((c for _, c in key), ZERO).number
            low, high = ends(DTYPES[type_])
            if number is not None and low <= number <= high:
                return self._number(number)
        if len(terms) == 1 and self._is_plain(terms[0][0], type_):
            return self._product(terms[0][0][1], ONE, terms[0][1])
        known = self._places.setdefault((type_, key), [])
        for maps, variable in known:
            if all(a.is_equal(b) for a, (_, b) in zip(maps, terms, strict=True)):
                return variable
        variable = self._fresh("o")
        known.append(([map for _, map in terms], variable))
        return variable

    def _is_plain(self, label: Label, type_: str) -> bool:
        """Whether a term is an element, or one of some elements and numbers of the type: no sum and no product."""
        _, atoms, coefficient = label
        if not atoms:
            low, high = ends(DTYPES[type_])
            return coefficient.number is not None and low <= coefficient.number <= high
        if len(atoms) > 1 or coefficient != ONE:
            return False
        name = self._functions.name(self._functions.resolve(atoms[0]))
        head, _, of_type = name.partition(":")
        if head not in {"largest", "smallest"} or not of_type:
            return name.startswith(("$", "read ")) or (bool(of_type) and head != "sum")
        found = self._functions.definition(self._functions.resolve(atoms[0]))
        return found is not None and all(self._is_plain(inner, type_) for inner in found[1])
