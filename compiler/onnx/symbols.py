"""Symbolic sizes at run time: int64 tensors computed from the shapes of the graph's inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import helper

from dslc.ir.dtype import DType, TensorType
from dslc.ir.fold import least
from dslc.ir.graph import Value, opaque
from dslc.ir.scalar import Apply, Num, Scalar, Sym, walk
from dslc.onnx.context import OpaqueNode
from dslc.onnx.external import small_constant

_FUNCTIONS = {"+": "Add", "*": "Mul", "//": "Div", "%": "Mod", "min": "Min", "max": "Max"}
_LIST = TensorType(DType.I64, (1,))


class Symbols:
    """Builds the nodes that compute sizes; equal sizes are one value."""

    def __init__(self, dims: Mapping[str, tuple[Value, int]]) -> None:
        self._dims = dims

    def used(self, attrs: Any) -> bool:
        """Whether attributes hold symbolic sizes."""
        return any(isinstance(v, Scalar) for _, value in attrs for v in (value if isinstance(value, tuple) else (value,)))

    def tensor(self, items: Sequence[Any], as_list: bool) -> Value:
        """The sizes as an int64 list, or the one size as a number.

        Raises:
            KeyError: a size that no input of the graph has.
        """
        parts = [self._size(item) for item in items]
        if not as_list:
            return _node("Squeeze", (parts[0],), TensorType(DType.I64, ()))
        if len(parts) == 1:
            return parts[0]
        return _node("Concat", tuple(parts), TensorType(DType.I64, (len(parts),)), axis=0)

    def _size(self, item: Any) -> Value:
        if isinstance(item, Num):
            item = item.value
        if isinstance(item, int):
            return small_constant(np.array([item], np.int64))
        if isinstance(item, Sym):
            source, axis = self._dims[item.name]
            shape = _node("Shape", (source,), TensorType(DType.I64, (source.type.rank,)))
            return _node("Gather", (shape, small_constant(np.array([axis], np.int64))), _LIST, axis=0)
        if not isinstance(item, Apply) or item.name not in _FUNCTIONS:
            raise KeyError(str(item))
        total = self._size(item.args[0])
        for arg in item.args[1:]:
            size = self._size(arg)
            if item.name == "//" and not _is_natural(item.args[0]):
                # ONNX divides towards 0: without the rest both are the same
                total = _node("Sub", (total, _node("Mod", (total, size), _LIST)), _LIST)
            total = _node(_FUNCTIONS[item.name], (total, size), _LIST)
        return total

    def available(self, value: Scalar) -> bool:
        return all(part.name in self._dims for part in walk(value) if isinstance(part, Sym))


def _is_natural(size: Scalar) -> bool:
    low = least(size)
    return low is not None and low >= 0


def _node(op: str, args: tuple[Value, ...], type: TensorType, **attrs: Any) -> Value:
    proto = helper.make_node(op, [""] * len(args), [""], **attrs)
    slots = tuple(range(len(args)))
    return opaque(f"{op}:{sorted(attrs.items())}", op, OpaqueNode(proto, slots, ()), args, (type,))[0]
