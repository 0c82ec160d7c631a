"""Values of the unknowns of a derivation: vectors of iterators, boxes, terms, index maps and tensors.

Everything lives in one application of a rule: iterators have names of their own there (`~7`), and reads have the numbers of the
application's operands, so that pieces of several scopes can stand side by side and be put together anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import gcd

from dslc.analysis.iterators import coefficient_of
from dslc.analysis.narrowing import narrowed, sum_ranges
from dslc.analysis.numeric import DataDependent, in_bounds, interval
from dslc.ir.dtype import Dim, DType
from dslc.ir.graph import Scope, ScopeNode, Value, nodes_of, scope_value
from dslc.ir.scalar import (
    Iter,
    Num,
    Read,
    Reduce,
    Scalar,
    Sym,
    apply,
    as_scalar,
    iterator,
    num,
    read,
    rebuild,
    scalars,
    walk,
)
from dslc.ir.scopes import each_of, renumbered, substitute
from dslc.records import record

Vector = tuple[Scalar, ...]
#: the least and the greatest positions of iterators
Ranges = dict[Scalar, tuple[int, int]]
Iters = tuple[Iter, ...]
#: a tensor as a function of positions
Tensor = Callable[[Vector], Scalar]


@record
class Box:
    """A first position and an extent per iterator."""

    low: Vector
    extents: Vector
    #: whether it may hold positions that nothing was mapped to: these are no part of a sum
    hull_only: bool = field(default=False, compare=False)

    @staticmethod
    def of(extents: Sequence[Scalar | Dim]) -> Box:
        """The box of such extents at the origin."""
        return Box((num(0),) * len(extents), tuple(map(as_scalar, extents)))

    def within(self, other: Box) -> bool:
        """Return whether it is known to lie within another one."""
        return len(self.low) == len(other.low) and all(
            _at_least(a, b) and _at_least(apply("+", b, n), apply("+", a, m))
            for a, m, b, n in zip(self.low, self.extents, other.low, other.extents, strict=True)
        )

    def hull(self, other: Box) -> Box:
        """The least box that holds both."""
        low = tuple(apply("min", a, b) for a, b in zip(self.low, other.low, strict=True))
        high = [
            apply("max", apply("+", a, m), apply("+", b, n))
            for a, m, b, n in zip(self.low, self.extents, other.low, other.extents, strict=True)
        ]
        return Box(low, tuple(apply("-", b, a) for a, b in zip(low, high, strict=True)))

    def __add__(self, other: Box) -> Box:
        """One after the other along the first iterator; the others are alike."""
        if not self.low or self.extents[1:] != other.extents[1:] or len(self.low) != len(other.low):
            raise Unfit("only boxes that are alike but for the first iterator are put one after the other")
        return Box((num(0),) * len(self.low), (apply("+", self.extents[0], other.extents[0]), *self.extents[1:]))

    def __mul__(self, other: Box) -> Box:
        return Box((*self.low, *other.low), (*self.extents, *other.extents))


def _at_least(value: Scalar, least: Scalar) -> bool:
    """Return whether `value >= least` is known, sizes being at least 1."""
    difference = apply("-", value, least)
    if isinstance(difference, Num):
        return bool(difference.value >= 0)
    sizes: Ranges = dict.fromkeys(scalars(Sym, difference), (1, 1 << 40))
    try:
        return interval(difference, sizes)[0] >= 0
    except DataDependent:
        return False


class Unfit(Exception):
    """A rule does not apply in this way; no fault."""


@record
class Map:
    """An index map: `values` over `params`, and the way back where it is known. `box` is what it maps into."""

    params: Iters
    values: Vector
    back_params: Iters = ()
    back: Vector | None = None
    box: Box | None = None

    def __call__(self, at: Vector) -> Vector:
        return _at(self.params, self.values, at)

    def inverse(self, at: Vector) -> Vector:
        """Raises Unfit where no way back is known."""
        if self.back is None:
            raise Unfit("a map without an inverse")
        return _at(self.back_params, self.back, at)


def _at(params: Iters, values: Vector, at: Vector) -> Vector:
    if len(params) != len(at):
        raise Unfit("a map of another number of iterators")
    return tuple(substitute(value, dict(zip(params, at, strict=True))) for value in values)


@record
class UnknownTerm:
    """An unknown term: a body over vectors of iterators, elements (placeholders) and whole tensors (operands by number)."""

    params: tuple[Iters | Iter | int, ...]
    body: Scalar

    def __call__(self, args: Sequence[Vector | Scalar | Tensor]) -> Scalar:
        """The body at other vectors, elements and tensors; raises Unfit where they are of other kinds or lengths."""
        values: dict[Iter, Scalar] = {}
        tensors: dict[int, Tensor] = {}
        if len(args) != len(self.params):
            raise Unfit("a term of another number of arguments")
        for param, arg in zip(self.params, args, strict=True):
            if isinstance(param, tuple):
                if not isinstance(arg, tuple) or len(arg) != len(param):
                    raise Unfit("a term over another number of iterators")
                values.update(zip(param, arg, strict=True))
            elif isinstance(param, Iter):
                if not isinstance(arg, Scalar):
                    raise Unfit("an element where a term takes one")
                values[param] = arg
            else:
                if not callable(arg):
                    raise Unfit("a tensor where a term takes one")
                tensors[param] = arg
        parts: dict[Iter, Scalar] = {}
        for it, value in values.items():
            if is_part(value):
                marker = iterator(f"~/{len(parts)}")
                parts[marker], values[it] = value, marker
        if not tensors:
            return whole_at(substitute(self.body, values), parts)

        def on_read(node: Read, index: Vector, other: Scalar | None, depth: int) -> Scalar:
            found = tensors.get(node.operand)
            index = tuple(_whole(at, parts) for at in index)
            return read(node.operand, index, other) if found is None else found(index)

        return whole_at(substitute(self.body, values, 0, on_read), parts)


def is_part(value: Scalar) -> bool:
    """Return whether a position is a part of one, as the way back from a strided one is: `(z - r) / 2`."""
    return not value.integral and any(
        isinstance(part, Num) and isinstance(part.value, Fraction) for part in walk(value)
    )


def whole_at(body: Scalar, parts: Mapping[Iter, Scalar]) -> Scalar:
    """A body at parts of positions, where these make whole ones: `X[2 * h + r]` at `h = (z - r) / 2` is `X[z]`; else raises Unfit."""
    if not parts or parts.keys().isdisjoint(body.free):
        return body

    def leaf(node: Scalar) -> Scalar | None:
        if not isinstance(node, Read):
            return None
        other = whole_at(node.other, parts) if node.other else None
        return read(node.operand, tuple(_whole(at, parts) for at in node.index), other)

    made = rebuild(body, leaf)
    if not parts.keys().isdisjoint(made.free):
        raise Unfit("a part of a position")
    return made


def _whole(at: Scalar, parts: Mapping[Iter, Scalar]) -> Scalar:
    for it in [each for each in parts if each in at.free]:
        slope = coefficient_of(at, it)
        if slope is None:
            raise Unfit("a part of a position")
        value = parts[it]
        terms = value.args if value.op == "+" else (value,)
        at = apply("+", substitute(at, {it: num(0)}), *(apply("*", num(slope), term) for term in terms))
    if parts and is_part(at):
        raise Unfit("a part of a position")
    return at


@dataclass(slots=True)
class Operands:
    """The tensors that the pieces of one application read, by number; and names that occur nowhere else."""

    values: list[Value] = field(default_factory=list)
    #: scopes taken apart, for all applications: the first one of an application is the same each time
    views: Views = field(default_factory=dict)
    _numbers: dict[Value, int] = field(default_factory=dict)
    _named: int = 0

    @property
    def unused(self) -> bool:
        return not self.values and not self._named

    def like(self, other: Operands) -> None:
        """Takes the tensors and the names that others have taken."""
        self.values[:], self._numbers, self._named = other.values, dict(other._numbers), other._named

    def number(self, value: Value) -> int:
        if value not in self._numbers:
            self._numbers[value] = len(self.values)
            self.values.append(value)
        return self._numbers[value]

    def fresh(self, count: int = 1) -> Iters:
        start = self._named
        self._named += count
        return tuple(iterator(f"~{k}") for k in range(start, self._named))

    def scope(
        self, iters: Sequence[Iter], box: Box, body: Scalar, dtype: DType, groups: tuple[int, ...] | None = None
    ) -> Value:
        """`[iters: box] body` as a value whose positions are counted from the box's first one.

        `groups`: how many neighbouring iterators make up each dimension, where some do together.
        """
        # an iterator of one position is no part of an index
        values = {
            it: low if extent is num(1) else apply("+", iterator(f"i{k}"), low)
            for k, (it, low, extent) in enumerate(zip(iters, box.low, box.extents, strict=True))
        }
        order: dict[int, int] = {}
        within: Ranges = {
            iterator(f"i{k}"): (0, int(extent.value) - 1)
            for k, extent in enumerate(box.extents)
            if isinstance(extent, Num)
        }
        # what is decided by where iterators are need not be read
        number = renumbered(lambda k: order.setdefault(k, len(order)))
        numbered = substitute(narrowed(substitute(body, values), within), {}, 0, number)
        numbered = without_others(numbered, [self.values[k].type.shape for k in order], within)
        if any(isinstance(each, Num) and (not isinstance(each.value, int) or each.value < 0) for each in box.extents):
            raise Unfit("an extent that is no size")
        extents = tuple(int(each.value) if isinstance(each, Num) else each for each in box.extents)
        merged = None if groups is None or set(groups) <= {1} else groups
        return scope_value(Scope(extents, numbered, dtype, merged), tuple(self.values[k] for k in order))


def without_others(body: Scalar, shapes: Sequence[tuple[Dim, ...]], within: Ranges) -> Scalar:
    """Reads that are known to stay inside need no value outside."""
    if all(node.other is None for node in each_of(Read, body)):
        return body
    every = {**sum_ranges(body), **within}

    def leaf(node: Scalar) -> Scalar | None:
        if not isinstance(node, Read) or not node.other or any(part.reads for part in node.index):
            return None
        return read(node.operand, node.index) if in_bounds(node.index, shapes[node.operand], every) else None

    return rebuild(body, leaf)


def product_of(sizes: Iterable[Scalar]) -> Scalar:
    """The product of some sizes."""
    return apply("*", *sizes)


def scopes_of(value: Value) -> list[ScopeNode]:
    """The scopes of an expression, arguments first."""
    return [node for node in nodes_of([value]) if isinstance(node, ScopeNode)]


@record
class ScopeView:
    """A scope taken apart: its iterators with names of their own, its outermost reduction (`kind` None: there is none)."""

    value: Value
    iters: Iters
    box: Box
    kind: str | None
    sums: Iters
    sum_extents: Vector
    body: Scalar

    @property
    def dtype(self) -> DType:
        return self.value.type.dtype


def view_of(value: Value, operands: Operands) -> ScopeView | None:
    """A scope taken apart; None where the value is no scope, has merged dimensions, or sums over less than a box."""
    if not operands.unused:
        return _view(value, operands)
    known = operands.views.get(value)
    if known is None:
        known = operands.views[value] = _view(value, own := Operands()), own
    operands.like(known[1])
    return known[0]


def _view(value: Value, operands: Operands) -> ScopeView | None:
    node = value.node
    if not isinstance(node, ScopeNode) or node.scope.groups is not None:
        return None
    scope = node.scope
    iters = operands.fresh(len(scope.extents))
    number = renumbered(lambda k: operands.number(node.args[k]))
    body = substitute(scope.body, dict(zip(scope.iters, iters, strict=True)), 0, number)
    box = Box.of(scope.extents)
    plain = ScopeView(value, iters, box, None, (), (), body)
    return inside(plain, body, operands) or plain if isinstance(body, Reduce) else plain


def inside(view: ScopeView, total: Reduce, operands: Operands) -> ScopeView | None:
    """A reduction of a view's body as a view of its own; None where it runs over less than a box."""
    if any(extent.free for extent in total.extents):
        return None
    inner = total.body
    if total.where:
        # what is left out of a sum is 0 in it
        if total.kind != "sum":
            return None
        inner = apply("select", total.where, inner, num(0))
    sums = operands.fresh(len(total.iters))
    inner = substitute(inner, dict(zip(total.iters, sums, strict=True)))
    return ScopeView(view.value, view.iters, view.box, total.kind, sums, total.extents, inner)


