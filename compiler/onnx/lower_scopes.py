"""Expressions in plain ONNX nodes: what runs where nothing has a kernel for a scope.

Every part of an expression becomes a tensor with one axis for each iterator around it, of size 1 where the part does not depend on it,
so that ONNX's broadcasting does the rest. Reads at positions that are known are cut, transposed and looked up (`access_lines`);
all others are gathered.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from dslc.analysis.numeric import in_bounds
from dslc.ir.constants import NUMPY
from dslc.ir.dtype import Dim, DType
from dslc.ir.element import element_type
from dslc.ir.graph import Scope, ScopeNode, Value, Values, nodes_of, product
from dslc.ir.scalar import (
    Apply,
    Iter,
    Num,
    Read,
    Reduce,
    Scalar,
    Sym,
    Table,
    as_scalar,
    num,
    raw_apply,
    reduce,
    scalars,
    substitute,
    walk,
)
from dslc.onnx.access_lines import AxisLine, effort, in_order, lines_of, transposition
from dslc.onnx.broadcasting import NotLowered, Symbols, Tensors, below, takes
from dslc.onnx.protos import small_constant, whole_numbers

#: the first opset in which pads are inputs
OLDEST = 11
_UNARY = {
    name: name.capitalize()
    for name in (
        "abs exp log sqrt tanh sin cos tan asin acos atan sinh cosh asinh acosh atanh floor ceil round sign erf"
    ).split()
}
_TESTS = {"isnan": "IsNaN", "isinf": "IsInf"}
_COMPARE = {"==": "Equal", "<": "Less", "<=": "LessOrEqual", ">": "Greater", ">=": "GreaterOrEqual"}
_CHAINS = {"+": "Add", "*": "Mul", "and": "And", "or": "Or", "min": "Min", "max": "Max"}
_REDUCE = {"sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd"}
_JOINED = {"sum": "Add", "max": "Max", "min": "Min", "prod": "Mul", "any": "Or", "all": "And"}


WINDOW = 64  #: positions of a window over which a reduction is written out

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def lower_scope(scope: Scope, args: Values, opset: int, symbols: Symbols, first: Collection[int]) -> Value:
    """The value of a scope, computed by ONNX's own nodes; in memory with some axes `first`, where readers can use that.

    Raises:
        NotLowered: a function, a type or a reduction that ONNX has no node for, or a size that no input has.
    """
    if opset < OLDEST:
        raise NotLowered(f"opset {opset}")
    try:
        return _ScopeLowering(scope, args, opset, symbols, first).whole()
    except KeyError as problem:
        raise NotLowered(str(problem)) from None


def picked(outputs: Sequence[Value]) -> dict[Value, set[int]]:
    """The axes of scopes' values of which other scopes read one position at a time: in memory these are best the first ones."""
    found: dict[Value, set[int]] = {}
    for node in nodes_of(outputs):
        if not isinstance(node, ScopeNode) or not any(isinstance(arg.node, ScopeNode) for arg in node.args):
            continue
        around = set(node.scope.iters)
        for read in walk(node.scope.body):
            if isinstance(read, Read) and isinstance(node.args[read.operand].node, ScopeNode):
                own = {axis for axis, one in enumerate(read.index) if not set(one.free) & around}
                found.setdefault(node.args[read.operand], own).intersection_update(own)
    return found


