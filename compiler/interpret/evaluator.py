"""One scope over arrays. Every expression is evaluated over the iterators it depends on, and no others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import inf, prod
from typing import Any

import numpy as np

from dslc.interpret.array import (
    Arr,
    ReadOperand,
    align,
    combined,
    contract,
    expand,
    integers,
    lift,
    normal,
    order,
    same_kind,
    wrapped,
)
from dslc.interpret.domain import Array, Domain, Kind
from dslc.interpret.floats import COMPARE
from dslc.interpret.functions import (
    apply_function,
    as_kind,
    boolean,
    compare,
    convert,
    divide,
    integer_quotient,
    plus,
    power,
)
from dslc.interpret.reads import read
from dslc.ir.dtype import DType
from dslc.ir.element import element_type
from dslc.ir.graph import Scope
from dslc.ir.scalar import (
    Iter,
    Num,
    Read,
    Reduce,
    Scalar,
    Sym,
    Table,
    apply,
    conjuncts,
    flat,
    iterator,
    num,
    raw_apply,
    rebuild,
    walk,
)
from dslc.records import record

#: elements of intermediates that are computed at once (200 MB of float64); larger ones are computed in pieces
PIECE = 25_000_000
#: changes of a condition on one iterator; one that changes more often is a mask instead of a case for each run
RUNS = 8


class CannotEvaluate(Exception):
    """An expression that has no value here: an unknown size, a position that is no integer."""


@record
class _Frame:
    """The ranges of the iterators; `guarded` where some positions are computed only to be thrown away."""

    ranges: dict[Iter, tuple[int, int]]
    guarded: bool = False

    def key(self, node: Scalar) -> tuple[Any, ...]:
        return (node, self.guarded, *((it, self.ranges[it]) for it in sorted(node.free, key=lambda it: it.name)))


def evaluate(
    scope: Scope, operands: Sequence[ReadOperand], domain: Domain, dtypes: tuple[DType, ...] = ()
) -> ReadOperand:
    """The tensor that the scope defines, of operands of these element types. Raises CannotEvaluate, OutOfBounds and Redraw.

    Integers are those modulo 2^bits of their type: sums and products are reduced where something looks at their value.
    """
    prepared = prepare(scope)
    shape = scope.type.sizes
    kind: Kind = "val" if scope.dtype.is_float else "int" if scope.dtype.is_integer else "bool"
    machine = _Machine(operands, domain, dtypes)
    ranges = {it: (0, size) for it, size in zip(prepared.iters, prepared.sizes, strict=True)}
    if 0 in shape:
        return ReadOperand(
            np.empty(shape, dtype=domain.dtype if kind == "val" else np.int64 if kind == "int" else bool), kind
        )
    iters = prepared.iters

    def computed(part: dict[Iter, tuple[int, int]]) -> Array:
        arr = as_kind(machine.final(prepared.body, _Frame(part), scope.dtype), kind, domain)
        sizes = tuple(stop - start for start, stop in (part[it] for it in iters))
        view = arr.data[(*(slice(None) if it in arr.axes else None for it in iters), ...)]
        return np.ascontiguousarray(np.broadcast_to(view, sizes)) if sizes else np.array(view)

    axis, pieces = _pieces(prepared.body, ranges)
    if not axis:
        return ReadOperand(computed(ranges).reshape(shape), kind)
    parts = []
    size = ranges[axis][1]
    step = -(-size // pieces)
    for start in range(0, size, step):
        parts.append(computed({**ranges, axis: (start, min(size, start + step))}))
        machine.forget(axis)
    return ReadOperand(np.concatenate(parts, axis=iters.index(axis)).reshape(shape), kind)


def _pieces(body: Scalar, ranges: dict[Iter, tuple[int, int]]) -> tuple[Iter | None, int]:
    """The output iterator over which to cut, and into how many pieces, so that no intermediate is too large."""
    sizes = {it: stop - start for it, (start, stop) in ranges.items()}
    worst, free = 0, frozenset[Iter]()
    for its, count in intermediates(body, sizes):
        if count > worst:
            worst, free = count, its
    if worst <= PIECE:
        return None, 1
    candidates = [it for it in ranges if it in free and sizes[it] > 1]
    if not candidates:
        return None, 1
    axis = max(candidates, key=lambda it: sizes[it])
    return axis, min(sizes[axis], -(-worst // PIECE))


def intermediates(root: Scalar, sizes: dict[Iter, int]) -> Iterator[tuple[frozenset[Iter], int]]:
    """The iterators and the number of elements of what is held in memory: factors of a summed product, not the product."""
    known = dict(sizes)
    passed: set[Scalar] = set()
    for node in walk(root):
        if isinstance(node, Reduce):
            for it, extent in node.ranges:
                bound = _bound(extent, known)
                known[it] = max(known.get(it, 0), bound)
            if node.kind == "sum":
                split = any(map(_splits, node.body.args))
                passed.update(_joints(node.body, {"*", "+"} if split else {"*"}))
            if node.where:
                passed.update(_joints(node.where, {"and"}))
    for node in walk(root):
        if node not in passed and node.free:
            yield node.free, prod(known.get(it, 1) for it in node.free)


def _joints(node: Scalar, names: set[str]) -> Iterator[Scalar]:
    """The products, sums or conjunctions at the top of an expression, which are never computed as a whole."""
    if node.op in names:
        yield node
        for arg in node.args:
            yield from _joints(arg, names - {"+"})


def _bound(extent: Scalar, sizes: dict[Iter, int]) -> int:
    if isinstance(extent, Num):
        return int(extent.value)
    return max((sizes.get(it, 1) for it in extent.free), default=1)


@dataclass(slots=True)
class _Machine:
    _operands: Sequence[ReadOperand]
    _domain: Domain
    _dtypes: tuple[DType, ...]
    _memo: dict[tuple[Any, ...], Arr] = field(default_factory=dict)
    _types: dict[Scalar, DType | bool] = field(default_factory=dict)

    def go(self, node: Scalar, frame: _Frame) -> Arr:
        key = frame.key(node)
        found = self._memo.get(key)
        if not found:
            found = self._memo[key] = self._of_type(node, self._compute(node, frame), frame)
        return found

    def final(self, node: Scalar, frame: _Frame, dtype: DType) -> Arr:
        """The value of a scope, which has the scope's type."""
        found = self.go(node, frame)
        if dtype.is_float:
            return found
        return convert(self._domain, dtype.value, self._reduced(node, found), frame.guarded)

    def _element_type(self, node: Scalar) -> DType | None:
        """The element type of an expression of tensors; None for bare numbers."""
        return element_type(node, self._dtypes, self._types) if node.reads and self._dtypes else None

    def _integer(self, node: Scalar) -> DType | None:
        """The element type of an expression of integer tensors; None for everything else."""
        found = self._element_type(node)
        return found if found is not None and found.is_integer else None

    def _of_type(self, node: Scalar, arr: Arr, frame: _Frame) -> Arr:
        """Cut results of computations with integer tensors: these are integers: fractions are cut towards zero."""
        dtype = self._integer(node) if arr.kind in {"rat", "val", "inf"} else None
        return arr if dtype is None else convert(self._domain, dtype.value, arr, frame.guarded)

    def _reduced(self, node: Scalar, arr: Arr) -> Arr:
        """Integers of a type modulo 2^bits."""
        dtype = self._integer(node) if arr.kind == "int" else None
        return arr if dtype is None else replace(arr, data=wrapped(arr.data, dtype))

    def _looked_at(self, node: Scalar, frame: _Frame) -> Arr:
        """The value of an expression that something else than a sum or a product goes on with."""
        return self._reduced(node, self.go(node, frame))

    def _together(self, nodes: Sequence[Scalar], arrs: Sequence[Arr]) -> list[Arr]:
        """Infinities beside integers of a type are the ends of that type."""
        dtypes = [found for node in nodes if (found := self._integer(node)) is not None]
        if not dtypes or not any(arr.kind == "inf" for arr in arrs):
            return list(arrs)
        dtype = max(dtypes, key=lambda one: one.bytes)
        if any(arr.kind == "val" for arr in arrs):
            return list(arrs)
        return [convert(self._domain, dtype.value, arr, True) if arr.kind == "inf" else arr for arr in arrs]

    def forget(self, it: Iter) -> None:
        """Drops what was computed for one range of an iterator."""
        self._memo = {key: arr for key, arr in self._memo.items() if it not in key[0].free}

    def _compute(self, node: Scalar, frame: _Frame) -> Arr:
        if isinstance(node, Num):
            return self._number(node)
        if isinstance(node, Iter):
            start, stop = frame.ranges[node]
            return Arr(np.arange(start, stop, dtype=np.int64), (node,), "int")
        if isinstance(node, Read):
            return self._read(node, frame)
        if isinstance(node, Reduce):
            return self._reduce(node, frame)
        if isinstance(node, Table):
            return self._table(node, frame)
        if isinstance(node, Sym):
            raise CannotEvaluate(f"the size {node.name} is unknown")
        return self._apply(node, frame)

    def _number(self, node: Num) -> Arr:
        value, domain = node.value, self._domain
        if isinstance(value, bool):
            return Arr(np.asarray(value), (), "bool")
        if isinstance(value, int):
            return Arr(integers([value], ()), (), "int")
        if isinstance(value, Fraction):
            return Arr(normal(value, "rat", domain), (), "rat")
        if value in (inf, -inf):
            return Arr(np.asarray(value), (), "inf")
        return Arr(domain.number(value), (), "val")

    # ---- reads ---------------------------------------------------------------------------------------------

    def _positions(self, index: Sequence[Scalar], frame: _Frame) -> list[Arr]:
        out = []
        for part in index:
            arr = self._looked_at(part, frame)
            if arr.kind == "val" and self._domain.name != "float64":
                raise CannotEvaluate(f"the position {part} depends on elements of the {self._domain.name}")
            out.append(as_kind(arr, "int", self._domain))
        return out

    def _read(self, node: Read, frame: _Frame) -> Arr:
        operand = self._operands[node.operand]
        other = None
        if node.other:
            (found,) = self._together((node,), (self.go(node.other, frame),))
            other = as_kind(found, operand.kind, self._domain)
        return read(
            operand, self._positions(node.index, frame), other, frame.guarded, f"operand {node.operand}, {node}"
        )

    def _table(self, node: Table, frame: _Frame) -> Arr:
        shape, items = np.shape(node.values), [*flat(node.values)]
        if all(isinstance(item, int) for item in items):
            operand = ReadOperand(integers(items, shape), "int")
        else:
            exact = np.empty(len(items), dtype=object)
            exact[:] = [Fraction(repr(item)) if isinstance(item, float) else Fraction(item) for item in items]
            operand = ReadOperand(exact.reshape(shape), "rat")
        index = self._positions(node.index, frame)
        return read(operand, index, None, frame.guarded, f"table {node}")

    # ---- reductions ----------------------------------------------------------------------------------------

    def _reduce(self, node: Reduce, frame: _Frame) -> Arr:
        ranges = dict(frame.ranges)
        conditions = list(conjuncts(node.where))
        for it, extent in node.ranges:
            size = as_kind(self.go(extent, _Frame(ranges, frame.guarded)), "int", self._domain)
            largest = max(0, int(size.data.max())) if size.data.size else 0
            ranges[it] = (0, largest)
            if size.axes and int(size.data.min()) < largest:
                conditions.append(raw_apply("<", it, extent))
        sizes = {it: ranges[it][1] for it in node.iters}
        if 0 in sizes.values():
            return self._neutral(node.kind)
        inner = _Frame(ranges, frame.guarded or bool(conditions))
        masks = [as_kind(self._looked_at(condition, inner), "bool", self._domain) for condition in conditions]
        if node.kind == "sum":
            return self._sum(node.body, masks, sizes, inner)
        body = self._looked_at(node.body, inner)
        if node.kind in {"any", "all"}:
            return self._logic(node.kind, body, masks, sizes)
        return self._extreme_or_product(node, body, masks, sizes)

    def _neutral(self, kind: str) -> Arr:
        numbers = {"any": False, "all": True, "sum": 0, "prod": 1, "max": -inf, "min": inf}
        return self._number(num(numbers[kind]))

    def _logic(self, kind: str, body: Arr, masks: list[Arr], sizes: dict[Iter, int]) -> Arr:
        arr = as_kind(body, "bool", self._domain)
        axes, parts = align((arr, *masks))
        data = parts[0]
        for mask in parts[1:]:
            data = data & mask if kind == "any" else data | ~mask
        positions = tuple(axes.index(it) for it in sizes if it in axes)
        reduced = getattr(data, kind)(axis=positions)
        return Arr(np.asarray(reduced), tuple(axis for axis in axes if axis not in sizes), "bool")

    def _extreme_or_product(self, node: Reduce, body: Arr, masks: list[Arr], sizes: dict[Iter, int]) -> Arr:
        domain, kind = self._domain, node.kind
        least: Kind = "int" if kind == "prod" or body.kind == "bool" else "bool"
        body = same_kind((body,), domain, least)[1][0]
        for mask in masks:
            body, neutral = self._together((node.body,), (body, self._neutral(kind)))
            body = self._choose(mask, body, lift(neutral, body.kind, domain))
        missing = [it for it in sizes if it not in body.axes]
        positions = tuple(body.axes.index(it) for it in sizes if it in body.axes)
        kept = tuple(axis for axis in body.axes if axis not in sizes)
        data = body.data
        if kind == "prod":
            if body.kind == "val":
                data = domain.product(data, positions)
            else:
                data = normal(data.prod(axis=positions), body.kind, domain)
            out = Arr(data, kept, body.kind)
            times = prod(sizes[it] for it in missing)
            return out if times == 1 else combined("*", [out] * times, domain)
        if body.kind == "val":
            return Arr(domain.extreme(kind, data, positions), kept, "val")
        return Arr(normal(getattr(data, kind)(axis=positions), body.kind, domain), kept, body.kind)

    def _sum(self, body: Scalar, masks: list[Arr], sizes: dict[Iter, int], frame: _Frame) -> Arr:
        domain = self._domain
        if body.op == "+" and any(map(_splits, body.args)):
            parts = [self._sum(part, masks, sizes, frame) for part in body.args]
            return plus(self._domain, parts)
        # a product of integers of a type is one, also where a factor is a fraction
        scalars = [self.go(part, frame) for part in _factors(body)]
        if self._integer(body) is not None and any(arr.kind not in {"int", "bool"} for arr in scalars):
            scalars = [self.go(body, frame)]
        kind, factors = same_kind(scalars, domain, "int")
        left: list[Arr] = []
        for mask in masks:
            homes = [k for k, factor in enumerate(factors) if set(mask.axes) <= set(factor.axes)]
            if homes:
                home = min(homes, key=lambda k: factors[k].data.size)
                factors[home] = self._choose(mask, factors[home], self._zero(kind))
            else:
                left.append(mask)
        if left and kind == "val" and not all(domain.finite(factor.data) for factor in factors):
            whole = combined("*", factors, domain)
            for mask in left:
                whole = self._choose(mask, whole, self._zero(kind))
            factors, left = [whole], []
        factors.extend(lift(mask, kind, domain) for mask in left)
        return contract(factors, sizes, domain)

    def _zero(self, kind: Kind) -> Arr:
        return lift(Arr(np.asarray(0), (), "int"), kind, self._domain)

    # ---- functions -----------------------------------------------------------------------------------------

    def _choose(self, condition: Arr, a: Arr, b: Arr) -> Arr:
        """`a if condition else b` elementwise; a and b are of one kind."""
        axes, (test, then, otherwise) = align((condition, a, b))
        data = self._domain.select(test, then, otherwise) if a.kind == "val" else np.where(test, then, otherwise)
        return Arr(normal(data, a.kind, self._domain), axes, a.kind)

    def _select(self, node: Scalar, frame: _Frame) -> Arr:
        condition = as_kind(self._looked_at(node.args[0], frame), "bool", self._domain)
        data = condition.data
        if data.dtype == bool and data.size:
            if data.all():
                return self.go(node.args[1], frame)
            if not data.any():
                return self.go(node.args[2], frame)
            if data.ndim == 1:
                changes = np.flatnonzero(data[1:] != data[:-1]) + 1
                if len(changes) < RUNS:
                    return self._runs(node, frame, condition, [0, *changes.tolist(), data.size])
        guarded = replace(frame, guarded=True)
        branches = self._together((node,), (self.go(node.args[1], guarded), self.go(node.args[2], guarded)))
        _, (a, b) = same_kind(branches, self._domain)
        return self._choose(condition, a, b)

    def _runs(self, node: Scalar, frame: _Frame, condition: Arr, bounds: list[int]) -> Arr:
        """The condition holds on intervals of one iterator: each branch is evaluated on its own intervals only."""
        it = condition.axes[0]
        start = frame.ranges[it][0]
        parts = []
        for low, high in pairwise(bounds):
            branch = node.args[1] if condition.data[low] else node.args[2]
            parts.append(self.go(branch, replace(frame, ranges={**frame.ranges, it: (start + low, start + high)})))
        parts = self._together((node,), parts)
        kind, same = same_kind(parts, self._domain)
        axes = order({it, *(axis for part in same for axis in part.axes)})
        at = axes.index(it)
        aligned = [expand(part, axes) for part in same]
        shape = np.broadcast_shapes(*((*data.shape[:at], 1, *data.shape[at + 1 :]) for data in aligned))
        views = [
            np.broadcast_to(data, (*shape[:at], high - low, *shape[at + 1 :]))
            for data, (low, high) in zip(aligned, pairwise(bounds), strict=True)
        ]
        return Arr(np.concatenate(views, axis=at), axes, kind)

    def _apply(self, node: Scalar, frame: _Frame) -> Arr:
        name = node.op
        if name == "select":
            return self._select(node, frame)
        if name in {"trunc", "floor", "ceil"} and node.args[0].op == "/":
            parts = [self._looked_at(arg, frame) for arg in node.args[0].args]
            if all(part.kind in {"int", "bool"} for part in parts):
                # between integer tensors `/` itself is cut towards zero
                name = "trunc" if self._integer(node.args[0]) is not None else name
                return integer_quotient(self._domain, name, parts[0], parts[1], frame.guarded)
        if name in {"+", "*"}:
            args = self._together(node.args, [self.go(arg, frame) for arg in node.args])
            if name == "+":
                return plus(self._domain, args)
            _, same = same_kind(args, self._domain, "int")
            return combined("*", same, self._domain)
        args = self._together(node.args, [self._looked_at(arg, frame) for arg in node.args])
        typed = self._integer(node) is not None
        if name.startswith("convert:"):
            return convert(
                self._domain, name.partition(":")[2], args[0], frame.guarded, self._element_type(node.args[0])
            )
        if name in {"and", "or", "not"}:
            return boolean(self._domain, name, [as_kind(arg, "bool", self._domain) for arg in args])
        if name in COMPARE:
            return compare(self._domain, name, args)
        if name == "/":
            if typed and all(arg.kind in {"int", "bool"} for arg in args):
                return integer_quotient(self._domain, "trunc", args[0], args[1], frame.guarded)
            return divide(self._domain, args, frame.guarded)
        if name == "^":
            return power(self._domain, args, frame.guarded, typed)
        return apply_function(self._domain, name, args, frame.guarded)


