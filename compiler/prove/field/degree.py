"""Total degrees of what graphs compute, as quotients of polynomials in the elements of their inputs (Schwartz, Zippel)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from math import prod
from operator import add, mul

from dslc.analysis.poly import COMPARISONS
from dslc.ir.constants import FillRef
from dslc.ir.graph import Constant, Input, Node, ScopeNode, Value, rebuild
from dslc.ir.scalar import Apply, Num, Read, Reduce, Scalar, Table
from dslc.records import record

# on integers and fractions these are computed, on elements of the field they are no polynomials
_EXACT = frozenset("max min abs sign floor ceil round trunc // % and or not".split()) | COMPARISONS.keys()


@record
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
    known = [each for each in found if each]
    if len(known) < len(found):
        return None
    pairs = zip(known[: len(left)], known[len(left) :], strict=True)
    return max((max(a.top + b.bottom, b.top + a.bottom) for a, b in pairs), default=0)


def degrees(values: Sequence[Value]) -> list[Degree | None]:
    """Per value a bound of its elements' degrees; None where a function that is no polynomial occurs."""
    return list(rebuild(values, _of_node))


def _of_node(node: Node, args: tuple[Degree | None, ...]) -> Sequence[Degree | None]:
    match node:
        case Input():
            return [Degree(1) if Value(node).type.dtype.is_float else None]
        case Constant():
            return [_FIXED if isinstance(node.data, FillRef) else None]
        case ScopeNode():
            found = _Terms(args).go(node.scope.body)
            return [found if not found or found.fixed or node.scope.dtype.is_float else None]
    return [None] * len(node.types)


class _Terms:
    def __init__(self, operands: Sequence[Degree | None]) -> None:
        self._operands = operands
        self._memo: dict[Scalar, Degree | None] = {}

    def go(self, node: Scalar) -> Degree | None:
        if node not in self._memo:
            self._memo[node] = self._compute(node)
        return self._memo[node]

    def _fixed(self, *nodes: Scalar) -> bool:
        return all((found := self.go(node)) is not None and found.fixed for node in nodes)

    def _compute(self, node: Scalar) -> Degree | None:
        match node:
            case Table():
                return _FIXED if self._fixed(*node.index) else None
            case Read():
                inside = self._operands[node.operand] if self._fixed(*node.index) else None
                if not inside or not node.other:
                    return inside
                other = self.go(node.other)
                return inside | other if other else None
            case Reduce():
                return self._reduce(node)
            case Apply():
                return self._apply(node)
        return _FIXED

    def _reduce(self, node: Reduce) -> Degree | None:
        if not self._fixed(*node.extents, *((node.where,) if node.where else ())):
            return None
        body = self.go(node.body)
        if not body or body.fixed or (node.kind == "sum" and body.bottom == 0):
            return body
        sizes = [extent.value if isinstance(extent, Num) else None for extent in node.extents]
        numbers = [max(1, size) for size in sizes if isinstance(size, int)]
        if node.kind not in {"sum", "prod"} or len(numbers) < len(sizes):
            return None
        count = prod(numbers)
        if node.kind == "prod":
            return Degree(body.top * count, body.bottom * count)
        return Degree(body.top + (count - 1) * body.bottom, body.bottom * count)

    def _apply(self, node: Apply) -> Degree | None:
        known = [found for arg in node.args if (found := self.go(arg))]
        if len(known) < len(node.args):
            return None
        match node.name:
            case "select":
                return known[1] | known[2] if known[0].fixed else None
            case "+":
                return reduce(add, known)
            case "*":
                return reduce(mul, known)
            case "/":
                return known[0] * Degree(known[1].bottom, known[1].top)
            case "^":
                return _power(known[0], node.args[1])
        # an element converted to an integer is none of the field, and a conversion to a narrower type rounds
        exact = node.name in _EXACT or node.name.startswith("convert:")
        return _FIXED if exact and all(arg.fixed for arg in known) else None


def _power(base: Degree, exponent: Scalar) -> Degree | None:
    times = exponent.value if isinstance(exponent, Num) else None
    if not isinstance(times, int | Fraction) or times != int(times):
        return None
    top, bottom = (base.top, base.bottom) if times >= 0 else (base.bottom, base.top)
    return Degree(top * abs(int(times)), bottom * abs(int(times)))
