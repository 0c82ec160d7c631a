"""Programs run on symbols: every element of a result is a polynomial in the elements of the inputs.

What is no polynomial is an unknown function of polynomials (TASO, section 3, does so for activations), except that a maximum is one
of a set: neither the order nor repetition matters.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from dslc.interpret.domain import Array, Redraw, fraction_of, fractions
from dslc.interpret.evaluator import CannotEvaluate
from dslc.ir.dtype import DType
from dslc.ir.scalar import Number

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_EXTREMES = frozenset({"max", "min"})


class Poly:
    """A sum of products of atoms; `terms` maps sorted tuples of atoms to numbers other than 0. Never changed."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: dict[tuple[int, ...], Fraction | int]) -> None:
        self.terms = terms
        self._hash: int | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Poly) and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    @property
    def number(self) -> Fraction | int | None:
        """The value where there is no atom, else None."""
        if not self.terms:
            return 0
        return self.terms[()] if len(self.terms) == 1 and () in self.terms else None


_ZERO = Poly({})


def _constant(value: Fraction | int) -> Poly:
    return Poly({(): value}) if value else _ZERO


def _plus(a: Poly, b: Poly) -> Poly:
    if not a.terms:
        return b
    if not b.terms:
        return a
    out = dict(a.terms)
    for monomial, coefficient in b.terms.items():
        total = out.get(monomial, 0) + coefficient
        if total:
            out[monomial] = total
        else:
            del out[monomial]
    return Poly(out)


def _times(a: Poly, b: Poly) -> Poly:
    out: dict[tuple[int, ...], Fraction | int] = {}
    for left, x in a.terms.items():
        for right, y in b.terms.items():
            monomial = tuple(sorted(left + right)) if left and right else left or right
            total = out.get(monomial, 0) + x * y
            if total:
                out[monomial] = total
            else:
                out.pop(monomial, None)
    return Poly(out)


