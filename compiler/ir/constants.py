"""Constants that need no file: one number everywhere, or an array in memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

from dslc.ir.dtype import DType, TensorType, integer_range
from dslc.ir.graph import Constant, Value, constant_value
from dslc.ir.scalar import Number

_FLOATS: dict[DType, Any] = {
    DType.F16: np.float16, DType.BF16: ml_dtypes.bfloat16, DType.F32: np.float32, DType.F64: np.float64,
}  # fmt: skip
NUMPY: dict[DType, np.dtype[Any]] = {dtype: np.dtype(_FLOATS.get(dtype, dtype.value)) for dtype in DType}
FROM_NUMPY = {dtype: name for name, dtype in NUMPY.items()}


SMALL = 1 << 16  #: elements of an array that is compared by its first element to find fills


def clamped(value: Number, dtype: DType) -> Number:
    """An infinite number in an integer type is that type's end."""
    if dtype.is_float or not isinstance(value, float) or value not in (float("inf"), float("-inf")):
        return value
    if dtype is DType.BOOL:
        return value > 0
    info = np.iinfo(NUMPY[dtype])
    return int(info.max) if value > 0 else int(info.min)


def holds(dtype: DType, value: Number, exact: bool = False) -> bool:
    """True where a type holds a number: a whole one, as fractions are cut and what is infinite is its end.

    Of floats, one that is rounded neither to an infinity nor to 0, and, where it is to be `exact`, loses no digits as a
    denormal one.
    """
    if dtype.is_float and isinstance(value, int | float | Fraction):
        try:
            number = float(value)
        except OverflowError:
            return False
        with np.errstate(over="ignore", under="ignore"):
            found = float(NUMPY[dtype].type(number))
        least = float(ml_dtypes.finfo(NUMPY[dtype]).smallest_normal)  # type: ignore[no-untyped-call]
        whole = not exact or found in (0, number) or not abs(found) < least
        return whole and np.isfinite(found) == np.isfinite(number) and (found == 0) == (value == 0)
    if not dtype.is_integer or isinstance(value, bool) or not isinstance(value, int):
        return True
    low, high = integer_range(dtype)
    return low <= value <= high


@dataclass(frozen=True, eq=False)
class FillRef:
    """One number everywhere; `key` carries its exact value."""

    value: Number
    type: TensorType

    @property
    def key(self) -> str:
        return f"fill:{type(self.value).__name__}:{self.value}"

    def load(self) -> Any:
        number = float(self.value) if isinstance(self.value, Fraction) else clamped(self.value, self.type.dtype)
        shape = tuple(int(size) for size in self.type.shape)  # type: ignore[arg-type]
        return np.full(shape, number, dtype=NUMPY[self.type.dtype])


@dataclass(frozen=True, eq=False)
class ArrayData:
    """Elements in memory; `key` is a hash of the contents."""

    array: Any

    @cached_property
    def key(self) -> str:
        contiguous = np.ascontiguousarray(self.array)
        return "sha256:" + hashlib.sha256(contiguous.view(np.uint8).data if contiguous.size else b"").hexdigest()

    def load(self) -> Any:
        return self.array


def fill(number: Number, type: TensorType) -> Value:
    """A constant tensor with one value everywhere (a symbolic shape is allowed)."""
    if type.dtype.is_float and isinstance(number, int) and not isinstance(number, bool):
        number = Fraction(number)  # exact, and one key for 1 and 1.0
    if isinstance(number, Fraction) and number.denominator == 1:
        number = int(number)
    if isinstance(number, float) and number.is_integer() and repr(number) != "-0.0":
        number = int(number)
    return constant_value(FillRef(number, type), type)


def array_value(array: Any) -> Value:
    """A constant tensor from a numpy array; small arrays with one value everywhere become fills."""
    type = TensorType(FROM_NUMPY[array.dtype], tuple(int(size) for size in array.shape))
    if 0 < array.size <= SMALL:
        first = array.reshape(-1)[0]
        # equal zeros may have two signs
        if (array == first).all() and array.tobytes() == first.tobytes() * array.size:
            return fill(first.item() if array.dtype != NUMPY[DType.BF16] else float(first), type)
    return constant_value(ArrayData(array), type)


def number_of(value: Value) -> Number | None:
    """The number that a constant holds everywhere, where that is known without reading a file."""
    node = value.node
    if isinstance(node, Constant) and isinstance(node.data, FillRef):
        return node.data.value
    if isinstance(node, Constant) and isinstance(node.data, ArrayData) and node.data.array.size == 1:
        item: Number = node.data.array.reshape(-1)[0].item()
        return item
    return None