class _ScopeLowering(Tensors):
    def __init__(self, scope: Scope, args: Values, opset: int, symbols: Symbols, first: Collection[int]) -> None:
        super().__init__(opset, symbols)
        self.scope, self.args = scope, args
        self.operands = tuple(arg.type.dtype for arg in args)
        self.order = list(range(len(self.scope.iters)))
        if self.scope.type.shape == self.scope.extents:
            self.order.sort(key=lambda axis: axis not in first)
        self.iters += [self.scope.iters[axis] for axis in self.order]
        self.extents.update(self.scope.ranges)
        self._known: dict[Any, Value] = {}
        # how many choices are around what is lowered: both sides of one are computed
        self._chosen = 0

    def whole(self) -> Value:
        scope = self.scope
        found = self.go(scope.body, scope.dtype)
        extents = tuple(scope.extents[axis] for axis in self.order)
        if found.type.shape != extents:
            found = self.node("Expand", (found, self.sizes(extents)), scope.dtype, extents)
        if self.order != sorted(self.order):
            back = [self.order.index(axis) for axis in range(len(self.order))]
            found = self.node("Transpose", (found,), scope.dtype, scope.extents, perm=back)
        if scope.type.shape != scope.extents:
            found = self.node("Reshape", (found, self.sizes(scope.type.shape)), scope.dtype, scope.type.shape)
        return found

    # ---- parts ---------------------------------------------------------------------------------------------------

    def go(self, part: Scalar, want: DType) -> Value:
        """A part as a tensor of that element type."""
        key = (part, want, tuple(self.iters))
        if key not in self._known:
            self._known[key] = self._go(part, want)
        return self._known[key]

    def _go(self, part: Scalar, want: DType) -> Value:
        if isinstance(part, Num):
            return self.number(part.value, want)
        if isinstance(part, Read):
            return self.cast(self.read(part), want)
        if isinstance(part, Table):
            return self.table(part, want)
        if isinstance(part, Reduce):
            return self.cast(self.reduce(part, self.own(part, want)), want)
        if part.integral:
            return self.cast(self.integer(part), want)
        return self.cast(self.function(part, want), want)

    def own(self, part: Scalar, want: DType) -> DType:
        """In which type a part is computed; bare numbers take that of what they meet."""
        return element_type(part, self.operands) or want

    def integer(self, part: Scalar) -> Value:
        """Iterators, sizes and what is computed of them, in int64."""
        if isinstance(part, Iter):
            count = self.symbols.tensor([self.extents[part]], False)
            ends = (whole_numbers(0), count, whole_numbers(1))
            values = self.node("Range", ends, DType.I64, (self.extents[part],))
            axes = [k for k, one in enumerate(self.iters) if one is not part]
            return self.unsqueezed(values, axes, self.shape({part}))
        if not part.free:
            return (
                self.symbols.tensor([part], False) if isinstance(part, Sym | Apply) else whole_numbers(int(str(part)))
            )
        return self.function(part, DType.I64)

    def function(self, part: Scalar, want: DType) -> Value:
        name = part.op
        if name.startswith("convert:"):
            source = self.own(part.args[0], DType.F32 if not part.args[0].integral else DType.I64)
            return self.go(part.args[0], source)
        if name in _COMPARE or name == "!=":
            joined = self.own(
                raw_apply("+", *part.args), DType.I64 if all(arg.integral for arg in part.args) else DType.F32
            )
            pair = [self.go(arg, joined) for arg in part.args]
            found = self.join(_COMPARE.get(name, "Equal"), pair, DType.BOOL)
            return self.join("Not", [found], DType.BOOL) if name == "!=" else found
        if name == "not":
            return self.join("Not", [self.go(part.args[0], DType.BOOL)], DType.BOOL)
        if name in ("and", "or"):
            return self.chain(_CHAINS[name], [self.go(arg, DType.BOOL) for arg in part.args], DType.BOOL)
        if name in _TESTS:
            return self.join(_TESTS[name], [self.go(part.args[0], self.own(part.args[0], DType.F32))], DType.BOOL)
        own = DType.I64 if part.integral else self.own(part, want)
        if name == "select":
            condition = self.go(part.args[0], DType.BOOL)
            self._chosen += 1
            sides = [self.go(arg, own) for arg in part.args[1:]]
            self._chosen -= 1
            return self.chosen(condition, sides[0], sides[1], own)
        if name == "+":
            return self.sum(part, own)
        return self.arithmetic(name, part, [self.go(arg, own) for arg in part.args], own)

    def arithmetic(self, name: str, part: Scalar, args: list[Value], own: DType) -> Value:
        if name in _CHAINS:
            return self.chain(_CHAINS[name], args, own)
        if name in _UNARY:
            return self.join(_UNARY[name], args, own)
        if name == "trunc":
            size = self.join("Floor", [self.join("Abs", args, own)], own)
            return self.join("Mul", [self.join("Sign", args, own), size], own)
        if name == "/" and own.is_float:
            return self.join("Div", args, own)
        if name == "^" and own.is_float:
            power = part.args[1]
            if isinstance(power, Num) and power.value == 2:
                return self.join("Mul", [args[0], args[0]], own)
            return self.join("Pow", args, own)
        if name in ("%", "//") and own.is_integer:
            rest = self.join("Mod", args, own)
            return rest if name == "%" else self.join("Div", [self.join("Sub", [args[0], rest], own), args[1]], own)
        raise NotLowered(f"{name} of {own}")

    def sum(self, part: Scalar, own: DType) -> Value:
        """`a - b` is stored as `a + -1 * b`."""
        plus = [arg for arg in part.args if not _negated(arg)]
        minus = [found for arg in part.args if (found := _negated(arg))]
        if not plus or own is DType.BOOL:
            return self.chain("Add", [self.go(arg, own) for arg in part.args], own)
        total = self.chain("Add", [self.go(arg, own) for arg in plus], own)
        for arg in minus:
            total = self.join("Sub", [total, self.go(arg, own)], own)
        return total

    # ---- reductions ----------------------------------------------------------------------------------------------

    def reduce(self, part: Reduce, own: DType) -> Value:
        sizes: list[Any] = [int(extent.value) if isinstance(extent, Num) else extent for extent in part.extents]
        if any(isinstance(size, Scalar) and size.free for size in sizes) or any(
            one in self.iters for one in part.iters
        ):
            raise NotLowered("a reduction whose extent depends on a position")
        if (taken := self.apart(part, sizes)) is not None:
            return self.chain(_JOINED[part.kind], [self.go(term, own) for term in taken], own)
        if part.kind == "sum" and not part.where and (found := self.contraction(part, sizes, own)):
            return found
        logic = part.kind in ("any", "all")
        inner = DType.I32 if logic else own
        kind = {"any": "max", "all": "min"}.get(part.kind, part.kind)
        outer = len(self.iters)
        self.iters += part.iters
        self.extents.update(zip(part.iters, sizes, strict=True))
        try:
            body = self.cast(self.go(part.body, DType.BOOL if logic else own), inner)
            if part.where:
                body = self.chosen(
                    self.go(part.where, DType.BOOL), body, self.number(_neutral(kind, inner), inner), inner
                )
            full: tuple[Dim, ...] = (*body.type.shape[:outer], *sizes) if body.type.rank else (*([1] * outer), *sizes)
            if body.type.shape != full:
                body = self.node("Expand", (body, self.sizes(full)), inner, full)
        finally:
            del self.iters[outer:]
        axes = list(range(outer, outer + len(sizes)))
        found = self.along(_REDUCE[kind], body, axes, inner, body.type.shape[:outer], keepdims=0)
        return self.cast(found, DType.BOOL) if logic else found

    def apart(self, part: Reduce, sizes: Sequence[Any]) -> list[Scalar] | None:
        """The terms of a reduction over a small window: at each of its positions a read is a slice, and would be gathered else."""
        mixed = {
            one
            for read in scalars(Read, part.body)
            for index in read.index
            if len(index.free) > 1
            for one in index.free
            if one in part.iters
        }
        ranges = [
            range(size) for one, size in zip(part.iters, sizes, strict=True) if one in mixed and isinstance(size, int)
        ]
        if not mixed or len(ranges) < len(mixed) or not 0 < math.prod(map(len, ranges)) <= WINDOW or part.where:
            return None
        moved = [one for one in part.iters if one in mixed]
        rest = [(one, extent) for one, extent in part.ranges if one not in mixed]
        terms: list[Scalar] = []
        for at in itertools.product(*ranges):
            body = substitute(part.body, {one: as_scalar(k) for one, k in zip(moved, at, strict=True)})
            iters, extents = tuple(one for one, _ in rest), tuple(extent for _, extent in rest)
            terms.append(reduce(part.kind, iters, extents, body) if rest else body)
        return terms

    def contraction(self, part: Reduce, sizes: Sequence[Any], own: DType) -> Value | None:
        """A sum of products of reads at iterators: one node."""
        factors = part.body.args if part.body.op == "*" else (part.body,)
        reads = [factor for factor in factors if isinstance(factor, Read)]
        if len(reads) < 2 or len(reads) < len(factors) or not own.is_float or not takes("Einsum", self.opset, (own,)):
            return None
        extents = {**self.extents, **dict(zip(part.iters, sizes, strict=True))}
        letters = {one: _LETTERS[k] for k, one in enumerate([*self.iters, *part.iters][: len(_LETTERS)])}
        terms = []
        for one in reads:
            type = self.args[one.operand].type
            plain = type.dtype is own and len(set(one.index)) == len(one.index) and all(
                isinstance(index, Iter) and index in letters and as_scalar(extents[index]) is as_scalar(size)
                for index, size in zip(one.index, type.shape, strict=True)
            )  # fmt: skip
            if not plain:
                return None
            terms.append("".join(letters[index] for index in one.index if isinstance(index, Iter)))
        used = {index for one in reads for index in one.index}
        if not used.issuperset(part.iters):
            return None
        outer = [one for one in self.iters if one in used]
        equation = f"{','.join(terms)}->{''.join(letters[one] for one in outer)}"
        shape = tuple(self.extents[one] for one in outer)
        found = self.node("Einsum", tuple(self.args[one.operand] for one in reads), own, shape, equation=equation)
        return self.unsqueezed(
            found, [k for k, one in enumerate(self.iters) if one not in used], self.shape(set(outer))
        )

    # ---- reads ---------------------------------------------------------------------------------------------------

    def read(self, part: Read) -> Value:
        value = self.args[part.operand]
        if not part.index:
            return value
        found = self.moved(part, value)
        return found or self.gathered(part, value)

    def moved(self, part: Read, value: Value) -> Value | None:
        """A read at positions that are known: cut, merged, padded, looked up, and put in order."""
        free = part.other is None and self._chosen > 0
        other = num(0) if free else part.other
        ways: list[tuple[float, list[AxisLine], Value]] = []
        for view, index in below(value, part.index):
            own = lines_of(index, view.type.shape, self.extents, self.iters, free)
            if own is not None and (isinstance(other, Num) or not any(any(line.outside) for line in own)):
                ways.append((effort(own, view.type.shape, self.iters), own, view))
        if not ways:
            return None
        _, lines, value = min(ways, key=lambda way: way[0])
        turned = transposition(lines, value.type.rank)
        value = self.cut(value, {line.axes[0]: line for line in lines if len(line.axes) == 1})
        if turned is None:
            lines = list(in_order(lines))
        else:
            shape = tuple(value.type.shape[axis] for axis in turned)
            value = self.node("Transpose", (value,), value.type.dtype, shape, perm=turned)
        sizes = tuple(line.count if len(line.axes) == 1 and not line.listed else line.size for line in lines)
        value = self.reshaped(value, sizes)
        value = self.cut(value, {k: line for k, line in enumerate(lines) if len(line.axes) > 1})
        value = self.padded(value, {k: line.outside for k, line in enumerate(lines)}, other)
        for k, line in enumerate(lines):
            if line.listed:
                value = self.looked_up(value, k, line.listed)
        value = self.reshaped(value, tuple(extent for line in lines for extent in line.extents))
        return self.placed(value, [one for line in lines for one in line.iters])

    def gathered(self, part: Read, value: Value) -> Value:
        """A read anywhere: positions in the tensor as a list."""
        flat = self.node("Reshape", (value, whole_numbers([-1])), value.type.dtype, (product(value.type.shape),))
        guarded = part.other is not None or (self._chosen > 0 and self._leaves(part.index, value.type.shape))
        position, inside = self.position(part.index, value.type.shape, guarded)
        found = self.node("Gather", (flat, position), value.type.dtype, position.type.shape, axis=0)
        if not part.other or not inside:
            return found
        return self.chosen(inside, found, self.go(part.other, value.type.dtype), value.type.dtype)

    def _leaves(self, index: Sequence[Scalar], shape: Sequence[Dim]) -> bool:
        """Return whether a read may leave its tensor where its choice is not taken."""
        at: dict[Scalar, tuple[int, int]] = {it: (0, n - 1) for it, n in self.extents.items() if isinstance(n, int)}
        others = [
            (one, size)
            for one, size in zip(index, shape, strict=True)
            if not (isinstance(one, Iter) and as_scalar(self.extents.get(one, -1)) is as_scalar(size))
        ]
        return not in_bounds([one for one, _ in others], [size for _, size in others], at)

    def position(self, index: Sequence[Scalar], shape: Sequence[Dim], guarded: bool) -> tuple[Value, Value | None]:
        """Positions in a tensor that was made a list, and whether they are inside it, cut off where they are not."""
        total: Value | None = None
        inside: list[Value] = []
        for axis, (one, size) in enumerate(zip(index, shape, strict=True)):
            at = self.go(one, DType.I64)
            if guarded and not (isinstance(one, Iter) and as_scalar(self.extents.get(one, -1)) is as_scalar(size)):
                zero, end = whole_numbers(0), self.symbols.tensor([size], False)
                inside += [
                    self.join("GreaterOrEqual", [at, zero], DType.BOOL),
                    self.join("Less", [at, end], DType.BOOL),
                ]
                last = self.join("Sub", [end, whole_numbers(1)], DType.I64)
                at = self.join("Max", [self.join("Min", [at, last], DType.I64), zero], DType.I64)
            step = product(shape[axis + 1 :])
            if step != 1:
                at = self.join("Mul", [at, self.symbols.tensor([step], False)], DType.I64)
            total = self.join("Add", [total, at], DType.I64) if total else at
        assert total
        return total, self.chain("And", inside, DType.BOOL) if inside else None

    def table(self, part: Table, want: DType) -> Value:
        numbers = np.array(part.values, dtype=object)
        array = np.array([float(item) if want.is_float else int(item) for item in numbers.reshape(-1)]).astype(
            NUMPY[want]
        )
        position, _ = self.position(part.index, numbers.shape, False)
        return self.node("Gather", (small_constant(array), position), want, position.type.shape, axis=0)


def _neutral(kind: str, dtype: DType) -> float:
    """The number that changes nothing in a reduction."""
    if kind in ("sum", "prod"):
        return int(kind == "prod")
    if dtype.is_float:
        return -math.inf if kind == "max" else math.inf
    info = np.iinfo(NUMPY[dtype])
    return int(info.min if kind == "max" else info.max)


def _negated(part: Scalar) -> Scalar | None:
    """`b` of `-1 * b`."""
    if part.op == "*" and isinstance(part.args[0], Num) and part.args[0].value == -1:
        return part.args[1] if len(part.args) == 2 else raw_apply("*", *part.args[1:])
    return None
