"""Fingerprints (TASO, section 2.2): a first hash over size, shape and content of a tensor, a second, symmetric one over a set.

The first is a pair of linear hashes modulo p = 2^31 - 1 with random weights, one for each shape: two different tensors have the same
one with probability 1/p^2 (a tensor of one element has no more than its 31 bits: 1/p). Everything follows from the seed.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from math import prod

import numpy as np

from dslc.interpret.domain import Array
from dslc.interpret.field import P
from dslc.ir.dtype import TensorType

ROWS = 1 << 16  #: rows that are hashed at once


@lru_cache(maxsize=4096)
def _weights(type: TensorType, seed: int) -> tuple[Array, int]:
    """Weights as float64 [elements, 8]: the two hashes' weights in four pieces of 8 bits each; and what the type adds."""
    rng = np.random.default_rng((zlib.crc32(str(type).encode()), seed))
    weights = rng.integers(1, P, (prod(type.sizes), 2), dtype=np.int64)
    pieces = np.concatenate([(weights >> shift) & 0xFF for shift in (0, 8, 16, 24)], axis=1)
    return pieces.astype(np.float64), int(rng.integers(0, 1 << 62))


def first_hash(values: Array, type: TensorType, seed: int = 0) -> Array:
    """uint64 hashes below 2^62 of a batch of tensors [batch, *shape] (elements below 2^32, integers of any sign, or booleans)."""
    pieces, own = _weights(type, seed)
    flat = values.reshape(len(values), len(pieces))
    out = np.empty(len(flat), dtype=np.uint64)
    # 2^31 * 2^8 * elements must stay exact in float64
    step = 1 << 13
    for start in range(0, len(flat), ROWS):
        part = flat[start : start + ROWS]
        # what is in range needs no remainder: the sums are taken modulo P
        if part.dtype.kind == "i" and part.size and (part.min() < 0 or part.max() >> 32):
            part = part % P
        sums = np.zeros((len(part), 2), dtype=np.int64)
        for low in range(0, flat.shape[1], step):
            products = (part[:, low : low + step].astype(np.float64) @ pieces[low : low + step]).astype(np.int64) % P
            sums += products[:, 0:2] + (products[:, 2:4] << 8) + (products[:, 4:6] << 16) + (products[:, 6:8] << 24)
            sums %= P
        out[start : start + ROWS] = (sums[:, 0].astype(np.uint64) << np.uint64(31)) | sums[:, 1].astype(np.uint64)
    return (out + np.uint64(own)) & np.uint64((1 << 62) - 1)
