"""The vocabulary's functions on arrays with named axes: integers and fractions here, the rest by the domain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from dslc.interpret.array import Arr, align, combined, integers, joint_kind, lift, normal, same_kind, wrapped
from dslc.interpret.domain import INT_MAX, INT_MIN, Array, Domain, Kind, Redraw
from dslc.interpret.floats import COMPARE, FUNCTIONS, WHOLE
from dslc.ir.constants import NUMPY
from dslc.ir.dtype import DTYPES, DType, float_digits, holds, integer_range
from dslc.ir.scalar import Iter

DIGITS = 128  #: exponent of a fraction, beyond which the result is as good as 0 or infinity


def as_kind(arr: Arr, kind: Kind, domain: Domain) -> Arr:
    """A result as the kind of its element type: integers from values are truncated."""
    if kind == "val" or arr.kind == "inf":
        return lift(arr, kind, domain)
    if kind == "bool":
        return arr if arr.kind == "bool" else Arr(_nonzero(arr, domain), arr.axes, "bool")
    return arr if arr.kind == "int" else convert(domain, "i64", arr, True)


def _nonzero(arr: Arr, domain: Domain) -> Array:
    if arr.kind == "val":
        return domain.compare("!=", arr.data, domain.number(0))
    return np.asarray(arr.data != 0).astype(bool)


def truncated(data: Array) -> Array:
    """Fractions cut towards zero; infinities are the ends of int64."""
    flat = [INT_MAX if item == np.inf else INT_MIN if item == -np.inf else int(item) for item in data.reshape(-1)]
    return integers(flat, data.shape)


def plus(domain: Domain, args: Sequence[Arr]) -> Arr:
    """A sum of any number of terms."""
    return combined("+", same_kind(args, domain, "int")[1], domain)


def divide(domain: Domain, args: Sequence[Arr], guarded: bool) -> Arr:
    """`a / b`, exact on integers. Raises Redraw for a division by zero outside floats, unless `guarded`."""
    if joint_kind(args) == "val" or any(arg.kind == "inf" for arg in args):
        _, same = same_kind(args, domain, "val")
        axes, (a, b) = align(same)
        return Arr(domain.arithmetic("/", a, b), axes, "val")
    _, same = same_kind(args, domain, "rat")
    axes, (a, b) = align(same)
    b, zero = _divisor(domain, b, guarded, Fraction(1))
    return _standing(domain, Arr(normal(a / b, "rat", domain), axes, "rat"), zero)


def _divisor(domain: Domain, b: Array, guarded: bool, one: Fraction | int = 1) -> tuple[Array, Array | None]:
    """A divisor with ones in the place of zeros, and where these were."""
    if not (b == 0).any():
        return b, None
    return np.where(b == 0, np.asarray(one), b), _zeros(domain, b == 0, guarded)


def _zeros(domain: Domain, zero: Any, guarded: bool) -> Array:
    """The places in which a result has no value. Raises Redraw where the domain has nothing that stands for one, unless `guarded`."""
    if not guarded and domain.absent is None:
        raise Redraw("division by zero")
    return np.asarray(zero).astype(bool)


def _standing(domain: Domain, arr: Arr, zero: Array | None) -> Arr:
    """The same with what stands for a result that is not defined in its places."""
    if zero is None or domain.absent is None:
        return arr
    standing = Fraction(domain.absent) if arr.kind == "rat" else domain.absent
    return replace(arr, data=normal(np.where(zero, np.asarray(standing), arr.data), arr.kind, domain))


def integer_quotient(domain: Domain, name: str, a: Arr, b: Arr, guarded: bool) -> Arr:
    """`floor`, `ceil` or `trunc` of a quotient of integers, without going through fractions."""
    _, same = same_kind((a, b), domain, "int")
    axes, (x, y) = align(same)
    y, zero = _divisor(domain, y, guarded)
    quotient = x // y
    if name != "floor":
        inexact = quotient * y != x
        up = inexact if name == "ceil" else inexact & ((x < 0) != (y < 0))
        quotient = quotient + up
    return _standing(domain, Arr(normal(quotient, "int", domain), axes, "int"), zero)


def power(domain: Domain, args: Sequence[Arr], guarded: bool, typed: bool) -> Arr:
    """`a ^ b`; a negative power of an integer is a fraction, which is cut towards zero where the integers are of a type (`typed`)."""
    base, exponent = (same_kind((arg,), domain, "int")[1][0] for arg in args)
    if base.kind == "val" or exponent.kind == "val" or exponent.kind == "rat":
        integer = exponent.kind == "int"
        base = lift(base, "val", domain)
        exponent = exponent if integer else lift(exponent, "val", domain)
        axes, (a, b) = align((base, exponent))
        return Arr(domain.power(a, b, integer), axes, "val")
    axes, (a, b) = align((base, exponent))
    negative = np.asarray(b < 0).astype(bool)
    undefined, zero = negative & np.asarray(a == 0).astype(bool), None
    if undefined.any():
        zero = _zeros(domain, undefined, guarded)
        a = np.where(undefined, np.asarray(Fraction(1) if base.kind == "rat" else 1), a)
    if base.kind == "int" and typed:
        return _standing(domain, Arr(_typed_power(a, b, negative), axes, "int"), zero)
    if base.kind == "int" and negative.any():
        a = lift(Arr(a, axes, "int"), "rat", domain).data
        base = replace(base, kind="rat")
    if base.kind == "rat" or a.dtype == object or b.dtype == object:
        return _standing(domain, Arr(normal(_powers(a, b), base.kind, domain), axes, base.kind), zero)
    return Arr(normal(a**b, base.kind, domain), axes, base.kind)


def _power(base: Any, exponent: int) -> Any:
    """A power of a number modulo 2^64 where it has many digits; a fraction that is nearly 0 or infinite has the right sign."""
    if isinstance(base, Fraction):
        huge = abs(exponent) > DIGITS and abs(base) not in (0, 1)
        return base ** (exponent if not huge else (DIGITS + exponent % 2) * (1 if exponent > 0 else -1))
    return base**exponent if exponent <= DIGITS else pow(base, exponent, 1 << 64)


_powers = np.frompyfunc(lambda base, exponent: _power(base, int(exponent)), 2, 1)


def _typed_power(a: Array, b: Array, negative: Array) -> Array:
    """Powers of integers modulo 2^64; only those of 1 and -1 have a negative exponent and are not cut to zero."""
    a, b, negative = np.broadcast_arrays(a, b, negative)
    flat = [
        (1 if x == 1 or y % 2 == 0 else -1) if no and abs(x) == 1 else 0 if no else pow(x, y, 1 << 64)
        for x, y, no in zip(map(int, a.reshape(-1)), map(int, b.reshape(-1)), negative.reshape(-1), strict=True)
    ]
    return integers([item - (1 << 64) if item > INT_MAX else item for item in flat], a.shape)


def boolean(domain: Domain, name: str, args: Sequence[Arr]) -> Arr:
    """`and`, `or`, `not`."""
    axes, parts = align(args)
    if name == "not":
        data = ~parts[0] if parts[0].dtype == bool else domain.function("not", parts[0])
    elif all(part.dtype == bool for part in parts):
        data = parts[0] & parts[1] if name == "and" else parts[0] | parts[1]
    else:
        data = domain.function(name, *parts)
    return Arr(np.asarray(data), axes, "bool")


def compare(domain: Domain, name: str, args: Sequence[Arr]) -> Arr:
    """`== != < <= > >=`."""
    kind, same = same_kind(args, domain)
    axes, (a, b) = align(same)
    data = np.asarray(domain.compare(name, a, b) if kind == "val" else COMPARE[name](a, b))
    return Arr(data if kind == "val" else data.astype(bool), axes, "bool")


def convert(domain: Domain, dtype: str, arg: Arr, guarded: bool = False, source: DType | None = None) -> Arr:
    """`convert(x, dtype)` as a cast of ONNX: to integers it truncates, to bool it is `!= 0`; integers wrap.

    An infinity that a rule names is the end of an integer type. Raises Redraw, unless `guarded`, for other numbers that an integer
    type does not hold: what becomes of them is not defined. `source`: the element type, where the number has one.
    """
    target = DTYPES[dtype]
    if target.is_float:
        out = lift(_rounded(arg, target) if arg.kind == "int" else arg, "val", domain)
        if source is None and domain.name == "float64":
            source = DType.F64
        if arg.kind == "int" or source is None or not source.is_float or holds(target, source):
            return out
        return replace(out, data=domain.rounded(out.data, source, target))
    if not target.is_integer:
        return as_kind(arg, "bool", domain)
    low, high = integer_range(target)
    if arg.kind == "inf":
        return Arr(integers([high if bool(arg.data > 0) else low], ()), (), "int")
    if arg.kind not in {"rat", "val"}:
        found = lift(arg, "int", domain)
        return replace(found, data=wrapped(found.data, target))
    if arg.kind == "rat":
        return Arr(wrapped(truncated(arg.data), target), arg.axes, "int")
    return Arr(wrapped(domain.to_integers(arg.data, target, guarded), target), arg.axes, "int")


def _rounded(arg: Arr, target: DType) -> Arr:
    """Integers as the nearest numbers of a floating-point type, still exact; beyond the type they are infinite."""
    limit = 1 << float_digits(target)
    if arg.data.size == 0 or (int(arg.data.max()) <= limit and int(arg.data.min()) >= -limit):
        return arg
    numbers = arg.data.astype(np.float64) if arg.data.dtype == object else arg.data
    near = numbers.astype(NUMPY[target]).astype(np.float64)
    out = np.empty(near.shape, dtype=object)
    out.reshape(-1)[:] = [item if math.isinf(item) else Fraction(item) for item in near.reshape(-1).tolist()]
    return Arr(out, arg.axes, "rat")


def apply_function(domain: Domain, name: str, args: Sequence[Arr], guarded: bool) -> Arr:
    """Any other function of the vocabulary; on integers and fractions those that stay exact do."""
    kind, same = same_kind(args, domain, "int")
    exact = name in {"max", "min", "abs", "sign", "//", "%", *WHOLE}
    if kind != "val" and not exact:
        kind, same = "val", [lift(arg, "val", domain) for arg in same]
    axes, parts = align(same)
    if kind == "val":
        data = domain.function(name, *parts)
        return Arr(data, axes, "bool" if name in {"isnan", "isinf"} else "val")
    zero = None
    if name in {"//", "%"}:
        parts[1], zero = _divisor(domain, parts[1], guarded)
    if kind == "int":
        if name in WHOLE:
            return Arr(parts[0], axes, "int")
        return _standing(domain, Arr(normal(FUNCTIONS[name](*parts), "int", domain), axes, "int"), zero)
    return _standing(domain, _rational(domain, name, parts, axes), zero)


def _rational(domain: Domain, name: str, parts: list[Array], axes: tuple[Iter, ...]) -> Arr:
    whole = WHOLE.get(name)
    if whole is not None:
        flat = [item if isinstance(item, float) else whole(item) for item in parts[0].reshape(-1)]
        return Arr(truncated(np.array(flat, dtype=object).reshape(parts[0].shape)), axes, "int")
    if name == "sign":
        return Arr(np.asarray(np.where(parts[0] > 0, 1, np.where(parts[0] < 0, -1, 0))), axes, "int")
    return Arr(normal(FUNCTIONS[name](*parts), "rat", domain), axes, "rat")
