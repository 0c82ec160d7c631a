"""Total degrees of what graphs compute, as quotients of polynomials in the elements of their inputs (Schwartz, Zippel)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

from dslc.ir.constants import FillRef
from dslc.ir.graph import Constant, Input, Node, ScopeNode, Value, rebuild
from dslc.ir.scalar import Apply, Iter, Num, Read, Reduce, Scalar, Sym, Table

_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">=", "and", "or", "not"})
# on integers and fractions these are computed, on elements of the field they are no polynomials
_EXACT = frozenset({"max", "min", "abs", "sign", "floor", "ceil", "round", "trunc", "//", "%"}) | _COMPARISONS


@dataclass(frozen=True, slots=True)
class Degree:
    """Bounds of the degrees of numerator and denominator; both are 0 for what does not depend on the inputs' elements."""

    top: int = 0
    bottom: int = 0

    @property
    def fixed(self) -> bool:
        return self.top == 0 and self.bottom == 0

    def __add__(self, other: Degree) -> Degree:
        if self.bottom == other.bottom == 0:
            return Degree(max(self.top, other.top))
        return Degree(max(self.top + other.bottom, other.top + self.bottom), self.bottom + other.bottom)

    def __mul__(self, other: Degree) -> Degree:
        return Degree(self.top + other.top, self.bottom + other.bottom)

    def __or__(self, other: Degree) -> Degree:
        """One or the other, by a choice that does not depend on elements."""
        return Degree(max(self.top, other.top), max(self.bottom, other.bottom))


_FIXED = Degree()


def difference_degree(left: Sequence[Value], right: Sequence[Value]) -> int | None:
    """The largest total degree of the polynomials that are zero where both sides agree; None where a side is no such quotient.

    `left` and `right` are expanded values of static shape. `a/b == c/d` where `a*d - c*b` is zero. Elements of integer and
    boolean inputs and of given constants are no elements of the field: what reads them has no degree.
    """
    found = degrees((*left, *right))
    total = 0
    for one, other in zip(found[: len(left)], found[len(left) :], strict=True):
        if one is None or other is None:
            return None
        total = max(total, one.top + other.bottom, other.top + one.bottom)
    return total


def degrees(values: Sequence[Value]) -> list[Degree | None]:
    """Per value a bound of its elements' degrees; None where a function that is no polynomial occurs."""
    return list(rebuild(values, _of_node))


def _of_node(node: Node, args: tuple[Degree | None, ...]) -> Sequence[Degree | None]:
    if isinstance(node, Input):
        return [Degree(1) if Value(node).type.dtype.is_float else None]
    if isinstance(node, Constant):
        return [_FIXED if isinstance(node.data, FillRef) else None]
    if isinstance(node, ScopeNode):
        found = _Terms(args).go(node.scope.body)
        return [found if found is None or found.fixed or node.scope.dtype.is_float else None]
    return [None] * len(node.types)


class _Terms:
    def __init__(self, operands: Sequence[Degree | None]) -> None:
        self._operands = operands
        self._memo: dict[Scalar, Degree | None] = {}

    def go(self, node: Scalar) -> Degree | None:
        if node not in self._memo:
            self._memo[node] = self._compute(node)
        return self._memo[node]

    def _compute(self, node: Scalar) -> Degree | None:
        if isinstance(node, Num | Iter | Sym):
            return _FIXED
        if isinstance(node, Table):
            return self._positions(node.index)
        if isinstance(node, Read):
            inside = self._operands[node.operand]
            if inside is None or self._positions(node.index) is None:
                return None
            if node.other is None:
                return inside
            other = self.go(node.other)
            return None if other is None else inside | other
        if isinstance(node, Reduce):
            return self._reduce(node)
        assert isinstance(node, Apply)
        return self._apply(node)

    def _positions(self, index: tuple[Scalar, ...]) -> Degree | None:
        return _FIXED if all(self._fixed(part) for part in index) else None

    def _fixed(self, node: Scalar) -> bool:
        found = self.go(node)
        return found is not None and found.fixed

    def _reduce(self, node: Reduce) -> Degree | None:
        if not all(self._fixed(part) for part in node.extents) or (
            node.where is not None and not self._fixed(node.where)
        ):
            return None
        body = self.go(node.body)
        if body is None or body.fixed:
            return body
        if node.kind not in {"sum", "prod"}:
            return None
        if node.kind == "sum" and body.bottom == 0:
            return body
        count = 1
        for extent in node.extents:
            if not (isinstance(extent, Num) and isinstance(extent.value, int)):
                return None
            count *= max(1, extent.value)
        if node.kind == "prod":
            return Degree(body.top * count, body.bottom * count)
        return Degree(body.top + (count - 1) * body.bottom, body.bottom * count)

    def _apply(self, node: Apply) -> Degree | None:
        args = [self.go(arg) for arg in node.args]
        known = [arg for arg in args if arg is not None]
        if len(known) < len(args):
            return None
        name = node.name
        if name == "select":
            return known[1] | known[2] if known[0].fixed else None
        if name == "+":
            return reduce(Degree.__add__, known)
        if name == "*":
            return reduce(Degree.__mul__, known)
        if name == "/":
            return known[0] * Degree(known[1].bottom, known[1].top)
        if name == "^":
            return _power(known[0], node.args[1])
        if name.startswith("convert:"):
            # an element converted to an integer is none of the field, and a conversion to a narrower type rounds
            return known[0] if known[0].fixed else None
        if name in _EXACT and all(arg.fixed for arg in known):
            return _FIXED
        return None


def _power(base: Degree, exponent: Scalar) -> Degree | None:
    if (
        not (isinstance(exponent, Num) and isinstance(exponent.value, int | Fraction))
        or Fraction(exponent.value).denominator != 1
    ):
        return None
    times = int(exponent.value)
    if times >= 0:
        return Degree(base.top * times, base.bottom * times)
    return Degree(base.bottom * -times, base.top * -times)