def _factors(body: Scalar) -> list[Scalar]:
    """The factors of a product; a division by what is no number becomes a factor too."""
    if body.op == "*":
        return [part for arg in body.args for part in _factors(arg)]
    if body.op == "/" and _splits(body.args[0]):
        return [*_factors(body.args[0]), raw_apply("/", num(1), body.args[1])]
    return [body]


def _splits(part: Scalar) -> bool:
    """Return whether a summand is a product that is better summed as a product of matrices."""
    return part.op == "*" and sum(not isinstance(arg, Num) for arg in part.args) > 1


@record
class Prepared:
    """A scope over split iterators; its result in row-major order is that of the original scope."""

    iters: tuple[Iter, ...]
    sizes: tuple[int, ...]
    body: Scalar


def _number(node: Scalar) -> int | None:
    if isinstance(node, Num) and isinstance(node.value, int) and not isinstance(node.value, bool) and node.value > 0:
        return node.value
    return None


def _parts(node: Scalar) -> tuple[Iter, int, int | None] | None:
    """`i // a % b` as (i, a, a * b); without `%` the last is None."""
    if node.op not in {"//", "%"}:
        return None
    inner, divisor = node.args[0], _number(node.args[1])
    if divisor is None:
        return None
    if isinstance(inner, Iter):
        return (inner, divisor, None) if node.op == "//" else (inner, 1, divisor)
    if node.op == "%" and inner.op == "//" and isinstance(inner.args[0], Iter):
        below = _number(inner.args[1])
        return None if below is None else (inner.args[0], below, below * divisor)
    return None


