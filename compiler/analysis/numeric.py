"""Scalar expressions at concrete sizes: exact values, value sets over vectors of positions, and intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from operator import add, mul
from typing import Any

import numpy as np

from dslc.ir.dtype import Dim
from dslc.ir.fold import FOLD1, FOLD2
from dslc.ir.scalar import Iter, Num, Scalar, Sym


class DataDependent(Exception):
    """The expression depends on data, or its value is not defined."""


class Undefined(DataDependent):
    """A division by zero, or a function outside its domain."""


def value(node: Scalar, at: Mapping[Scalar, int]) -> Any:
    """The number of an expression over sizes and iterators; raises Unknown at reads, Undefined at divisions by zero."""
    if isinstance(node, Num):
        return node.value
    if isinstance(node, Sym | Iter):
        if node not in at:
            raise DataDependent(str(node))
        return at[node]
    if node.op == "select":
        return value(node.args[1] if value(node.args[0], at) else node.args[2], at)
    if node.op in {"and", "or"}:
        held = [bool(value(arg, at)) for arg in node.args]
        return all(held) if node.op == "and" else any(held)
    args = [value(arg, at) for arg in node.args]
    try:
        if node.op == "+":
            return sum(args)
        if node.op == "*":
            return math.prod(args)
        if node.op in FOLD2 and len(args) == 2:
            return FOLD2[node.op](*args)
        if node.op in FOLD1 and len(args) == 1:
            return FOLD1[node.op](*args)
    except (ArithmeticError, ValueError):
        raise Undefined(str(node)) from None
    raise DataDependent(str(node))


_VECTOR: dict[str, Callable[..., Any]] = {
    "==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
    "and": np.logical_and, "or": np.logical_or, "min": np.minimum, "max": np.maximum, "//": np.floor_divide, "%": np.mod,
    "not": np.logical_not, "abs": np.abs, "select": np.where,
}  # fmt: skip


def vector(node: Scalar, at: Mapping[Scalar, Any]) -> Any:
    """As `value`, on numpy arrays of positions that broadcast against each other (indices and conditions only)."""
    if isinstance(node, Num):
        if isinstance(node.value, Fraction | float):
            raise DataDependent(str(node))
        return np.asarray(node.value)
    if isinstance(node, Sym | Iter):
        if node not in at:
            raise DataDependent(str(node))
        return np.asarray(at[node])
    args = [vector(arg, at) for arg in node.args]
    if node.op in {"+", "*"}:
        return reduce(add if node.op == "+" else mul, args)
    if node.op in {"//", "%"} and not np.all(args[1] != 0):
        raise DataDependent(str(node))
    if node.op in _VECTOR:
        return _VECTOR[node.op](*args)
    raise DataDependent(str(node))


Interval = tuple[int, int]
#: of iterators and sizes
Intervals = Mapping[Scalar, Interval]


def interval(node: Scalar, at: Intervals) -> Interval:
    """Least and greatest value while every iterator stays in its interval (an enclosure); raises Unknown at data."""
    if isinstance(node, Num) and isinstance(node.value, int):
        return int(node.value), int(node.value)
    if isinstance(node, Sym | Iter) and node in at:
        return at[node]
    if node.op == "select":
        a, b = (interval(arg, at) for arg in node.args[1:])
        return min(a[0], b[0]), max(a[1], b[1])
    args = [interval(arg, at) for arg in node.args]
    if node.op == "+":
        return sum(a for a, _ in args), sum(b for _, b in args)
    if node.op == "*":
        total = args[0]
        for arg in args[1:]:
            ends = [x * y for x in total for y in arg]
            total = (min(ends), max(ends))
        return total
    if node.op in {"min", "max"}:
        pick = min if node.op == "min" else max
        return pick(a for a, _ in args), pick(b for _, b in args)
    if node.op == "abs":
        low, high = args[0]
        return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
    if node.op in {"//", "%"} and args[1][0] == args[1][1] and args[1][0] > 0:
        d = args[1][0]
        low, high = args[0][0] // d, args[0][1] // d
        if node.op == "//":
            return low, high
        return (args[0][0] % d, args[0][1] % d) if low == high else (0, d - 1)
    raise DataDependent(str(node))


def in_bounds(index: Sequence[Scalar], shape: Sequence[Dim], within: Intervals) -> bool:
    """Return whether it is known that a tensor of such sizes is read inside."""
    try:
        ranges = [interval(at, within) for at in index]
    except DataDependent:
        return False
    return all(isinstance(n, int) and low >= 0 and high < n for (low, high), n in zip(ranges, shape, strict=True))
