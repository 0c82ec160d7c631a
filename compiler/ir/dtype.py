"""Element types and tensor types."""

from __future__ import annotations

from dataclasses import field
from enum import Enum

from dslc.ir.scalar import Num, Scalar
from dslc.records import record


class DType(Enum):
    """The element types of the language; the value is the name in `.rules` files."""

    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    I8 = "int8"
    I16 = "int16"
    I32 = "int32"
    I64 = "int64"
    U8 = "uint8"
    U16 = "uint16"
    U32 = "uint32"
    U64 = "uint64"
    BOOL = "bool"

    __hash__ = object.__hash__  # members are single objects, and types are hashed all the time

    @property
    def is_float(self) -> bool:
        return self in _FLOATS

    @property
    def is_integer(self) -> bool:
        return not self.is_float and self is not DType.BOOL

    @property
    def bytes(self) -> int:
        return _BYTES[self]

    def __str__(self) -> str:
        return str(self.value)


_FLOATS = frozenset({DType.F16, DType.BF16, DType.F32, DType.F64})
# the digits of a name are those of its bits
_BYTES = {dtype: int("".join(filter(str.isdigit, dtype.value)) or 8) // 8 for dtype in DType}
DTYPES = {dtype.value: dtype for dtype in DType}


class TypeClass(Enum):
    """Element types with one arithmetic: what is proved for one of them at all values is proved for all of them."""

    FLOATS = "floats"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    BOOL = "bool"

    __hash__ = object.__hash__

    @property
    def members(self) -> tuple[DType, ...]:
        """The element types of the class; the first one stands for all."""
        return _MEMBERS[self]

    def __str__(self) -> str:
        return str(self.value)


_MEMBERS = {
    TypeClass.FLOATS: (DType.F32, DType.F64, DType.F16, DType.BF16),
    TypeClass.SIGNED: (DType.I8, DType.I16, DType.I32, DType.I64),
    TypeClass.UNSIGNED: (DType.U8, DType.U16, DType.U32, DType.U64),
    TypeClass.BOOL: (DType.BOOL,),
}
_CLASSES = {member: one for one, members in _MEMBERS.items() for member in members}


def class_of(dtype: DType) -> TypeClass:
    """The class of an element type."""
    return _CLASSES[dtype]


def integer_range(dtype: DType) -> tuple[int, int]:
    """The smallest and the largest value of an integer type; 0 and 1 for booleans."""
    if dtype is DType.BOOL:
        return 0, 1
    bits = 8 * dtype.bytes
    return (0, (1 << bits) - 1) if class_of(dtype) is TypeClass.UNSIGNED else (-(1 << bits - 1), (1 << bits - 1) - 1)


def float_digits(dtype: DType) -> int:
    """Number of binary digits of a floating-point type."""
    return _DIGITS[dtype]


_DIGITS = {DType.F16: 11, DType.BF16: 8, DType.F32: 24, DType.F64: 53}


def holds(target: DType, source: DType) -> bool:
    """Return whether every number of one type is one of the other."""
    if source is target:
        return True
    if source.is_float:
        if {source, target} == {DType.F16, DType.BF16} or not target.is_float:
            return False
        return _DIGITS[target] > _DIGITS[source]
    low, high = integer_range(source)
    if target.is_float:
        # also the exponents reach so far: 2^16 > 65504 is the only one that does not, and has too many digits
        return max(-low, high) <= 1 << _DIGITS[target]
    first, last = integer_range(target)
    return first <= low and high <= last


# A size is a number, or an expression over unknown sizes.
Dim = int | Scalar


@record
class TensorType:
    """An element type and a shape (sizes in elements; a size may be symbolic)."""

    dtype: DType
    shape: tuple[Dim, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.dtype, self.shape)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return TensorType, (self.dtype, self.shape)  # hashes differ between processes

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return all(isinstance(size, int | Num) for size in self.shape)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of a static shape as numbers."""
        return tuple(int(str(size)) for size in self.shape)

    @property
    def elements(self) -> int:
        """The number of elements; raises ValueError where a size is symbolic."""
        count = 1
        for size in self.shape:
            if not isinstance(size, int):
                raise ValueError(f"{self} has a symbolic size")
            count *= size
        return count

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.bytes

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(str(size) for size in self.shape)}]"
