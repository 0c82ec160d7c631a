"""Small tensors whose elements are known at import: numbers, or expressions over symbolic sizes.

They flow through every operator by its own definition: its scopes are evaluated position by position. So chains of shape
computations fold whatever operators they are made of.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import field
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from dslc.errors import DslcError
from dslc.ir.constants import NUMPY, clamped
from dslc.ir.dtype import DTYPES, DType, TensorType
from dslc.ir.graph import Call, Constant, ScopeNode, Value, with_args
from dslc.ir.scalar import Iter, Num, Read, Reduce, Scalar, Sym, Table, apply, as_scalar, num, table
from dslc.records import record
from dslc.semantics.apply import apply as application
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules

KNOWN_ELEMENTS = 128  #: elements of a tensor; larger ones are not followed
WORK = 20_000  #: nodes that are looked at for one value

Items = tuple[Any, ...]


class Unknown(Exception):
    """An element that does not follow from what is known."""


def static_shape(type: TensorType) -> tuple[int, ...] | None:
    """The shape where all of its sizes are numbers."""
    return type.sizes if type.is_static else None


@record
class KnownValues:
    """The elements of values, row-major, where they are known; remembers what it found."""

    _rules: Rules
    _found: dict[Value, Items | None] = field(default_factory=dict)

    def put(self, value: Value, items: Items) -> None:
        self._found[value] = items

    def get(self, value: Value) -> Items | None:
        """The elements of a value: int, bool, float or Scalar each; None where they are not known."""
        if value in self._found:
            return self._found[value]
        self._found[value] = None
        self._found[value] = self._compute(value)
        return self._found[value]

    def _compute(self, value: Value) -> Items | None:
        if not value.known:
            return None
        shape = static_shape(value.type)
        if shape is None or math.prod(shape) > KNOWN_ELEMENTS:
            return None
        node = value.node
        if isinstance(node, Constant):
            return tuple(node.data.load().reshape(-1).tolist())
        if not isinstance(node, Call):
            return None
        if value.type.dtype.is_float and math.prod(shape) > 8:
            return None
        args = [self.get(arg) for arg in node.args]
        if any(a is None for a in args):
            return None
        try:
            return self._call(node, value.index, [a for a in args if a is not None])
        except (Unknown, Mismatch, DslcError, ArithmeticError, ValueError, RecursionError):
            return None

    def _call(self, node: Call, index: int, args: list[Items]) -> Items:
        from dslc.semantics.elaborate import elaborate

        instance = elaborate(self._rules, node.op, tuple(arg.type for arg in node.args), node.attrs)
        return self._inner(instance.outputs[index], dict(zip(instance.params, args, strict=True)))

    def _inner(self, value: Value, known: dict[Value, Items]) -> Items:
        if value in known:
            return known[value]
        node = value.node
        if isinstance(node, Constant):
            found = self.get(value)
            if found is None:
                raise Unknown
            return found
        args = [self._inner(arg, known) for arg in node.args]
        if isinstance(node, ScopeNode):
            items = _scope(node, args)
        elif isinstance(node, Call):
            items = self._call(node, value.index, args)
        else:
            raise Unknown
        known[value] = items
        return items


def _scope(node: ScopeNode, args: list[Items]) -> Items:
    extents = node.scope.extents
    if not all(isinstance(e, int) for e in extents):
        raise Unknown
    sizes = [int(e) for e in extents]  # type: ignore[arg-type]
    if math.prod(sizes) > KNOWN_ELEMENTS * 8:
        raise Unknown
    operands = [(arg.type.shape, items) for arg, items in zip(node.args, args, strict=True)]
    out = []
    budget = [WORK]
    for position in itertools.product(*(range(size) for size in sizes)):
        values = {f"i{k}": at for k, at in enumerate(position)}
        out.append(rounded(_Evaluator(values, operands, budget).go(node.scope.body), node.scope.dtype))
    return tuple(out)


def rounded(value: Scalar, dtype: DType) -> Any:
    """An element in its type: a number rounded to it, or an integer expression as it is.

    Raises:
        Unknown: what is neither.
    """
    if isinstance(value, Num):
        plain = clamped(value.value, dtype)
        if dtype is DType.BOOL:
            return bool(plain)
        if dtype.is_float:
            with np.errstate(over="ignore"):  # what is too large for the type is an infinity, as at run time
                return float(NUMPY[dtype].type(float(plain)))
        if isinstance(plain, float | Fraction) and int(plain) != plain:
            raise Unknown
        info = np.iinfo(NUMPY[dtype])
        if not info.min <= int(plain) <= info.max:
            raise Unknown
        return int(plain)
    if dtype.is_integer and value.integral:
        return value
    raise Unknown


#: kinds of reductions as functions of two, and what these begin with
_FOLDS: Mapping[str, tuple[str, Any]] = {
    "any": ("or", False), "all": ("and", True), "sum": ("+", 0), "prod": ("*", 1), "min": ("min", math.inf), "max": ("max", -math.inf),
}  # fmt: skip


@record
class _Evaluator:
    _iters: dict[str, int]
    _operands: list[tuple[tuple[Any, ...], Items]]
    _budget: list[int]

    def go(self, node: Scalar) -> Scalar:
        self._budget[0] -= 1
        if self._budget[0] < 0:
            raise Unknown
        if isinstance(node, Num | Sym):
            return node
        if isinstance(node, Iter):
            return num(self._iters[node.name])
        if isinstance(node, Read):
            return self._read(node)
        if isinstance(node, Table):
            return table(node.values, tuple(map(self.go, node.index)))
        if isinstance(node, Reduce):
            return self._reduce(node)
        if node.op == "select":
            return self.go(node.args[1] if self._number(node.args[0]) else node.args[2])
        args = [self.go(arg) for arg in node.args]
        if node.op.startswith("convert:"):
            return as_scalar(rounded_or_cut(args[0], DTYPES[node.op.removeprefix("convert:")]))
        return decided(apply(node.op, *args))

    def _number(self, node: Scalar) -> Any:
        found = self.go(node)
        if not isinstance(found, Num):
            raise Unknown
        return found.value

    def _read(self, node: Read) -> Scalar:
        shape, items = self._operands[node.operand]
        at = 0
        for index, size in zip(node.index, shape, strict=True):
            position = int(self._number(index))
            if not isinstance(size, int):
                raise Unknown
            if not 0 <= position < size:
                if not node.other:
                    raise Unknown
                return self.go(node.other)
            at = at * size + position
        return as_scalar(items[at])

    def _reduce(self, node: Reduce) -> Scalar:
        name, start = _FOLDS[node.kind]
        result: Scalar = num(start)
        for value in self._terms(node, 0):
            result = apply(name, result, value)
        return decided(result)

    def _terms(self, node: Reduce, depth: int) -> Iterator[Scalar]:
        if depth < len(node.iters):
            for position in range(int(self._number(node.extents[depth]))):
                self._iters[node.iters[depth].name] = position
                yield from self._terms(node, depth + 1)
        elif not node.where or self._number(node.where):
            yield self.go(node.body)


def rounded_or_cut(value: Scalar, dtype: DType) -> Any:
    """As `rounded`; a number is cut towards zero on its way to an integer type."""
    if isinstance(value, Num) and dtype.is_integer and not isinstance(value.value, bool):
        if isinstance(value.value, float) and not math.isfinite(value.value):
            raise Unknown
        return rounded(num(math.trunc(value.value)), dtype)
    if isinstance(value, Num):
        return rounded(value, dtype)
    if value.integral:
        return value
    raise Unknown


def decided(value: Scalar) -> Scalar:
    """Rounded quotients of sizes as whole divisions."""
    return _floor_of(value) if value.op in {"trunc", "floor"} else value


def least(value: Scalar) -> Any:
    """A lower bound of a linear expression over sizes, which are never negative."""
    total: Any = 0
    for part in value.args if value.op == "+" else (value,):
        if isinstance(part, Num):
            total += part.value
        elif not part.integral or _coefficient(part) < 0:
            return None
    return total


def _coefficient(part: Scalar) -> Any:
    first = part.args[0] if part.op == "*" else None
    return first.value if isinstance(first, Num) else 1


def _floor_of(value: Scalar) -> Scalar:
    inner = value.args[0]
    parts = inner.args if inner.op == "+" else (inner,)
    bottom = 1
    for part in parts:
        first = part.args[0] if part.op == "*" else part
        if isinstance(first, Num) and isinstance(first.value, Fraction):
            bottom = math.lcm(bottom, first.value.denominator)
    if bottom == 1:
        return inner if inner.integral else value
    top = apply("*", num(bottom), inner)
    if inner.op == "+":
        top = apply("+", *(apply("*", num(bottom), part) for part in parts))
    if not top.integral or (value.op == "trunc" and ((low := least(top)) is None or low < 0)):
        return value
    return apply("//", top, num(bottom))


def open_ends(items: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    """Numbers larger than any size as infinities: exporters mean the end of an axis of unknown size."""
    if items is None:
        return None
    return tuple(
        math.copysign(math.inf, item) if isinstance(item, int) and abs(item) >= 10**9 else item for item in items
    )


LEAST = 8  #: elements: fewer are as good as data, and more take long to read
MOST = 1 << 26  #: elements: fewer are as good as data, and more take long to read

#: the trait that names, for an operator, the one that gives its positions
TRAIT = "placed_by"


def placed(rules: Rules, value: Value) -> Iterator[tuple[Value, Value]]:
    """Operands that are data, and the positions that their library has for them: `property gather is placed_by places`."""
    node = value.node
    name = rules.traits_of(node.op).named.get(TRAIT) if isinstance(node, Call) else None
    if name is None:
        return
    for arg in node.args:
        found = _progression(arg)
        if found is not None:
            start, step = found
            attrs = {"dtype": arg.type.dtype, "shape": arg.type.shape, "step": step, "start": start}
            yield arg, application(rules, name, (), attrs)[0]


def with_places(value: Value, given: dict[Value, Value]) -> Value:
    """A result of an operator, over such positions."""
    return with_args(value.node, tuple(given.get(arg, arg) for arg in value.node.args))[value.index]


def _progression(value: Value) -> tuple[int, tuple[int, ...]] | None:
    """The first position and the step along every axis of a weight; None where it is no such progression."""
    shape = static_shape(value.type) if value.known else None
    if not shape or not isinstance(value.node, Constant) or not value.type.dtype.is_integer:
        return None
    if not LEAST < prod(shape) <= MOST:
        return None
    elements: Any = np.asarray(value.node.data.load())
    start = int(elements.reshape(-1)[0])
    step = tuple(
        int(np.take(elements, 1, axis=k).reshape(-1)[0]) - start if size > 1 else 0 for k, size in enumerate(shape)
    )
    expected = start + sum(one * np.arange(size).reshape([-1 if j == k else 1 for j in range(len(shape))])
                           for k, (one, size) in enumerate(zip(step, shape, strict=True)))  # fmt: skip
    return (start, step) if any(step) and np.array_equal(elements, np.broadcast_to(expected, shape)) else None
