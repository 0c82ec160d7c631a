"""A vendor's call where its indices have their places in memory: whether its conditions hold, and what its arguments are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

from dslc.cuda.views import StridedView, joined
from dslc.derivation.lowerings import operator_of
from dslc.derivation.tables import OperatorPattern as Table
from dslc.derivation.tables import Window, tables_of, unknowns_in
from dslc.ir.dtype import DTYPES, DType
from dslc.ir.scalar import Iter, Num, Scalar, Sym
from dslc.records import record
from dslc.semantics.definitions import LoweringDef
from dslc.semantics.env import AskedFunction, Env, Mismatch, Unbound, fail
from dslc.semantics.evaluate import evaluate, truth
from dslc.semantics.library import Rules
from dslc.semantics.walk import nodes
from dslc.syntax import tree as t


@record
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


@record
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
        beside = unknowns_in(self.table.outer) if self.table.outer else ()
        return {name: value for name, value in self.table.attrs.items() if value in beside}

    @cached_property
    def windows(self) -> frozenset[str]:
        """The indices that move along dimensions together with others."""
        return frozenset(name for name, iters in self.iters.items() if not set(iters).isdisjoint(self.table.moving))


def patterns_of(rules: Rules, lowering: LoweringDef) -> tuple[CallPattern, ...]:
    """Patterns of a lowering's expression, one for each number of dimensions of its windows.

    None where it is no sum of products of two tensors, whose indices are sums of indices with coefficients, with one pack for each.
    """
    equation, op = lowering.syntax.expr, operator_of(lowering, bare=True)
    assert equation
    if not op:
        return ()
    tables = [table for table in tables_of(rules, op) if _is_product(table)]
    # a batch of several axes is one of none, too
    chosen = [table for table in tables if table.windows] or tables[-1:]
    return tuple(found for table in chosen if (found := _pattern(rules, lowering, equation, table)))


def _is_product(table: Table) -> bool:
    factors, moving = {each.operand for each in table.factors}, {operand for operand, _, _ in table.windows}
    zeros = all(
        each.other is None or (isinstance(each.other, Num) and each.other.value == 0) for each in table.leaves.values()
    )
    return table.kind == "sum" and bool(factors) and len(moving) < 2 and moving <= factors and zeros


def _pattern(rules: Rules, lowering: LoweringDef, equation: t.Equation, table: Table) -> CallPattern | None:
    """The names of a table's iterators and sizes; None where more than one star stands in a tensor, or for what is summed."""
    places = equation.target.places or ()
    sums = next(node.binders for node in nodes(t.Reduction, equation.value))
    bound = [binder for place in places for binder in (place.places if isinstance(place, t.TuplePlace) else (place,))]
    lists = ((bound, table.scope.iters), (sums, table.sums))
    iters = {name: own for binders, every in lists for name, own in _named(binders, every)}
    subscripts = (node for node in nodes(t.Subscript, equation.value))
    reads = {node.base.id: node for node in subscripts if isinstance(node.base, t.Name)}
    readings = [
        PatternReading(param.name, tuple(_dims(reads[param.name].subs, param.type.dims or (), table.dims[k], iters)))
        for k, param in enumerate(lowering.syntax.params) if param.type
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
    """Terms in each dimension of a tensor, and the names of its sizes."""
    at = 0
    for sub, size in zip(subs, declared, strict=True):
        star = isinstance(sub, t.Pack)
        count = len(own) - len(subs) + 1 if star else 1
        windows = sum(isinstance(dim, Window) for dim in own[at : at + count])
        indices = tuple(node.id for node in nodes(t.Name, sub) if node.id in iters)
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


#: what an argument of a call may be
Argument = int | float | str | tuple[int, ...] | StridedView


@record
class FoundCall:
    """A call that computes a scope: the lowering, the function, its arguments by name, and operations and tensors."""

    rule: str
    function: str
    arguments: tuple[tuple[str, Argument], ...]
    flops: float
    #: rows, columns, length of the sum and batch, of one call
    sizes: tuple[int, int, int, int] = (1, 1, 1, 1)
    #: sizes of the window where it moves by one position, for what a vendor's algorithms save
    window: tuple[int, ...] = ()
    #: for each call, how far each tensor has moved on, in elements: several where one does not reach
    moves: tuple[Mapping[str, int], ...] = ()

    def calls(self) -> Iterator[tuple[tuple[str, Argument], ...]]:
        """The arguments of each call."""
        for by in self.moves:
            yield tuple(
                (name, replace(value, offset=value.offset + by[name]) if isinstance(value, StridedView) else value)
                for name, value in self.arguments
            )


@record
class Axis:
    """Iterators that are one: how many positions, and the stride in each tensor."""

    extent: int
    strides: Mapping[str, int]


@record
class PlacedPattern:
    """A pattern of which everything has its place.

    Attributes:
        axes: of each index, by name; one where it is no pack.
        below: what stands for each tensor, beginning at the first position of all indices.
        moved: the dimensions of each of these along which windows move.
        coefficients, numbers: what names in indices, and beside the sum, stand for.
        operations: how many there are, where the lowering does not say it.
        outside: axes of a batch for each position of which there is a call.
    """

    pattern: CallPattern
    axes: Mapping[str, tuple[Axis, ...]]
    below: Mapping[str, StridedView]
    moved: Mapping[str, Sequence[int]]
    coefficients: Mapping[str, int | tuple[int, ...]]
    numbers: Mapping[str, Scalar]
    operations: float
    outside: tuple[Axis, ...] = ()


def called(placed: PlacedPattern) -> FoundCall | None:
    """The call, or the calls; None where types, sizes, or strides are not those that the lowering asks for."""
    try:
        return _Call(placed).found()
    except (Mismatch, Unbound, _Unfit):
        return None


class _Unfit(Exception):
    """Types or sizes that are not those of the lowering's parameters."""


class _Call:
    """One call: what its text asks of memory, and answers."""

    def __init__(self, placed: PlacedPattern) -> None:
        self.placed, self.pattern, self.axes = placed, placed.pattern, placed.axes

    def found(self) -> FoundCall | None:
        env, flops = self._environment(), self.placed.operations
        for statement in self.pattern.lowering.syntax.statements:
            if isinstance(statement, t.Let):
                env.bind(statement.target.name, evaluate(statement.value, env))
            elif isinstance(statement, t.Where):
                if not all(truth(evaluate(condition, env)) is True for condition in statement.conditions):
                    return None
            elif isinstance(statement, t.Cost):
                flops = float(next((evaluate(e.value, env) for e in statement.entries if e.name == "flops"), flops))
        call = self.pattern.call
        arguments = tuple((entry.name, self._argument(entry.value, env)) for entry in call.attrs)
        left, right = (self.pattern.readings[k].tensor for k in self.pattern.factors)
        output = self.pattern.output.tensor
        roles = ({left, output}, {right, output}, {left, right}, {left, right, output})
        rows, columns, inner, batch = (
            prod(axis.extent for name, axes in self.axes.items() if self.pattern.roles[name] == role for axis in axes)
            for role in roles
        )
        flops *= prod(axis.extent for axis in self.placed.outside)
        sizes = rows, columns, inner, batch
        return FoundCall(self.pattern.name, call.function, arguments, flops, sizes, self._window(), self._moves())

    def _window(self) -> tuple[int, ...]:
        """The sizes of a window that moves by one position; none where there is no such one."""
        summed = [name for name in self.axes if name in self.pattern.packs and name not in self.pattern.output.indices]
        steps = [
            one for own in self.placed.coefficients.values() for one in (own if isinstance(own, tuple) else (own,))
        ]
        if not self.pattern.windows or any(one > 1 for one in steps):
            return ()
        return tuple(axis.extent for name in summed for axis in self.axes[name])

    def _moves(self) -> tuple[dict[str, int], ...]:
        """The offset of each tensor argument in each call of a batch."""
        attrs, outside = self.pattern.call.attrs, self.placed.outside
        tensors = {e.name: name for e in attrs if (name := e.value.bare) and name in self.placed.below}
        return tuple(
            {
                name: sum(at * axis.strides[tensor] for at, axis in zip(position, outside, strict=True))
                for name, tensor in tensors.items()
            }
            for position in product(*(range(axis.extent) for axis in outside))
        )

    def _environment(self) -> Env:
        pattern, below = self.pattern, self.placed.below
        if below[pattern.output.tensor].dtype is not below[pattern.readings[pattern.factors[0]].tensor].dtype:
            raise _Unfit
        names: dict[str, Any] = {
            name: value.value for name, value in self.placed.numbers.items() if isinstance(value, Num)
        }
        names |= self.placed.coefficients
        types: dict[str, Any] = dict(DTYPES)
        for param, reading in zip(pattern.lowering.syntax.params, pattern.readings, strict=False):
            assert param.type
            for name, own in ((param.type.name, below[param.name].dtype), *self._sizes(reading)):
                if types.setdefault(name, own) != own:
                    raise _Unfit
        names |= {name: own for name, own in types.items() if name not in DTYPES}
        asked: dict[str, Callable[[t.Call, Env], Any]] = {
            "stride": self._stride, "regular": self._regular, "size": self._size, "dense": self._dense, "aligned": self._aligned,
            "bytes": lambda call, env: self._asked(call).bytes, "elements": lambda call, env: self._asked(call).elements,
        }  # fmt: skip
        names |= {name: AskedFunction(answer) for name, answer in asked.items()}
        env = Env(pattern.lowering.module, pattern.rules)
        for name, value in names.items():
            env.bind(name, value)
        return env

    def _sizes(self, reading: PatternReading) -> Iterator[tuple[str, int | tuple[int, ...]]]:
        """Declared names of sizes with what they are."""
        for dim in reading.dims:
            if dim.merged:
                yield from (
                    (name, self.axes[index][0].extent)
                    for name, index in zip(dim.sizes, dim.indices, strict=True)
                    if name
                )
            elif dim.sizes[0]:
                shape, _ = self._dims(reading, dim)
                yield dim.sizes[0], shape if dim.star else shape[0]

    def _dims(self, reading: PatternReading, dim: Dim) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sizes and strides of the dimensions that one of a pattern stands for."""
        name = reading.tensor
        if dim.windows:
            view, first = self.placed.below[name], sum(one.windows for one in reading.dims[: reading.dims.index(dim)])
            at = self.placed.moved[name][first : first + dim.windows]
            return tuple(view.shape[k] for k in at), tuple(view.strides[k] for k in at)
        if dim.star:
            axes = self.axes[dim.indices[0]]
            return tuple(axis.extent for axis in axes), tuple(axis.strides[name] for axis in axes)
        whole = joined([(axis.extent, axis.strides[name]) for index in dim.indices for axis in self.axes[index]])
        if whole is None:
            raise _Unfit
        size, stride = whole
        return (size,), (self._natural(reading, dim.indices[0]) if size == 1 else stride,)

    def _view(self, reading: PatternReading) -> StridedView:
        """A tensor with the dimensions of the pattern."""
        dims = [self._dims(reading, dim) for dim in reading.dims]
        shape = tuple(size for sizes, _ in dims for size in sizes)
        strides = [stride for _, steps in dims for stride in steps]
        for k in reversed(range(len(shape))):
            # where there is one position only, any stride is right: the one behind what follows
            if shape[k] == 1:
                strides[k] = strides[k + 1] * shape[k + 1] if k + 1 < len(shape) else 1
        return replace(self.placed.below[reading.tensor], shape=shape, strides=tuple(strides))

    def _natural(self, reading: PatternReading, index: str) -> int:
        """The stride of an index of one position: behind all that the others reach."""
        others = [self.axes[name][0] for name in reading.indices - {index} - self.pattern.packs]
        return max((axis.extent * axis.strides[reading.tensor] for axis in others if axis.extent > 1), default=1)

    # ---- what a lowering asks --------------------------------------------------------------------------------------

    def _reading(self, expr: t.Expr) -> PatternReading:
        for one in self.pattern.readings:
            if expr.bare == one.tensor:
                return one
        raise fail("E0703", "this is no tensor of the lowering", expr.span)

    def _asked(self, call: t.Call) -> StridedView:
        return self._view(self._reading(call.args[0]))

    def _index(self, expr: t.Expr) -> str:
        if isinstance(expr, t.Name) and expr.id in self.axes:
            return expr.id
        raise fail("E0703", "this is no index of the lowering", expr.span)

    def _stride(self, call: t.Call, env: Env) -> int:
        reading, asked = self._reading(call.args[0]), call.args[1]
        for dim in reading.dims:
            if isinstance(asked, t.Name) and dim.sizes == (asked.id,) and asked.id not in self.axes:
                sizes, steps = self._dims(reading, dim)
                # where there is one position only, neighbours are as near as one likes
                return next((step for size, step in zip(sizes[::-1], steps[::-1], strict=True) if size > 1), 1)
        index = self._index(asked)
        axes = [axis for axis in self.axes[index] if axis.extent > 1]
        if axes:
            return axes[-1].strides[reading.tensor]
        if index not in self.pattern.packs:
            return self._natural(reading, index)
        return 1 if self.pattern.windows else 0

    def _regular(self, call: t.Call, env: Env) -> bool:
        reading, axes = self._reading(call.args[0]), self.axes[self._index(call.args[1])]
        return joined([(axis.extent, axis.strides[reading.tensor]) for axis in axes]) is not None

    def _size(self, call: t.Call, env: Env) -> int | tuple[int, ...]:
        index = self._index(call.args[0])
        sizes = tuple(axis.extent for axis in self.axes[index])
        return sizes if index in self.pattern.packs else sizes[0]

    def _dense(self, call: t.Call, env: Env) -> bool:
        view, wanted = self._asked(call), 1
        for step, size in sorted((step, size) for size, step in zip(view.shape, view.strides, strict=True) if size > 1):
            if step != wanted:
                return False
            wanted *= size
        return True

    def _aligned(self, call: t.Call, env: Env) -> bool:
        view = self._asked(call)
        return view.offset * view.dtype.bytes % int(evaluate(call.args[1], env)) == 0

    def _argument(self, expr: t.Expr, env: Env) -> Argument:
        if expr.bare in self.placed.below:
            return self._view(self._reading(expr))
        value = evaluate(expr, env)
        if isinstance(value, bool | DType):
            return str(value).lower()
        if isinstance(value, int | str):
            return value
        if isinstance(value, float | Fraction):
            return float(value)
        if isinstance(value, tuple) and all(isinstance(one, int) for one in value):
            return value
        raise fail("E0706", f"`{expr.span.text}` is no argument of a call", expr.span)
