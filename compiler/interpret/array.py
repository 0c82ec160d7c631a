"""Arrays whose axes are named by iterators: the value of a scalar expression over just the iterators it depends on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from dslc.interpret.domain import INT_MAX, INT_MIN, KINDS, Array, Domain, Kind, Shape, fractions
from dslc.interpret.floats import ARITHMETIC
from dslc.ir.constants import NUMPY
from dslc.ir.dtype import DType, integer_range
from dslc.ir.scalar import Iter
from dslc.records import record

_NAME = re.compile(r"(\D*)(\d*)\.?(\d*)")


@lru_cache(maxsize=4096)
def rank_of(iterator: Iter) -> tuple[int, str, int, int, str]:
    """The order of axes: traversal iterators first (`i0`, `i1`, parts of a split one as `i1.0`), then those of reductions."""
    match = _NAME.match(iterator.name)
    assert match
    prefix, number, part = match.groups()
    return (prefix != "i", prefix, int(number or 0), int(part or 0), iterator.name)


@record
class Arr:
    """`data` has one axis for each of `axes`, which are in the order of `rank_of`."""

    data: Array
    axes: tuple[Iter, ...]
    kind: Kind

    def size(self, axis: Iter) -> int:
        return int(self.data.shape[self.axes.index(axis)])


@record
class ReadOperand:
    """A tensor that a scope reads."""

    data: Array
    kind: Kind


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
    """The axes in the order of `rank_of`."""
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
    """The first kind that holds all of several."""
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


def same_kind(arrs: Sequence[Arr], domain: Domain, at_least: Kind = "bool") -> tuple[Kind, list[Arr]]:
    """Arrays as their joint kind, or a later one; infinities alone are elements."""
    kind = max(joint_kind(arrs), at_least, key=KINDS.index)
    kind = "val" if at_least == "bool" and joint_kind(arrs) == "inf" else kind
    return kind, [lift(arr, kind, domain) for arr in arrs]


def integers(flat: Sequence[int], shape: Shape) -> Array:
    """Python's integers as int64 where they all fit, else as objects."""
    narrow = all(INT_MIN <= item <= INT_MAX for item in flat)
    out = np.empty(len(flat), dtype=np.int64 if narrow else object)
    out[:] = flat
    return out.reshape(shape)


def wrapped(data: Array, dtype: DType) -> Array:
    """Integers modulo 2^bits of their type, as int64, or as Python's integers where those are too narrow."""
    low, high = integer_range(dtype)
    if data.size == 0 or (data.dtype != object and int(data.min()) >= low and int(data.max()) <= high):
        return data
    if data.dtype == object:
        span = 1 << dtype.bytes * 8
        return integers([(int(item) - low) % span + low for item in data.reshape(-1)], data.shape)
    if dtype is DType.U64:
        return data.astype(np.uint64).astype(object)
    return data.astype(NUMPY[dtype]).astype(np.int64)


def encode(array: Any, dtype: DType, domain: Domain) -> ReadOperand:
    """A numpy array as an operand of the given element type."""
    data = np.asarray(array)
    if dtype is DType.BOOL:
        return ReadOperand(data.astype(bool), "bool")
    if dtype.is_float:
        return ReadOperand(domain.encode(data, dtype), "val")
    if data.dtype == np.uint64 and data.size and int(data.max()) > INT_MAX:
        return ReadOperand(data.astype(object), "int")
    return ReadOperand(data.astype(np.int64) if data.dtype != object else data, "int")


def decode(operand: ReadOperand, dtype: DType, domain: Domain, final: bool) -> Array:
    """The inverse of `encode`: element types are the declared ones where the domain has them."""
    if operand.kind == "val":
        return domain.decode(operand.data, dtype, final)
    if operand.kind == "bool":
        return operand.data
    data = wrapped(operand.data, dtype)
    return data.astype(NUMPY[dtype]) if final else data


def combined(name: str, arrs: Sequence[Arr], domain: Domain) -> Arr:
    """The sum (`+`) or product (`*`) of arrays of one kind, small ones first."""
    out, *others = sorted(arrs, key=lambda arr: len(arr.axes))
    for other in others:
        axes, (a, b) = align((out, other))
        exact = out.kind != "val"
        data = normal(ARITHMETIC[name](a, b), out.kind, domain) if exact else domain.arithmetic(name, a, b)
        out = Arr(data, axes, out.kind)
    return out


