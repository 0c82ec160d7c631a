"""Arrays whose axes are named by iterators: the value of a scalar expression over just the iterators it depends on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dslc.interpret.domain import INT_MAX, INT_MIN, KINDS, Array, Domain, Kind, fractions
from dslc.ir.scalar import Iter

_NAME = re.compile(r"(\D*)(\d*)\.?(\d*)")


@lru_cache(maxsize=4096)
def rank_of(iterator: Iter) -> tuple[int, str, int, int, str]:
    """The order of axes: traversal iterators first (`i0`, `i1`, parts of a split one as `i1.0`), then those of reductions."""
    match = _NAME.match(iterator.name)
    assert match is not None
    prefix, number, part = match.groups()
    return (prefix != "i", prefix, int(number or 0), int(part or 0), iterator.name)


@dataclass(frozen=True, slots=True)
class Arr:
    """`data` has one axis for each of `axes`, which are in the order of `rank_of`."""

    data: Array
    axes: tuple[Iter, ...]
    kind: Kind

    def size(self, axis: Iter) -> int:
        return int(self.data.shape[self.axes.index(axis)])


def normal(data: Any, kind: Kind, domain: Domain) -> Array:
    """The result of a numpy function as an array again: rank-0 results of ufuncs are scalars."""
    if kind == "rat" or (kind == "val" and domain.dtype == object):
        if isinstance(data, np.ndarray):
            return data
        out = np.empty((), dtype=object)
        out[()] = data
        return out
    out = np.asarray(data)
    # a single integer beyond int64: numpy's uint64 and int64 would meet as floats
    return out.astype(object) if kind == "int" and out.dtype.kind == "u" else out


def order(axes: Sequence[Iter] | set[Iter] | frozenset[Iter]) -> tuple[Iter, ...]:
    return tuple(sorted(axes, key=rank_of))


def expand(arr: Arr, axes: tuple[Iter, ...]) -> Array:
    """A view with an axis of size 1 for each of `axes` that the array does not have."""
    if arr.axes == axes:
        return arr.data
    return arr.data[(*(slice(None) if axis in arr.axes else None for axis in axes), ...)]


def align(arrs: Sequence[Arr]) -> tuple[tuple[Iter, ...], list[Array]]:
    """Views that broadcast against each other, and their joint axes."""
    axes = order({axis for arr in arrs for axis in arr.axes})
    return axes, [expand(arr, axes) for arr in arrs]


def joint_kind(arrs: Sequence[Arr]) -> Kind:
    return max((arr.kind for arr in arrs), key=KINDS.index)


def lift(arr: Arr, kind: Kind, domain: Domain) -> Arr:
    """The same values as a later kind."""
    if arr.kind == kind:
        return arr
    data = arr.data
    if arr.kind == "inf":
        positive = bool(data > 0)
        if kind == "val":
            return Arr(domain.number(float(data)), (), kind)
        if kind == "rat":
            return Arr(normal(float(data), "rat", domain), (), kind)
        if kind == "int":
            return Arr(np.asarray(INT_MAX if positive else INT_MIN), (), kind)
        return Arr(np.asarray(positive), (), kind)
    if kind == "int":
        return Arr(data.astype(np.int64), arr.axes, kind)
    if kind == "rat":
        return Arr(fractions(data), arr.axes, kind)
    if arr.kind == "rat" and any(isinstance(item, float) for item in data.reshape(-1)):
        flat = [domain.number(item)[()] for item in data.reshape(-1)]
        return Arr(np.array(flat, dtype=domain.dtype).reshape(data.shape), arr.axes, kind)
    return Arr(domain.lift(data), arr.axes, kind)


def same_kind(arrs: Sequence[Arr], domain: Domain, at_least: Kind = "inf") -> tuple[Kind, list[Arr]]:
    kind = joint_kind(arrs)
    if KINDS.index(kind) < KINDS.index(at_least):
        kind = at_least
    return kind, [lift(arr, kind, domain) for arr in arrs]
