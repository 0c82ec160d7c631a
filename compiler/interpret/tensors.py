"""Tensors in and out of the interpreter's representation."""

from __future__ import annotations

from typing import Any

import numpy as np

from dslc.interpret.domain import INT_MAX, Array, Domain
from dslc.interpret.reads import ReadOperand
from dslc.ir.constants import NUMPY
from dslc.ir.dtype import DType, integer_range


def wrapped(data: Array, dtype: DType) -> Array:
    """Integers modulo 2^bits of their type, as int64, or as Python's integers where those are too narrow."""
    low, high = integer_range(dtype)
    if data.size == 0 or (data.dtype != object and int(data.min()) >= low and int(data.max()) <= high):
        return data
    if data.dtype == object:
        span = 1 << dtype.bytes * 8
        flat = [(int(item) - low) % span + low for item in data.reshape(-1)]
        narrow = all(item <= INT_MAX for item in flat)
        out = np.empty(len(flat), dtype=np.int64 if narrow else object)
        out[:] = flat
        return out.reshape(data.shape)
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
