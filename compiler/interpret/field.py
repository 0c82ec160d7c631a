"""The field of integers modulo 2^31 - 1.

Two polynomials that differ differ at a random point with probability 1 - degree / p (Schwartz, Zippel). What is no polynomial
is a seeded random function: equal arguments give equal results, and nothing else is known of it. `max`, `min` and comparisons
follow one seeded total order of the elements, in which small integers, and the numbers that rules name, keep their true order.
"""

from __future__ import annotations

import zlib
from fractions import Fraction
from typing import Any

import numpy as np

from dslc.interpret.domain import Array, Axes, Domain, Redraw, Shape, flat_last, fraction_of
from dslc.interpret.floats import ARITHMETIC, COMPARE
from dslc.ir.dtype import DType, integer_range
from dslc.ir.scalar import Number

P = (1 << 31) - 1  #: the prime of the field
#: +inf and -inf stand beside the field: larger and smaller than every element
POSITIVE, NEGATIVE = P, P + 1


SMALL = 1 << 15  #: integers up to this size keep their true order
NAMED = 256  #: named numbers that keep their true order
AS_TEXT = 4096  #: elements of an array that is read by its decimal text; a larger one is read by its exact binary value

# a product of 17-bit sums of halves may be added up so often before float64 rounds
_EXACT_SUMS = 1 << 19
# every floating-point type holds the integers up to this
_HELD = 256
_FIXED: dict[str, dict[int, int]] = {
    "exp": {0: 1},
    "log": {1: 0},
    "tanh": {0: 0},
    "erf": {0: 0},
    "sin": {0: 0},
    "cos": {0: 1},
    "tan": {0: 0},
}


def inverse(a: Array) -> Array:
    """1 / a; raises Redraw where an element is 0."""
    if (a == 0).any():
        raise Redraw("division by zero")
    return modular_power(a, np.asarray(P - 2))


def modular_power(a: Array, exponent: Array) -> Array:
    """Powers a ^ exponent for exponents >= 0, by squaring."""
    a, exponent = np.broadcast_arrays(a, exponent)
    base, left = a.astype(np.int64), exponent.astype(np.int64)
    out = np.ones_like(base)
    while (left > 0).any():
        out = np.where(left & 1 == 1, out * base % P, out)
        base = base * base % P
        left = left >> 1
    return out


def residue(value: Fraction) -> int:
    """A fraction as an element; raises Redraw where the denominator is 0 modulo p."""
    if value.denominator % P == 0:
        raise Redraw(f"{value} has no residue")
    return value.numerator * pow(value.denominator, -1, P) % P


