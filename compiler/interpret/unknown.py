"""The field in which nothing is known of functions but what holds of any: extremes are functions of a set of elements."""

from __future__ import annotations

import zlib

import numpy as np

from dslc.interpret.domain import Array
from dslc.interpret.field import NEGATIVE, POSITIVE, Field, P, flat_last, mixed


class UnknownFunctions(Field):
    """As the field, but the largest and the smallest are seeded random functions of what they are taken of, without repetitions.

    In the field's order one of two elements is larger, so a draw hides what the other one is; here every element counts.
    """

    def extreme(self, kind: str, array: Array, axes: tuple[int, ...]) -> Array:
        data = np.sort(flat_last(array, axes), axis=-1)
        neutral = NEGATIVE if kind == "max" else POSITIVE
        if data.shape[-1] == 0:
            return np.full(data.shape[:-1], neutral, dtype=np.int64)
        counted = data != neutral
        counted[..., 1:] &= data[..., 1:] != data[..., :-1]
        words = mixed(data.astype(np.uint64) + np.uint64(zlib.crc32(kind.encode()) + (self._seed << 32)))
        total = np.where(counted, words % np.uint64(P), 0).astype(np.int64).sum(axis=-1) % P
        alone = np.where(counted, data, 0).sum(axis=-1)
        count = counted.sum(axis=-1)
        return np.where(count > 1, total, np.where(count == 1, alone, neutral))

    def function(self, name: str, *args: Array) -> Array:
        if name in {"max", "min"}:
            first, second = np.broadcast_arrays(*args)
            return self.extreme(name, np.stack([first, second], axis=-1), (first.ndim,))
        return super().function(name, *args)
