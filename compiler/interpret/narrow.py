"""The domain of a floating-point type: every operation rounds, overflows and keeps the sign of zero as numbers of that type do."""

from __future__ import annotations

import numpy as np

from dslc.interpret.domain import Array
from dslc.interpret.floats import Floats
from dslc.ir.constants import NUMPY
from dslc.ir.dtype import DType
from dslc.ir.scalar import Number


class Narrow(Floats):
    """Numbers of one type, in arrays of float64. A sum is rounded once, so that it has one value in whatever order it is taken; it
    begins with a positive zero.

    Of two zeros the positive one is the larger, whichever comes first.
    """

    def __init__(self, dtype: DType) -> None:
        super().__init__()
        self._type = NUMPY[dtype]

    def _held(self, array: Array) -> Array:
        return array.astype(self._type).astype(np.float64)

    def number(self, value: Number) -> Array:
        return self._held(super().number(value))

    def lift(self, array: Array) -> Array:
        return self._held(super().lift(array))

    def add(self, a: Array, b: Array) -> Array:
        return self._held(super().add(a, b))

    def mul(self, a: Array, b: Array) -> Array:
        return self._held(super().mul(a, b))

    def div(self, a: Array, b: Array) -> Array:
        return self._held(super().div(a, b))

    def matmul(self, a: Array, b: Array) -> Array:
        most = np.abs(a).max(initial=0.0) * np.abs(b).max(initial=0.0)
        if np.isfinite(self._held(np.asarray(most))):
            return self._held(super().matmul(a, b)) + 0.0
        return self.total(self.mul(a[..., None], b[:, None]), (2,))

    def total(self, array: Array, axes: tuple[int, ...]) -> Array:
        return self._held(super().total(array, axes)) + 0.0

    def product(self, array: Array, axes: tuple[int, ...]) -> Array:
        return self._held(super().product(array, axes))

    def extreme(self, kind: str, array: Array, axes: tuple[int, ...]) -> Array:
        found = super().extreme(kind, array, axes)
        negative = np.signbit(array)
        zero = (negative.all(axis=axes) if kind == "max" else (negative & (array == 0)).any(axis=axes)) & (found == 0)
        return np.where(zero, -0.0, np.where(found == 0, 0.0, found))

    def power(self, a: Array, exponent: Array, integer: bool) -> Array:
        return self._held(super().power(a, exponent, integer))

    def function(self, name: str, *args: Array) -> Array:
        found = super().function(name, *args)
        if name in {"max", "min"}:
            negative = (
                np.signbit(args[0]) & np.signbit(args[1])
                if name == "max"
                else np.signbit(args[0]) | np.signbit(args[1])
            )
            return np.where(found == 0, np.where(negative, -0.0, 0.0), found)
        return found if found.dtype == bool else self._held(found)
