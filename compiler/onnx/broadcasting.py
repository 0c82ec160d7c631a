"""Tensors with one axis for each iterator around an expression, as ONNX nodes that work on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import takewhile
from typing import Any

import numpy as np
from onnx import helper

from dslc.ir.constants import NUMPY
from dslc.ir.dtype import Dim, DType, TensorType
from dslc.ir.fold import least
from dslc.ir.graph import Input, Node, Opaque, Value, Values, nodes_of, opaque
from dslc.ir.scalar import Apply, Iter, Num, Scalar, Sym
from dslc.ir.sizes import multiple
from dslc.onnx.access_lines import AxisLine
from dslc.onnx.context import OpaqueNode
from dslc.onnx.protos import ELEM_TYPES, operand_types, schema_of, small_constant, type_name, whole_numbers

# ---- symbolic sizes at run time ------------------------------------------------------------------------------------

_FUNCTIONS = {"+": "Add", "*": "Mul", "//": "Div", "%": "Mod", "min": "Min", "max": "Max"}
_LIST = TensorType(DType.I64, (1,))
#: the opset from which on Shape gives some axes alone
_SOME = 15

#: sizes that stand beside each other in the shape of a value: the value, and the first of its axes
Place = tuple[Value, int]


@dataclass(eq=False)
class Sources:
    """Places of sizes in the shapes of a graph's values, in the order in which these are computed.

    Values that have one reader are left out: they may become part of their reader's node.
    """

    _outputs: Sequence[Value]

    @cached_property
    def _places(self) -> dict[tuple[Scalar | int, ...], tuple[Place, int]]:
        """Every run of sizes of which one is symbolic, by the first value that has it, and the position of that."""
        out: dict[tuple[Scalar | int, ...], tuple[Place, int]] = {}
        readers = Counter(self._outputs)
        for node in self.position:
            readers.update(set(node.args))
        for node, position in self.position.items():
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
        return {node: k for k, node in enumerate(nodes_of(self._outputs))}

    def place(self, sizes: Sequence[Any], before: int) -> Place | None:
        """The place at which these sizes stand side by side in the shape of a value that is computed before a position."""
        found = self._places.get(tuple(sizes))
        return found[0] if found is not None and found[1] < before else None


@dataclass(eq=False)
class Symbols:
    """Builds the nodes that compute sizes; equal sizes are one value.

    `dims` has a value and its axis for each symbol, so long or a multiple of it. Sizes are read from values of the graph that are
    computed earlier than what wants them; see `at`. `mixed`: lists of sizes may have both a -1 and operands' own sizes.
    """

    _dims: Mapping[str, Place]
    _sources: Sources
    _opset: int = 0
    before: int = 0
    mixed: bool = False

    def at(self, node: Node) -> Symbols:
        """The same for what a node of the graph wants, or what is written for it."""
        return replace(self, before=self._sources.position.get(node, 0))

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
            numbers = list(takewhile(lambda one: isinstance(one, int), items[at:]))
            end = at + max(1, len(numbers))
            for longer in range(len(items), end, -1):
                place = self._sources.place(items[at:longer], self.before)
                if place is not None and (self._opset >= _SOME or longer - at == place[0].type.rank):
                    parts.append(self._shape(place, longer - at))
                    end = longer
                    break
            else:
                parts.append(whole_numbers(numbers) if numbers else self._size(items[at]))
            at = end
        return parts

    def _shape(self, place: Place, count: int) -> Value:
        """So many sizes of a shape."""
        value, start = place
        whole = {} if count == value.type.rank else {"start": start, "end": start + count}
        return _node("Shape", (value,), TensorType(DType.I64, (count,)), **whole)

    def _size(self, item: Any) -> Value:
        if isinstance(item, int | Num):
            return whole_numbers([int(item.value if isinstance(item, Num) else item)])
        place = self._sources.place((item,), self.before)
        if place is None and isinstance(item, Sym):
            place = self._dims[item.name]
            own = multiple(place[0].type.shape[place[1]])
            if own is not None and own[1] > 1:
                # the axis is so many times as long
                whole, times = self._at_axis(place), whole_numbers([own[1]])
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
        return _node("Gather", (shape, whole_numbers([axis])), _LIST, axis=0)


def symbolic(attrs: Any) -> bool:
    """True where attributes hold symbolic sizes."""
    return any(isinstance(v, Scalar) for _, value in attrs for v in (value if isinstance(value, tuple) else (value,)))


def _node(op: str, args: Values, type: TensorType, **attrs: Any) -> Value:
    payload = OpaqueNode(helper.make_node(op, [""] * len(args), [""], **attrs), tuple(range(len(args))), ())
    return opaque(f"{op}:{sorted(attrs.items())}", op, payload, args, (type,))[0]


# ---- one axis for each iterator ------------------------------------------------------------------------------------

#: ends of slices beyond every size
END = (1 << 31) - 1


RUN = 16  #: neighbours that are cut out rather than looked up, at least
PARTS = 12  #: parts of which a tensor is put together, at most
LISTED = 13  #: those from which on axes are inputs, and of all nodes
ALL_LISTED = 18  #: those from which on axes are inputs, and of all nodes


class NotLowered(Exception):
    """An expression for which there are no ONNX nodes, or none of this opset."""


class Tensors:
    """Makes nodes over tensors that are broadcast against each other: each axis is 1, or that of its iterator."""

    def __init__(self, opset: int, symbols: Symbols) -> None:
        self.opset, self.symbols = opset, symbols
        #: iterators around what is lowered, outermost first
        self.iters: list[Iter] = []
        self.extents: dict[Iter, Dim] = {}

    def shape(self, depends: set[Iter]) -> tuple[Dim, ...]:
        return tuple(self.extents[one] if one in depends else 1 for one in self.iters)

    def chain(self, op: str, args: Sequence[Value], dtype: DType) -> Value:
        total = args[0]
        for arg in args[1:]:
            total = self.join(op, [total, arg], dtype)
        return total

    def join(self, op: str, args: Sequence[Value], dtype: DType) -> Value:
        """A node over tensors that are broadcast: each axis is 1 or that of its iterator."""
        rank = max(arg.type.rank for arg in args)
        shape: list[Dim] = [1] * rank
        for arg in args:
            for axis, size in enumerate(arg.type.shape, rank - arg.type.rank):
                shape[axis] = size if shape[axis] == 1 else shape[axis]
        return self.node(op, tuple(args), dtype, tuple(shape))

    def chosen(self, condition: Value, yes: Value, no: Value, dtype: DType) -> Value:
        """One of two where a condition holds, and the other elsewhere. The runtime chooses between no truth values."""
        if dtype is not DType.BOOL:
            return self.join("Where", [condition, yes, no], dtype)
        other = self.node("Not", (condition,), dtype, condition.type.shape)
        return self.join("Or", [self.join("And", [condition, yes], dtype), self.join("And", [other, no], dtype)], dtype)

    def cast(self, value: Value, want: DType) -> Value:
        return (
            value
            if value.type.dtype is want
            else self.node("Cast", (value,), want, value.type.shape, to=ELEM_TYPES[want])
        )

    def number(self, value: Any, dtype: DType) -> Value:
        exact = float(value) if dtype.is_float else value
        if isinstance(exact, Fraction | float) and not dtype.is_float:
            raise NotLowered(f"{value} as {dtype}")
        try:
            return small_constant(np.array(exact, NUMPY[dtype]).reshape(()))
        except OverflowError:
            raise NotLowered(f"{value} as {dtype}") from None

    def sizes(self, shape: Sequence[Dim]) -> Value:
        return self.symbols.tensor(shape, True) if shape else whole_numbers([])

    def node(self, op: str, args: Values, dtype: DType, shape: Sequence[Dim], **attrs: Any) -> Value:
        if not takes(op, self.opset, tuple(arg.type.dtype for arg in args)):
            raise NotLowered(f"{op} of {', '.join(str(arg.type.dtype) for arg in args)}")
        return _node(op, args, TensorType(dtype, tuple(shape)), **attrs)

    def along(
        self, op: str, value: Value, axes: Sequence[int], dtype: DType, shape: Sequence[Dim], **attrs: Any
    ) -> Value:
        """A node that works along some axes: an input of it, or an attribute of older opsets."""
        if self.opset >= (LISTED if op in ("Squeeze", "Unsqueeze", "ReduceSum") else ALL_LISTED):
            return self.node(op, (value, whole_numbers(axes)), dtype, shape, **attrs)
        return self.node(op, (value,), dtype, shape, axes=list(axes), **attrs)

    # ---- parts and orders --------------------------------------------------------------------------------------------

    def cut(self, value: Value, lines: Mapping[int, AxisLine]) -> Value:
        """The part of a tensor that is on some lines, each on an axis of its own."""
        own = {axis: line for axis, line in lines.items() if not line.listed and not line.whole}
        if not own:
            return value
        # before the first place there is only what is left of all
        counts = [line.count for line in own.values() if isinstance(line.count, int)]
        ends = [line.start + line.step * count for line, count in zip(own.values(), counts, strict=True)]
        ends = [end if end >= 0 else -END for end in ends]
        lists = ([line.start for line in own.values()], ends, [*own], [line.step for line in own.values()])
        shape = tuple(own[axis].count if axis in own else size for axis, size in enumerate(value.type.shape))
        return self.node("Slice", (value, *map(whole_numbers, lists)), value.type.dtype, shape)

    def looked_up(self, value: Value, axis: int, positions: Sequence[int]) -> Value:
        """The elements at some positions of an axis.

        Along the last one the runtime looks up element by element: neighbours are cut out there, in a tenth of the time.
        """
        dtype, shape = value.type.dtype, value.type.shape

        def sized(count: int) -> tuple[Dim, ...]:
            return (*shape[:axis], count, *shape[axis + 1 :])

        parts = runs(positions) if axis == len(shape) - 1 else [(positions, False)]
        if len(parts) > PARTS or 2 * sum(len(own) for own, cut in parts if cut) < len(positions):
            parts = [(positions, False)]
        found = [
            self.cut(value, {axis: AxisLine((axis,), shape[axis], (), (), own[0], count=len(own))}) if cut
            else self.node("Gather", (value, whole_numbers(own)), dtype, sized(len(own)), axis=axis)
            for own, cut in parts
        ]  # fmt: skip
        return (
            found[0] if len(found) == 1 else self.node("Concat", tuple(found), dtype, sized(len(positions)), axis=axis)
        )

    def reshaped(self, value: Value, shape: tuple[Dim, ...]) -> Value:
        return (
            value
            if value.type.shape == shape
            else self.node("Reshape", (value, self.sizes(shape)), value.type.dtype, shape)
        )

    def padded(self, value: Value, pads: dict[int, tuple[int, int]], other: Scalar | None) -> Value:
        if not any(map(any, pads.values())):
            return value
        assert isinstance(other, Num)
        both = [pads.get(axis, (0, 0)) for axis in range(value.type.rank)]
        own: tuple[Any, ...] = value.type.shape
        shape = tuple(size if pad == (0, 0) else size + sum(pad) for size, pad in zip(own, both, strict=True))
        amounts = whole_numbers([pad[0] for pad in both] + [pad[1] for pad in both])
        return self.node("Pad", (value, amounts, self.number(other.value, value.type.dtype)), value.type.dtype, shape)

    def placed(self, value: Value, iters: Sequence[Iter | None]) -> Value:
        """A tensor with an axis for each of some iterators (None: one of size 1), with an axis for every iterator."""
        dtype, shape = value.type.dtype, value.type.shape
        gone = [axis for axis, one in enumerate(iters) if not one]
        if gone:
            shape = tuple(size for axis, size in enumerate(shape) if axis not in gone)
            value = self.along("Squeeze", value, gone, dtype, shape)
        kept = [one for one in iters if one]
        order = sorted(range(len(kept)), key=lambda axis: self.iters.index(kept[axis]))
        if order != list(range(len(kept))):
            value = self.node("Transpose", (value,), dtype, tuple(shape[axis] for axis in order), perm=order)
        return self.unsqueezed(value, [k for k, one in enumerate(self.iters) if one not in kept], self.shape(set(kept)))

    def unsqueezed(self, value: Value, axes: Sequence[int], shape: tuple[Dim, ...]) -> Value:
        return self.along("Unsqueeze", value, axes, value.type.dtype, shape) if axes and value.type.rank else value


@lru_cache(1024)
def takes(op: str, opset: int, dtypes: tuple[DType, ...]) -> bool:
    """Return whether ONNX has an operator for operands of some types."""
    schema = schema_of(op, "", opset)
    if schema is None:
        return False
    return all(type_name(dtype) in operand_types(schema, k) for k, dtype in enumerate(dtypes))


def runs(positions: Sequence[int]) -> list[tuple[Sequence[int], bool]]:
    """Positions in parts: long runs of neighbours (True), and what is between them.

    Before: `[9, 9, 0, 1, ..., 63]`. After: `[9, 9]`, `[0, 1, ..., 63]`.
    """
    found: list[tuple[Sequence[int], bool]] = []
    at = 0
    while at < len(positions):
        end = at + 1
        while end < len(positions) and positions[end] == positions[end - 1] + 1:
            end += 1
        own = positions[at:end]
        if len(own) >= RUN:
            found.append((own, True))
        elif found and not found[-1][1]:
            found[-1] = ([*found[-1][0], *own], False)
        else:
            found.append((own, False))
        at = end
    return found


def below(value: Value, index: Sequence[Scalar]) -> Iterator[tuple[Value, tuple[Scalar, ...]]]:
    """A tensor and a position in it, and the same of what it was made of by changes of order: it may be easier to read."""
    at = tuple(index)
    while True:
        yield value, at
        node = value.node
        if not isinstance(node, Opaque) or node.label not in ("Transpose", "Unsqueeze"):
            return
        inner, kept = node.args[0], list[Scalar]()
        if node.label == "Transpose":
            order = helper.get_node_attr_value(node.payload.proto, "perm")
            at = tuple(at[order.index(axis)] for axis in range(len(order)))
        else:
            for one, size in zip(at, value.type.shape, strict=True):
                if len(kept) < inner.type.rank and inner.type.shape[len(kept)] == size:
                    kept.append(one)
                elif size != 1 or not isinstance(one, Num) or one.value != 0:
                    return
            at = tuple(kept)
        value = inner
