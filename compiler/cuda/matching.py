"""Calls of vendors' functions, found in scopes: which iterators stand where decides, and the strides of the views say the arguments.

An iterator of both factors and the result is of the batch, one of the left factor and the result is a row, and so on, as the
lowering's expression has them. Several iterators are one index where they lie in memory as one; those of a batch may be missing in
a tensor, which is then read again at a stride of 0. In windows (`o * u + r * v - w`) dimensions are matched one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import permutations, product
from math import prod
from typing import Any

from dslc.cuda.patterns import Dim, Pattern, Reading
from dslc.cuda.views import View, address, inside, joined, slopes
from dslc.cuda.windows import Summed, Windows, windows_of
from dslc.ir.dtype import DTYPES, DType
from dslc.ir.scalar import Iter, Num, Read, Scalar, as_scalar, walk
from dslc.semantics.env import Asked, Env, Mismatch, Unbound, fail
from dslc.semantics.evaluate import evaluate, truth
from dslc.syntax import tree as t


@dataclass(frozen=True, slots=True)
class _Tuning:
    """Limits of matching calls.

    Attributes:
        calls: calls that are made where the strides of a batch are not those of one, at most.
    """

    calls: int = 64


_TUNING = _Tuning()

#: what an argument of a call may be
Argument = int | float | str | tuple[int, ...] | View


@dataclass(frozen=True, slots=True)
class Found:
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
                (name, replace(value, offset=value.offset + by[name]) if isinstance(value, View) and name in by else value)
                for name, value in self.arguments
            )


@dataclass(frozen=True, slots=True)
class _Axis:
    """Iterators that are one: how many positions, and the stride in each tensor."""

    extent: int
    strides: Mapping[str, int]


def numbers_of(pattern: Pattern, target: Summed) -> Mapping[str, Scalar] | None:
    """What the names of a pattern's numbers stand for, where the same is computed of the sum; None where something else is, wherever
    the operands lie."""
    if len(target.others) != len(pattern.others) or len(pattern.numbers) > 1:
        return None
    constants = dict.fromkeys([as_scalar(1), *(node for node in walk(target.computed) if isinstance(node, Num))])
    for constant in constants if pattern.numbers else (as_scalar(1),):
        numbers = dict.fromkeys(pattern.numbers, constant)
        if pattern.computes(target.computed, numbers):
            return numbers
    return None


def found(pattern: Pattern, target: Summed, numbers: Mapping[str, Scalar] | None = None) -> Iterator[Found]:
    """Every way in which a lowering's call computes a target; `numbers` are those of `numbers_of`, where they are known."""
    numbers = numbers_of(pattern, target) if numbers is None else numbers
    if numbers is None:
        return
    for factors in (target.factors, target.factors[::-1]):
        for others in permutations(target.others):
            reads = {pattern.factors[0].tensor: factors[0], pattern.factors[1].tensor: factors[1]}
            reads |= {one.tensor: node for one, node in zip(pattern.others, others, strict=True)}
            if len(reads) < 2 + len(others):
                continue
            for windows in windows_of(pattern, target, reads):
                one = _Attempt(pattern, target, reads, windows, numbers).result()
                if one is not None:
                    yield one


