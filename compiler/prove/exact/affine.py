"""Index expressions for isl: affine in iterators, sizes and products of sizes (each such product is an unknown of its own).

A product of an iterator and sizes is not affine: an index with one is a tuple, one entry for each such product of sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from dslc.analysis.isl import Frame
from dslc.analysis.poly import COMPARISONS, Monomial, NotIntegral, Poly, compared, polynomial
from dslc.ir.polynomials import over
from dslc.ir.scalar import Iter, Num, Scalar, Sym
from dslc.prove.exact.terms import Unsolved


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
        if (node, variables) not in self._memo:
            self._memo[node, variables] = self.polynomial(_poly(node), variables)
        return self._memo[node, variables]

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
        return reduce(
            lambda a, b: a.add(b), others, self._frame.affine(len(variables), dims, parameters, poly.constant)
        )

    def _parameter(self, monomial: Monomial) -> int:
        if monomial not in self._parameters:
            raise MissingUnknown(monomial)
        return self._parameters[monomial]

    def _special(self, node: Scalar, variables: tuple[Iter, ...]) -> Any:
        """Quotients by numbers, min, max, abs and choices; None for what is taken as an unknown."""
        frame = self._frame
        match node.op, node.args:
            case "//" | "%", (top, Num(value=int() as by)) if by > 0:
                function = self.function(top, variables)
                return frame.quotient(function, by) if node.op == "//" else frame.remainder(function, by)
            case "min" | "max", args:
                a, b = (self.function(arg, variables) for arg in args)
                return a.min(b) if node.op == "min" else a.max(b)
            case "abs", (arg,):
                a = self.function(arg, variables)
                return a.max(a.neg())
            case "select", (condition, *branches):
                where = self.condition(condition, variables)
                then, other = (self.function(arg, variables) for arg in branches)
                return then.intersect_domain(where).union_add(other.subtract_domain(where))
        if node.op and node.free:
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
        if node.op in {"and", "or"}:
            parts = (self.condition(arg, variables) for arg in node.args)
            return reduce(lambda a, b: a.intersect(b) if node.op == "and" else a.union(b), parts)
        if node.op == "not":
            return self.condition(node.args[0], variables).complement()
        if node.op in COMPARISONS:
            try:
                function = self.polynomial(compared(node.op, *node.args), variables)
            except NotIntegral:
                raise NotAffine(f"{node} is not about positions") from None
            if node.op in {"==", "!="}:
                zeros = function.zero_set()
                return zeros if node.op == "==" else zeros.complement()
            return function.nonneg_set()
        raise NotAffine(f"{node} is not about positions")


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
    """Strides by their degree, then by name."""
    return tuple(sorted(found, key=lambda monomial: (-len(monomial), [str(factor) for factor in monomial])))
