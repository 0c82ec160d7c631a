"""Operators as patterns: an operator's equation at unknown sizes and attributes, and what has to stand where (EinNet, Table 2).

An operator's iterator table follows from its equation. *Plain* iterators stand alone in dimensions, or with others of a merged one;
*window* iterators move along a dimension together with others, with coefficients that an attribute may name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import Any
from weakref import WeakKeyDictionary

from dslc.analysis.poly import NotIntegral, Poly, polynomial
from dslc.derivation.pieces import Iters
from dslc.ir.graph import Input, Scope, ScopeNode, Value
from dslc.ir.scalar import (
    Iter,
    Read,
    Reduce,
    Scalar,
    Sym,
    apply,
    as_scalar,
    num,
    read,
    rebuild,
    scalars,
    sym,
    walk,
)
from dslc.ir.sizes import sized
from dslc.records import record
from dslc.semantics.assume import AssumedChoice, assumed, rank_choices
from dslc.semantics.definitions import OperatorDef
from dslc.semantics.env import EvalError, Mismatch, Unbound
from dslc.semantics.library import Rules

#: a reduction's place in what is computed of it
TOTAL = read(-1, ())
#: where an iterator stands: in the index of which operands, and whether in that of the result
Group = tuple[frozenset[int], bool]
_PROBLEMS = (Mismatch, EvalError, Unbound, TypeError, ValueError, IndexError)


@record
class Window:
    """Iterators that move along one dimension with their coefficients, and the constant."""

    terms: tuple[tuple[Iter, Poly], ...]
    constant: Poly


@dataclass(frozen=True)
class OperatorPattern:
    """An operator at unknown sizes.

    `leaves`: the read of each operand in `body`. `dims`: of each operand and dimension its plain iterators in their order, or the
    window that moves along it. `outer`: what is computed of the reduction, which is `TOTAL` in it; None where nothing is.
    """

    op: str
    scope: Scope
    kind: str | None
    sums: Iters
    extents: Mapping[Iter, Scalar]
    body: Scalar
    leaves: Mapping[int, Read]
    shapes: tuple[tuple[Scalar, ...], ...]
    dims: tuple[tuple[Iters | Window, ...], ...]
    attrs: Mapping[str, Any]
    outer: Scalar | None = None

    @cached_property
    def factors(self) -> tuple[Read, ...]:
        """The two reads of which products are reduced; none where something else is."""
        body = self.body
        args = body.args if body.op == "*" and len(body.args) == 2 else ()
        reads = tuple(arg for arg in args if isinstance(arg, Read))
        return reads if len(reads) == len(args) else ()

    def group(self, it: Iter) -> Group:
        return self._groups[it]

    @cached_property
    def _groups(self) -> Mapping[Iter, Group]:
        return {
            it: (frozenset(k for k, leaf in self.leaves.items() if it in leaf.free), it in self.scope.iters)
            for it in self.extents
        }

    @cached_property
    def windows(self) -> tuple[tuple[int, int, Window], ...]:
        """The dimensions along which something moves: operand, dimension, and what does."""
        return tuple(
            (k, d, dim) for k, dims in enumerate(self.dims) for d, dim in enumerate(dims) if isinstance(dim, Window)
        )

    @cached_property
    def moving(self) -> Iters:
        return tuple(dict.fromkeys(it for _, _, window in self.windows for it, _ in window.terms))

    @cached_property
    def plain(self) -> dict[Group, Iters]:
        """The iterators that move along nothing, by where they stand."""
        found: dict[Group, Iters] = {}
        moving = self.moving
        for it in (*self.scope.iters, *self.sums):
            if it not in moving:
                group = self.group(it)
                found[group] = (*found.get(group, ()), it)
        return found


_TABLES: WeakKeyDictionary[OperatorDef, tuple[OperatorPattern, ...]] = WeakKeyDictionary()


def patterns_of(rules: Rules, name: str) -> tuple[OperatorPattern, ...]:
    """An operator's patterns, the fewest iterators first; none where its equation has no table: several results, nested reductions."""
    op = rules.operators[name]
    if op not in _TABLES:
        _TABLES[op] = tables_of(rules, op)
    return _TABLES[op]


