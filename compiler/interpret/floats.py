"""The domain of float64."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from dslc.interpret.domain import INT_MAX, Array, Axes, Domain, Redraw, Shape
from dslc.ir.constants import NUMPY
from dslc.ir.dtype import DType, integer_range
from dslc.ir.scalar import Number

_erf = np.frompyfunc(math.erf, 1, 1)

_SAME = "abs exp log sqrt tanh sin cos tan sinh cosh floor ceil trunc sign isnan isinf".split()
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in _SAME},
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "round": np.rint,
    "max": np.maximum,
    "min": np.minimum,
    "//": np.floor_divide,
    "%": np.mod,
    "erf": lambda x: np.asarray(_erf(x)).astype(np.float64),
}
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "*": operator.mul, "/": operator.truediv}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


WHOLE: dict[str, Callable[[Any], int]] = {"floor": math.floor, "ceil": math.ceil, "round": round, "trunc": math.trunc}


class Floats(Domain):
    """float64. With `rounded` the results of a run have the declared element types, else they stay float64.

    Without it numbers stand for real ones: a conversion to a narrower type is defined only where they are numbers of their type.
    `absent`: what stands for an integer that is not defined, as a quotient by zero; what depends on it is not defined.
    """

    name = "float64"
    dtype: np.dtype[Any] = np.dtype(np.float64)

    def __init__(self, rounded: bool = True, absent: int | None = None) -> None:
        self._rounded = rounded
        self.absent = absent

    def held(self, numbers: Any) -> Array:
        """Results of arithmetic as numbers of the domain."""
        return np.asarray(numbers)

    def number(self, value: Number) -> Array:
        return self.held(float(value))

    def lift(self, array: Array) -> Array:
        return self.held(array.astype(np.float64))

    def encode(self, array: Array, dtype: DType) -> Array:
        return np.asarray(array).astype(np.float64)

    def decode(self, array: Array, dtype: DType, final: bool) -> Array:
        return array.astype(NUMPY[dtype]) if final and self._rounded else array

    def draw(self, shape: Shape, rng: np.random.Generator) -> Array:
        return rng.standard_normal(shape)

    def arithmetic(self, name: str, a: Array, b: Array) -> Array:
        return self.held(ARITHMETIC[name](a, b))

    def matmul(self, a: Array, b: Array) -> Array:
        return self.held(a @ b)

    def total(self, array: Array, axes: Axes) -> Array:
        return self.held(array.sum(axis=axes))

    def product(self, array: Array, axes: Axes) -> Array:
        return self.held(array.prod(axis=axes))

    def extreme(self, kind: str, array: Array, axes: Axes) -> Array:
        return np.asarray(getattr(array, kind)(axis=axes, initial=-np.inf if kind == "max" else np.inf))

    def compare(self, name: str, a: Array, b: Array) -> Array:
        return np.asarray(COMPARE[name](a, b))

    def power(self, a: Array, exponent: Array, integer: bool) -> Array:
        if integer and exponent.ndim == 0 and exponent == 2:
            return self.held(a * a)
        # `np.power` takes a root for an exponent of 1/2, which an infinity below 0 has none of
        return self.held(np.float_power(a, exponent.astype(np.float64)))

    def function(self, name: str, *args: Array) -> Array:
        return np.asarray(FUNCTIONS[name](*args))

    def to_integers(self, array: Array, dtype: DType, guarded: bool) -> Array:
        low, high = integer_range(dtype)
        whole = np.trunc(array)
        # the next float64 above what the type holds is a power of two
        held = (whole >= float(low)) & (whole < float(high) + 1)
        if not held.all():
            if not guarded and self.absent is None:
                raise Redraw(f"{dtype} does not hold a number that is converted to it")
            whole = np.where(held, whole, float(self.absent or 0))
        if high <= INT_MAX:
            return whole.astype(np.int64)
        out = np.empty(whole.shape, dtype=object)
        out.reshape(-1)[:] = [int(item) for item in whole.reshape(-1)]
        return out

    def rounded(self, array: Array, source: DType, target: DType) -> Array:
        if not self._rounded and not np.array_equal(
            array.astype(NUMPY[source]).astype(np.float64), array, equal_nan=True
        ):
            raise Redraw(f"a number that {source} does not hold is converted to {target}")
        return array.astype(NUMPY[target]).astype(np.float64)

    def finite(self, array: Array) -> bool:
        return bool(np.isfinite(array).all())

    def close(self, a: Array, b: Array, tolerance: float) -> Array:
        a, b = a.astype(np.float64), b.astype(np.float64)
        finite = np.abs(b[np.isfinite(b)])
        scale = float(finite.max()) if finite.size else 1.0
        return np.asarray(np.isclose(a, b, rtol=tolerance, atol=tolerance * max(scale, 1e-30), equal_nan=True))


class Narrow(Floats):
    """Numbers of one type, in arrays of float64.

    A sum is rounded once, so that it has one value in whatever order it is taken; it begins with a positive zero. Of two zeros the
    positive one is the larger, whichever comes first.
    """

    def __init__(self, dtype: DType) -> None:
        super().__init__()
        self._type = NUMPY[dtype]

    def held(self, numbers: Any) -> Array:
        return np.asarray(numbers).astype(self._type).astype(np.float64)

    def matmul(self, a: Array, b: Array) -> Array:
        most = np.abs(a).max(initial=0.0) * np.abs(b).max(initial=0.0)
        if np.isfinite(self.held(most)):
            return super().matmul(a, b) + 0.0
        # a row at a time: the products of all rows may be more than memory holds
        left, right = a.astype(self._type), b.astype(self._type)
        out = np.empty((*a.shape[:-1], b.shape[-1]))
        for row in range(a.shape[-2]):
            products = left[..., row, :, None] * right
            out[..., row, :] = self.held(products.sum(axis=-2, dtype=np.float64)) + 0.0
        return out

    def total(self, array: Array, axes: Axes) -> Array:
        return super().total(array, axes) + 0.0

    def extreme(self, kind: str, array: Array, axes: Axes) -> Array:
        found = super().extreme(kind, array, axes)
        negative = np.signbit(array)
        zero = (negative.all(axis=axes) if kind == "max" else (negative & (array == 0)).any(axis=axes)) & (found == 0)
        return np.where(zero, -0.0, np.where(found == 0, 0.0, found))

    def function(self, name: str, *args: Array) -> Array:
        found = super().function(name, *args)
        if name in {"max", "min"}:
            negative = (np.logical_and if name == "max" else np.logical_or)(*map(np.signbit, args))
            return np.where(found == 0, np.where(negative, -0.0, 0.0), found)
        return found if found.dtype == bool else self.held(found)
