"""Integers modulo 2^bits of their type, and conversions between element types.

Sums and products of integers are those of the ring, in which polynomials with integer coefficients are computed as they are over the
reals (a number is never identified with 0 for being a multiple of 2^bits). Order, division and everything else that the ring has not
are unknown functions of its elements, one for each type. A conversion to a type that is not wider, from integers, is a homomorphism of
rings, and goes to the elements; any other one is an unknown function of the wrapped value, but for what composition says of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dslc.ir.dtype import DTYPES, DType, TypeClass, holds
from dslc.prove.exact.coefficient import ONE, from_number
from dslc.prove.exact.element_types import composes, constant
from dslc.prove.exact.functions import Functions
from dslc.prove.exact.terms import Atom, Sum, Term, Unsolved, negated


class Whole:
    """Functions of integers, and conversions, on sums over one algebra."""

    def __init__(self, functions: Functions) -> None:
        self._algebra = functions.algebra
        self._functions = functions

    # ---- functions ---------------------------------------------------------------------------------------------------

    def applied(self, name: str, dtype: DType, arguments: Sequence[Sum], domain: Any) -> Sum:
        """An unknown function of integers of a type (and of numbers that are taken as they are, where its name has marks for them)."""
        return self._functions.applied(f"{name}:{dtype}", arguments, domain)

    def quotient(self, dtype: DType, a: Sum, b: Sum, domain: Any, marks: str = "") -> Sum:
        """`a / b`, cut towards zero; known by 1, and by -1 where that is a number of the type."""
        # the number that the divisor is everywhere
        normal = self._algebra.normal(b)
        alone = len(normal) == 1 and not normal[0].atoms and domain.is_subset(normal[0].map.domain())
        by = normal[0].coefficient.number if alone else None
        if by == 1 or (by == -1 and dtype in TypeClass.SIGNED.members):
            return a if by == 1 else negated(a)
        return self.applied("quotient" + marks, dtype, [a, b], domain)

    def is_zero(self, dtype: DType, value: Sum, domain: Any) -> Sum:
        """1 where a value is 0 modulo 2^bits; that of the negation is the same."""
        return self.applied("zero", dtype, [self._algebra.signed(value)], domain)

    def less(self, dtype: DType, a: Sum, b: Sum, domain: Any, marks: str = "") -> Sum:
        """1 where `a < b`: not that of a difference, which may overflow."""
        if not marks and not self._algebra.normal(a + negated(b)):
            return ()
        return self.applied("less" + marks, dtype, [a, b], domain)

    # ---- conversions -------------------------------------------------------------------------------------------------

    def converted(self, value: Sum, source: DType, target: DType, domain: Any) -> Sum:
        """A value of one element type in another one."""
        if source is target or source is DType.BOOL:
            return value
        if target is DType.BOOL:
            raise Unsolved("a truth value is not 0, and no conversion")
        if source.is_float and holds(target, source):
            return value
        regions = self._functions.regions(self._algebra.normal(value), domain)
        return tuple(t for region, here in regions for t in self._converted(here, source, target, region))

    def _converted(self, parts: list[Term], source: DType, target: DType, region: Any) -> Sum:
        if not parts:
            return ()
        if source.is_integer and target.is_integer and target.bytes <= source.bytes:
            return self._narrowed(parts, source, target, region)
        if len(parts) == 1:
            (part,) = parts
            value = None if part.atoms else constant(part.coefficient, source, target)
            if value is not None:
                return self._algebra.number(from_number(value), region)
            if part.coefficient == ONE and len(part.atoms) == 1 and part.map.is_single_valued():
                return self._of_atom(self._functions.resolve(part.atoms[0]), part.map, source, target)
        return self._functions.applied(f"convert:{source}>{target}", [tuple(parts)], region)

    def _narrowed(self, parts: list[Term], source: DType, target: DType, region: Any) -> Sum:
        """Between rings: the elements are converted, and sums and products stay."""
        algebra = self._algebra
        out: list[Term] = []
        for part in parts:
            if not part.map.is_single_valued():
                resolved = map(self._functions.resolve, part.atoms)
                atoms = tuple(self._element(atom, source, target) for atom in resolved)
                out.append(Term(part.coefficient, atoms, part.map))
                continue
            product: Sum = algebra.number(part.coefficient, part.map.domain().intersect(region))
            for atom, index in algebra.factors(part):
                product = algebra.product(product, self._of_atom(atom, index, source, target))
            out.extend(product)
        return tuple(out)

    def _of_atom(self, atom: Atom, index: Any, source: DType, target: DType) -> Sum:
        """The conversion of one element."""
        if atom.truth:
            return (Term(ONE, (atom,), index),)
        found = self._functions.definition(atom)
        if found is not None and found[0].startswith("convert:"):
            first, middle = (DTYPES[each] for each in found[0].removeprefix("convert:").split(">"))
            # what widens among floats leaves no trace
            if (middle is source or source.is_float) and composes(first, middle, target):
                return self.converted(tuple(t.read(index) for t in found[1]), first, target, index.domain())
        return (Term(ONE, (self._element(atom, source, target),), index),)

    def _element(self, atom: Atom, source: DType, target: DType) -> Atom:
        """The tensor of an atom's elements, each converted; truth values and whole numbers without a type are in every ring."""
        name = self._functions.name(atom)
        typed = name.startswith(("$", "read ")) or ":" in name
        narrower = source.is_integer and target.is_integer and target.bytes <= source.bytes
        return (
            atom
            if atom.truth or (narrower and not typed)
            else self._functions.of_elements(f"convert:{source}>{target}", atom)
        )