def tables_of(rules: Rules, op: OperatorDef) -> tuple[OperatorPattern, ...]:
    """The same for an operator that need not be of the library."""
    found: dict[tuple[Any, ...], OperatorPattern] = {}
    for pattern in _patterns(rules, op):
        found.setdefault((pattern.scope, pattern.dims), pattern)
    # several iterators that stand alike are one: those of a batch, or of a pointwise operator
    least = [each for each in found.values() if all(len(its) == 1 for its in each.plain.values())] or list(
        found.values()
    )
    # a runtime has no window over no dimensions
    return tuple(sorted((each for each in least if () not in each.attrs.values()), key=lambda each: len(each.extents)))


def _patterns(rules: Rules, op: OperatorDef) -> Iterator[OperatorPattern]:
    if len(op.outputs) != 1 or any(param.type is None for param in op.params):
        return
    choices = rank_choices(op)
    # what slides along one dimension may slide along two, or three
    deep = [dict.fromkeys(choices[-1], rank) for rank in (2, 3)] if len(choices[-1]) > 1 else []
    for ranks in [*choices, *(each for each in deep if each not in choices)]:
        for level in ("symbolic", "attributes"):
            try:
                found = [_pattern(op, choice) for choice in assumed(rules, op, ranks, level)]
            except _PROBLEMS:
                continue
            yield from (pattern for pattern in found if pattern)
            break


def _pattern(op: OperatorDef, choice: AssumedChoice) -> OperatorPattern | None:
    result = choice.env.get(op.outputs[0].name)
    args = [choice.env.get(param.name) for param in op.params]
    if not isinstance(result, Value) or not all(isinstance(arg, Value) for arg in args):
        return None
    node = result.node
    if not isinstance(node, ScopeNode) or not all(isinstance(arg.node, Input) for arg in node.args):
        return None
    shapes = tuple(tuple(unknown(as_scalar(size)) for size in arg.type.shape) for arg in args)
    if any(size is num(1) for shape in shapes for size in shape):
        # broadcast along an axis: the iterators of another rank choice do that
        return None
    whole, kind, sums = rebuild(node.scope.body, _renamed), None, Iters()
    extents = {it: unknown(as_scalar(extent)) for it, extent in node.scope.ranges}
    total, outer = around(whole)
    body = whole
    if total:
        if total.where is not None or any(extent.free for extent in total.extents):
            return None
        kind, sums = total.kind, total.iters
        extents.update(total.ranges)
        body = total.body
    parts = [*walk(body), *(walk(outer) if outer else ())]
    reads = [part for part in parts if isinstance(part, Read) and part is not TOTAL]
    numbers = {k: args.index(arg) for k, arg in enumerate(node.args)}
    leaves = {numbers[each.operand]: each for each in reads}
    inside = any(isinstance(part, Reduce) for part in parts) or any(part.reads for each in reads for part in each.index)
    if inside or len(leaves) != len(reads) or leaves.keys() != set(range(len(args))):
        return None
    dims = []
    for k in range(len(args)):
        own = [_dim(index, size, extents) for index, size in zip(leaves[k].index, shapes[k], strict=True)]
        if any(dim is None for dim in own):
            return None
        dims.append(tuple(dim for dim in own if dim is not None))
    known = {attr.name: sized(choice.env.get(attr.name), unknown) for attr in op.attrs}
    pattern = OperatorPattern(op.name, node.scope, kind, sums, extents, body, leaves, shapes, tuple(dims), known, outer)
    # an iterator of a window that is one of a merged dimension too would have to be both
    plain = {it for dims in pattern.dims for dim in dims if not isinstance(dim, Window) and len(dim) > 1 for it in dim}
    return None if plain & set(pattern.moving) else pattern


