"""The domain of exact numbers: Fractions, and sympy expressions where an input is a symbol or a function has no exact value."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial, reduce
from typing import Any

import numpy as np

from dslc.interpret.domain import Array, Axes, Domain, Redraw, Shape, flat_last, fraction_of, fractions
from dslc.interpret.floats import ARITHMETIC, COMPARE, WHOLE
from dslc.ir.constants import NUMPY
from dslc.ir.dtype import DType, integer_range
from dslc.ir.scalar import Number

POWER = 1 << 20  #: bits of a power, at most
_NAMES = {"max": "Max", "min": "Min", "abs": "Abs", "ceil": "ceiling"}


def _number(item: Any) -> Any:
    """Rational results of sympy as Fractions, so that plain arithmetic stays plain."""
    import sympy

    return Fraction(int(item.p), int(item.q)) if isinstance(item, sympy.Rational) else item


def _symbolic(item: Any) -> Any:
    import sympy

    if isinstance(item, Fraction):
        return sympy.Rational(item.numerator, item.denominator)
    if isinstance(item, float):
        return sympy.oo if item > 0 else -sympy.oo
    return sympy.sympify(item)


def _plain(item: Any) -> bool:
    # a union would be made anew for each element
    return isinstance(item, (int, Fraction, float))


def _of_numbers(function: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """A function of two numbers, over sympy's where one is symbolic."""
    return function(a, b) if _plain(a) and _plain(b) else _number(function(_symbolic(a), _symbolic(b)))


def _arithmetic(name: str, a: Any, b: Any) -> Any:
    if name == "/" and _plain(b) and b == 0:
        raise Redraw("division by zero")
    return _of_numbers(ARITHMETIC[name], a, b)


def _power(a: Any, b: Any) -> Any:
    if isinstance(a, Fraction | int) and isinstance(b, Fraction | int):
        digits = max(a.numerator.bit_length(), a.denominator.bit_length())
        if digits > 1 and digits * abs(int(b)) > POWER:
            raise Redraw("a power of too many digits")
    if _plain(a) and _plain(b) and Fraction(b).denominator == 1:
        if a == 0 and b < 0:
            raise Redraw("division by zero")
        return Fraction(a) ** int(b)
    return _number(_symbolic(a) ** _symbolic(b))


