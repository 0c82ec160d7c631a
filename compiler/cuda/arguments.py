"""A vendor's call where its indices have their places in memory: whether its conditions hold, and what its arguments are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

from dslc.cuda.patterns import CallPattern, Dim, PatternReading
from dslc.cuda.views import StridedView, joined
from dslc.ir.dtype import DTYPES, DType
from dslc.ir.scalar import Num, Scalar
from dslc.semantics.env import AskedFunction, Env, Mismatch, Unbound, fail
from dslc.semantics.evaluate import evaluate, truth
from dslc.syntax import tree as t

#: what an argument of a call may be
Argument = int | float | str | tuple[int, ...] | StridedView


@dataclass(frozen=True, slots=True)
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
    #: where one call does not reach: how far each tensor moves on for every further one, in elements
    moves: tuple[tuple[tuple[str, int], ...], ...] = ()

    def calls(self) -> Iterator[tuple[tuple[str, Argument], ...]]:
        """The arguments of each call."""
        yield self.arguments
        for moved in self.moves:
            by = dict(moved)
            yield tuple(
                (
                    name,
                    replace(value, offset=value.offset + by[name])
                    if isinstance(value, StridedView) and name in by
                    else value,
                )
                for name, value in self.arguments
            )


@dataclass(frozen=True, slots=True)
class Axis:
    """Iterators that are one: how many positions, and the stride in each tensor."""

    extent: int
    strides: Mapping[str, int]


@dataclass(frozen=True, slots=True)
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

    def _moves(self) -> tuple[tuple[tuple[str, int], ...], ...]:
        """Byte offsets by which each tensor argument moves between calls of a batch."""
        tensors = {
            entry.name: entry.value.id for entry in self.pattern.call.attrs
            if isinstance(entry.value, t.Name) and entry.value.id in self.placed.below
        }  # fmt: skip
        every = list(product(*(range(axis.extent) for axis in self.placed.outside)))
        return tuple(
            tuple(
                (name, sum(at * axis.strides[tensor] for at, axis in zip(position, self.placed.outside, strict=True)))
                for name, tensor in tensors.items()
            )
            for position in every[1:]
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
            assert param.type is not None
            for name, own in ((param.type.name, below[param.name].dtype), *self._sizes(reading)):
                if types.setdefault(name, own) != own:
                    raise _Unfit
        names |= {name: own for name, own in types.items() if name not in DTYPES}
        names |= {
            "stride": AskedFunction(self._stride), "regular": AskedFunction(self._regular), "size": AskedFunction(self._size),
            "dense": AskedFunction(self._dense),
            "bytes": AskedFunction(lambda call, env: self._asked(call).bytes), "aligned": AskedFunction(self._aligned),
            "elements": AskedFunction(lambda call, env: self._asked(call).elements),
        }  # fmt: skip
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
            if isinstance(expr, t.Name) and one.tensor == expr.id:
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
        if isinstance(expr, t.Name) and expr.id in self.placed.below:
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
