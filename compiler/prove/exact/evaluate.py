"""From expressions to sums of products of reads, over the iterators in scope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from dslc.analysis.poly import Monomial, is_integral
from dslc.ir.dtype import DTYPES, DType
from dslc.ir.fold import is_index
from dslc.ir.graph import Value
from dslc.ir.scalar import Apply, Iter, Num, Read, Reduce, Scalar, Table, apply, num, substitute, walk
from dslc.prove.exact.affine import Affine, NotAffine, about_positions, digits, largest_first, strides
from dslc.prove.exact.coefficient import MINUS_ONE, ONE, NotRational, from_poly, from_sizes
from dslc.prove.exact.functions import INFINITY, Functions
from dslc.prove.exact.terms import Algebra, Atom, Sum, Term, Unsolved, negated

_COMPARISONS = frozenset({"<", "<=", ">", ">=", "==", "!="})
_BRANCHING = _COMPARISONS | {"and", "or", "not", "select"}
#: a product over so many factors is written out
_FACTORS = 16
_POWERS = 8
_WIDTH = {DType.F16: 11, DType.BF16: 8, DType.F32: 24, DType.F64: 53}


@dataclass(eq=False)
class Place:
    """The iterators in scope, and the positions (and sizes) for which an expression is wanted."""

    variables: tuple[Iter, ...]
    domain: Any
    inner: dict[Any, Place] = field(default_factory=dict)


class Evaluator:
    def __init__(
        self,
        algebra: Algebra,
        affine: Affine,
        functions: Functions,
        inputs: Sequence[Value],
        layouts: Mapping[tuple[int, int], tuple[Monomial, ...]],
        extents: Mapping[Iter, Scalar],
    ) -> None:
        self._algebra = algebra
        self._affine = affine
        self._functions = functions
        self._inputs = inputs
        self._layouts = layouts
        self._extents = extents
        self._memo: dict[tuple[Scalar, Place], Sum] = {}
        self._types: dict[Scalar, DType] = {}

    # ---- places ----------------------------------------------------------------------------------------------------

    def place(self, variables: tuple[Iter, ...], parameters: Any) -> Place:
        """The positions of the iterators, within their extents; `parameters` are the sizes that are possible."""
        return self._ranged(Place((), parameters), variables)

    def _ranged(self, outer: Place, iters: tuple[Iter, ...]) -> Place:
        key = ("range", iters)
        found = outer.inner.get(key)
        if found is None:
            variables = (*outer.variables, *iters)
            domain = self._algebra.frame.extended(outer.domain, len(iters))
            for it in iters:
                low = apply("<=", num(0), it)
                high = apply("<", it, self._extents[it])
                domain = domain.intersect(self._affine.condition(low, variables))
                domain = domain.intersect(self._affine.condition(high, variables))
            found = outer.inner[key] = Place(variables, domain)
        return found

    def _where(self, outer: Place, condition: Scalar, holds: bool) -> Place:
        key = (condition, holds)
        found = outer.inner.get(key)
        if found is None:
            where = self._affine.condition(condition, outer.variables)
            domain = outer.domain.intersect(where) if holds else outer.domain.subtract(where)
            found = outer.inner[key] = Place(outer.variables, domain)
        return found

    # ---- expressions -----------------------------------------------------------------------------------------------

    def value(self, node: Scalar, place: Place) -> Sum:
        key = (node, place)
        found = self._memo.get(key)
        if found is None:
            self._algebra.check()
            found = self._memo[key] = () if place.domain.is_empty() else self._value(node, place)
        return found

    def _value(self, node: Scalar, place: Place) -> Sum:
        if _about_sizes(node):
            return self._sizes(node, place)
        if is_index(node):
            return self._position(node, place)
        if isinstance(node, Read):
            return self._read(node, place)
        if isinstance(node, Table):
            return self._table(node, place)
        if isinstance(node, Reduce):
            return self._reduce(node, place)
        assert isinstance(node, Apply)
        return self._apply(node, place)

    def _one(self, place: Place) -> Sum:
        return self._algebra.number(ONE, place.domain)

    def _constant(self, name: str, place: Place) -> Sum:
        return (Term(ONE, (Atom(name, 0, opaque=True),), self._algebra.frame.relation(place.domain, ())),)

    def _sizes(self, node: Scalar, place: Place) -> Sum:
        if isinstance(node, Num) and isinstance(node.value, float) and abs(node.value) == float("inf"):
            sign = ONE if node.value > 0 else MINUS_ONE
            return (Term(sign, (INFINITY,), self._algebra.frame.relation(place.domain, ())),)
        if isinstance(node, Apply) and (node.name in _BRANCHING or (node.name in {"max", "min"} and not is_index(node))):
            return self._apply(node, place)
        try:
            return self._algebra.number(from_sizes(node), place.domain)
        except NotRational:
            return self._constant(str(node), place)

    def _position(self, node: Scalar, place: Place) -> Sum:
        """An index as a value: a tensor of its own that holds its positions."""
        out: list[Term] = []
        try:
            order = largest_first(strides(node))
        except NotAffine:
            if isinstance(node, Apply):
                return self._apply(node, place)
            raise
        for stride, digit in zip(order, digits(node, order), strict=True):
            if digit.is_constant:
                out.extend(self._algebra.number(from_poly(digit), place.domain))
                continue
            index = self._algebra.frame.relation(place.domain, [self._affine.polynomial(digit, place.variables)])
            coefficient = from_sizes(apply("*", num(1), *stride))
            out.append(Term(coefficient, (Atom("position", 1, opaque=True),), index))
        return tuple(out)

    def _read(self, node: Read, place: Place) -> Sum:
        name = f"${node.operand}"
        truth = self._inputs[node.operand].type.dtype is DType.BOOL
        if not all(about_positions(index) for index in node.index):
            arguments = [self.value(index, place) for index in node.index]
            return self._functions.applied(f"read {name}", arguments, place.domain)
        functions = []
        for axis, index in enumerate(node.index):
            for digit in digits(index, self._layouts[node.operand, axis]):
                functions.append(self._affine.polynomial(digit, place.variables))
        map = self._algebra.frame.relation(place.domain, functions)
        return (Term(ONE, (Atom(name, len(functions), truth=truth),), map),)

    def _table(self, node: Table, place: Place) -> Sum:
        first, rest = node.index[0], node.index[1:]
        out: list[Term] = []
        for k, row in enumerate(node.values):
            here = self._where(place, apply("==", first, num(k)), True)
            if not here.domain.is_empty():
                inner = Table._make(rest, row) if rest else num(row)
                out.extend(self.value(inner, here))
        return tuple(out)

    # ---- functions -------------------------------------------------------------------------------------------------

    def _apply(self, node: Apply, place: Place) -> Sum:
        name, args, algebra = node.name, node.args, self._algebra
        if name == "+":
            return self._joined([self.value(arg, place) for arg in args])
        if name == "*":
            total = self.value(args[0], place)
            for arg in args[1:]:
                total = algebra.product(total, self.value(arg, place))
            return total
        if name == "/":
            return algebra.product(self.value(args[0], place), self._inverse(args[1], place))
        if name == "^" and (power := _power(args[1])) is not None:
            base = self.value(args[0], place) if power > 0 else self._inverse(args[0], place)
            total = self._one(place)
            for _ in range(abs(power)):
                total = algebra.product(total, base)
            return total
        if name == "^" and isinstance(args[1], Num) and args[1].value == 0.5:
            return self._functions.applied("sqrt", [self.value(args[0], place)], place.domain)
        if name == "select":
            return self._select(node, place)
        if name in _COMPARISONS:
            return self._comparison(node, place)
        if name in {"and", "or", "not"}:
            return self._logic(node, place)
        if name in {"max", "min"}:
            return self._extreme(name, [(arg, place, 0) for arg in args], place)
        if name == "abs":
            value = self.value(args[0], place)
            return self._functions.largest([(value, place.domain, 0), (negated(value), place.domain, 0)], place.domain)
        if name.startswith("convert:"):
            return self._convert(node, place)
        return self._functions.applied(name, [self.value(arg, place) for arg in args], place.domain)

    def _joined(self, parts: Sequence[Sum]) -> Sum:
        return tuple(term for part in parts for term in part)

    def _inverse(self, node: Scalar, place: Place) -> Sum:
        if _about_sizes(node):
            try:
                below = from_sizes(node)
                if not below.is_zero:
                    return self._algebra.number(below.inverse, place.domain)
            except NotRational:
                pass
        return self._functions.applied("inverse", [self.value(node, place)], place.domain)

    def _select(self, node: Apply, place: Place) -> Sum:
        condition, then, other = node.args
        if about_positions(condition):
            try:
                return self.value(then, self._where(place, condition, True)) + self.value(
                    other, self._where(place, condition, False)
                )
            except NotAffine:
                pass
        held = self.value(condition, place)
        left = self._algebra.product(held, self.value(then, place))
        right = self._algebra.product(self._joined([self._one(place), negated(held)]), self.value(other, place))
        return left + right

    def _comparison(self, node: Apply, place: Place) -> Sum:
        """A truth value: 1 where it holds."""
        if about_positions(node) and all(is_integral(arg) for arg in node.args):
            try:
                return self._algebra.number(ONE, self._where(place, node, True).domain)
            except NotAffine:
                pass
        a, b = (self.value(arg, place) for arg in node.args)
        one = self._one(place)
        if node.name in {"<", ">="}:
            found = self._functions.applied("positive", [b + negated(a)], place.domain)
            return found if node.name == "<" else one + negated(found)
        if node.name in {">", "<="}:
            found = self._functions.applied("positive", [a + negated(b)], place.domain)
            return found if node.name == ">" else one + negated(found)
        found = self._functions.applied("zero", [self._sign(a + negated(b))], place.domain)
        return found if node.name == "==" else one + negated(found)

    def _sign(self, terms: Sum) -> Sum:
        """The sum or its negation, whichever has a positive coefficient first."""
        normal = self._algebra.normal(terms)
        if normal and str(normal[0].coefficient).lstrip("(").startswith("-"):
            return negated(normal)
        return normal

    def _logic(self, node: Apply, place: Place) -> Sum:
        if about_positions(node):
            try:
                return self._algebra.number(ONE, self._where(place, node, True).domain)
            except NotAffine:
                pass
        parts = [self._truth(arg, place) for arg in node.args]
        if node.name == "not":
            return self._one(place) + negated(parts[0])
        total = parts[0]
        for part in parts[1:]:
            both = self._algebra.product(total, part)
            total = both if node.name == "and" else total + part + negated(both)
        return total

    def _truth(self, node: Scalar, place: Place) -> Sum:
        """1 where a value is not 0."""
        value = self.value(node, place)
        if self._dtype(node) is DType.BOOL:
            return value
        return self._one(place) + negated(self._functions.applied("zero", [self._sign(value)], place.domain))

    def _convert(self, node: Apply, place: Place) -> Sum:
        target, source = DTYPES[node.name.partition(":")[2]], self._dtype(node.args[0])
        value = self.value(node.args[0], place)
        if target is DType.BOOL:
            return self._truth(node.args[0], place)
        if target.is_float and (not source.is_float or _WIDTH[target] >= _WIDTH[source]):
            return value
        if target.is_integer and (source is DType.BOOL or (source.is_integer and _holds(target, source))):
            return value
        return self._functions.applied(node.name, [value], place.domain)

    def _dtype(self, node: Scalar) -> DType:
        found = self._types.get(node)
        if found is None:
            from dslc.ir.element import scalar_dtype

            found = self._types[node] = scalar_dtype(node, tuple(value.type.dtype for value in self._inputs))
        return found

    # ---- reductions ------------------------------------------------------------------------------------------------

    def _reduce(self, node: Reduce, place: Place) -> Sum:
        if node.kind in {"any", "all"}:
            return self._quantified(node, place)
        if node.kind == "prod":
            return self._product(node, place)
        inner = self._ranged(place, node.iters)
        body = node.body
        if node.where is not None:
            try:
                inner = self._where(inner, node.where, True)
            except NotAffine:
                neutral = {"sum": 0, "max": float("-inf"), "min": float("inf")}[node.kind]
                body = apply("select", node.where, body, num(neutral))
        if node.kind == "sum":
            return self._algebra.summed(self.value(body, inner), len(inner.variables), len(node.iters))
        return self._extreme(node.kind, [(body, inner, len(node.iters))], place)

    def _extreme(self, kind: str, members: Sequence[tuple[Scalar, Place, int]], place: Place) -> Sum:
        values = [(self.value(node, inner), inner.domain, bound) for node, inner, bound in members]
        if kind == "max":
            return self._functions.largest(values, place.domain)
        opposite = [(negated(value), domain, bound) for value, domain, bound in values]
        return negated(self._functions.largest(opposite, place.domain))

    def _quantified(self, node: Reduce, place: Place) -> Sum:
        """`any` is the largest truth value, and 0; `all` is that nothing is false."""
        body = node.body if node.kind == "any" else apply("not", node.body)
        if node.where is not None:
            body = apply("and", node.where, body)
        inner = self._ranged(place, node.iters)
        members = [(self.value(body, inner), inner.domain, len(node.iters)), ((), place.domain, 0)]
        found = self._functions.largest(members, place.domain)
        return found if node.kind == "any" else self._one(place) + negated(found)

    def _product(self, node: Reduce, place: Place) -> Sum:
        sizes = [extent.value if isinstance(extent, Num) else None for extent in node.extents]
        if len(sizes) == 1 and isinstance(sizes[0], int) and sizes[0] <= _FACTORS:
            total = self._one(place)
            for k in range(sizes[0]):
                at: dict[Scalar, Scalar] = {node.iters[0]: num(k)}
                factor = substitute(node.body, at)
                if node.where is not None:
                    factor = apply("select", substitute(node.where, at), factor, num(1))
                total = self._algebra.product(total, self.value(factor, place))
            return total
        raise Unsolved("a product over an unknown number of factors")


@cache
def _about_sizes(node: Scalar) -> bool:
    """Whether an expression is about sizes alone, and no sum over positions."""
    return not node.free and not any(isinstance(part, Read | Reduce | Table) for part in walk(node))


def _power(node: Scalar) -> int | None:
    if isinstance(node, Num) and not isinstance(node.value, bool):
        value = node.value
        if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
            return int(value) if 0 < abs(value) <= _POWERS else None
    return None


def _holds(target: DType, source: DType) -> bool:
    """Whether every number of one integer type is one of the other."""
    signed = {DType.I8, DType.I16, DType.I32, DType.I64}
    if source in signed:
        return target in signed and target.bytes >= source.bytes
    return target.bytes > source.bytes or (target not in signed and target.bytes == source.bytes)