def sum_over(arr: Arr, axes: Sequence[Iter], domain: Domain) -> Arr:
    """The sum over some axes."""
    if not axes:
        return arr
    positions = tuple(map(arr.axes.index, axes))
    kept = tuple(axis for axis in arr.axes if axis not in axes)
    if arr.kind == "val":
        return Arr(domain.total(arr.data, positions), kept, "val")
    if arr.kind == "rat" and arr.data.size == 0:
        shape = tuple(map(arr.size, kept))
        return lift(Arr(np.zeros(shape, dtype=np.int64), kept, "int"), "rat", domain)
    return Arr(normal(arr.data.sum(axis=positions), arr.kind, domain), kept, arr.kind)


def contract(factors: Sequence[Arr], sizes: dict[Iter, int], domain: Domain) -> Arr:
    """The product of the factors (of one kind: int, rat or val), summed over the iterators in `sizes`."""
    missing = prod(size for axis, size in sizes.items() if not any(axis in factor.axes for factor in factors))
    summed = {axis for axis in sizes if any(axis in factor.axes for factor in factors)}
    parts = list(factors)
    while True:
        for k, part in enumerate(parts):
            alone = [
                a
                for a in part.axes
                if a in summed and not any(a in other.axes for j, other in enumerate(parts) if j != k)
            ]
            parts[k] = sum_over(part, alone, domain)
            summed -= set(alone)
        if len(parts) == 1:
            break
        i, j = _cheapest(parts, summed)
        joined = _pair(parts[i], parts[j], _vanishing(parts, i, j, summed), domain)
        parts = [part for k, part in enumerate(parts) if k not in (i, j)] + [joined]
        summed = {axis for axis in summed if any(axis in part.axes for part in parts)}
    out = parts[0]
    if missing != 1:
        times = lift(Arr(np.asarray(missing), (), "int"), out.kind, domain)
        out = combined("*", (times, out), domain)
    return out


def _vanishing(parts: list[Arr], i: int, j: int, summed: set[Iter]) -> set[Iter]:
    others = {axis for k, part in enumerate(parts) if k not in (i, j) for axis in part.axes}
    return (set(parts[i].axes) | set(parts[j].axes)) & summed - others


def _cheapest(parts: list[Arr], summed: set[Iter]) -> tuple[int, int]:
    """The pair whose product is smallest."""

    def size(pair: tuple[int, int]) -> int:
        sizes = {axis: parts[k].size(axis) for k in pair for axis in parts[k].axes}
        return prod(sizes[axis] for axis in sizes.keys() - _vanishing(parts, *pair, summed))

    return min(((i, j) for j in range(len(parts)) for i in range(j)), key=size)


def _pair(a: Arr, b: Arr, gone: set[Iter], domain: Domain) -> Arr:
    shared = gone & set(a.axes) & set(b.axes)
    if not shared or (a.kind != "val" and domain.dtype == object) or a.kind == "rat":
        product = combined("*", (a, b), domain)
        return sum_over(product, [axis for axis in product.axes if axis in gone], domain)
    batch = order((set(a.axes) & set(b.axes)) - shared)
    left = order(set(a.axes) - set(b.axes))
    right = order(set(b.axes) - set(a.axes))
    inner = order(shared)
    x = _matrix(a, batch, left, inner)
    y = _matrix(b, batch, inner, right)
    # a single batch dimension of size 1 keeps numpy on its fast path
    out = domain.matmul(x, y) if a.kind == "val" else np.matmul(x, y)
    sizes = {axis: part.size(axis) for part in (a, b) for axis in part.axes}
    named = (*batch, *left, *right)
    out = out.reshape(tuple(sizes[axis] for axis in named))
    axes = order(named)
    return Arr(out.transpose(tuple(map(named.index, axes))), axes, a.kind)


def _matrix(arr: Arr, *groups: tuple[Iter, ...]) -> Array:
    """The axes in three groups, each merged into one."""
    wanted = tuple(axis for group in groups for axis in group)
    moved = arr.data.transpose(tuple(map(arr.axes.index, wanted)))
    shape = tuple(prod(arr.size(axis) for axis in group) for group in groups)
    return moved.reshape(shape) if groups[0] else moved.reshape(shape[1:])
