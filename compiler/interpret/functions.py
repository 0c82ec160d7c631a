"""The vocabulary's functions on arrays with named axes: integers and fractions here, the rest by the domain."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from dslc.interpret.array import Arr, align, joint_kind, lift, normal, same_kind
from dslc.interpret.domain import INT_MAX, INT_MIN, Array, Domain, Kind, Redraw
from dslc.interpret.floats import COMPARE, FUNCTIONS
from dslc.interpret.tensors import wrapped
from dslc.ir.constants import NUMPY
from dslc.ir.dtype import DTYPES, DType
from dslc.ir.scalar import Iter

# exponents of fractions beyond this give numbers that nobody tells from 0 or from infinity
_DIGITS = 128
_WHOLE: dict[str, Callable[[Any], int]] = {"floor": math.floor, "ceil": math.ceil, "round": round, "trunc": math.trunc}


def as_kind(arr: Arr, kind: Kind, domain: Domain) -> Arr:
    """A result as the kind of its element type: integers from values are truncated."""
    if kind == "val" or arr.kind == "inf":
        return lift(arr, kind, domain)
    if kind == "bool":
        return arr if arr.kind == "bool" else Arr(_nonzero(arr, domain), arr.axes, "bool")
    if arr.kind == "val":
        return Arr(domain.to_integers(arr.data), arr.axes, "int")
    if arr.kind == "rat":
        return Arr(truncated(arr.data), arr.axes, "int")
    return lift(arr, "int", domain)


def _nonzero(arr: Arr, domain: Domain) -> Array:
    if arr.kind == "val":
        return domain.compare("!=", arr.data, domain.number(0))
    return np.asarray(arr.data != 0).astype(bool)


def truncated(data: Array) -> Array:
    """Fractions cut towards zero; infinities are the ends of int64."""
    flat = [INT_MAX if item == np.inf else INT_MIN if item == -np.inf else int(item) for item in data.reshape(-1)]
    return integers(flat, data.shape)


def integers(flat: Sequence[int], shape: tuple[int, ...]) -> Array:
    """Python's integers as int64 where they all fit, else as objects."""
    narrow = all(INT_MIN <= item <= INT_MAX for item in flat)
    out = np.empty(len(flat), dtype=np.int64 if narrow else object)
    out[:] = flat
    return out.reshape(shape)


def plus(domain: Domain, args: Sequence[Arr]) -> Arr:
    """A sum of any number of terms, small ones first."""
    kind, same = same_kind(args, domain, "int")
    ordered = sorted(same, key=lambda arr: len(arr.axes))
    out = ordered[0]
    for part in ordered[1:]:
        axes, (a, b) = align((out, part))
        data = domain.add(a, b) if kind == "val" else normal(a + b, kind, domain)
        out = Arr(data, axes, kind)
    return out


def divide(domain: Domain, args: Sequence[Arr], guarded: bool) -> Arr:
    """`a / b`, exact on integers. Raises Redraw for a division by zero outside floats, unless `guarded`."""
    if joint_kind(args) == "val" or any(arg.kind == "inf" for arg in args):
        _, same = same_kind(args, domain, "val")
        axes, (a, b) = align(same)
        return Arr(domain.div(a, b), axes, "val")
    _, same = same_kind(args, domain, "rat")
    axes, (a, b) = align(same)
    zero = None
    if (b == 0).any():
        zero = _zeros(domain, b == 0, guarded)
        b = np.where(b == 0, np.asarray(Fraction(1)), b)
    return _standing(domain, Arr(normal(a / b, "rat", domain), axes, "rat"), zero)


def _zeros(domain: Domain, zero: Any, guarded: bool) -> Array:
    """Where a quotient has no value. Raises Redraw where the domain has nothing that stands for one, unless `guarded`."""
    if not guarded and domain.absent is None:
        raise Redraw("division by zero")
    return np.asarray(zero)


def _standing(domain: Domain, arr: Arr, zero: Array | None) -> Arr:
    """The same with what stands for a quotient by zero in its places."""
    if zero is None or domain.absent is None:
        return arr
    standing = Fraction(domain.absent) if arr.kind == "rat" else domain.absent
    return replace(arr, data=normal(np.where(zero, np.asarray(standing), arr.data), arr.kind, domain))


def integer_quotient(domain: Domain, name: str, a: Arr, b: Arr, guarded: bool) -> Arr:
    """`floor`, `ceil` or `trunc` of a quotient of integers, without going through fractions."""
    _, same = same_kind((a, b), domain, "int")
    axes, (x, y) = align(same)
    zero = None
    if (y == 0).any():
        zero = _zeros(domain, y == 0, guarded)
        y = np.where(y == 0, 1, y)
    quotient = x // y
    if name != "floor":
        inexact = quotient * y != x
        up = inexact if name == "ceil" else inexact & ((x < 0) != (y < 0))
        quotient = quotient + up
    return _standing(domain, Arr(normal(quotient, "int", domain), axes, "int"), zero)


