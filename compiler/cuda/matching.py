"""Calls of vendors' functions, found in scopes: which iterators stand where decides, and the strides of the views say the arguments.

An iterator of both factors and the result is of the batch, one of the left factor and the result is a row, and so on, as the
lowering's expression has them. Several iterators are one index where they lie in memory as one; those of a batch may be missing in
a tensor, which is then read again at a stride of 0. What moves along dimensions (`o * u + r * v - w`) is found as for operators.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

from dslc.analysis.poly import scalar_of
from dslc.cuda.patterns import Dim, Pattern, Reading
from dslc.cuda.views import View, address, inside, joined, slopes
from dslc.derivation.equations import put, solved_linear, unknowns
from dslc.derivation.finding import Along, Sought, Way
from dslc.derivation.tables import TOTAL, Group, Window, around, leaves_in
from dslc.ir.dtype import DTYPES, DType
from dslc.ir.graph import Scope
from dslc.ir.normal import form_of
from dslc.ir.scalar import Iter, Num, Read, Scalar, num, walk
from dslc.ir.scopes import substitute
from dslc.ir.sizes import sized
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


@dataclass(frozen=True, slots=True, eq=False)
class Summed:
    """A scope with one sum, taken apart, and where everything lies. Iterators of one position are no part of it.

    `body`: what is summed. `outer`: what is computed of the sum, which is `TOTAL` in it. `written`: strides of the result by iterator.
    """

    views: tuple[View, ...]
    result: View
    body: Scalar
    outer: Scalar
    extents: Mapping[Iter, int]
    written: Mapping[Iter, int]


def summed_of(scope: Scope, views: Sequence[View], result: View) -> Summed | None:
    """A scope with one sum; None for any other. `result` is where its elements are to be."""
    total, outer = around(scope.body)
    if total is None or total.kind != "sum" or total.where is not None or not all(isinstance(e, Num) for e in total.extents):
        return None
    every = (*zip(scope.iters, scope.extents, strict=True), *zip(total.iters, total.extents, strict=True))
    extents = {it: int(str(extent)) for it, extent in every}
    if min(extents.values(), default=1) < 1:
        return None
    written: dict[Iter, int] = {}
    at = 0
    for axis, count in enumerate(scope.groups or (1,) * len(scope.extents)):
        step = result.strides[axis]
        for it in reversed(scope.iters[at : at + count]):
            written[it] = step
            step *= extents[it]
        at += count
    single: dict[Iter, Scalar] = {it: num(0) for it, extent in extents.items() if extent == 1}
    outer = TOTAL if outer is None else form_of(substitute(outer, single))
    several = {it: extent for it, extent in extents.items() if extent > 1}
    return Summed(tuple(views), result, substitute(total.body, single), outer, several, written)


#: what a pattern's numbers are, by name, and what stands for each of its reads
Leaves = tuple[Mapping[str, Scalar], Mapping[int, Read]]


def leaves_of(pattern: Pattern, target: Summed) -> list[Leaves]:
    """Every way in which the same is computed as by a pattern, wherever the operands lie and whatever their indices are."""
    table, found = pattern.table, list[Leaves]()
    if len(pattern.numbers) > 1:
        return found
    constants = [num(1), *(node for node in walk(target.outer) if isinstance(node, Num))] if pattern.numbers else [num(1)]
    for constant in dict.fromkeys(constants):
        outer = form_of(put(TOTAL if table.outer is None else table.outer, dict.fromkeys(pattern.numbers.values(), constant)))
        numbers = dict.fromkeys(pattern.numbers, constant)
        for others in leaves_in(outer, target.outer):
            for factors in leaves_in(table.body, target.body):
                reads = {operand: node for operand, node in (*others.items(), *factors.items()) if isinstance(node, Read)}
                if len(reads) == len(pattern.readings) - 1:
                    found.append((numbers, reads))
        if found:
            break
    return found


def found(pattern: Pattern, target: Summed, ways: Sequence[Leaves] | None = None) -> Iterator[Found]:
    """Every way in which a lowering's call computes a target; `ways` are those of `leaves_of`, where they are known."""
    for numbers, reads in leaves_of(pattern, target) if ways is None else ways:
        factors, dims = frozenset(pattern.factors), pattern.table.dims
        if any(len(reads[operand].index) != len(dims[operand]) for operand, _, _ in pattern.table.windows):
            # a product without windows is no convolution
            continue
        groups: dict[Iter, Group] = {
            it: (frozenset(k for k in factors if it in reads[k].free), it in target.written) for it in target.extents
        }
        for way in Sought(pattern.table, reads, groups, Along.EXACT, factors).ways():
            one = _Attempt(pattern, target, reads, way, numbers).result()
            if one is not None:
                yield one