@lru_cache(maxsize=256)
def _function(name: str) -> Callable[..., Any]:
    import sympy

    plain: dict[str, Callable[..., Any]] = {
        "abs": abs,
        "max": max,
        "min": min,
        **{whole: lambda a, rounds=rounds: Fraction(rounds(a)) for whole, rounds in WHOLE.items()},
        "sign": lambda a: Fraction((a > 0) - (a < 0)),
        "isnan": lambda a: False,
        "isinf": lambda a: isinstance(a, float),
        "//": lambda a, b: Fraction(a // b),
        "%": operator.mod,
    }
    known = getattr(sympy, _NAMES.get(name, name), None)
    symbolic = known if callable(known) else sympy.Function({"//": "floordiv", "%": "mod"}.get(name, name))

    def go(*args: Any) -> Any:
        if name in plain and all(map(_plain, args)):
            return plain[name](*args)
        return _number(symbolic(*(_symbolic(arg) for arg in args)))

    return go


def _compare(name: str, a: Any, b: Any) -> Any:
    if _plain(a) and _plain(b):
        return COMPARE[name](a, b)
    import sympy

    relation = {"==": sympy.Eq, "!=": sympy.Ne}.get(name) or COMPARE[name]
    found = relation(_symbolic(a), _symbolic(b))
    return bool(found) if found in (sympy.true, sympy.false) else found


def _select(condition: Any, a: Any, b: Any) -> Any:
    if isinstance(condition, bool | np.bool_):
        return a if condition else b
    import sympy

    return sympy.Piecewise(  # type: ignore[no-untyped-call]
        (_symbolic(a), condition), (_symbolic(b), True)
    )


def _nearest(item: Any, source: DType, target: DType) -> Any:
    """A number of one type as the nearest one of another; raises Redraw where it is none of the first."""
    if isinstance(item, float):
        return item
    if not isinstance(item, Fraction) or Fraction(_of(item, source)) != item:
        raise Redraw(f"a number that {source} does not hold is converted to {target}")
    near = _of(item, target)
    return near if math.isinf(near) else Fraction(near)


def _of(item: Fraction, dtype: DType) -> float:
    return float(np.float64(float(item)).astype(NUMPY[dtype]))


def _each(function: Callable[..., Any], *args: Array) -> Array:
    """`function` elementwise, always as an array of objects."""
    views = np.broadcast_arrays(*args)
    out = np.empty(views[0].shape, dtype=object)
    flat = [view.reshape(-1) for view in views]
    target = out.reshape(-1)
    for k in range(target.size):
        target[k] = function(*(part[k] for part in flat))
    return out


class Exact(Domain):
    """Arrays of Fractions or sympy expressions."""

    name = "exact"
    dtype: np.dtype[Any] = np.dtype(object)

    def number(self, value: Number) -> Array:
        out = np.empty((), dtype=object)
        infinite = isinstance(value, float) and value in (float("inf"), float("-inf"))
        out[()] = value if infinite else fraction_of(value)
        return out

    def lift(self, array: Array) -> Array:
        return array if array.dtype == object else fractions(array)

    def encode(self, array: Array, dtype: DType) -> Array:
        array = np.asarray(array)
        if array.dtype != object:
            infinite = ~np.isfinite(array.astype(np.float64))
            out = fractions(np.where(infinite, np.zeros_like(array), array))
            out[infinite] = array[infinite].astype(np.float64).tolist()
            return out
        return _each(lambda item: _number(_symbolic(item)) if not _plain(item) else Fraction(item), array)

    def draw(self, shape: Shape, rng: np.random.Generator) -> Array:
        return fractions(rng.integers(-9, 10, shape)) / fractions(rng.integers(1, 5, shape))

    def arithmetic(self, name: str, a: Array, b: Array) -> Array:
        return _each(partial(_arithmetic, name), a, b)

    def matmul(self, a: Array, b: Array) -> Array:
        return self.total(self.arithmetic("*", a[..., :, :, None], b[..., None, :, :]), (a.ndim - 1,))

    def _fold(self, function: Callable[[Array, Array], Array], array: Array, axes: Axes, empty: Number) -> Array:
        data = flat_last(array, axes)
        if not data.shape[-1]:
            return np.broadcast_to(self.number(empty), data.shape[:-1])
        return reduce(function, (data[..., k] for k in range(data.shape[-1])))

    def total(self, array: Array, axes: Axes) -> Array:
        return self._fold(partial(self.arithmetic, "+"), array, axes, 0)

    def product(self, array: Array, axes: Axes) -> Array:
        return self._fold(partial(self.arithmetic, "*"), array, axes, 1)

    def extreme(self, kind: str, array: Array, axes: Axes) -> Array:
        return self._fold(partial(self.function, kind), array, axes, float("-inf") if kind == "max" else float("inf"))

    def compare(self, name: str, a: Array, b: Array) -> Array:
        out = _each(lambda x, y: _compare(name, x, y), a, b)
        plain = all(isinstance(item, bool) for item in out.reshape(-1))
        return out.astype(bool) if plain else out

    def select(self, condition: Array, a: Array, b: Array) -> Array:
        return _each(_select, condition, a, b)

    def power(self, a: Array, exponent: Array, integer: bool) -> Array:
        return _each(_power, a, exponent)

    def function(self, name: str, *args: Array) -> Array:
        out = _each(_function(name), *args)
        return out.astype(bool) if name in {"isnan", "isinf"} else out

    def to_integers(self, array: Array, dtype: DType, guarded: bool) -> Array:
        low, high = integer_range(dtype)

        def whole(item: Any) -> int:
            held = not (isinstance(item, float) or low > int(item)) and int(item) <= high
            if not held and not guarded:
                raise Redraw(f"{dtype} does not hold a number that is converted to it")
            return int(item) if held else 0

        return _each(whole, array)

    def rounded(self, array: Array, source: DType, target: DType) -> Array:
        return _each(lambda item: _nearest(item, source, target), array)

    def finite(self, array: Array) -> bool:
        return not any(isinstance(item, float) for item in array.reshape(-1))

    def close(self, a: Array, b: Array, tolerance: float) -> Array:
        def equal(x: Any, y: Any) -> bool:
            if _plain(x) and _plain(y):
                return bool(x == y)
            import sympy

            return bool(sympy.simplify(_symbolic(x) - _symbolic(y)) == 0)

        return _each(equal, a, b).astype(bool)
