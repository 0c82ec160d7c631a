"""Arrays with numbers at the ends of floating-point types."""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import Any

import numpy as np


class AllOf(Enum):
    """Kinds of numbers that fill a whole array."""

    DENORMAL = "denormal numbers"
    LARGE = "large numbers, whose squares are infinite"
    LOGARITHMS = "logarithms of denormal numbers"


def floating(array: Any) -> bool:
    """True for arrays of numpy's own floating-point types."""
    return bool(array.dtype.kind == "f" and array.size)


def ends_of(dtype: Any) -> Any:
    """Numbers next to powers of two, denormal ones, and nearly the largest."""
    info = np.finfo(dtype)
    one, whole, tiny = (np.array(number, dtype) for number in (1, 2 / info.eps, info.tiny))
    up, zero = np.array(inf, dtype), np.array(0, dtype)
    found = (
        info.max * (1 - dtype.type(2**-10)), np.nextafter(one, up), np.nextafter(one, zero), np.nextafter(whole, up),
        np.nextafter(whole, zero), tiny, np.nextafter(tiny, zero), info.smallest_subnormal, -tiny,
    )  # fmt: skip
    return np.array(found, dtype)


def moved(array: Any, kind: AllOf) -> Any:
    """An array of ordinary numbers as one of others."""
    info = np.finfo(array.dtype)
    wide = array.astype(np.float64)
    if kind is AllOf.LOGARITHMS:
        low = float(np.log(np.float64(info.tiny)) + np.log(np.float64(info.eps)) / 2)
        return np.asarray(low + wide / 8).astype(array.dtype)
    by = float(info.tiny) / 512 if kind is AllOf.DENORMAL else float(info.max) * float(info.eps)
    return np.asarray(np.clip(wide, -8, 8) * by).astype(array.dtype)


def room(array: Any, count: int) -> int:
    """In how many places of an array something special may be at once: ordinary numbers are around it."""
    return int(min(count, max(1, array.size // 4)))


def placed(array: Any, numbers: Any) -> Any:
    """An array with some of the numbers in a few places."""
    out, count = array.copy(), room(array, len(numbers))
    places = np.random.default_rng(array.size).choice(array.size, count, replace=False)
    out.reshape(-1)[places] = numbers[:count].astype(array.dtype)
    return out
