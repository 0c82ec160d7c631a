"""Names and types of C++: what each element type and each function of the language is called there."""

from __future__ import annotations

import math
from fractions import Fraction
from math import inf

from dslc.ir.dtype import DType, integer_range
from dslc.ir.scalar import Number

COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})

_STORED = {
    DType.F16: "k_f16",
    DType.BF16: "k_bf16",
    DType.F32: "float",
    DType.F64: "double",
    DType.I8: "int8_t",
    DType.I16: "int16_t",
    DType.I32: "int32_t",
    DType.I64: "int64_t",
    DType.U8: "uint8_t",
    DType.U16: "uint16_t",
    DType.U32: "uint32_t",
    DType.U64: "uint64_t",
    DType.BOOL: "k_bool",
}

#: functions that templates/cpp/kernel.h has for scalars and for vectors, by their names in the language
_NAMED = {
    "min": "k_min",
    "max": "k_max",
    "//": "k_floordiv",
    "%": "k_floormod",
    "ceildiv": "k_ceildiv",
    "truncdiv": "k_truncdiv",
    "^": "k_pow",
    "isnan": "k_isnan",
    "isinf": "k_isinf",
    "log1p": "k_log1p",
    "rsqrt": "k_rsqrt",
    "round_f16": "k_round_f16",
    "round_bf16": "k_round_bf16",
    **{
        name: f"k_{name}"
        for name in (
            "abs exp log sqrt tanh erf sin cos tan asin acos atan sinh cosh asinh acosh atanh floor ceil round trunc sign"
        ).split()
    },
}


def computed(dtype: DType) -> DType:
    """The type in which elements of a type are computed."""
    return DType.F32 if dtype in {DType.F16, DType.BF16} else dtype


def store_type(dtype: DType) -> str:
    """The type of an element in memory."""
    return _STORED[dtype]


def c_type(dtype: DType, width: int) -> str:
    """The type of a variable: a scalar for width 0, else a vector; booleans are 0 and -1 there."""
    dtype = computed(dtype)
    if width:
        return f"V<{'int32_t' if dtype is DType.BOOL else _STORED[dtype]}, {width}>"
    return "bool" if dtype is DType.BOOL else _STORED[dtype]


def literal_text(value: Number, dtype: DType) -> str:
    """A number in C++, rounded to a type."""
    dtype = computed(dtype)
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if dtype.is_float:
        suffix = "f" if dtype is DType.F32 else ""
        number = float(value)
        if math.isnan(number):
            return f'__builtin_nan{suffix}("")'
        if math.isinf(number):
            return f"{'-' if number < 0 else ''}__builtin_inf{suffix}()"
        return f"{number!r}{suffix}"
    low, high = integer_range(dtype)
    if isinstance(value, float) and math.isinf(value):
        value = high if value > 0 else low
    if isinstance(value, Fraction | float):
        value = int(value)
    whole = low + (int(value) - low) % (high - low + 1)
    if dtype is DType.U64:
        return f"{whole}UL"
    if dtype is DType.I64:
        return f"(-{-(whole + 1)}L - 1)" if whole == low else f"{whole}L"
    return f"({_STORED[dtype]}){whole}"


def neutral(kind: str, dtype: DType) -> Number:
    """Result of a reduction over nothing."""
    if kind in {"any", "all"}:
        return kind == "all"
    if kind in {"max", "min"}:
        if dtype is DType.BOOL:
            return kind == "min"
        return -inf if kind == "max" else inf
    return 0 if kind == "sum" else 1


def function_text(name: str, args: list[str], dtype: DType, lanes: bool) -> str | None:
    """A function of values of one type (a select has a condition first); None where there is none."""
    if name == "select":
        return f"k_select({', '.join(args)})" if lanes else f"({args[0]} ? {args[1]} : {args[2]})"
    if name in COMPARISONS:
        return f"k_test({args[0]}, {name}, {args[1]})" if lanes else f"({args[0]} {name} {args[1]})"
    if dtype is DType.BOOL:
        name = {"max": "or", "min": "and", "*": "and", "+": "or"}.get(name, name)
    if name in {"and", "or"}:
        word = {"and": "&", "or": "|"}[name] if lanes else {"and": "&&", "or": "||"}[name]
        return f"({args[0]} {word} {args[1]})"
    if name == "not":
        return f"({'~' if lanes else '!'}{args[0]})"
    if name in {"+", "*"}:
        if dtype.is_float:
            return f"({args[0]} {name} {args[1]})"
        # modulo 2^bits
        return f"{'k_add' if name == '+' else 'k_mul'}({args[0]}, {args[1]})"
    if name == "/":
        return f"({args[0]} / {args[1]})"
    found = _NAMED.get(name)
    return None if found is None else f"{found}({', '.join(args)})"
