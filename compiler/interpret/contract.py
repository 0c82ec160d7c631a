"""Sums of products: each factor ranges over few iterators, so that a sum of a product is a sequence of batched matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from dslc.interpret.array import Arr, align, lift, normal, order
from dslc.interpret.domain import Array, Domain
from dslc.ir.scalar import Iter


def multiply(factors: Sequence[Arr], domain: Domain) -> Arr:
    """The product of arrays of one kind, small ones first."""
    ordered = sorted(factors, key=lambda arr: len(arr.axes))
    out = ordered[0]
    for factor in ordered[1:]:
        axes, (a, b) = align((out, factor))
        data = domain.mul(a, b) if out.kind == "val" else normal(a * b, out.kind, domain)
        out = Arr(data, axes, out.kind)
    return out


def sum_over(arr: Arr, axes: Sequence[Iter], domain: Domain) -> Arr:
    if not axes:
        return arr
    positions = tuple(arr.axes.index(axis) for axis in axes)
    kept = tuple(axis for axis in arr.axes if axis not in axes)
    if arr.kind == "val":
        return Arr(domain.total(arr.data, positions), kept, "val")
    if arr.kind == "rat" and arr.data.size == 0:
        shape = tuple(arr.size(axis) for axis in kept)
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
        out = multiply((times, out), domain)
    return out


def _vanishing(parts: list[Arr], i: int, j: int, summed: set[Iter]) -> set[Iter]:
    others = {axis for k, part in enumerate(parts) if k not in (i, j) for axis in part.axes}
    return (set(parts[i].axes) | set(parts[j].axes)) & summed - others


def _cheapest(parts: list[Arr], summed: set[Iter]) -> tuple[int, int]:
    """The pair whose product is smallest."""
    best: tuple[int, int, int] | None = None
    for j in range(len(parts)):
        for i in range(j):
            sizes = {axis: part.size(axis) for part in (parts[i], parts[j]) for axis in part.axes}
            gone = _vanishing(parts, i, j, summed)
            size = prod(size for axis, size in sizes.items() if axis not in gone)
            if best is None or size < best[0]:
                best = (size, i, j)
    assert best is not None
    return best[1], best[2]


def _pair(a: Arr, b: Arr, gone: set[Iter], domain: Domain) -> Arr:
    shared = gone & set(a.axes) & set(b.axes)
    if not shared or (a.kind != "val" and domain.dtype == object) or a.kind == "rat":
        product = multiply((a, b), domain)
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
    return Arr(out.transpose(tuple(named.index(axis) for axis in axes)), axes, a.kind)


def _matrix(arr: Arr, *groups: tuple[Iter, ...]) -> Array:
    """The axes in three groups, each merged into one."""
    wanted = tuple(axis for group in groups for axis in group)
    moved = arr.data.transpose(tuple(arr.axes.index(axis) for axis in wanted))
    shape = tuple(prod(arr.size(axis) for axis in group) for group in groups)
    if not groups[0]:
        return moved.reshape(shape[1:])
    return moved.reshape(shape)
