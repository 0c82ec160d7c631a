"""What a lowering's `expr` says to whoever looks for calls: its table, and the names that conditions and arguments have for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from dslc.derivation.lowered import operator_of
from dslc.derivation.tables import Pattern as Table
from dslc.derivation.tables import tables_of, unknowns_in
from dslc.ir.scalar import Apply, Iter, Num, Read, Sym
from dslc.semantics.definitions import LoweringDef
from dslc.semantics.library import Rules
from dslc.semantics.walk import walk_expr
from dslc.syntax import tree as t


@dataclass(frozen=True, slots=True)
class Dim:
    """A dimension of a tensor as it is declared, by the names of its indices; `star`: it stands for as many as there are."""

    indices: tuple[str, ...]
    star: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """A tensor as a lowering reads it, or writes it."""

    tensor: str
    dims: tuple[Dim, ...]

    @property
    def indices(self) -> frozenset[str]:
        return frozenset(name for dim in self.dims for name in dim.indices)


@dataclass(frozen=True, eq=False)
class Pattern:
    """A lowering of an expression, as what is looked for.

    Attributes:
        readings: of each operand of the table, and then of the result.
        iters: the table's iterators by the names of indices; several for a pack that is in a window.
        packs: indices that stand for several.
    """

    rules: Rules
    lowering: LoweringDef
    table: Table
    readings: tuple[Reading, ...]
    iters: dict[str, tuple[Iter, ...]]
    packs: frozenset[str]

    @property
    def name(self) -> str:
        return self.lowering.name

    @property
    def output(self) -> Reading:
        return self.readings[-1]

    @cached_property
    def call(self) -> t.CallVendor:
        return next(s for s in self.lowering.syntax.statements if isinstance(s, t.CallVendor))

    @cached_property
    def factors(self) -> tuple[int, ...]:
        """The operands of the product."""
        body = self.table.body
        return tuple(each.operand for each in (body.args if isinstance(body, Apply) else ()) if isinstance(each, Read))

    @cached_property
    def numbers(self) -> dict[str, Sym]:
        """Names outside of the sum that stand for a number."""
        beside = () if self.table.outer is None else unknowns_in(self.table.outer)
        return {name: value for name, value in self.table.attrs.items() if value in beside}

    @cached_property
    def windows(self) -> frozenset[str]:
        """The indices that move along dimensions together with others."""
        return frozenset(name for name, iters in self.iters.items() if not set(iters).isdisjoint(self.table.moving))


def patterns_of(rules: Rules, lowering: LoweringDef) -> tuple[Pattern, ...]:
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
    body = table.body
    factors = [each for each in body.args if isinstance(each, Read)] if isinstance(body, Apply) and body.name == "*" else []
    return (
        table.kind == "sum" and len(factors) == len(body.children) == 2
        and len({operand for operand, _, _ in table.windows}) < 2
        and {operand for operand, _, _ in table.windows} <= {each.operand for each in factors}
        and all(each.other is None or (isinstance(each.other, Num) and each.other.value == 0) for each in table.leaves.values())
    )  # fmt: skip


def _pattern(rules: Rules, lowering: LoweringDef, equation: t.Equation, table: Table) -> Pattern | None:
    places = equation.target.places or ()
    sums = [node for node in walk_expr(equation.value) if isinstance(node, t.Reduction)]
    bound = [binder for place in places for binder in (place.places if isinstance(place, t.TuplePlace) else (place,))]
    lists = ((bound, table.scope.iters), (sums[0].binders, table.sums))
    if any(sum(binder.star for binder in binders) > 1 for binders, _ in lists):
        return None
    iters = {name: own for binders, every in lists for name, own in _named(binders, every)}
    subscripts = (node for node in walk_expr(equation.value) if isinstance(node, t.Subscript))
    reads = {node.base.id: node for node in subscripts if isinstance(node.base, t.Name)}
    if any(param.name not in reads for param in lowering.syntax.params):
        return None
    readings = [
        Reading(param.name, tuple(Dim(tuple(_indices(sub, iters)), isinstance(sub, t.Pack)) for sub in reads[param.name].subs))
        for param in lowering.syntax.params
    ]
    written = tuple(
        Dim(tuple(binder.name for binder in place.places), False) if isinstance(place, t.TuplePlace) else Dim((place.name,), place.star)
        for place in places
    )
    readings.append(Reading(equation.target.name, written))
    if any(sum(dim.star for dim in one.dims) > 1 for one in readings):
        return None
    packs = frozenset(binder.name for binders, _ in lists for binder in binders if binder.star)
    return Pattern(rules, lowering, table, tuple(readings), iters, packs)


def _named(binders: Sequence[t.Binder], every: Sequence[Iter]) -> Iterator[tuple[str, tuple[Iter, ...]]]:
    """The iterators of each name; the one with a star has all that the others leave."""
    at = 0
    for binder in binders:
        count = len(every) - len(binders) + 1 if binder.star else 1
        yield binder.name, tuple(every[at : at + count])
        at += count


def _indices(sub: t.Expr, known: dict[str, tuple[Iter, ...]]) -> Iterator[str]:
    return (node.id for node in walk_expr(sub) if isinstance(node, t.Name) and node.id in known)


__all__ = ["Dim", "Pattern", "Reading", "patterns_of"]
