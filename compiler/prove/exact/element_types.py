"""Element types: ranges, wrap-around, and which conversions keep every value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from functools import cache
from typing import Any

from dslc.ir.dtype import DTYPES, DType, float_digits, holds, integer_range
from dslc.ir.scalar import Apply, Iter, Num, Reduce, Scalar, Sym, Table
from dslc.prove.exact.coefficient import ONE, ZERO, Ratio, from_number

_EXACT = frozenset("+ * // % min max abs select".split())
_TRUTHS = frozenset("and or not == != < <= > >= isnan isinf".split())


def wrapped(number: int, dtype: DType) -> int:
    """An integer modulo 2^bits, as a number of the type."""
    low, _ = integer_range(dtype)
    return (number - low) % (1 << 8 * dtype.bytes) + low


def is_infinite(node: Scalar) -> bool:
    """Return whether a number is an infinity."""
    return isinstance(node, Num) and node.value in {float("inf"), float("-inf")}


@cache
def is_whole(node: Scalar) -> bool:
    """Return whether a bare number is known to be an integer: made of sizes, positions and integers alone."""
    if isinstance(node, Num):
        return isinstance(node.value, bool | int)
    if isinstance(node, Sym):
        return node.least is not None
    if isinstance(node, Table):
        return _all_whole(node.values)
    if isinstance(node, Reduce):
        return node.kind in {"any", "all"} or is_whole(node.body)
    if isinstance(node, Apply):
        if node.name in _TRUTHS:
            return True
        parts = node.args[1:] if node.name == "select" else node.args
        return node.name in _EXACT and all(map(is_whole, parts))
    return isinstance(node, Iter)


def _all_whole(values: Any) -> bool:
    return all(_all_whole(each) for each in values) if isinstance(values, tuple) else isinstance(values, bool | int)


def composes(first: DType, middle: DType, last: DType) -> bool:
    """Return whether a conversion from `first` over `middle` to `last` is the one from `first` to `last`."""
    if holds(middle, first):
        return not middle.is_float or last.is_float or holds(last, first)
    if first.is_float:
        return middle is last
    return middle.is_integer and last.is_integer and last.bytes <= middle.bytes


def constant(coefficient: Ratio, source: DType, target: DType) -> int | None:
    """A converted number, where it is exact."""
    number = coefficient.number
    if number is None or number.denominator != 1:
        return None
    value = int(number)
    if source.is_integer:
        value = wrapped(value, source)
    if target.is_float:
        return value if abs(value) <= 1 << float_digits(target) else None
    if source.is_integer:
        return wrapped(value, target)
    return value if fits(value, target) else None


def fits(number: Fraction | int, dtype: DType) -> bool:
    """Return whether an integer type has a number in its range."""
    low, high = integer_range(dtype)
    return low <= number <= high


def folded(name: str, numbers: Sequence[Fraction]) -> Ratio | None:
    """The value of a function of integers (`less:int8`) at numbers of its type; None where it is not known.

    Numbers that wrap around are none of these: a type stands for wider ones, in which they do not.
    """
    head, _, rest = name.partition(":")
    dtype = DTYPES.get(rest)
    if (
        dtype is None
        or not dtype.is_integer
        or not all(number.denominator == 1 and fits(number, dtype) for number in numbers)
    ):
        return None
    known = [int(number) for number in numbers]
    if head == "zero":
        return ONE if known[0] == 0 else ZERO
    if head == "less":
        return ONE if known[0] < known[1] else ZERO
    if head == "quotient" and known[1]:
        size = abs(known[0]) // abs(known[1])
        found = size if (known[0] < 0) == (known[1] < 0) else -size
        return from_number(found) if fits(found, dtype) else None
    return None


def best(name: str, numbers: Sequence[Fraction]) -> Fraction | None:
    """The largest of some numbers (of a type, where `name` has one: then all must be in its range); else None."""
    head, _, rest = name.partition(":")
    if rest and not all(fits(number, DTYPES[rest]) for number in numbers):
        return None
    return min(numbers) if head == "smallest" else max(numbers)


#: whether integer types stand for wider ones
_STANDING: ContextVar[bool] = ContextVar("standing", default=False)


@contextmanager
def standing(wider: bool) -> Iterator[None]:
    """For what is shown meanwhile, whether integer types stand for wider ones: then their ends are numbers like others."""
    token = _STANDING.set(wider)
    try:
        yield
    finally:
        _STANDING.reset(token)


def neutral(name: str) -> int | None:
    """The number that is the end of its type: the smallest one for a largest, and the other way round; None where it is not known."""
    head, _, rest = name.partition(":")
    end = integer_range(DTYPES[rest])[head == "smallest"]
    return end if end == 0 or not _STANDING.get() else None
