"""Weights in their places: inside the model, or in a file beside it that is read on demand."""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from dslc.errors import error
from dslc.ir.constants import NUMPY, array_value
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Value, constant_value
from dslc.onnx.constant_propagation import static_shape
from dslc.onnx.protos import DTYPES

SMALL = 1 << 14  #: elements of a constant that is held as numbers, so that rules can ask for its value


@dataclass(frozen=True, slots=True)
class FileRegion:
    """`length` bytes from `offset` of a file."""

    path: Path
    offset: int
    length: int
    key: str

    def read(self) -> np.memmap[Any, Any] | np.ndarray[Any, Any]:
        """The bytes, mapped: only pages that are touched are in memory, and the system may drop them."""
        if not self.length:
            return np.zeros(0, np.uint8)
        try:
            return np.memmap(self.path, np.uint8, "r", self.offset, (self.length,))
        except (OSError, ValueError) as problem:
            raise error("E0802", f"cannot read external data {self.path}: {problem}", path=str(self.path)) from None


def entries(tensor: TensorProto) -> dict[str, str]:
    """The entries that say where external data is."""
    return {entry.key: entry.value for entry in tensor.external_data}


def is_external(tensor: TensorProto) -> bool:
    """Return whether the elements are in a file beside the model."""
    return tensor.data_location == TensorProto.EXTERNAL


def byte_size(tensor: TensorProto) -> int | None:
    """The bytes that the elements take, by type and shape; None for types without a size (strings)."""
    dtype = DTYPES.get(tensor.data_type)
    if dtype is None:
        return None
    return int(math.prod(tensor.dims)) * dtype.bytes


def region(tensor: TensorProto, folder: Path | None, where: str) -> FileRegion:
    """The place of a tensor's external data, checked without reading it.

    Raises:
        DslcError: E0802 missing; E0803 too short for the shape; E0804 outside the model's folder.
    """
    info = entries(tensor)
    location = info.get("location", "")
    what = f"tensor `{tensor.name}` of {where}"
    if not location:
        raise error("E0802", f"{what} has external data without a location", path=where)
    base = (folder if folder is not None else Path.cwd()).resolve()
    path = base / location
    try:
        real = path.resolve()
    except (OSError, ValueError, RuntimeError):
        raise error("E0802", f"{what}: no file `{location}`", path=where) from None
    absolute = Path(location).is_absolute()
    if absolute or not real.is_relative_to(base):
        wrong = "an absolute path" if absolute else "outside the model's folder"
        raise error(
            "E0804",
            f"{what} has its data in `{location}`, {wrong}",
            path=where,
            hint="a model may only read files in its own folder, and names them relative to it",
        )
    try:
        status = os.stat(real)
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise error("E0802", f"{what}: external data `{location}` cannot be read: {reason}", path=where) from None
    if not real.is_file():
        raise error("E0802", f"{what}: `{location}` is no file", path=where)
    try:
        offset = int(info.get("offset") or 0)
        needed = byte_size(tensor)
        length = (
            int(info["length"]) if info.get("length") else (needed if needed is not None else status.st_size - offset)
        )
    except ValueError:
        raise error("E0803", f"{what}: offset or length of its external data is no number", path=where) from None
    if offset < 0 or length < 0 or offset + length > status.st_size:
        raise error(
            "E0803",
            f"{what} needs bytes {offset} to {offset + length} of `{location}`, which has {status.st_size}",
            path=where,
        )
    if needed is not None and length < needed:
        raise error("E0803", f"{what} has {needed} bytes by its shape, but its external data has {length}", path=where)
    key = f"file:{real}:{status.st_mtime_ns}:{offset}:{length}"
    return FileRegion(real, offset, needed if needed is not None else length, key)


@dataclass(frozen=True, eq=False)
class FileData:
    """A constant in a file: mapped when loaded, never copied into memory as a whole."""

    region: FileRegion
    dtype: DType
    shape: tuple[int, ...]

    @property
    def key(self) -> str:
        return self.region.key

    def load(self) -> Any:
        return self.region.read().view(NUMPY[self.dtype]).reshape(self.shape)


@dataclass(frozen=True, eq=False)
class ProtoData:
    """A constant inside a model; the bytes stay in the message."""

    tensor: TensorProto
    dtype: DType
    shape: tuple[int, ...]

    @cached_property
    def key(self) -> str:
        array = np.ascontiguousarray(self.load())
        return "sha256:" + hashlib.sha256(array.view(np.uint8).data if array.size else b"").hexdigest()

    def load(self) -> Any:
        if self.tensor.raw_data:
            return np.frombuffer(self.tensor.raw_data, NUMPY[self.dtype]).reshape(self.shape)
        return numpy_helper.to_array(self.tensor)


def check_shape(tensor: TensorProto, where: str) -> tuple[int, ...]:
    """The shape of a tensor; raises E0813 for one that cannot be."""
    shape = tuple(int(size) for size in tensor.dims)
    if any(size < 0 for size in shape) or math.prod(shape) > 1 << 44:
        raise error("E0813", f"tensor `{tensor.name}` of {where} has the shape {list(shape)}", path=where)
    return shape


#: where elements are that are not raw bytes; all other types are in int32_data
_FIELDS: dict[int, str] = {
    TensorProto.FLOAT: "float_data",
    TensorProto.INT64: "int64_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.UINT64: "uint64_data",
}


def check_length(tensor: TensorProto, where: str) -> None:
    """Raises E0813 where the elements inside the model are fewer or more than its shape says."""
    size = byte_size(tensor)
    if size is None:
        return
    if tensor.raw_data:
        found = len(tensor.raw_data)
    else:
        name = _FIELDS.get(tensor.data_type, "int32_data")
        found = len(getattr(tensor, name)) * DTYPES[tensor.data_type].bytes
    if found != size:
        raise error(
            "E0813", f"tensor `{tensor.name}` of {where} has {found} bytes where its shape needs {size}", path=where
        )


def tensor_constant(tensor: TensorProto, folder: Path | None, where: str) -> Value | None:
    """A weight as a constant; None where the language has no such element type.

    Raises:
        DslcError: E0813, E0813, E0802 to E0804.
    """
    shape = check_shape(tensor, where)
    dtype = DTYPES.get(tensor.data_type)
    if dtype is None or tensor.HasField("segment"):
        if is_external(tensor):
            region(tensor, folder, where)
        return None
    type = TensorType(dtype, shape)
    if is_external(tensor):
        place = region(tensor, folder, where)
        data = FileData(place, dtype, shape)
        if math.prod(shape) <= SMALL:
            return small_constant(np.array(data.load()))
        return constant_value(data, type)
    check_length(tensor, where)
    if math.prod(shape) <= SMALL:
        try:
            return small_constant(np.array(numpy_helper.to_array(tensor)))
        except (ValueError, TypeError, KeyError) as problem:
            raise error("E0813", f"tensor `{tensor.name}` of {where} cannot be read: {problem}", path=where) from None
    return constant_value(ProtoData(tensor, dtype, shape), type)


def array_of(items: tuple[Any, ...], type: TensorType) -> Value:
    """Known numbers as a constant."""
    return small_constant(np.array(items, NUMPY[type.dtype]).reshape(static_shape(type) or ()))


def small_constant(array: Any) -> Value:
    """As `array_value`, except that a negative zero stays one."""
    if array.dtype.kind == "f" and array.size and not array.any() and np.signbit(array).any():
        from dslc.ir.constants import FROM_NUMPY, ArrayData

        return constant_value(ArrayData(array), TensorType(FROM_NUMPY[array.dtype], tuple(array.shape)))
    return array_value(array)