def power(domain: Domain, args: Sequence[Arr], guarded: bool) -> Arr:
    """`a ^ b`; a negative power of an integer is a fraction. Raises Redraw for one of 0 outside floats, unless `guarded`."""
    base, exponent = (same_kind((arg,), domain, "int")[1][0] for arg in args)
    if base.kind == "val" or exponent.kind == "val" or exponent.kind == "rat":
        integer = exponent.kind == "int"
        base = lift(base, "val", domain)
        exponent = exponent if integer else lift(exponent, "val", domain)
        axes, (a, b) = align((base, exponent))
        return Arr(domain.power(a, b, integer), axes, "val")
    axes, (a, b) = align((base, exponent))
    if base.kind == "int" and (b < 0).any():
        a = lift(Arr(a, axes, "int"), "rat", domain).data
        base = replace(base, kind="rat")
    zero = None
    if base.kind == "rat" and ((a == 0) & (b < 0)).any():
        zero = _zeros(domain, (a == 0) & (b < 0), guarded)
        a = np.where((a == 0) & (b < 0), np.asarray(Fraction(1)), a)
    exact = a.dtype == object or b.dtype == object
    return _standing(domain, Arr(normal(_powers(a, b) if exact else a**b, base.kind, domain), axes, base.kind), zero)


def _power(base: Any, exponent: int) -> Any:
    """A power of an integer modulo 2^64 where it has many digits; one that is nearly 0 has the right sign."""
    if isinstance(base, Fraction):
        huge = abs(exponent) > _DIGITS and abs(base) not in (0, 1)
        return base ** (exponent if not huge else (_DIGITS + exponent % 2) * (1 if exponent > 0 else -1))
    return base**exponent if exponent <= _DIGITS else pow(base, exponent, 1 << 64)


_powers = np.frompyfunc(lambda base, exponent: _power(base, int(exponent)), 2, 1)


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
    if kind == "inf":
        kind, same = "val", [lift(arg, "val", domain) for arg in args]
    axes, (a, b) = align(same)
    data = domain.compare(name, a, b) if kind == "val" else COMPARE[name](a, b)
    data = np.asarray(data)
    return Arr(data if kind == "val" or data.dtype == bool else data.astype(bool), axes, "bool")


def convert(domain: Domain, dtype: str, arg: Arr) -> Arr:
    """`convert(x, dtype)` as a cast of ONNX: to integers truncates, to bool is `!= 0`."""
    target = DTYPES[dtype]
    if target.is_float:
        out = lift(arg, "val", domain)
        return replace(out, data=_rounded(domain, out.data, target))
    if target.is_integer:
        integers = as_kind(arg, "int", domain)
        return replace(integers, data=wrapped(integers.data, target))
    return as_kind(arg, "bool", domain)


def _rounded(domain: Domain, data: Array, dtype: DType) -> Array:
    if domain.name != "float64":
        return data
    return data.astype(NUMPY[dtype]).astype(np.float64)


def apply_function(domain: Domain, name: str, args: Sequence[Arr], guarded: bool) -> Arr:
    """Any other function of the vocabulary; on integers and fractions those that stay exact do."""
    kind, same = same_kind(args, domain, "int")
    exact = name in {"max", "min", "abs", "floor", "ceil", "round", "trunc", "sign", "//", "%"}
    if kind != "val" and not exact:
        kind, same = "val", [lift(arg, "val", domain) for arg in same]
    axes, parts = align(same)
    if kind == "val":
        data = domain.function(name, *parts)
        return Arr(data, axes, "bool" if name in {"isnan", "isinf"} else "val")
    zero = None
    if name in {"//", "%"} and (parts[1] == 0).any():
        zero = _zeros(domain, parts[1] == 0, guarded)
        parts[1] = np.where(parts[1] == 0, 1, parts[1])
    if kind == "int":
        if name in {"floor", "ceil", "round", "trunc"}:
            return Arr(parts[0], axes, "int")
        return _standing(domain, Arr(normal(FUNCTIONS[name](*parts), "int", domain), axes, "int"), zero)
    return _standing(domain, _rational(domain, name, parts, axes), zero)


def _rational(domain: Domain, name: str, parts: list[Array], axes: tuple[Iter, ...]) -> Arr:
    whole = _WHOLE.get(name)
    if whole is not None:
        flat = [item if isinstance(item, float) else whole(item) for item in parts[0].reshape(-1)]
        return Arr(truncated(np.array(flat, dtype=object).reshape(parts[0].shape)), axes, "int")
    if name == "sign":
        return Arr(np.asarray(np.where(parts[0] > 0, 1, np.where(parts[0] < 0, -1, 0))), axes, "int")
    return Arr(normal(FUNCTIONS[name](*parts), "rat", domain), axes, "rat")