#: scopes that were taken apart, with what their applications had taken then
Views = dict[Value, tuple[ScopeView | None, Operands]]


def ranges(iters: Sequence[Iter], box: Box) -> Ranges:
    """Iterators with their least and greatest positions; raises Unfit at unknown sizes."""
    found: Ranges = {}
    for it, low, extent in zip(iters, box.low, box.extents, strict=True):
        if not (isinstance(low, Num) and isinstance(extent, Num)):
            raise Unfit("an unknown size")
        found[it] = (int(low.value), int(low.value) + int(extent.value) - 1)
    return found


def reduced(body: Scalar) -> Scalar:
    """Quotients without common factors: `6 * i // 12` → `i // 2`."""

    def leaf(node: Scalar) -> Scalar | None:
        if not (node.op == "//" and isinstance(node.args[1], Num)):
            return None
        whole, divisor = node.args[0], int(node.args[1].value)
        parts = whole.args if whole.op == "+" else (whole,)
        numbers = [_factor(part) for part in parts]
        common = gcd(divisor, *numbers)
        if common <= 1 or divisor <= 0:
            return None
        less = [apply("*", num(Fraction(1, common)), part) for part in parts]
        return apply("//", apply("+", *less), num(divisor // common))

    return rebuild(body, leaf)


def _factor(part: Scalar) -> int:
    """The whole number that stands before a part of a sum."""
    if part.op == "*":
        part = next((arg for arg in part.args if isinstance(arg, Num)), num(1))
    return int(part.value) if isinstance(part, Num) and isinstance(part.value, int) else 1