class Polynomials:
    """The domain of polynomials. Atoms are the elements of inputs (`symbols`) and applications of unknown functions."""

    name = "polynomials"
    dtype: np.dtype[Any] = np.dtype(object)
    absent: int | None = None

    def __init__(self) -> None:
        self._atoms: dict[Any, int] = {}
        self._keys: list[Any] = []

    def symbols(self, name: str, shape: tuple[int, ...]) -> Array:
        """A tensor of unknown elements."""
        out = np.empty(shape, dtype=object)
        flat = out.reshape(-1)
        for k in range(flat.size):
            flat[k] = self._atom((name, k))
        return out

    def _atom(self, key: Any) -> Poly:
        found = self._atoms.get(key)
        if found is None:
            found = self._atoms[key] = len(self._keys)
            self._keys.append(key)
        return Poly({(found,): 1})

    # ---- numbers ------------------------------------------------------------------------------------------------

    def number(self, value: Number) -> Array:
        out = np.empty((), dtype=object)
        infinite = isinstance(value, float) and value in (float("inf"), float("-inf"))
        out[()] = value if infinite else _constant(fraction_of(value))
        return out

    def lift(self, array: Array) -> Array:
        return self._each(_lifted, array if array.dtype == object else fractions(array))

    def encode(self, array: Array, dtype: DType) -> Array:
        return self.lift(np.asarray(array))

    def decode(self, array: Array, dtype: DType, final: bool) -> Array:
        return array

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return self.symbols(f"drawn {rng.integers(1 << 62)}", shape)

    # ---- arithmetic ---------------------------------------------------------------------------------------------

    def arithmetic(self, name: str, a: Array, b: Array) -> Array:
        if name != "/":
            return self._each(_plus if name == "+" else _times, a, b)

        def quotient(x: Poly, y: Poly) -> Poly:
            number = y.number
            if number is None:
                return _times(x, self._atom(("/", y)))
            if number == 0:
                raise Redraw("division by zero")
            return Poly({monomial: Fraction(c) / number for monomial, c in x.terms.items()})

        return self._each(quotient, a, b)

    def matmul(self, a: Array, b: Array) -> Array:
        return self.total(self.arithmetic("*", a[..., :, :, None], b[..., None, :, :]), (a.ndim - 1,))

    def _fold(self, function: Callable[[Any, Any], Any], array: Array, axes: tuple[int, ...], empty: Any) -> Array:
        kept = [k for k in range(array.ndim) if k not in axes]
        moved = array.transpose(*kept, *axes).reshape(*(array.shape[k] for k in kept), -1) if array.size else array
        out = np.empty(tuple(array.shape[k] for k in kept), dtype=object)
        for position in np.ndindex(out.shape):
            total = empty
            for item in moved[position] if array.size else ():
                total = item if total is empty else function(total, item)
            out[position] = total
        return out

    def total(self, array: Array, axes: tuple[int, ...]) -> Array:
        return self._fold(_plus, array, axes, _ZERO)

    def product(self, array: Array, axes: tuple[int, ...]) -> Array:
        return self._fold(_times, array, axes, _constant(1))

    def extreme(self, kind: str, array: Array, axes: tuple[int, ...]) -> Array:
        return self._fold(
            lambda a, b: self._extreme(kind, a, b), array, axes, float("-inf") if kind == "max" else float("inf")
        )

    def _extreme(self, kind: str, *items: Any) -> Any:
        members: set[Any] = set()
        least = float("-inf") if kind == "max" else float("inf")
        for item in items:
            if isinstance(item, float):
                if item != least:
                    return item
                continue
            key = self._single(item)
            members |= key[1] if key is not None and key[0] == kind else {item}
        numbers = [member.number for member in members if member.number is not None]
        members = {member for member in members if member.number is None}
        if numbers:
            members.add(_constant(max(numbers) if kind == "max" else min(numbers)))
        if not members:
            return least
        return next(iter(members)) if len(members) == 1 else self._atom((kind, frozenset(members)))

    def _single(self, item: Poly) -> Any:
        """The key of an atom that stands alone."""
        if len(item.terms) != 1:
            return None
        ((monomial, coefficient),) = item.terms.items()
        return self._keys[monomial[0]] if len(monomial) == 1 and coefficient == 1 else None

    def compare(self, name: str, a: Array, b: Array) -> Array:
        def decide(x: Any, y: Any) -> bool:
            x, y = (item if isinstance(item, float) else item.number for item in (x, y))
            if x is None or y is None:
                raise CannotEvaluate("a comparison of unknown elements")
            return _COMPARE[name](x, y)

        return self._each(decide, a, b).astype(bool)

    def select(self, condition: Array, a: Array, b: Array) -> Array:
        return self._each(lambda c, x, y: x if c else y, condition, a, b)

    def power(self, a: Array, exponent: Array, integer: bool) -> Array:
        def go(x: Poly, e: Any) -> Poly:
            count = int(e) if integer else e.number
            if count is None or count < 0 or int(count) != count:
                return self._atom(("^", x, count if count is not None else e))
            out = _constant(1)
            for _ in range(int(count)):
                out = _times(out, x)
            return out

        return self._each(go, a, exponent)

    def function(self, name: str, *args: Array) -> Array:
        if name in _EXTREMES:
            return self._each(lambda *items: self._extreme(name, *items), *args)
        return self._each(lambda *items: self._atom((name, *items)), *args)

    def rounded(self, array: Array, source: DType, target: DType) -> Array:
        return self._each(lambda item: self._atom((f"convert:{target}", item)), array)

    def to_integers(self, array: Array, dtype: DType, guarded: bool) -> Array:
        def integer(item: Poly) -> int:
            number = item.number
            if number is None:
                raise CannotEvaluate("an unknown element as an integer")
            return int(number)

        return self._each(integer, array).astype(np.int64)

    def finite(self, array: Array) -> bool:
        return not any(isinstance(item, float) for item in array.reshape(-1))

    def close(self, a: Array, b: Array, tolerance: float) -> Array:
        return self._each(operator.eq, a, b).astype(bool)

    def _each(self, function: Callable[..., Any], *args: Array) -> Array:
        views = np.broadcast_arrays(*args)
        out = np.empty(views[0].shape, dtype=object)
        target = out.reshape(-1)
        flat = [view.reshape(-1) for view in views]
        for k, items in enumerate(_zipped(flat)):
            target[k] = function(*items)
        return out


def _zipped(arrays: list[Array]) -> Iterator[tuple[Any, ...]]:
    return zip(*arrays, strict=True)


def _lifted(item: Any) -> Any:
    if isinstance(item, float):
        return item if item in (float("inf"), float("-inf")) else _constant(fraction_of(item))
    return item if isinstance(item, Poly) else _constant(Fraction(item))
