"""Reading a tensor at arrays of positions: strided views where the positions are affine in the iterators, gathers elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from dslc.interpret.array import Arr, ReadOperand, align, order
from dslc.interpret.domain import Array
from dslc.ir.scalar import Iter

PAD = 4  #: times its size by which an axis is padded, at most: beyond, masking costs less


class OutOfBounds(Exception):
    """A read without `other` left the tensor."""


def _affine(index: Arr) -> tuple[int, dict[Iter, int]] | None:
    """`offset + sum of coefficient * position`, if that is what the array holds (it is not empty)."""
    data = index.data
    offset = int(data.flat[0])
    if data.ndim == 0:
        return offset, {}
    steps: dict[Iter, int] = {}
    for k, axis in enumerate(index.axes):
        if data.shape[k] > 1:
            along = data.swapaxes(0, k)
            between = along[1:] - along[:-1]
            steps[axis] = int(between.flat[0])
            if (between != steps[axis]).any():
                return None
    return offset, steps


def read(operand: ReadOperand, index: Sequence[Arr], other: Arr | None, guarded: bool, where: str) -> Arr:
    """One element of the operand for each position; `other` (of the operand's kind) outside its bounds.

    `guarded`: positions outside are read and thrown away by the caller, so they may be anything. Raises OutOfBounds.
    """
    data, mask = operand.data, None
    positions = list(index)
    axes = order({axis for arr in positions for axis in arr.axes})
    sizes = {axis: arr.size(axis) for arr in positions for axis in arr.axes}
    shape = tuple(sizes[axis] for axis in axes)
    if 0 in shape:
        return Arr(np.empty(shape, dtype=data.dtype), axes, operand.kind)
    for k, arr in enumerate(positions):
        low, high, size = int(arr.data.min()), int(arr.data.max()), data.shape[k]
        if low >= 0 and high < size:
            continue
        if not other and not guarded:
            raise OutOfBounds(f"{where}: axis {k} of size {size} is read at {low if low < 0 else high}")
        fixed = other is not None and not other.axes
        before, after = max(0, -low), max(0, high - size + 1)
        if other and fixed and before + after <= PAD * size + 8:
            data = _padded(data, k, before, after, other.data)
            positions[k] = Arr(arr.data + before, arr.axes, "int")
            continue
        inside = Arr((arr.data >= 0) & (arr.data < size), arr.axes, "bool")
        mask = _both(mask, inside) if mask else inside
        if size == 0:
            data = _padded(data, k, 0, 1, np.zeros((), dtype=data.dtype))
            size = 1
        positions[k] = Arr(np.clip(arr.data, 0, size - 1), arr.axes, "int")
    out = Arr(_take(data, positions, axes, sizes), axes, operand.kind)
    out = _without_constant_axes(out)
    if not mask or not other:
        return out
    joint, (inside_, taken, outside) = align((mask, out, other))
    return Arr(np.where(inside_, taken, outside), joint, operand.kind)


def _both(a: Arr, b: Arr) -> Arr:
    axes, (x, y) = align((a, b))
    return Arr(x & y, axes, "bool")


def _padded(data: Array, axis: int, before: int, after: int, value: Array) -> Array:
    shape = list(data.shape)
    shape[axis] += before + after
    out = np.empty(shape, dtype=data.dtype)
    out[...] = value
    out[tuple(slice(before, before + data.shape[k]) if k == axis else slice(None) for k in range(data.ndim))] = data
    return out


def _without_constant_axes(arr: Arr) -> Arr:
    """Axes along which a view repeats one element (stride 0) are dropped: later products need not range over them."""
    drop = {axis for k, axis in enumerate(arr.axes) if arr.data.strides[k] == 0 and arr.data.shape[k] > 1}
    if not drop:
        return arr
    data = arr.data[(*(0 if axis in drop else slice(None) for axis in arr.axes), ...)]
    return Arr(data, tuple(axis for axis in arr.axes if axis not in drop), arr.kind)


def _components(index: list[Arr]) -> list[list[int]]:
    """The axes of the operand, joined where their positions share an iterator."""
    groups: list[tuple[list[int], set[Iter]]] = []
    for k, arr in enumerate(index):
        members, used = [k], set(arr.axes)
        for group in [group for group in groups if group[1] & used]:
            groups.remove(group)
            members, used = group[0] + members, used | group[1]
        groups.append((members, used))
    return [sorted(members) for members, _ in groups]


def _take(data: Array, index: list[Arr], axes: tuple[Iter, ...], sizes: dict[Iter, int]) -> Array:
    affine = [_affine(arr) for arr in index]
    groups = _components(index)
    gathered = [group for group in groups if any(affine[k] is None for k in group)]
    # the affine groups become axes of one view; the axes that are still to be gathered come last
    first = [0] * data.ndim
    steps: dict[Iter, int] = {}
    for group in groups:
        for k in group if group not in gathered else ():
            found = affine[k]
            assert found is not None
            first[k] = found[0]
            for axis in index[k].axes:
                steps[axis] = steps.get(axis, 0) + found[1].get(axis, 0) * data.strides[k]
    rest = [k for group in gathered for k in group]
    # the dots keep a single element an array
    where: tuple[Any, ...] = (*(slice(start, None) for start in first), ...)
    base = data[where]
    shape = (*(sizes[axis] for axis in steps), *(data.shape[k] for k in rest))
    view = as_strided(base, shape, (*steps.values(), *(data.strides[k] for k in rest)), writeable=False)
    named = list(steps)
    for group in gathered:
        # a gather puts its axes right after the named ones, before those still to come
        view, names = _gather(view, [index[k] for k in group], len(named))
        named.extend(names)
    return view.transpose(tuple(map(named.index, axes)))


def _gather(view: Array, index: list[Arr], at: int) -> tuple[Array, tuple[Iter, ...]]:
    """Replaces the axes `at`, `at + 1`, ... (one for each of `index`) by the iterators of the positions."""
    joint, parts = align(index)
    flat: Array = np.zeros((), dtype=np.int64)
    count = 1
    for k, part in enumerate(parts):
        flat = flat * view.shape[at + k] + part
        count *= view.shape[at + k]
    flat = np.broadcast_to(flat, np.broadcast_shapes(*(part.shape for part in parts)))
    merged = view.reshape(*view.shape[:at], count, *view.shape[at + len(index) :])
    return np.take(merged, flat, axis=at), joint
