"""What a lowering's `expr` says: a sum of products of two tensors, what is computed of it, and which index stands where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Scope, input_value, scope_value
from dslc.ir.normal import normal
from dslc.ir.scalar import Read, Scalar, read
from dslc.ir.scopes import each_of
from dslc.semantics.definitions import LoweringDef
from dslc.semantics.env import Env
from dslc.semantics.evaluate import evaluate
from dslc.semantics.library import Rules
from dslc.semantics.walk import walk_expr
from dslc.syntax import tree as t


class Unread(Enum):
    """Why a lowering of an expression is not looked for."""

    SUM = "no sum of products of two tensors"
    INDEX = "an index that is no sum of indices with coefficients"
    PACKS = "more than one pack in one tensor"


class NotRead(Exception):
    """An expression that no call is looked for."""

    def __init__(self, reason: Unread) -> None:
        super().__init__(reason.value)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Term:
    """An index with a coefficient: a number, or a name that the match gives one."""

    index: str
    factor: str | None = None


@dataclass(frozen=True, slots=True)
class Dim:
    """An index expression of a tensor: terms, and names or numbers that are added (with their signs). `merged`: the terms are the parts
    of a merged dimension. `star`: it stands for as many dimensions as there are."""

    terms: tuple[Term, ...]
    added: tuple[tuple[int, str | int], ...] = ()
    merged: bool = False
    star: bool = False

    @property
    def window(self) -> bool:
        """Whether positions are computed, so that they may lie outside."""
        return bool(self.added) or (len(self.terms) > 1 and not self.merged) or any(term.factor for term in self.terms)


@dataclass(frozen=True, slots=True)
class Reading:
    """A tensor as a pattern reads it."""

    tensor: str
    dims: tuple[Dim, ...]
    other: bool

    @property
    def indices(self) -> frozenset[str]:
        return frozenset(term.index for dim in self.dims for term in dim.terms)

    @property
    def window(self) -> bool:
        return any(dim.window for dim in self.dims)


@dataclass(frozen=True, eq=False)
class Pattern:
    """A lowering of an expression, as what is looked for."""

    rules: Rules
    lowering: LoweringDef
    output: Reading
    factors: tuple[Reading, Reading]
    #: what else is read, at a place of the result
    others: tuple[Reading, ...]
    #: indices with stars stand for several
    packs: frozenset[str]
    summed: frozenset[str]
    value: t.Expr
    product: t.Reduction
    #: names outside the sum that stand for a number
    numbers: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        return self.lowering.name

    @property
    def call(self) -> t.CallVendor:
        return next(s for s in self.lowering.syntax.statements if isinstance(s, t.CallVendor))

    def readings(self) -> Iterator[Reading]:
        yield from (*self.factors, self.output, *self.others)

    def role(self, index: str) -> frozenset[str]:
        """The tensors in which an index stands."""
        return frozenset(one.tensor for one in self.readings() if index in one.indices)

    @cached_property
    def indices(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(term.index for one in self.readings() for dim in one.dims for term in dim.terms))

    def computes(self, found: Scalar, numbers: Mapping[str, Scalar]) -> bool:
        """Whether the same is computed of the sum (operand 0) and of what else is read (1, 2, ...)."""
        key = (found, tuple(numbers.items()))
        if key not in self._known:
            self._known[key] = self._computes(found, numbers)
        return self._known[key]

    @cached_property
    def _known(self) -> dict[object, bool]:
        return {}

    def _computes(self, found: Scalar, numbers: Mapping[str, Scalar]) -> bool:
        env = Env(self.lowering.module, self.rules)
        env.bind("product", read(0, ()))
        for k in range(len(self.others)):
            env.bind(f"other{k}", read(k + 1, ()))
        for name, number in numbers.items():
            env.bind(name, number)
        wanted = evaluate(self._outside(self.value), env)
        return isinstance(wanted, Scalar) and _canonical(wanted) == _canonical(found)

    def _outside(self, expr: t.Expr) -> t.Expr:
        """The expression with names in the place of the sum and of tensors' elements."""
        if expr is self.product:
            return t.Name("product", span=expr.span)
        if isinstance(expr, t.Subscript):
            assert isinstance(expr.base, t.Name)
            names = [other.tensor for other in self.others]
            return t.Name(f"other{names.index(expr.base.id)}", span=expr.span)
        if isinstance(expr, t.Binary):
            return t.Binary(expr.op, self._outside(expr.left), self._outside(expr.right), span=expr.span)
        if isinstance(expr, t.Unary):
            return t.Unary(expr.op, self._outside(expr.operand), span=expr.span)
        if isinstance(expr, t.Call):
            args = tuple(self._outside(arg) for arg in expr.args)
            return t.Call(expr.function, args, expr.kwargs, expr.rest, span=expr.span)
        return expr