def mixed(x: Array) -> Array:
    """splitmix64's finalizer: a bijection of 64-bit words without structure."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


class Field(Domain):
    """Integers modulo 2^31 - 1 as int64. Two domains of one seed agree."""

    name = "field"
    dtype: np.dtype[Any] = np.dtype(np.int64)

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._named: dict[int, float] = {}

    def number(self, value: Number) -> Array:
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            return np.asarray(POSITIVE if value > 0 else NEGATIVE)
        exact = fraction_of(value)
        out = residue(exact)
        if len(self._named) < NAMED:
            self._named[out] = float(exact)
        return np.asarray(out)

    def lift(self, array: Array) -> Array:
        if array.dtype == object:
            elements = {item: residue(Fraction(item)) for item in set(array.reshape(-1).tolist())}
            if len(elements) + len(self._named) <= NAMED:
                self._named.update({element: float(item) for item, element in elements.items()})
            return np.array([elements[item] for item in array.reshape(-1)], dtype=np.int64).reshape(array.shape)
        if array.dtype == np.uint64:
            return (array % np.uint64(P)).astype(np.int64)
        return array.astype(np.int64) % P

    def encode(self, array: Array, dtype: DType) -> Array:
        array = np.asarray(array)
        if array.dtype.kind in "biu":
            return array.astype(np.int64) if array.dtype.kind == "i" else self.lift(array)
        if array.dtype == object:
            return self.lift(array)
        if array.size > AS_TEXT:
            return _binary(array.astype(np.float64))
        text = self.number if array.size <= NAMED else lambda item: residue(fraction_of(item))
        flat = [int(text(float(str(item)))) if np.isfinite(item) else _infinite(item) for item in array.reshape(-1)]
        return np.array(flat, dtype=np.int64).reshape(array.shape)

    def draw(self, shape: Shape, rng: np.random.Generator) -> Array:
        return rng.integers(0, P, shape, dtype=np.int64)

    def arithmetic(self, name: str, a: Array, b: Array) -> Array:
        if name == "/":
            b, name = np.where(b >= P, 0, inverse(np.where(b >= P, 1, b))), "*"
        out = np.asarray(ARITHMETIC[name](a, b) % P)
        if _has_infinite(a) or _has_infinite(b):
            a, b = np.broadcast_arrays(a, b)
            for one, other in ((b, a), (a, b)) if name == "+" else ((a, b), (b, a)):
                turned = (name == "*") & (other == P - 1)
                out = np.where(one >= P, np.where(turned, POSITIVE + NEGATIVE - one, one), out)
        return out

    def matmul(self, a: Array, b: Array) -> Array:
        depth = a.shape[-1]
        if depth > _EXACT_SUMS:
            parts = [
                self.matmul(a[..., k : k + _EXACT_SUMS], b[..., k : k + _EXACT_SUMS, :])
                for k in range(0, depth, _EXACT_SUMS)
            ]
            out = parts[0]
            for part in parts[1:]:
                out = (out + part) % P
            return out
        a1, a0 = (a >> 16).astype(np.float64), (a & 0xFFFF).astype(np.float64)
        b1, b0 = (b >> 16).astype(np.float64), (b & 0xFFFF).astype(np.float64)
        high, low = a1 @ b1, a0 @ b0
        middle = ((a1 + a0) @ (b1 + b0) - high - low).astype(np.int64) % P  # three products for four
        return np.asarray(
            (high.astype(np.int64) % P * 2 + middle * 65536 + low.astype(np.int64)) % P
        )  # 2^32 = 2 modulo p

    def total(self, array: Array, axes: Axes) -> Array:
        return np.asarray(array.sum(axis=axes) % P)

    def product(self, array: Array, axes: Axes) -> Array:
        data = flat_last(array, axes)
        out = np.ones(data.shape[:-1], dtype=np.int64)
        for k in range(data.shape[-1]):
            out = out * data[..., k] % P
        return out

    def _keys(self, a: Array) -> Array:
        """Ranks of elements in the order, as float64 in (0, 1); the sentinels outside."""
        word = a.astype(np.uint64) + np.uint64((self._seed * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF)
        keys = (mixed(word) >> np.uint64(11)).astype(np.float64) / float(1 << 53)
        signed = np.where(a > P // 2, a - P, a)
        near = np.abs(signed) < SMALL
        if near.any():
            keys = np.where(near, _place(signed.astype(np.float64)), keys)
        for element, value in self._named.items():
            if not -SMALL < value < SMALL or value != int(value):
                keys = np.where(a == element, _place(np.asarray(value)), keys)
        return np.where(a == POSITIVE, 2.0, np.where(a == NEGATIVE, -1.0, keys))

    def extreme(self, kind: str, array: Array, axes: Axes) -> Array:
        data = flat_last(array, axes)
        if data.shape[-1] == 0:
            return np.full(data.shape[:-1], NEGATIVE if kind == "max" else POSITIVE, dtype=np.int64)
        keys = self._keys(data)
        best = keys.argmax(axis=-1) if kind == "max" else keys.argmin(axis=-1)
        return np.asarray(np.take_along_axis(data, best[..., None], axis=-1)[..., 0])

    def compare(self, name: str, a: Array, b: Array) -> Array:
        if name in {"==", "!="}:
            return np.asarray(COMPARE[name](a, b))
        return np.asarray(COMPARE[name](self._keys(a), self._keys(b)))

    def power(self, a: Array, exponent: Array, integer: bool) -> Array:
        if integer:
            signed = exponent
        else:
            if (exponent == (P + 1) // 2).all():
                return self._random("sqrt", a)
            signed = np.where(exponent > P // 2, exponent - P, exponent)
            if (np.abs(signed) > 64).any():
                return self._random("^", a, exponent)
        if (signed < 0).any():
            a, signed = np.broadcast_arrays(a, signed)
            a = np.where(signed < 0, inverse(np.where(signed < 0, a, 1)), a)
        return modular_power(a, np.abs(signed))

    def function(self, name: str, *args: Array) -> Array:
        if name in {"max", "min"}:
            first = self._keys(args[0]) >= self._keys(args[1])
            return np.where(first == (name == "max"), args[0], args[1])
        if name == "abs":
            return self.function("max", args[0], self.arithmetic("*", args[0], np.asarray(P - 1)))
        if name == "sign":
            positive, negative = self.compare(">", args[0], np.asarray(0)), self.compare("<", args[0], np.asarray(0))
            return np.where(positive, 1, np.where(negative, P - 1, 0)).astype(np.int64)
        if name == "isnan":
            return np.zeros(args[0].shape, dtype=bool)
        if name == "isinf":
            return np.asarray(args[0] >= P)
        return self._random(name, *args)

    def _random(self, name: str, *args: Array) -> Array:
        word: Array = np.asarray(zlib.crc32(name.encode()) + (self._seed << 32), dtype=np.uint64)
        for arg in args:
            word = mixed(word * np.uint64(0x9E3779B97F4A7C15) + arg.astype(np.uint64) + np.uint64(1))
        out = np.asarray((word % np.uint64(P)).astype(np.int64))
        first = args[0]
        # the values that folding constants knows
        for argument, result in _FIXED.get(name, {}).items():
            out = np.where(first == argument, result, out)
        if name == "exp":
            out = np.where(first == NEGATIVE, 0, out)
        if name == "sqrt":
            root = np.rint(np.sqrt(np.minimum(first, SMALL * SMALL).astype(np.float64))).astype(np.int64)
            out = np.where(root * root == first, root, out)
        if name in {"floor", "ceil", "round", "trunc"}:
            whole = (first < SMALL) | (first > P - SMALL)
            out = np.where(whole, first, out)
        return np.asarray(out)

    def to_integers(self, array: Array, dtype: DType, guarded: bool) -> Array:
        """Small numbers keep their value where the type holds it; what becomes of others is a function of the element and the type."""
        small = np.where(array > P // 2, array - P, array)
        low, high = integer_range(dtype)
        held = (np.abs(small) < SMALL) & (small >= low) & (small <= high)
        return np.where(held, small, self._random(f"convert:{dtype}", array) % 127)

    def rounded(self, array: Array, source: DType, target: DType) -> Array:
        """Small integers keep their value; what becomes of others is one function of the element and the type."""
        small = np.where(array > P // 2, array - P, array)
        return np.where((np.abs(small) <= _HELD) | (array >= P), array, self._random(f"convert:{target}", array))

    def finite(self, array: Array) -> bool:
        return not _has_infinite(array)

    def close(self, a: Array, b: Array, tolerance: float) -> Array:
        return np.asarray(a == b)


def _place(value: Array) -> Array:
    """A monotone map of the real numbers into (0, 1)."""
    return 0.5 + np.arctan(value) / np.pi


def _has_infinite(a: Array) -> bool:
    return bool(a.size) and bool(a.max() >= P)


def _infinite(item: Any) -> int:
    if item != item:
        raise Redraw("NaN is no element of the field")
    return POSITIVE if item > 0 else NEGATIVE


def _binary(array: Array) -> Array:
    """Finite float64 by their exact value: mantissa times a power of two."""
    mantissa, exponent = np.frexp(array)
    digits = np.ldexp(mantissa, 53).astype(np.int64)
    powers = modular_power(np.asarray(2), (exponent.astype(np.int64) - 53) % (P - 1))
    out = digits % P * powers % P
    return np.where(array == np.inf, POSITIVE, np.where(array == -np.inf, NEGATIVE, out))


class UnknownFunctions(Field):
    """As the field, but the largest and the smallest are seeded random functions of what they are taken of, without repetitions.

    In the field's order one of two elements is larger, so a draw hides what the other one is; here every element counts.
    """

    def extreme(self, kind: str, array: Array, axes: Axes) -> Array:
        data = np.sort(flat_last(array, axes), axis=-1)
        neutral = NEGATIVE if kind == "max" else POSITIVE
        if data.shape[-1] == 0:
            return np.full(data.shape[:-1], neutral, dtype=np.int64)
        counted = data != neutral
        counted[..., 1:] &= data[..., 1:] != data[..., :-1]
        words = mixed(data.astype(np.uint64) + np.uint64(zlib.crc32(kind.encode()) + (self._seed << 32)))
        total = np.where(counted, words % np.uint64(P), 0).astype(np.int64).sum(axis=-1) % P
        alone = np.where(counted, data, 0).sum(axis=-1)
        count = counted.sum(axis=-1)
        return np.where(count > 1, total, np.where(count == 1, alone, neutral))

    def function(self, name: str, *args: Array) -> Array:
        if name in {"max", "min"}:
            first, second = np.broadcast_arrays(*args)
            return self.extreme(name, np.stack([first, second], axis=-1), (first.ndim,))
        return super().function(name, *args)
