"""Index expressions for isl: affine in iterators, sizes and products of sizes (each such product is an unknown of its own).

A product of an iterator and sizes is not affine: an index with one is a tuple, one entry for each such product of sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dslc.analysis.isl import Frame
from dslc.analysis.poly import Monomial, NotIntegral, Poly, polynomial
from dslc.ir.polynomials import over
from dslc.ir.scalar import Apply, Iter, Num, Scalar, Sym
from dslc.prove.exact.terms import Unsolved

_COMPARISONS = {"<": 1, "<=": 0, ">": 1, ">=": 0, "==": 0, "!=": 0}


class NotAffine(Unsolved):
    """An index or a condition that isl cannot express."""


class MissingUnknown(Exception):
    """Products of sizes (or other integer functions of them) that are needed as parameters."""

    def __init__(self, *monomials: Monomial) -> None:
        super().__init__(str(monomials))
        self.monomials = monomials


class Affine:
    """Expressions over `variables`, by position, as isl's piecewise affine functions, and conditions as sets."""

    def __init__(self, frame: Frame, monomials: Sequence[Monomial]) -> None:
        self._frame = frame
        self._parameters = {monomial: k for k, monomial in enumerate(monomials)}
        self._memo: dict[tuple[Scalar | Poly, tuple[Iter, ...]], Any] = {}

    def function(self, node: Scalar, variables: tuple[Iter, ...]) -> Any:
        found = self._memo.get((node, variables))
        if found is None:
            try:
                poly = polynomial(node)
            except NotIntegral:
                raise NotAffine(f"{node} is no index") from None
            found = self._memo[node, variables] = self.polynomial(poly, variables)
        return found

    def polynomial(self, poly: Poly, variables: tuple[Iter, ...]) -> Any:
        dims: dict[int, int] = {}
        parameters: dict[int, int] = {}
        others: list[Any] = []
        for monomial, coefficient in poly.terms:
            if not monomial:
                continue
            single = monomial[0] if len(monomial) == 1 else None
            if isinstance(single, Iter):
                if single not in variables:
                    raise Unsolved(f"the iterator {single} is not in scope")
                dims[variables.index(single)] = coefficient
            elif isinstance(single, Sym) or all(isinstance(factor, Sym) for factor in monomial):
                parameters[self._parameter(monomial)] = coefficient
            elif single is not None and (value := self._special(single, variables)) is not None:
                others.append(self._frame.times(value, coefficient))
            elif any(factor.free for factor in monomial):
                raise NotAffine(f"{' * '.join(map(str, monomial))} is not affine")
            else:
                parameters[self._parameter(monomial)] = coefficient
        total = self._frame.affine(len(variables), dims, parameters, poly.constant)
        for other in others:
            total = total.add(other)
        return total

    def _parameter(self, monomial: Monomial) -> int:
        found = self._parameters.get(monomial)
        if found is None:
            raise MissingUnknown(monomial)
        return found

    def _special(self, node: Scalar, variables: tuple[Iter, ...]) -> Any:
        """Quotients by numbers, min, max, abs and choices; None for what is taken as an unknown."""
        if not isinstance(node, Apply):
            return None
        if node.name in {"//", "%"}:
            by = node.args[1]
            if isinstance(by, Num) and isinstance(by.value, int) and by.value > 0:
                top = self.function(node.args[0], variables)
                return (
                    self._frame.quotient(top, by.value) if node.name == "//" else self._frame.remainder(top, by.value)
                )
            if node.free:
                raise NotAffine(f"{node} is not affine")
            return None
        if node.name in {"min", "max"}:
            a, b = (self.function(arg, variables) for arg in node.args)
            return a.min(b) if node.name == "min" else a.max(b)
        if node.name == "abs":
            a = self.function(node.args[0], variables)
            return a.max(a.neg())
        if node.name == "select":
            where = self.condition(node.args[0], variables)
            then, other = (self.function(arg, variables) for arg in node.args[1:])
            return then.intersect_domain(where).union_add(other.subtract_domain(where))
        if node.free:
            raise NotAffine(f"{node} is not affine")
        return None

    def condition(self, node: Scalar, variables: tuple[Iter, ...]) -> Any:
        """The set of positions (and sizes) where a condition holds; raises NotAffine where it is about something else."""
        found = self._memo.get((node, variables))
        if found is None:
            found = self._memo[node, variables] = self._condition(node, variables)
        return found

    def _condition(self, node: Scalar, variables: tuple[Iter, ...]) -> Any:
        if isinstance(node, Num):
            return self._frame.universe(len(variables)) if node.value else self._frame.empty(len(variables))
        if isinstance(node, Apply):
            if node.name in {"and", "or"}:
                parts = [self.condition(arg, variables) for arg in node.args]
                total = parts[0]
                for part in parts[1:]:
                    total = total.intersect(part) if node.name == "and" else total.union(part)
                return total
            if node.name == "not":
                return self.condition(node.args[0], variables).complement()
            if node.name in _COMPARISONS and len(node.args) == 2:
                left, right = node.args if node.name in {"<", "<=", "==", "!="} else reversed(node.args)
                try:
                    difference = polynomial(right) - polynomial(left) - _COMPARISONS[node.name]
                except NotIntegral:
                    raise NotAffine(f"{node} is not about positions") from None
                function = self.polynomial(difference, variables)
                if node.name == "==":
                    return function.zero_set()
                return function.zero_set().complement() if node.name == "!=" else function.nonneg_set()
        raise NotAffine(f"{node} is not about positions")


def about_positions(node: Scalar) -> bool:
    """Whether a condition depends on no data."""
    return not node.reads


# ---- indices with products -------------------------------------------------------------------------------------------


def strides(index: Scalar) -> set[Monomial]:
    """The products of sizes that iterators are multiplied by in an index; the empty product is among them.

    Raises NotAffine where two iterators are multiplied, and where the index is no polynomial.
    """
    return {_stride(monomial) for monomial, _ in _poly(index).terms if any(factor.free for factor in monomial)} | {()}


def _poly(index: Scalar) -> Poly:
    try:
        return polynomial(index)
    except NotIntegral:
        raise NotAffine(f"{index} is no index") from None


def _stride(monomial: Monomial) -> Monomial:
    sizes = tuple(factor for factor in monomial if not factor.free)
    if len(monomial) - len(sizes) > 1:
        raise NotAffine(f"{' * '.join(map(str, monomial))} is not affine")
    return sizes


def digits(index: Scalar, order: Sequence[Monomial]) -> list[Poly]:
    """An index as one polynomial for every stride, affine in the iterators: it is the sum of `stride * digit`."""
    parts: dict[Monomial, dict[Monomial, int]] = {stride: {} for stride in order}
    for monomial, coefficient in _poly(index).terms:
        if any(factor.free for factor in monomial):
            stride = _stride(monomial)
            rest = tuple(factor for factor in monomial if factor.free)
        else:  # a size belongs to the largest stride that divides it
            stride, rest = next((s, r) for s in order if (r := over(monomial, s)) is not None)
        parts[stride][rest] = parts[stride].get(rest, 0) + coefficient
    return [Poly.of_terms(parts[stride]) for stride in order]


def largest_first(found: set[Monomial]) -> tuple[Monomial, ...]:
    return tuple(sorted(found, key=lambda monomial: (-len(monomial), [str(factor) for factor in monomial])))
