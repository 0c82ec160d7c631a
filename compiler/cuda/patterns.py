"""What a lowering's `expr` says to whoever looks for calls: its table, and the names that conditions and arguments have for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from dslc.derivation.lowerings import operator_of
from dslc.derivation.tables import OperatorPattern as Table
from dslc.derivation.tables import Window, tables_of, unknowns_in
from dslc.ir.scalar import Iter, Num, Sym
from dslc.semantics.definitions import LoweringDef
from dslc.semantics.library import Rules
from dslc.semantics.walk import walk_expr
from dslc.syntax import tree as t


@dataclass(frozen=True, slots=True)
class Dim:
    """A dimension of a tensor as it is declared.

    Attributes:
        indices: their names; of a merged dimension several.
        star: whether it stands for as many as there are.
        sizes: the names that its size is declared by, as many as indices where it is merged; "" where there is none.
        windows: how many dimensions with windows it stands for.
    """

    indices: tuple[str, ...]
    star: bool = False
    merged: bool = False
    sizes: tuple[str, ...] = ("",)
    windows: int = 0


@dataclass(frozen=True, slots=True)
class PatternReading:
    """A tensor as a lowering reads it, or writes it."""

    tensor: str
    dims: tuple[Dim, ...]

    @property
    def indices(self) -> frozenset[str]:
        return frozenset(name for dim in self.dims for name in dim.indices)


@dataclass(frozen=True, eq=False)
class CallPattern:
    """A lowering of an expression, as what is looked for.

    Attributes:
        readings: of each operand of the table, and then of the result.
        iters: the table's iterators by the names of indices; several for a pack that is in a window.
        packs: indices that stand for several.
    """

    rules: Rules
    lowering: LoweringDef
    table: Table
    readings: tuple[PatternReading, ...]
    iters: dict[str, tuple[Iter, ...]]
    packs: frozenset[str]

    @property
    def name(self) -> str:
        return self.lowering.name

    @property
    def output(self) -> PatternReading:
        return self.readings[-1]

    @cached_property
    def call(self) -> t.CallVendor:
        return next(s for s in self.lowering.syntax.statements if isinstance(s, t.CallVendor))

    @cached_property
    def factors(self) -> tuple[int, ...]:
        """The operands of the product."""
        return tuple(each.operand for each in self.table.factors)

    @cached_property
    def roles(self) -> dict[str, frozenset[str]]:
        """The factors, and the result, in which an index stands."""
        tensors = (*(self.readings[k] for k in self.factors), self.output)
        return {name: frozenset(one.tensor for one in tensors if name in one.indices) for name in self.iters}

    @cached_property
    def numbers(self) -> dict[str, Sym]:
        """Names outside of the sum that stand for a number."""
        beside = () if self.table.outer is None else unknowns_in(self.table.outer)
        return {name: value for name, value in self.table.attrs.items() if value in beside}

    @cached_property
    def windows(self) -> frozenset[str]:
        """The indices that move along dimensions together with others."""
        return frozenset(name for name, iters in self.iters.items() if not set(iters).isdisjoint(self.table.moving))


def patterns_of(rules: Rules, lowering: LoweringDef) -> tuple[CallPattern, ...]:
    """What a lowering of an expression looks for, for each number of dimensions of its windows.

    None where it is no sum of products of two tensors, whose indices are sums of indices with coefficients, with one pack for each.
    """
    equation, op = lowering.syntax.expr, operator_of(lowering, bare=True)
    assert equation is not None
    if op is None:
        return ()
    tables = [table for table in tables_of(rules, op) if _is_product(table)]
    # a batch of several axes is one of none, too
    chosen = [table for table in tables if table.windows] or tables[-1:]
    return tuple(found for table in chosen if (found := _pattern(rules, lowering, equation, table)) is not None)


def _is_product(table: Table) -> bool:
    factors, moving = {each.operand for each in table.factors}, {operand for operand, _, _ in table.windows}
    zeros = all(
        each.other is None or (isinstance(each.other, Num) and each.other.value == 0) for each in table.leaves.values()
    )
    return table.kind == "sum" and bool(factors) and len(moving) < 2 and moving <= factors and zeros


def _pattern(rules: Rules, lowering: LoweringDef, equation: t.Equation, table: Table) -> CallPattern | None:
    """The names of a table's iterators and sizes; None where more than one star stands in a tensor, or for what is summed."""
    places = equation.target.places or ()
    sums = next(node.binders for node in walk_expr(equation.value) if isinstance(node, t.Reduction))
    bound = [binder for place in places for binder in (place.places if isinstance(place, t.TuplePlace) else (place,))]
    lists = ((bound, table.scope.iters), (sums, table.sums))
    iters = {name: own for binders, every in lists for name, own in _named(binders, every)}
    subscripts = (node for node in walk_expr(equation.value) if isinstance(node, t.Subscript))
    reads = {node.base.id: node for node in subscripts if isinstance(node.base, t.Name)}
    readings = [
        PatternReading(param.name, tuple(_dims(reads[param.name].subs, param.type.dims or (), table.dims[k], iters)))
        for k, param in enumerate(lowering.syntax.params) if param.type is not None
    ]  # fmt: skip
    written = [
        Dim((place.name,), place.star)
        if isinstance(place, t.Binder)
        else Dim(tuple(each.name for each in place.places), merged=True)
        for place in places
    ]
    readings.append(PatternReading(equation.target.name, tuple(written)))
    starred: list[Sequence[t.Binder | Dim]] = [sums, bound, *(one.dims for one in readings)]
    packs = frozenset(binder.name for binders, _ in lists for binder in binders if binder.star)
    if any(sum(each.star for each in own) > 1 for own in starred):
        return None
    return CallPattern(rules, lowering, table, tuple(readings), iters, packs)


def _dims(
    subs: Sequence[t.Expr],
    declared: Sequence[t.Expr],
    own: Sequence[tuple[Iter, ...] | Window],
    iters: dict[str, tuple[Iter, ...]],
) -> Iterator[Dim]:
    """What stands in each dimension of a tensor, and the names of its sizes."""
    at = 0
    for sub, size in zip(subs, declared, strict=True):
        star = isinstance(sub, t.Pack)
        count = len(own) - len(subs) + 1 if star else 1
        windows = sum(isinstance(dim, Window) for dim in own[at : at + count])
        indices = tuple(node.id for node in walk_expr(sub) if isinstance(node, t.Name) and node.id in iters)
        slots = size.slots if isinstance(size, t.TupleExpr) else (size.value if isinstance(size, t.Pack) else size,)
        names = tuple(slot.id if isinstance(slot, t.Name) else "" for slot in slots)
        yield Dim(indices, star, isinstance(size, t.TupleExpr), names, windows)
        at += count


def _named(binders: Sequence[t.Binder], every: Sequence[Iter]) -> Iterator[tuple[str, tuple[Iter, ...]]]:
    """The iterators of each name; the one with a star has all that the others leave."""
    at = 0
    for binder in binders:
        count = len(every) - len(binders) + 1 if binder.star else 1
        yield binder.name, tuple(every[at : at + count])
        at += count