class _Attempt:
    """One choice of reads for a pattern's tensors: indices, conditions, arguments."""

    def __init__(
        self, pattern: Pattern, target: Summed, reads: Mapping[str, Read], windows: Windows, numbers: Mapping[str, Scalar]
    ) -> None:
        self.pattern, self.target, self.reads, self.windows, self.numbers = pattern, target, reads, windows, numbers
        self.strides: dict[str, Mapping[Iter, int]] = {}
        self.offsets: dict[str, int] = {}
        self.axes: dict[str, tuple[_Axis, ...]] = {}
        #: axes of a batch for each position of which there is a call
        self.outside: tuple[_Axis, ...] = ()

    def result(self) -> Found | None:
        if not self._placed() or not self._assigned():
            return None
        batches = [name for name in self.axes if name in self.pattern.packs and name not in (self.windows.iters or {})]
        pack = batches[0] if len(batches) == 1 and not self.windows.tensor else ""
        whole = self.axes.get(pack, ())
        for count in range(len(whole) + 1):
            self.outside = whole[:count]
            if pack:
                self.axes[pack] = whole[count:]
            if prod(axis.extent for axis in self.outside) > _TUNING.calls:
                return None
            try:
                found = self._call(self._environment(self.numbers))
            except (Mismatch, Unbound, _Unfit):
                found = None
            if found is not None:
                return found
        return None

    def _moves(self) -> tuple[tuple[tuple[str, int], ...], ...]:
        """How far each argument that is a tensor moves on for every call after the first."""
        names = {
            entry.name: entry.value.id for entry in self.pattern.call.attrs
            if isinstance(entry.value, t.Name) and entry.value.id in self.strides
        }  # fmt: skip
        every = list(product(*(range(axis.extent) for axis in self.outside)))
        return tuple(
            tuple(
                (name, sum(at * axis.strides[tensor] for at, axis in zip(position, self.outside, strict=True)))
                for name, tensor in names.items()
            )
            for position in every[1:]
        )

    # ---- where everything lies -----------------------------------------------------------------------------------

    def _placed(self) -> bool:
        """The strides of every iterator in every tensor."""
        every = tuple(self.target.extents)
        within: dict[Scalar, tuple[int, int]] = {it: (0, extent - 1) for it, extent in self.target.extents.items()}
        for reading in (*self.pattern.factors, *self.pattern.others):
            node = self.reads[reading.tensor]
            view = self.target.views[node.operand]
            if reading.tensor != self.windows.tensor and not (node.other is None or inside(node.index, view.shape, within)):
                return False
            found = slopes(address(node.index, view), every)
            if found is None:
                return False
            *steps, start = found
            self.strides[reading.tensor] = dict(zip(every, steps, strict=True))
            self.offsets[reading.tensor] = view.offset + (0 if reading.tensor == self.windows.tensor else start)
        output = self.pattern.output.tensor
        self.strides[output] = {it: self.target.written.get(it, 0) for it in every}
        self.offsets[output] = self.target.result.offset
        return True

    def _assigned(self) -> bool:
        """The axes of every index."""
        pattern, target = self.pattern, self.target
        own: dict[str, list[tuple[Iter, ...]]] = {name: [] for name in pattern.indices}
        taken: set[Iter] = set()
        for name, found in (self.windows.iters or {}).items():
            own[name] = [tuple(iters) for iters in found]
            taken.update(it for iters in found for it in iters)
        factors = {one.tensor for one in pattern.factors}
        singles: dict[str, list[Iter]] = {}
        packed: dict[str, list[Iter]] = {}
        fixed = set(self.windows.iters or {})
        for it, extent in target.extents.items():
            if extent == 1 or it in taken:
                continue
            role = {name for name in factors if self.strides[name][it]}
            role |= set() if it in target.summed else {pattern.output.tensor}
            single = [n for n in pattern.indices if n not in fixed and n not in pattern.packs and self._role(n) == role]
            wide = [n for n in pattern.indices if n not in fixed and n in pattern.packs and self._wide(n, role)]
            if single:
                singles.setdefault(single[0], []).append(it)
            elif wide:
                packed.setdefault(wide[0], []).append(it)
            else:
                return False
        for name, iters in singles.items():
            for left in self._kept(name, iters, own):
                wide = [n for n in pattern.indices if n in pattern.packs and n not in fixed and self._wide(n, self._role(name))]
                if not wide:
                    return False
                packed.setdefault(wide[0], []).append(left)
        for name, iters in packed.items():
            own[name] = [(it,) for it in self._ordered(iters)]
        for name, groups in own.items():
            if not groups and name not in pattern.packs:
                groups = [()]
            axes = [self._axis(group) for group in groups]
            if any(axis is None for axis in axes):
                return False
            self.axes[name] = tuple(axis for axis in axes if axis is not None)
        return all(self._reads_only(one) for one in pattern.others)

    def _role(self, index: str) -> set[str]:
        """The factors, and the result, in which an index stands."""
        names = {one.tensor for one in self.pattern.factors} | {self.pattern.output.tensor}
        return set(self.pattern.role(index)) & names

    def _wide(self, pack: str, role: set[str]) -> bool:
        """Whether iterators of a role may be of a batch: it repeats the tensors in which they are missing."""
        return role <= self._role(pack) and self.pattern.output.tensor in role

    def _ordered(self, iters: Sequence[Iter]) -> list[Iter]:
        """The slowest one of the result, or else of what has them, first."""
        names = (self.pattern.output.tensor, *(one.tensor for one in self.pattern.factors))
        return sorted(iters, key=lambda it: tuple(-self.strides[name][it] for name in names))

    def _kept(self, name: str, iters: Sequence[Iter], own: dict[str, list[tuple[Iter, ...]]]) -> list[Iter]:
        """Gives an index as many of its iterators as lie like one, the fastest ones; returns the others."""
        ordered = self._ordered(iters)
        for first in range(len(ordered)):
            if self._axis(tuple(ordered[first:])) is not None:
                own[name] = [tuple(ordered[first:])]
                return ordered[:first]
        return ordered

    def _axis(self, iters: tuple[Iter, ...]) -> _Axis | None:
        extent = prod(self.target.extents[it] for it in iters)
        strides: dict[str, int] = {}
        for name, steps in self.strides.items():
            found = joined([(self.target.extents[it], steps[it]) for it in iters])
            if found is None:
                return None
            strides[name] = found[1]
        return _Axis(extent, strides)

    def _reads_only(self, reading: Reading) -> bool:
        """Whether what else is read depends on the indices only that its pattern has."""
        return all(
            axis.strides[reading.tensor] == 0
            for name, axes in self.axes.items() if name not in reading.indices
            for axis in axes
        )  # fmt: skip

    # ---- conditions and arguments --------------------------------------------------------------------------------

    def _environment(self, numbers: Mapping[str, Scalar]) -> Env:
        pattern = self.pattern
        env = Env(pattern.lowering.module, pattern.rules)
        for name, value in numbers.items():
            assert isinstance(value, Num)
            env.bind(name, value.value)
        for name, found in (self.windows.coefficients or {}).items():
            env.bind(name, found)
        types: dict[str, Any] = {}
        for param in pattern.lowering.syntax.params:
            reading = next((one for one in pattern.readings() if one.tensor == param.name), None)
            if reading is None or param.type is None:
                continue
            dtype = self._view(reading).dtype
            if param.type.name in DTYPES:
                if DTYPES[param.type.name] is not dtype:
                    raise _Unfit
            elif types.setdefault(param.type.name, dtype) is not dtype:
                raise _Unfit
            for dim, declared in zip(reading.dims, param.type.dims or (), strict=True):
                for name, size in self._sizes(reading, dim, declared):
                    if types.setdefault(name, size) != size:
                        raise _Unfit
        for name, value in types.items():
            env.bind(name, value)
        if self.target.result.dtype is not self._view(pattern.factors[0]).dtype:
            raise _Unfit
        for name, answer in {
            "stride": self._stride, "regular": self._regular, "size": self._size, "dense": self._dense, "bytes": self._bytes,
            "elements": self._elements, "aligned": self._aligned,
        }.items():  # fmt: skip
            env.bind(name, Asked(answer))
        return env

    def _sizes(self, reading: Reading, dim: Dim, declared: t.Expr) -> Iterator[tuple[str, int | tuple[int, ...]]]:
        """Declared names of sizes with what they are."""
        if isinstance(declared, t.TupleExpr):
            for slot, term in zip(declared.slots, dim.terms, strict=True):
                if isinstance(slot, t.Name):
                    yield slot.id, self.axes[term.index][0].extent
            return
        name = declared.value if isinstance(declared, t.Pack) else declared
        if not isinstance(name, t.Name):
            return
        shape, _ = self._dims(reading, dim)
        yield name.id, shape if dim.star else shape[0]

    def _dims(self, reading: Reading, dim: Dim) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sizes and strides of the dimensions that a place of a pattern stands for."""
        if reading.tensor == self.windows.tensor:
            at = 0
            for one in reading.dims:
                count = len(self.windows.order) - len(reading.dims) + 1 if one.star else 1
                if one is dim:
                    view = self.target.views[self.reads[reading.tensor].operand]
                    own = self.windows.order[at : at + count]
                    return tuple(view.shape[k] for k in own), tuple(view.strides[k] for k in own)
                at += count
        if dim.star:
            axes = self.axes[dim.terms[0].index]
            return tuple(axis.extent for axis in axes), tuple(axis.strides[reading.tensor] for axis in axes)
        whole = joined([(axis.extent, axis.strides[reading.tensor]) for term in dim.terms for axis in self.axes[term.index]])
        if whole is None:
            raise _Unfit
        size, stride = whole
        return (size,), (self._natural(reading, dim.terms[0].index) if size == 1 else stride,)

    def _view(self, reading: Reading) -> View:
        """A tensor with the dimensions of the pattern."""
        if reading.tensor == self.pattern.output.tensor:
            below = self.target.result
        else:
            below = self.target.views[self.reads[reading.tensor].operand]
        dims = [self._dims(reading, dim) for dim in reading.dims]
        shape = tuple(size for sizes, _ in dims for size in sizes)
        strides = [stride for _, steps in dims for stride in steps]
        for k in reversed(range(len(shape))):
            # where there is one position only, any stride is right: the one behind what follows
            if shape[k] == 1:
                strides[k] = strides[k + 1] * shape[k + 1] if k + 1 < len(shape) else 1
        return View(below.buffer, below.dtype, shape, tuple(strides), self.offsets[reading.tensor])

    def _reading(self, expr: t.Expr) -> Reading:
        if isinstance(expr, t.Name):
            for one in self.pattern.readings():
                if one.tensor == expr.id:
                    return one
        raise fail("E0703", "this is no tensor of the lowering", expr.span)

    def _natural(self, reading: Reading, index: str) -> int:
        """The stride of an index of one position: behind all that the others reach."""
        reach = 1
        for name in reading.indices - {index} - self.pattern.packs:
            axis = self.axes[name][0]
            if axis.extent > 1:
                reach = max(reach, axis.extent * axis.strides[reading.tensor])
        return reach

    def _index(self, expr: t.Expr) -> str:
        if isinstance(expr, t.Name) and expr.id in self.axes:
            return expr.id
        raise fail("E0703", "this is no index of the lowering", expr.span)

    def _stride(self, call: t.Call, env: Env) -> int:
        reading = self._reading(call.args[0])
        name = call.args[1].id if isinstance(call.args[1], t.Name) else ""
        for param in self.pattern.lowering.syntax.params:
            if param.name == reading.tensor and param.type is not None:
                for dim, declared in zip(reading.dims, param.type.dims or (), strict=True):
                    inner = declared.value if isinstance(declared, t.Pack) else declared
                    if isinstance(inner, t.Name) and inner.id == name and name not in self.axes:
                        sizes, steps = self._dims(reading, dim)
                        # where there is one position only, neighbours are as near as one likes
                        return next((step for size, step in zip(sizes[::-1], steps[::-1], strict=True) if size > 1), 1)
        index = self._index(call.args[1])
        axes = [axis for axis in self.axes[index] if axis.extent > 1]
        if not axes:
            if index not in self.pattern.packs:
                return self._natural(reading, index)
            return 1 if self.windows.tensor else 0
        return axes[-1].strides[reading.tensor]

    def _regular(self, call: t.Call, env: Env) -> bool:
        reading, axes = self._reading(call.args[0]), self.axes[self._index(call.args[1])]
        return joined([(axis.extent, axis.strides[reading.tensor]) for axis in axes]) is not None

    def _size(self, call: t.Call, env: Env) -> int | tuple[int, ...]:
        index = self._index(call.args[0])
        sizes = tuple(axis.extent for axis in self.axes[index])
        return sizes if index in self.pattern.packs else sizes[0]

    def _dense(self, call: t.Call, env: Env) -> bool:
        view = self._view(self._reading(call.args[0]))
        axes = sorted((step, size) for size, step in zip(view.shape, view.strides, strict=True) if size > 1)
        wanted = 1
        for step, size in axes:
            if step != wanted:
                return False
            wanted *= size
        return True

    def _bytes(self, call: t.Call, env: Env) -> int:
        return self._view(self._reading(call.args[0])).bytes

    def _elements(self, call: t.Call, env: Env) -> int:
        return self._view(self._reading(call.args[0])).elements

    def _aligned(self, call: t.Call, env: Env) -> bool:
        view = self._view(self._reading(call.args[0]))
        return view.offset * view.dtype.bytes % int(evaluate(call.args[1], env)) == 0

    def _call(self, env: Env) -> Found | None:
        flops = 2.0 * prod(self.target.extents.values())
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
        left, right = (one.tensor for one in self.pattern.factors)
        output = self.pattern.output.tensor
        roles = ({left, output}, {right, output}, {left, right}, {left, right, output})
        rows, columns, inner, batch = (
            prod(axis.extent for name, axes in self.axes.items() if self._role(name) == role for axis in axes) for role in roles
        )
        sizes = (rows, columns, inner, batch)
        window: tuple[int, ...] = ()
        if self.windows.tensor:
            stars = [name for name in self.pattern.summed if name in self.pattern.packs]
            strided = any(one != 1 for own in (self.windows.coefficients or {}).values() for one in own if one > 1)
            window = tuple(axis.extent for name in stars for axis in self.axes[name]) if not strided else ()
        flops *= prod(axis.extent for axis in self.outside)
        return Found(self.pattern.name, call.function, arguments, flops, sizes, window, self._moves())

    def _argument(self, expr: t.Expr, env: Env) -> Argument:
        if isinstance(expr, t.Name) and any(one.tensor == expr.id for one in self.pattern.readings()):
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


class _Unfit(Exception):
    """Types or sizes that are not those of the lowering's parameters."""


__all__ = ["Argument", "Found", "found", "numbers_of"]