def around(body: Scalar) -> tuple[Reduce | None, Scalar | None]:
    """The one reduction of a body, and what is computed of it: `max(sum[k] e + b, 0)` → `sum[k] e`, `max(TOTAL + b, 0)`."""
    if isinstance(body, Reduce):
        return body, None
    sums = list(scalars(Reduce, body))
    if len(sums) != 1:
        return None, None
    (total,) = sums
    return total, rebuild(body, lambda node: TOTAL if node is total else None)


def unknown(node: Scalar) -> Scalar:
    """Sizes and attributes as unknowns, whose names no program has."""
    return rebuild(node, _renamed)


def _renamed(node: Scalar) -> Scalar | None:
    return sym(f"?{node.name}") if isinstance(node, Sym) else None


def unknowns_in(node: Scalar) -> list[Sym]:
    """The unknown sizes and attributes of an operator's expression."""
    return list(dict.fromkeys(part for part in scalars(Sym, node) if part.name.startswith("?")))


def _dim(index: Scalar, size: Scalar, extents: Mapping[Iter, Scalar]) -> Iters | Window | None:
    try:
        poly = polynomial(index)
        iters = [it for it in extents if it in index.free]
        slopes: dict[Iter, Poly] = {}
        for it in iters:
            if poly.degree_in(it) > 1 or any(it in atom.free for atom in poly.atoms if atom is not it):
                return None
            slopes[it], poly = poly.split(it)
        # outermost first: the slope of each is what lies inside of it
        order = sorted(iters, key=lambda it: (slopes[it].degree, slopes[it].constant), reverse=True)
        inner = polynomial(num(1))
        merged = not poly.terms
        for it in reversed(order):
            merged = merged and slopes[it] == inner
            inner = inner * polynomial(extents[it])
        if merged and inner == polynomial(size):
            return tuple(order)
    except NotIntegral:
        return None
    if any(it in slope.atoms for slope in slopes.values() for it in iters):
        return None
    return Window(tuple((it, slopes[it]) for it in iters), poly)


# ---- bodies ----------------------------------------------------------------------------------------------------------


def leaves_in(pattern: Scalar, body: Scalar) -> Iterator[Mapping[int, Scalar]]:
    """Parts of a body for each read of a pattern, by the operand's number in the pattern's scope; operands in any order.

    `$0 * $1` in `a * b * c`: every way to make two parts of which each reads something.
    """
    if isinstance(pattern, Read) and pattern is not TOTAL:
        if body.reads:
            yield {pattern.operand: body}
    elif not pattern.op:
        if pattern is body:
            yield {}
    elif body.op == pattern.op:
        count = len(pattern.args)
        in_order = [body.args] if len(body.args) == count else []
        for parts in _parted(body, count) if body.op in {"+", "*", "min", "max"} else in_order:
            yield from _each(pattern.args, parts)


def _each(patterns: tuple[Scalar, ...], bodies: tuple[Scalar, ...]) -> Iterator[Mapping[int, Scalar]]:
    if not patterns:
        yield {}
        return
    for first in leaves_in(patterns[0], bodies[0]):
        for rest in _each(patterns[1:], bodies[1:]):
            # what is read several times is the same each time
            if all(rest.get(operand, part) is part for operand, part in first.items()):
                yield {**first, **rest}


def _parted(body: Scalar, count: int) -> Iterator[tuple[Scalar, ...]]:
    """The operands of a function of any order in so many parts, in every order of those; numbers go with the first that reads."""
    args = body.args
    if len(args) < count or len(args) > 4:
        return
    if len(args) == count:
        yield from permutations(args)
        return
    if count != 2 or body.op not in {"+", "*"}:
        return
    for mask in range(1, 2 ** len(args) - 1):
        left = [arg for k, arg in enumerate(args) if mask >> k & 1]
        right = [arg for k, arg in enumerate(args) if not mask >> k & 1]
        if any(arg.reads for arg in left) and any(arg.reads for arg in right):
            yield apply(body.op, *left), apply(body.op, *right)
