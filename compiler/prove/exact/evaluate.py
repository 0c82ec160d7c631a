"""From expressions to sums of products of reads, over the iterators in scope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, reduce
from itertools import chain
from typing import Any

from dslc.analysis.poly import COMPARISONS, Monomial, Poly, is_integral
from dslc.ir.dtype import DTYPES, DType, TypeClass, holds, integer_range
from dslc.ir.element import element_type
from dslc.ir.graph import Value
from dslc.ir.scalar import (
    Apply,
    Iter,
    Num,
    Read,
    Reduce,
    Scalar,
    Table,
    apply,
    iterator,
    num,
    raw_apply,
    substitute,
    walk,
)
from dslc.prove.exact.affine import Affine, NotAffine, digits, largest_first, strides
from dslc.prove.exact.coefficient import MINUS_ONE, ONE, NotRational, from_poly, from_sizes
from dslc.prove.exact.element_types import is_infinite, is_whole
from dslc.prove.exact.functions import Functions
from dslc.prove.exact.terms import INFINITY, Atom, Sum, Term, Unsolved, negated
from dslc.prove.exact.whole import Whole

_BRANCHING = frozenset({*COMPARISONS, "and", "or", "not", "select"})


FACTORS = 16  #: a product over so many factors is written out
POWERS = 8  #: powers up to which a power is a product

_ROUNDING = frozenset({"trunc", "floor", "ceil", "round"})
#: what a name of a function begins with that has an element type in it
_TYPED = ("convert:", "quotient:")


@dataclass(eq=False)
class Place:
    """The iterators in scope, and the positions (and sizes) for which an expression is wanted."""

    variables: tuple[Iter, ...]
    domain: Any
    inner: dict[Any, Place] = field(default_factory=dict)


class Evaluator:
    """The values of expressions over the iterators in scope; `layouts` are the strides of each axis of the inputs."""

    def __init__(
        self, affine: Affine, functions: Functions, inputs: Sequence[Value],
        layouts: Mapping[tuple[int, int], tuple[Monomial, ...]], extents: Mapping[Iter, Scalar],
    ) -> None:  # fmt: skip
        self._algebra, self._affine, self._functions = functions.algebra, affine, functions
        self._layouts, self._extents = layouts, extents
        self._memo: dict[tuple[Scalar, Place], Sum] = {}
        self._whole = Whole(functions)
        self._operands = tuple(value.type.dtype for value in inputs)
        self._types: dict[Scalar, DType | bool] = {}

    # ---- places ----------------------------------------------------------------------------------------------------

    def place(self, variables: tuple[Iter, ...], parameters: Any) -> Place:
        """The positions of the iterators, within their extents; `parameters` are the sizes that are possible."""
        return self.ranged(Place((), parameters), variables)

    def ranged(self, outer: Place, iters: tuple[Iter, ...]) -> Place:
        """The positions of a place, and of more iterators within their extents."""
        key = ("range", iters)
        found = outer.inner.get(key)
        if not found:
            variables = (*outer.variables, *iters)
            domain = self._algebra.frame.extended(outer.domain, len(iters))
            for it in iters:
                low = apply("<=", num(0), it)
                high = apply("<", it, self._extents[it])
                domain = domain.intersect(self._affine.condition(low, variables))
                domain = domain.intersect(self._affine.condition(high, variables))
            found = outer.inner[key] = Place(variables, domain)
        return found

    def where(self, outer: Place, condition: Scalar, holds: bool) -> Place:
        """The positions of a place at which a condition holds, or does not; raises NotAffine where it is not about positions."""
        key = (condition, holds)
        found = outer.inner.get(key)
        if not found:
            where = self._affine.condition(condition, outer.variables)
            domain = outer.domain.intersect(where) if holds else outer.domain.subtract(where)
            found = outer.inner[key] = Place(outer.variables, domain)
        return found

    def zeros(self, poly: Poly, count: int) -> Any:
        """The positions of `count` dimensions, and the sizes, at which a polynomial of sizes is 0; raises NotAffine."""
        return self._affine.polynomial(poly, (iterator("no position"),) * count).zero_set()

    # ---- expressions -----------------------------------------------------------------------------------------------

    def value(self, node: Scalar, place: Place) -> Sum:
        key = (node, place)
        found = self._memo.get(key)
        if found is None:
            self._algebra.check()
            found = self._memo[key] = () if place.domain.is_empty() else self._value(node, place)
        return found

    def _value(self, node: Scalar, place: Place) -> Sum:
        if about_sizes(node):
            return self._sizes(node, place)
        if node.integral:
            return self._position(node, place)
        if isinstance(node, Read):
            return self._read(node, place)
        if isinstance(node, Table):
            return self._table(node, place)
        if isinstance(node, Reduce):
            return self._reduce(node, place)
        return self._apply(node, place)

    def _one(self, place: Place) -> Sum:
        return self._algebra.number(ONE, place.domain)

    def _not(self, truth: Sum, place: Place) -> Sum:
        return self._one(place) + negated(truth)

    def _sizes(self, node: Scalar, place: Place) -> Sum:
        if isinstance(node, Num) and is_infinite(node):
            return self._algebra.constant(INFINITY, place.domain, ONE if node.value > 0 else MINUS_ONE)
        if node.op in _BRANCHING or (node.op in {"max", "min"} and not node.integral):
            return self._apply(node, place)
        try:
            return self._algebra.number(from_sizes(node), place.domain)
        except NotRational:
            return self._algebra.constant(Atom(str(node), 0, opaque=True), place.domain)

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
        truth = self._operands[node.operand] is DType.BOOL
        if any(index.reads for index in node.index):
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
            here = self.where(place, apply("==", first, num(k)), True)
            if not here.domain.is_empty():
                inner = Table._make(rest, row) if rest else num(row)
                out.extend(self.value(inner, here))
        return tuple(out)

    # ---- functions -------------------------------------------------------------------------------------------------

    def _apply(self, node: Scalar, place: Place) -> Sum:
        name, args, algebra = node.op, node.args, self._algebra
        if name == "select":
            return self._select(node, place)
        if name in COMPARISONS or name in {"and", "or", "not"}:
            # 1 where a condition on positions holds
            if not node.reads and all(map(is_integral, args if name in COMPARISONS else ())):
                with suppress(NotAffine):
                    return algebra.number(ONE, self.where(place, node, True).domain)
            return self._comparison(node, place) if name in COMPARISONS else self._logic(node, place)
        if name.startswith("convert:"):
            return self._convert(node, place)
        dtype = self.dtype(node)
        if dtype is DType.BOOL and name in {"+", "*"}:
            if any(self.dtype(arg) is not DType.BOOL for arg in args):
                raise Unsolved("arithmetic on truth values and numbers")
            # a sum is true where one of them is, a product where all are
            return self._apply(raw_apply("or" if name == "+" else "and", *args), place)
        if dtype is not None and dtype.is_integer:
            return self._of_integers(node, dtype, place)
        if name in {"+", "*"}:
            parts = [self._typed(arg, dtype, place) for arg in args]
            if any(is_infinite(part) for part in walk(node)):
                self._stay_infinite(name, parts)
            return tuple(chain(*parts)) if name == "+" else reduce(algebra.product, parts)
        if name == "/":
            return algebra.product(self._typed(args[0], dtype, place), self.inverse(args[1], dtype, place))
        if name == "^" and (power := _power(args[1])) is not None:
            base = self._typed(args[0], dtype, place) if power > 0 else self.inverse(args[0], dtype, place)
            return self._powered(base, abs(power), place)
        if name == "^" and isinstance(args[1], Num) and args[1].value == 0.5:
            return self._functions.applied("sqrt", [self._typed(args[0], dtype, place)], place.domain)
        if name == "^" and isinstance(args[1], Num) and args[1].value == -0.5:
            return self.inverse(raw_apply("sqrt", args[0]), dtype, place)
        if name in {"max", "min"}:
            return self._extreme(name, [(arg, place, 0) for arg in args], dtype, place)
        if name == "abs":
            value = self.value(args[0], place)
            return self._functions.largest([(value, place.domain, 0), (negated(value), place.domain, 0)], place.domain)
        return self._functions.applied(name, [self._typed(arg, dtype, place) for arg in args], place.domain)

    def _of_integers(self, node: Scalar, dtype: DType, place: Place) -> Sum:
        """Modulo 2^bits of the type: what is no sum and no product is a function of ring elements of which little is known."""
        name, args, whole, domain = node.op, node.args, self._whole, place.domain
        values = [self._typed(arg, dtype, place) for arg in args]
        if name == "+":
            return tuple(chain(*values))
        if name == "*":
            return reduce(self._algebra.product, values)
        if name == "/" or name.startswith("quotient:"):
            return whole.quotient(dtype, values[0], values[1], domain, self._beyond(args, dtype))
        power = args[1].value if name == "^" and isinstance(args[1], Num) else None
        if isinstance(power, int) and not isinstance(power, bool) and 0 < power <= POWERS:
            return self._powered(values[0], power, place)
        if name in {"max", "min"}:
            return self._extreme(name, [(arg, place, 0) for arg in args], dtype, place)
        if name == "abs":
            if args[0].op == "abs":
                return values[0]  # also where it is the smallest number, whose opposite is itself
            members = [(values[0], domain, 0), (negated(values[0]), domain, 0)]
            return (
                self._functions.largest(members, domain, f"largest:{dtype}")
                if dtype in TypeClass.SIGNED.members
                else values[0]
            )
        quotient = args[0].op.partition(":")[0] in {"/", "quotient"}
        if name in _ROUNDING and (name == "trunc" or not quotient):
            return values[0]
        return whole.applied(name + self._beyond(args, dtype), dtype, values, domain)

    def _beyond(self, args: Sequence[Scalar], dtype: DType) -> str:
        """A mark for arguments that are numbers perhaps beyond the type, taken as they are: a part of a function's name."""
        marks = "".join("t" if self._in_range(arg, dtype) else "n" for arg in args)
        return f"[{marks}]" if "n" in marks else ""

    def _typed(self, node: Scalar, dtype: DType | None, place: Place) -> Sum:
        """A value in the type of what it meets: bare numbers are of every type, of integers if they are whole."""
        value = self.value(node, place)
        source = self.dtype(node)
        if source is not None and dtype is not None:
            return self._whole.converted(value, source, dtype, place.domain)
        if dtype is not None and dtype.is_integer and not (is_infinite(node) or is_whole(node)):
            raise Unsolved("a number that may be no integer, in arithmetic on integers")
        return value

    def _powered(self, base: Sum, power: int, place: Place) -> Sum:
        return reduce(self._algebra.product, [base] * power, self._one(place))

    def _stay_infinite(self, name: str, parts: Sequence[Sum]) -> None:
        """Raises Unsolved where infinities may vanish, as an unknown number does: from each other, or in a product with 0."""
        infinite = [any(INFINITY in term.atoms for term in self._algebra.normal(part)) for part in parts]
        if name == "+" and sum(infinite) > 1:
            raise Unsolved("a sum of infinities")
        if name == "*" and any(infinite):
            rest = [self._algebra.normal(part) for part, found in zip(parts, infinite, strict=True) if not found]
            if sum(infinite) > 1 or any(
                len(part) != 1 or part[0].atoms or not part[0].coefficient.number for part in rest
            ):
                raise Unsolved("a product with infinity")

    def inverse(self, node: Scalar, dtype: DType | None, place: Place) -> Sum:
        """One over a value of a type."""
        if about_sizes(node):
            with suppress(NotRational):
                below = from_sizes(node)
                if not below.is_zero:
                    return self._algebra.number(below.inverse, place.domain)
        return self._functions.applied("inverse", [self._typed(node, dtype, place)], place.domain)

    def _select(self, node: Scalar, place: Place) -> Sum:
        condition, then, other = node.args
        dtype = self.dtype(node)
        if not condition.reads:
            with suppress(NotAffine):
                there, elsewhere = (self.where(place, condition, holds) for holds in (True, False))
                return self._typed(then, dtype, there) + self._typed(other, dtype, elsewhere)
        held = self.truth(condition, place)
        left = self._algebra.product(held, self._typed(then, dtype, place))
        right = self._algebra.product(self._not(held, place), self._typed(other, dtype, place))
        return left + right

    def _comparison(self, node: Scalar, place: Place) -> Sum:
        """A truth value: 1 where it holds."""
        # the type in which both are compared is that of their sum
        dtype = self.dtype(raw_apply("+", *node.args))
        if node.op in {"==", "!="}:
            found = self._equal(node.args, dtype, place)
            return found if node.op == "==" else self._not(found, place)
        sides = node.args if node.op in {"<", ">="} else node.args[::-1]
        a, b = (self._typed(arg, dtype, place) for arg in sides)
        if dtype is not None and dtype.is_integer:
            found = self._whole.less(dtype, a, b, place.domain, self._beyond(sides, dtype))
        else:
            found = self._functions.applied("positive", [b + negated(a)], place.domain)
        return found if node.op in {"<", ">"} else self._not(found, place)

    def _equal(self, args: Sequence[Scalar], dtype: DType | None, place: Place) -> Sum:
        a, b = (self._typed(arg, dtype, place) for arg in args)
        if dtype is None or not dtype.is_integer:
            return self._functions.applied("zero", [self._algebra.signed(a + negated(b))], place.domain)
        if all(self._in_range(arg, dtype) for arg in args):
            return self._whole.is_zero(dtype, a + negated(b), place.domain)
        return self._whole.applied("same" + self._beyond(args, dtype), dtype, [a, b], place.domain)

    def _in_range(self, node: Scalar, dtype: DType) -> bool:
        """Return whether a value is surely one of the type: a number that is larger may be compared as it is."""
        if self.dtype(node) is not None or dtype is DType.I64:
            return True
        low, high = integer_range(dtype)
        return isinstance(node, Num) and (is_infinite(node) or low <= node.value <= high)

    def _logic(self, node: Scalar, place: Place) -> Sum:
        parts = [self.truth(arg, place) for arg in node.args]
        if node.op == "not":
            return self._not(parts[0], place)
        total = parts[0]
        for part in parts[1:]:
            both = self._algebra.product(total, part)
            total = both if node.op == "and" else total + part + negated(both)
        return total

    def truth(self, node: Scalar, place: Place) -> Sum:
        """1 where a value is not 0."""
        value, dtype = self.value(node, place), self.dtype(node)
        if dtype is DType.BOOL:
            return value
        if dtype is not None and dtype.is_integer:
            return self._not(self._whole.is_zero(dtype, value, place.domain), place)
        return self._not(self._functions.applied("zero", [self._algebra.signed(value)], place.domain), place)

    def _convert(self, node: Scalar, place: Place) -> Sum:
        target, inner = DTYPES[node.op.partition(":")[2]], node.args[0]
        if target is DType.BOOL:
            return self.truth(inner, place)
        source, value = self.dtype(inner), self.value(inner, place)
        if source is None:
            # sizes and numbers that a program is written with have any type, and the integers are mapped to every ring
            if about_sizes(inner) if target.is_float else is_whole(inner):
                return value
            if target is DType.I64 and inner.op in {"max", "min"}:
                # truncation keeps the order of numbers, of which int64 is taken to hold all
                parts = [raw_apply(node.op, arg) for arg in inner.args]
                return self._extreme(inner.op, [(part, place, 0) for part in parts], target, place)
            source = DType.I64 if is_whole(inner) else DType.F64
        if inner.op.startswith("convert:"):
            first = self.dtype(inner.args[0])
            middle = DTYPES[inner.op.partition(":")[2]]
            if first is target and first.is_float and holds(middle, first):
                return self.value(inner.args[0], place)
        return self._whole.converted(value, source, target, place.domain)

    def dtype(self, node: Scalar) -> DType | None:
        """The element type of a subexpression; None for bare numbers."""
        return element_type(node, self._operands, self._types)

    # ---- reductions ------------------------------------------------------------------------------------------------

    def _reduce(self, node: Reduce, place: Place) -> Sum:
        if node.kind in {"any", "all"}:
            return self._quantified(node, place)
        if node.kind == "prod":
            return self._product(node, place)
        inner = self.ranged(place, node.iters)
        body = node.body
        if node.where:
            try:
                inner = self.where(inner, node.where, True)
            except NotAffine:
                neutral = {"sum": 0, "max": float("-inf"), "min": float("inf")}[node.kind]
                body = apply("select", node.where, body, num(neutral))
        if node.kind == "sum":
            if self.dtype(node) is DType.BOOL:
                raise Unsolved("a sum of truth values")
            return self._algebra.summed(self.value(body, inner), len(inner.variables), len(node.iters))
        return self._extreme(node.kind, [(body, inner, len(node.iters))], self.dtype(node), place)

    def _extreme(
        self, kind: str, members: Sequence[tuple[Scalar, Place, int]], dtype: DType | None, place: Place
    ) -> Sum:
        values = [(self._typed(node, dtype, inner), inner.domain, bound) for node, inner, bound in members]
        if dtype is not None and dtype.is_integer:
            if not all(is_infinite(node) or self._in_range(node, dtype) for node, _, _ in members):
                raise Unsolved("a number that is perhaps none of the type, among integers of it")
            return self._functions.largest(
                values, place.domain, f"{'largest' if kind == 'max' else 'smallest'}:{dtype}"
            )
        if kind == "max":
            return self._functions.largest(values, place.domain)
        opposite = [(negated(value), domain, bound) for value, domain, bound in values]
        return negated(self._functions.largest(opposite, place.domain))

    def _quantified(self, node: Reduce, place: Place) -> Sum:
        """`any` is the largest truth value, and 0; `all` is that nothing is false."""
        body = node.body if node.kind == "any" else apply("not", node.body)
        if node.where:
            body = apply("and", node.where, body)
        inner = self.ranged(place, node.iters)
        members = [(self.truth(body, inner), inner.domain, len(node.iters)), ((), place.domain, 0)]
        found = self._functions.largest(members, place.domain)
        return found if node.kind == "any" else self._not(found, place)

    def _product(self, node: Reduce, place: Place) -> Sum:
        match node.extents:
            case (Num(value=int() as size),) if size <= FACTORS:
                body = apply("select", node.where, node.body, num(1)) if node.where else node.body
                at: list[dict[Scalar, Scalar]] = [{node.iters[0]: num(k)} for k in range(size)]
                factors = (self.value(substitute(body, each), place) for each in at)
                return reduce(self._algebra.product, factors, self._one(place))
        raise Unsolved("a product over an unknown number of factors")


@cache
def about_sizes(node: Scalar) -> bool:
    """Return whether an expression is about sizes alone, and no sum over positions."""
    return not node.free and not any(
        isinstance(part, Read | Reduce | Table) or part.op.startswith(_TYPED) for part in walk(node)
    )


def _power(node: Scalar) -> int | None:
    match node:
        case Num(value=int() | float() as value) if not isinstance(value, bool) and float(value).is_integer():
            return int(value) if 0 < abs(value) <= POWERS else None
    return None