def _canonical(body: Scalar) -> object:
    """Equal for expressions of rank-0 operands that are the same but for the order of what commutes."""
    count = 1 + max((node.operand for node in each_of(Read, body)), default=-1)
    holes = tuple(input_value(f"h{k}", TensorType(DType.F64, ())) for k in range(count))
    return normal(scope_value(Scope((), body, DType.F64), holes))


def pattern_of(rules: Rules, lowering: LoweringDef) -> Pattern:
    """What a lowering of an expression looks for.

    Raises:
        NotRead: for an expression that is not looked for, with the reason.
    """
    equation = lowering.syntax.expr
    assert equation is not None
    sums = [node for node in walk_expr(equation.value) if isinstance(node, t.Reduction)]
    if len(sums) != 1 or sums[0].kind != "sum" or sums[0].where is not None:
        raise NotRead(Unread.SUM)
    (product,) = sums
    body = product.body
    if not (isinstance(body, t.Binary) and body.op == "*"):
        raise NotRead(Unread.SUM)
    if not (isinstance(body.left, t.Subscript) and isinstance(body.right, t.Subscript)):
        raise NotRead(Unread.SUM)
    places = equation.target.places or ()
    bound = [binder for place in places for binder in (place.places if isinstance(place, t.TuplePlace) else (place,))]
    packs = frozenset(binder.name for binder in (*bound, *product.binders) if binder.star)
    known = frozenset(binder.name for binder in (*bound, *product.binders))
    output = Reading(equation.target.name, tuple(_place(place) for place in places), False)
    factors = (_reading(body.left, known), _reading(body.right, known))
    inside = set(map(id, walk_expr(body)))
    others = tuple(
        _reading(node, known) for node in walk_expr(equation.value) if isinstance(node, t.Subscript) and id(node) not in inside
    )
    if any(sum(dim.star for dim in one.dims) > 1 for one in (*factors, *others, output)):
        raise NotRead(Unread.PACKS)
    tensors = {one.tensor for one in (*factors, *others)}
    numbers = tuple(
        dict.fromkeys(
            node.id
            for node in walk_expr(equation.value)
            if isinstance(node, t.Name) and id(node) not in inside and node.id not in {*tensors, *known} and node.id[0].islower()
            and lowering.module.lookup(node.id) is None and node.id not in _CONSTANTS
        )
    )  # fmt: skip
    summed = frozenset(binder.name for binder in product.binders)
    return Pattern(rules, lowering, output, factors, others, packs, summed, equation.value, product, numbers)


_CONSTANTS = frozenset({"pi", "inf", "nan", "true", "false"})


def _place(place: t.Place) -> Dim:
    if isinstance(place, t.TuplePlace):
        return Dim(tuple(Term(binder.name) for binder in place.places), merged=True)
    return Dim((Term(place.name),), star=place.star)


def _reading(node: t.Subscript, known: frozenset[str]) -> Reading:
    if not isinstance(node.base, t.Name):
        raise NotRead(Unread.SUM)
    if node.other is not None and not (isinstance(node.other, t.Int) and node.other.value == 0):
        raise NotRead(Unread.INDEX)
    return Reading(node.base.id, tuple(_dim(sub, known) for sub in node.subs), node.other is not None)


def _dim(sub: t.Expr, known: frozenset[str]) -> Dim:
    if isinstance(sub, t.TupleExpr):
        if not all(isinstance(slot, t.Name) and slot.id in known for slot in sub.slots):
            raise NotRead(Unread.INDEX)
        return Dim(tuple(Term(slot.id) for slot in sub.slots if isinstance(slot, t.Name)), merged=True)
    star = isinstance(sub, t.Pack)
    terms: list[Term] = []
    added: list[tuple[int, str | int]] = []
    _affine(sub.value if isinstance(sub, t.Pack) else sub, 1, known, terms, added)
    return Dim(tuple(terms), tuple(added), star=star)


def _affine(node: t.Expr, sign: int, known: frozenset[str], terms: list[Term], added: list[tuple[int, str | int]]) -> None:
    if isinstance(node, t.Binary) and node.op in {"+", "-"}:
        _affine(node.left, sign, known, terms, added)
        _affine(node.right, sign if node.op == "+" else -sign, known, terms, added)
    elif isinstance(node, t.Binary) and node.op == "*" and sign > 0:
        names = [one.id for one in (node.left, node.right) if isinstance(one, t.Name)]
        if len(names) < 2:
            raise NotRead(Unread.INDEX)
        index, factor = names if names[0] in known else names[::-1]
        if index not in known or factor in known:
            raise NotRead(Unread.INDEX)
        terms.append(Term(index, factor))
    elif isinstance(node, t.Name) and node.id in known and sign > 0:
        terms.append(Term(node.id))
    elif isinstance(node, t.Name) and node.id not in known:
        added.append((sign, node.id))
    elif isinstance(node, t.Int):
        added.append((sign, node.value))
    else:
        raise NotRead(Unread.INDEX)


__all__ = ["Dim", "NotRead", "Pattern", "Reading", "Term", "Unread", "pattern_of"]