class _Attempt:
    """One choice of reads for a pattern's tensors: indices, conditions, arguments."""

    def __init__(
        self, pattern: Pattern, target: Summed, reads: Mapping[int, Read], way: Way, numbers: Mapping[str, Scalar]
    ) -> None:
        self.pattern, self.target, self.way, self.numbers = pattern, target, way, numbers
        self.reads = {pattern.readings[operand].tensor: node for operand, node in reads.items()}
        #: the dimensions of each operand along which windows move
        self.moved = {reading.tensor: [m.at for m in way.moved if m.operand == k] for k, reading in enumerate(pattern.readings)}
        self.factors = tuple(pattern.readings[operand] for operand in pattern.factors)
        self.strides: dict[str, Mapping[Iter, int]] = {}
        self.offsets: dict[str, int] = {}
        self.axes: dict[str, tuple[_Axis, ...]] = {}
        #: axes of a batch for each position of which there is a call
        self.outside: tuple[_Axis, ...] = ()

    def result(self) -> Found | None:
        if not self._placed() or not self._assigned():
            return None
        batches = [name for name in self.axes if name in self.pattern.packs]
        pack = batches[0] if len(batches) == 1 and not self.pattern.windows else ""
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
        for operand, reading in enumerate(self.pattern.readings[:-1]):
            node, name = self.reads[reading.tensor], reading.tensor
            view = self.target.views[node.operand]
            moved = {each.at: each.rest for each in self.way.moved if each.operand == operand}
            if node.other is not None and not self._fits(self.pattern.table.leaves[operand].other, node, view, moved, within):
                return False
            found = slopes(address(node.index, view), every)
            if found is None:
                return False
            *steps, start = found
            self.strides[name] = dict(zip(every, steps, strict=True))
            # the first position of a window is an argument
            self.offsets[name] = view.offset + start - sum(_number(rest) * view.strides[at] for at, rest in moved.items())
        output = self.pattern.output.tensor
        self.strides[output] = {it: self.target.written.get(it, 0) for it in every}
        self.offsets[output] = self.target.result.offset
        return True

    def _fits(
        self, other: Scalar | None, node: Read, view: View, moved: Collection[int], within: Mapping[Scalar, tuple[int, int]]
    ) -> bool:
        """Whether a read leaves its tensor only where its pattern does, which has 0 there."""
        plain = [(at, size) for k, (at, size) in enumerate(zip(node.index, view.shape, strict=True)) if k not in moved]
        zero = other is not None and isinstance(node.other, Num) and node.other.value == 0
        return (zero or not moved) and inside([at for at, _ in plain], [size for _, size in plain], within)

    def _assigned(self) -> bool:
        """The axes of every index."""
        pattern, target = self.pattern, self.target
        own: dict[str, list[tuple[Iter, ...]]] = {name: [] for name in pattern.iters}
        fixed = pattern.windows
        for name in fixed:
            own[name] = [self.way.given[it] for it in pattern.iters[name]]
        factors = {one.tensor for one in self.factors}
        singles: dict[str, list[Iter]] = {}
        packed: dict[str, list[Iter]] = {}
        plain = [name for name in pattern.iters if name not in fixed]
        for it in target.extents:
            if it in self.way.taken:
                continue
            role = {name for name in factors if self.strides[name][it]}
            role |= {pattern.output.tensor} if it in target.written else set()
            single = [n for n in plain if n not in pattern.packs and self._role(n) == role]
            wide = [n for n in plain if n in pattern.packs and self._wide(n, role)]
            if single:
                singles.setdefault(single[0], []).append(it)
            elif wide:
                packed.setdefault(wide[0], []).append(it)
            else:
                return False
        for name, iters in singles.items():
            for left in self._kept(name, iters, own):
                wide = [n for n in plain if n in pattern.packs and self._wide(n, self._role(name))]
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
        names = {it: name for name, groups in own.items() for group in groups for it in group}
        others = (one for one in pattern.readings[:-1] if one not in self.factors)
        return all(self._reads_only(one) for one in others) and all(self._apart(one, names) for one in self.factors)

    def _apart(self, reading: Reading, names: Mapping[Iter, str]) -> bool:
        """Whether the dimensions of a tensor with windows are the pattern's: the groups of a batched product are no channels."""
        moved, index = self.moved[reading.tensor], self.reads[reading.tensor].index
        plain = [at for k, at in enumerate(index) if moved and k not in moved]
        homes = [{dim for dim in reading.dims for it in at.free if names.get(it) in dim.indices} for at in plain]
        return all(len(own) <= 1 for own in homes) and len(set().union(*homes)) == sum(map(len, homes))

    def _role(self, index: str) -> set[str]:
        """The factors, and the result, in which an index stands."""
        return {one.tensor for one in (*self.factors, self.pattern.output) if index in one.indices}

    def _wide(self, pack: str, role: set[str]) -> bool:
        """Whether iterators of a role may be of a batch: it repeats the tensors in which they are missing."""
        return role <= self._role(pack) and self.pattern.output.tensor in role

    def _ordered(self, iters: Sequence[Iter]) -> list[Iter]:
        """The slowest one of the result, or else of what has them, first."""
        names = (self.pattern.output.tensor, *(one.tensor for one in self.factors))
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
        for name, found in self._coefficients().items():
            env.bind(name, found)
        types: dict[str, Any] = {}
        for param in pattern.lowering.syntax.params:
            reading = next(one for one in pattern.readings if one.tensor == param.name)
            assert param.type is not None
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
        if self.target.result.dtype is not self._view(self.factors[0]).dtype:
            raise _Unfit
        for name, answer in {
            "stride": self._stride, "regular": self._regular, "size": self._size, "dense": self._dense, "bytes": self._bytes,
            "elements": self._elements, "aligned": self._aligned,
        }.items():  # fmt: skip
            env.bind(name, Asked(answer))
        return env

    def _coefficients(self) -> dict[str, int | tuple[int, ...]]:
        """What the coefficients of windows are; raises _Unfit where none are."""
        table, known = self.pattern.table, dict(self.way.known)
        constants = []
        for each in self.way.moved:
            window = table.dims[each.operand][each.dim]
            assert isinstance(window, Window)
            # what moves by one position only may do so at any stride
            known.update({name: num(1) for _, slope in window.terms for name in unknowns(scalar_of(slope), known)})
            constants.append((scalar_of(window.constant), each.rest))
        if not solved_linear(constants, known) or any(put(constant, known) is not rest for constant, rest in constants):
            raise _Unfit
        found = {name: sized(value, lambda part: put(part, known)) for name, value in table.attrs.items()}
        return {
            name: value for name, value in found.items()
            if all(isinstance(part, int) for part in (value if isinstance(value, tuple) else (value,)))
        }  # fmt: skip

    def _sizes(self, reading: Reading, dim: Dim, declared: t.Expr) -> Iterator[tuple[str, int | tuple[int, ...]]]:
        """Declared names of sizes with what they are."""
        if isinstance(declared, t.TupleExpr):
            for slot, index in zip(declared.slots, dim.indices, strict=True):
                if isinstance(slot, t.Name):
                    yield slot.id, self.axes[index][0].extent
            return
        name = declared.value if isinstance(declared, t.Pack) else declared
        if not isinstance(name, t.Name):
            return
        shape, _ = self._dims(reading, dim)
        yield name.id, shape if dim.star else shape[0]

    def _dims(self, reading: Reading, dim: Dim) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sizes and strides of the dimensions that a place of a pattern stands for."""
        at = self._along(reading, dim)
        if at:
            view = self.target.views[self.reads[reading.tensor].operand]
            return tuple(view.shape[k] for k in at), tuple(view.strides[k] for k in at)
        if dim.star:
            axes = self.axes[dim.indices[0]]
            return tuple(axis.extent for axis in axes), tuple(axis.strides[reading.tensor] for axis in axes)
        whole = joined([(axis.extent, axis.strides[reading.tensor]) for index in dim.indices for axis in self.axes[index]])
        if whole is None:
            raise _Unfit
        size, stride = whole
        return (size,), (self._natural(reading, dim.indices[0]) if size == 1 else stride,)

    def _along(self, reading: Reading, dim: Dim) -> Sequence[int]:
        """The dimensions of what is read that a dimension with a window stands for."""
        left = self.moved[reading.tensor]
        windows = [one for one in reading.dims if left and not self.pattern.windows.isdisjoint(one.indices)]
        for k, one in enumerate(windows):
            count = len(left) - len(windows) + k + 1 if one.star else 1
            if one is dim:
                return left[:count]
            left = left[count:]
        return ()

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
            for one in self.pattern.readings:
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
            return 1 if self.pattern.windows else 0
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
        left, right = (one.tensor for one in self.factors)
        output = self.pattern.output.tensor
        roles = ({left, output}, {right, output}, {left, right}, {left, right, output})
        rows, columns, inner, batch = (
            prod(axis.extent for name, axes in self.axes.items() if self._role(name) == role for axis in axes) for role in roles
        )
        sizes = (rows, columns, inner, batch)
        window: tuple[int, ...] = ()
        if self.pattern.windows:
            stars = [name for name in self.axes if name in self.pattern.packs and name not in self.pattern.output.indices]
            found = [one for own in self._coefficients().values() for one in (own if isinstance(own, tuple) else (own,))]
            window = tuple(axis.extent for name in stars for axis in self.axes[name]) if max(found, default=1) <= 1 else ()
        flops *= prod(axis.extent for axis in self.outside)
        return Found(self.pattern.name, call.function, arguments, flops, sizes, window, self._moves())

    def _argument(self, expr: t.Expr, env: Env) -> Argument:
        if isinstance(expr, t.Name) and any(one.tensor == expr.id for one in self.pattern.readings):
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


def _number(node: Scalar) -> int:
    assert isinstance(node, Num)
    return int(node.value)


class _Unfit(Exception):
    """Types or sizes that are not those of the lowering's parameters."""


__all__ = ["Argument", "Found", "Leaves", "Summed", "found", "leaves_of", "summed_of"]
