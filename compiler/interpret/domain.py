"""Domains of numbers: the one interface between the evaluator and floats, a finite field, or exact numbers.

The evaluator knows five kinds of arrays. Sizes and iterators are true integers in every domain, and their
quotients true fractions; tensors of integers are integers modulo 2^bits of their type; only what comes from floating-point tensors
is an element of the domain.
"""

from __future__ import annotations

from fractions import Fraction
from math import prod
from typing import Any, Literal, Protocol, TypeAlias, get_args

import numpy as np

from dslc.ir.dtype import DType
from dslc.ir.scalar import Number

#: `inf`: a literal infinity that takes the kind of what it meets; `bool`; `int`: int64 (Python's integers where those are too
#: narrow); `rat`: Fractions; `val`: elements of the domain. A later kind can hold every earlier one.
Kind = Literal["inf", "bool", "int", "rat", "val"]
KINDS: tuple[Kind, ...] = get_args(Kind)

Array = np.ndarray[Any, Any]
Shape: TypeAlias = tuple[int, ...]
Axes: TypeAlias = tuple[int, ...]

INT_MIN, INT_MAX = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


class Redraw(Exception):
    """A result that is not defined, as a division by zero: the caller draws other inputs."""


class Domain(Protocol):
    """Arithmetic on arrays of one kind of number. Binary functions broadcast as numpy does."""

    name: str
    #: the numpy type of the elements
    dtype: np.dtype[Any]
    #: what stands for an integer that is not defined, as a quotient by zero; None: Redraw is raised
    absent: int | None = None

    def number(self, value: Number) -> Array:
        """A number that a rule names, as a rank-0 array; infinities included."""

    def lift(self, array: Array) -> Array:
        """Booleans, integers and Fractions as elements."""

    def encode(self, array: Array, dtype: DType) -> Array:
        """The contents of a floating-point tensor as elements."""

    def decode(self, array: Array, dtype: DType, final: bool) -> Array:
        """The inverse, at the end of a tensor's computation; `final` for the outputs of a run."""
        return array

    def draw(self, shape: Shape, rng: np.random.Generator) -> Array:
        """Random elements."""

    def arithmetic(self, name: str, a: Array, b: Array) -> Array:
        """`+ * /`."""

    def matmul(self, a: Array, b: Array) -> Array:
        """[batch, m, k] times [batch, k, n]."""

    def total(self, array: Array, axes: Axes) -> Array:
        """The sum over some axes."""

    def product(self, array: Array, axes: Axes) -> Array: ...

    def extreme(self, kind: str, array: Array, axes: Axes) -> Array:
        """`max` or `min` over some axes."""

    def compare(self, name: str, a: Array, b: Array) -> Array:
        """`== != < <= > >=`."""

    def select(self, condition: Array, a: Array, b: Array) -> Array:
        """Elements of `a` where the condition holds, else of `b`."""
        return np.where(condition, a, b)

    def power(self, a: Array, exponent: Array, integer: bool) -> Array:
        """`a ^ exponent`; the exponents are int64 where `integer`, else elements."""

    def function(self, name: str, *args: Array) -> Array:
        """Any other function of the vocabulary (`max` and `min` of two included)."""

    def to_integers(self, array: Array, dtype: DType, guarded: bool) -> Array:
        """Truncated towards zero, as int64 or as Python's integers.

        Raises Redraw where the type does not hold one of them, unless `guarded`: then something is put in its place.
        """

    def rounded(self, array: Array, source: DType, target: DType) -> Array:
        """Elements of one floating-point type as another one holds them, which does not hold all of the first."""

    def finite(self, array: Array) -> bool:
        """Return whether 0 times each element is 0."""

    def close(self, a: Array, b: Array, tolerance: float) -> Array:
        """The elements in which two arrays of decoded results agree."""


def fraction_of(value: Number) -> Fraction:
    """A number as its decimal text says: 0.1 is one tenth. Raises ValueError for infinities and NaN."""
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueError(f"{value} is no fraction")
        return Fraction(repr(float(value)))
    return Fraction(value)


def fractions(array: Array) -> Array:
    """Booleans, integers or floats as an object array of Fractions (floats by their shortest decimal text)."""
    out = np.empty(array.shape, dtype=object)
    flat, source = out.reshape(-1), array.reshape(-1)
    as_text = array.dtype.kind not in "biuO"
    for k in range(flat.size):
        item = source[k]
        flat[k] = item if isinstance(item, Fraction) else Fraction(str(item)) if as_text else Fraction(int(item))
    return out


def flat_last(array: Array, axes: Axes) -> Array:
    """The given axes merged into one, which comes last."""
    kept = [k for k in range(array.ndim) if k not in axes]
    moved = array.transpose(*kept, *axes)
    return moved.reshape(*moved.shape[: len(kept)], prod(moved.shape[len(kept) :]))
