"""Symbolic sizes at run time: int64 tensors read from the shapes of values that are there anyway, or computed from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from onnx import helper

from dslc.ir.dtype import DType, TensorType
from dslc.ir.fold import least
from dslc.ir.graph import Input, Node, Value, opaque, topological
from dslc.ir.scalar import Apply, Num, Scalar, Sym
from dslc.ir.sizes import multiple
from dslc.onnx.context import OpaqueNode
from dslc.onnx.external import small_constant

_FUNCTIONS = {"+": "Add", "*": "Mul", "//": "Div", "%": "Mod", "min": "Min", "max": "Max"}
_LIST = TensorType(DType.I64, (1,))
#: the opset from which on Shape gives some axes alone
_SOME = 15

#: sizes that stand beside each other in the shape of a value: the value, and the first of its axes
Place = tuple[Value, int]


class Sources:
    """Places of sizes in the shapes of a graph's values, in the order in which these are computed.

    Values that have one reader are left out: they may become part of their reader's node.
    """

    def __init__(self, outputs: Sequence[Value]) -> None:
        self._outputs = outputs

    @cached_property
    def _places(self) -> dict[tuple[Scalar | int, ...], tuple[Place, int]]:
        """Every run of sizes of which one is symbolic, by the first value that has it, and the position of that."""
        out: dict[tuple[Scalar | int, ...], tuple[Place, int]] = {}
        readers = Counter(self._outputs)
        order = topological(value.node for value in self._outputs)
        for node in order:
            readers.update(set(node.args))
        for position, node in enumerate(order):
            for value in () if node.constant else node.values:
                if value.known and not value.type.is_static and (readers[value] > 1 or isinstance(node, Input)):
                    shape = value.type.shape
                    for start in range(len(shape)):
                        for end in range(start + 1, len(shape) + 1):
                            if any(isinstance(size, Scalar) for size in shape[start:end]):
                                out.setdefault(shape[start:end], ((value, start), position))
        return out

    @cached_property
    def position(self) -> Mapping[Node, int]:
        return {node: k for k, node in enumerate(topological(value.node for value in self._outputs))}

    def place(self, sizes: Sequence[Any], before: int) -> Place | None:
        """The place at which these sizes stand side by side in the shape of a value that is computed before a position."""
        found = self._places.get(tuple(sizes))
        return found[0] if found is not None and found[1] < before else None


class Symbols:
    """Builds the nodes that compute sizes; equal sizes are one value.

    `dims` has a value and its axis for each symbol, so long or a multiple of it. Sizes are read from values of the graph that are
    computed earlier than what wants them; see `at`. `mixed`: lists of sizes may have both a -1 and operands' own sizes.
    """

    def __init__(
        self,
        dims: Mapping[str, Place],
        sources: Sources,
        opset: int = 0,
        before: int = 0,
        mixed: bool = False,
    ) -> None:
        self._dims, self._sources, self._opset, self._before, self.mixed = dims, sources, opset, before, mixed

    def at(self, node: Node) -> Symbols:
        """The same for what a node of the graph wants, or what is written for it."""
        return Symbols(self._dims, self._sources, self._opset, self._sources.position.get(node, 0), self.mixed)

    def tensor(self, items: Sequence[Any], as_list: bool) -> Value:
        """The sizes as an int64 list, or the one size as a number.

        Raises:
            KeyError: a size that no input of the graph has.
        """
        items = [item.value if isinstance(item, Num) else item for item in items]
        parts = self._parts(items)
        if not as_list:
            return _node("Squeeze", (parts[0],), TensorType(DType.I64, ()))
        if len(parts) == 1:
            return parts[0]
        return _node("Concat", tuple(parts), TensorType(DType.I64, (len(items),)), axis=0)

    def _parts(self, items: Sequence[Any]) -> list[Value]:
        """Lists that are the sizes one after the other: the longest that some shape has, and numbers together."""
        parts: list[Value] = []
        at = 0
        while at < len(items):
            end = at + 1
            if isinstance(items[at], int):
                while end < len(items) and isinstance(items[end], int):
                    end += 1
            for longer in range(len(items), end, -1):
                place = self._sources.place(items[at:longer], self._before)
                if place is not None and (self._opset >= _SOME or longer - at == place[0].type.rank):
                    parts.append(self._shape(place, longer - at))
                    end = longer
                    break
            else:
                numbers = [one for one in items[at:end] if isinstance(one, int)]
                parts.append(small_constant(np.array(numbers, np.int64)) if numbers else self._size(items[at]))
            at = end
        return parts

    def _shape(self, place: Place, count: int) -> Value:
        """So many sizes of a shape."""
        value, start = place
        rank = value.type.rank
        whole = {} if count == rank else {"start": start, "end": start + count}
        return _node("Shape", (value,), TensorType(DType.I64, (count,)), **whole)

    def _size(self, item: Any) -> Value:
        if isinstance(item, int | Num):
            item = item.value if isinstance(item, Num) else item
            return small_constant(np.array([item], np.int64))
        place = self._sources.place((item,), self._before)
        if place is None and isinstance(item, Sym):
            place = self._dims[item.name]
            own = multiple(place[0].type.shape[place[1]])
            if own is not None and own[1] > 1:
                # the axis is so many times as long
                whole, times = self._at_axis(place), small_constant(np.array([own[1]], np.int64))
                return _node("Div", (whole, times), _LIST)
        if place is not None:
            return self._at_axis(place)
        if not isinstance(item, Apply) or item.name not in _FUNCTIONS:
            raise KeyError(str(item))
        total = self._size(item.args[0])
        for arg in item.args[1:]:
            size = self._size(arg)
            if item.name == "//" and ((low := least(item.args[0])) is None or low < 0):
                # ONNX divides towards 0: without the rest both are the same
                total = _node("Sub", (total, _node("Mod", (total, size), _LIST)), _LIST)
            total = _node(_FUNCTIONS[item.name], (total, size), _LIST)
        return total

    def _at_axis(self, place: Place) -> Value:
        source, axis = place
        if self._opset >= _SOME:
            return self._shape(place, 1)
        shape = _node("Shape", (source,), TensorType(DType.I64, (source.type.rank,)))
        return _node("Gather", (shape, small_constant(np.array([axis], np.int64))), _LIST, axis=0)


def symbolic(attrs: Any) -> bool:
    """True where attributes hold symbolic sizes."""
    return any(isinstance(v, Scalar) for _, value in attrs for v in (value if isinstance(value, tuple) else (value,)))


def _node(op: str, args: tuple[Value, ...], type: TensorType, **attrs: Any) -> Value:
    proto = helper.make_node(op, [""] * len(args), [""], **attrs)
    slots = tuple(range(len(args)))
    return opaque(f"{op}:{sorted(attrs.items())}", op, OpaqueNode(proto, slots, ()), args, (type,))[0]