def _chain(extent: int, divisors: set[int]) -> list[int]:
    """Divisors of the extent, each of which divides the next."""
    chain: list[int] = []
    for divisor in sorted(divisors):
        if 1 < divisor < extent and extent % divisor == 0 and (not chain or divisor % chain[-1] == 0):
            chain.append(divisor)
    return chain


@lru_cache(maxsize=1024)
def prepare(scope: Scope) -> Prepared:
    """Raises ValueError where a size is symbolic."""
    extents = []
    for size in scope.extents:
        value = size if isinstance(size, int) else size.value if isinstance(size, Num) else None
        if not isinstance(value, int):
            raise ValueError(f"the size {size} is symbolic: bind it first")
        extents.append(value)
    divisors: dict[Iter, set[int]] = {it: set() for it in scope.iters}
    for node in walk(scope.body):
        found = _parts(node)
        if found is not None and found[0] in divisors:
            divisors[found[0]].update(d for d in found[1:] if d is not None)
    iters: list[Iter] = []
    sizes: list[int] = []
    weights: dict[Iter, list[tuple[Iter, int]]] = {}
    for it, extent in zip(scope.iters, extents, strict=True):
        chain = _chain(extent, divisors[it])
        steps = [*reversed(chain), 1]
        above = [extent, *reversed(chain)]
        parts = [it] if not chain else [iterator(f"{it.name}.{k}") for k in range(len(steps))]
        weights[it] = list(zip(parts, steps, strict=True))
        iters.extend(parts)
        sizes.extend(high // low for high, low in zip(above, steps, strict=True))
    extent_of = dict(zip(scope.iters, extents, strict=True))

    def leaf(node: Scalar) -> Scalar | None:
        if isinstance(node, Iter) and node in weights and len(weights[node]) > 1:
            return apply("+", *(apply("*", num(step), part) for part, step in weights[node]))
        found = _parts(node)
        if found is None or found[0] not in weights:
            return None
        it, low, high = found
        extent = extent_of[it]
        high = extent if high is None or high >= extent else high
        steps = {1, extent, *(step for _, step in weights[it])}
        if low >= extent:
            return num(0)
        if low not in steps or high not in steps:
            return None
        return apply(
            "+", num(0), *(apply("*", num(step // low), part) for part, step in weights[it] if low <= step < high)
        )

    return Prepared(tuple(iters), tuple(sizes), rebuild(scope.body, leaf))
