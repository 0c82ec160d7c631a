"""Drawn inputs of a model: floats from a normal distribution, integers that their uses prove valid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, TypeAlias

import numpy as np
import onnx

# loaded with this module: while its extensions are initialized a Ctrl-C is lost, and a run would go on
from numpy.random import Generator, default_rng
from onnx import TensorProto, TensorShapeProto, helper, numpy_helper

from dslc.onnx.protos import every_node

Uses: TypeAlias = dict[str, list[tuple[onnx.NodeProto, int]]]

# operators that pass elements of their first input on
_MOVES = frozenset(
    "Identity Cast CastLike Reshape Unsqueeze Squeeze Flatten Transpose Slice Expand Tile Concat Split Pad Gather Dropout".split()
)
_INDEXES = {"Gather": 1, "GatherElements": 1, "ScatterElements": 1, "Scatter": 1}
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})


MOST_ELEMENTS = 1 << 40  #: elements of an input: more are in no memory, and further ones not even in an index
LENGTH = 2  #: tensors of a sequence
RANK = 2  #: of tensors in a sequence that says none

_BYTES = frozenset({TensorProto.UINT8, TensorProto.INT8})


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input that must be given; `low` and `high` (exclusive) bound integers. Of a sequence, its tensors and how many there are."""

    name: str
    elem_type: int
    shape: tuple[int, ...]
    low: int = 0
    high: int = 2
    length: int | None = None


@dataclass(frozen=True, slots=True)
class AssumedSize:
    """A size that nothing fixed, and what was taken for it."""

    name: str
    size: int


def input_specs(
    model: onnx.ModelProto, bind: Mapping[str, int], other: int = 8
) -> tuple[list[InputSpec], list[AssumedSize], list[str]]:
    """Inputs to be fed to a model, the sizes that had to be assumed, and the inputs that are no tensors.

    `bind` fixes dimensions by name, or `INPUT.AXIS` for one without a name, and integer inputs by their name. A first axis
    that nothing fixes is taken as 1 (a batch), any other as `other`.
    """
    graph = model.graph
    weights = {tensor.name for tensor in graph.initializer}
    specs: list[InputSpec] = []
    assumed: dict[str, AssumedSize] = {}
    strange: list[str] = []
    ranges = _ranges(model)
    for value in graph.input:
        if value.name in weights:
            continue
        type, listed = tensor_type(value.type)
        if numpy_type(type.elem_type) is None:
            strange.append(value.name)
            continue
        shape = []
        open_rank = listed and not type.HasField("shape")
        for axis, dim in enumerate([TensorShapeProto.Dimension()] * RANK if open_rank else type.shape.dim):
            place = f"{value.name}.{axis}"
            if dim.HasField("dim_value") and dim.dim_value >= 0:
                shape.append(dim.dim_value)
            elif place in bind or (dim.dim_param and dim.dim_param in bind):
                shape.append(bind[place] if place in bind else bind[dim.dim_param])
            else:
                name = dim.dim_param or place
                assumed.setdefault(name, AssumedSize(name, 1 if axis == 0 else other))
                shape.append(assumed[name].size)
        low, high = (bind[value.name], bind[value.name] + 1) if value.name in bind else ranges.get(value.name, (0, 2))
        specs.append(InputSpec(value.name, type.elem_type, tuple(shape), low, high, LENGTH if listed else None))
    return specs, list(assumed.values()), strange


def open_sizes(model: onnx.ModelProto, bind: Mapping[str, int], specs: Sequence[InputSpec]) -> dict[str, int]:
    """The sizes that a model leaves open, by the names that bind them, as they are in inputs that are to be drawn."""
    shapes = {spec.name: spec.shape for spec in specs}
    found: dict[str, int] = {}
    for value in model.graph.input:
        for axis, dim in enumerate(tensor_type(value.type)[0].shape.dim if value.name in shapes else ()):
            place = f"{value.name}.{axis}"
            if not dim.HasField("dim_value"):
                found.setdefault(
                    dim.dim_param if dim.dim_param and place not in bind else place, shapes[value.name][axis]
                )
    return found


def tensor_type(type: onnx.TypeProto) -> tuple[onnx.TypeProto.Tensor, bool]:
    """The type of a tensor, of one that is optional, or of those of a sequence, and whether it is that.

    It is without an element type for what is none of these.
    """
    if type.HasField("optional_type"):
        type = type.optional_type.elem_type
    if type.HasField("sequence_type"):
        return type.sequence_type.elem_type.tensor_type, True
    return type.tensor_type, False


def sequences(model: onnx.ModelProto) -> dict[str, Any]:
    """The inputs that are sequences of tensors, with their types."""
    found = {value.name: tensor_type(value.type) for value in model.graph.input}
    return {name: numpy_type(type.elem_type) for name, (type, listed) in found.items() if listed}


def wanted_inputs(model: onnx.ModelProto) -> dict[str, tuple[Any, tuple[int | None, ...] | None]]:
    """Type and shape (None: any) of every input that must be given; for one that is no tensor both are None."""
    weights = {tensor.name for tensor in model.graph.initializer}
    out: dict[str, tuple[Any, tuple[int | None, ...] | None]] = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        tensor = value.type.tensor_type
        dtype = numpy_type(tensor.elem_type) if value.type.HasField("tensor_type") else None
        if dtype is None or tensor.elem_type == TensorProto.STRING:
            out[value.name] = (None, None)
            continue
        sizes = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)
        out[value.name] = (dtype, sizes if tensor.HasField("shape") else None)
    return out


def numpy_type(elem_type: int) -> Any | None:
    """The numpy type of ONNX's element type; None for a number that is none of ONNX's."""
    try:
        return helper.tensor_dtype_to_np_dtype(elem_type)
    except KeyError:
        return None


def draw(specs: Sequence[InputSpec], seed: int) -> dict[str, Any]:
    """Seeded arrays for the inputs of a model."""
    generator = default_rng([seed, 0xD51C])
    return {
        spec.name: _draw(spec, generator)
        if spec.length is None
        else [_draw(spec, generator) for _ in range(spec.length)]
        for spec in specs
    }


def _draw(spec: InputSpec, generator: Generator) -> Any:
    if prod(spec.shape) > MOST_ELEMENTS:
        raise MemoryError(f"{spec.name} of {'x'.join(map(str, spec.shape))}")
    if spec.elem_type == TensorProto.STRING:
        return np.full(spec.shape, "a", dtype=object)
    dtype = helper.tensor_dtype_to_np_dtype(spec.elem_type)
    drawn: Any
    if spec.elem_type == TensorProto.BOOL:
        drawn = generator.random(spec.shape) < 0.5
    elif np.issubdtype(dtype, np.integer):
        drawn = generator.integers(spec.low, spec.high, spec.shape)
    elif np.issubdtype(dtype, np.complexfloating):
        drawn = generator.standard_normal(spec.shape) + 1j * generator.standard_normal(spec.shape)
    else:
        drawn = generator.standard_normal(spec.shape, dtype=np.float32)
    # of rank 0 numpy makes numbers where arrays are wanted
    return np.asarray(drawn).astype(dtype)


def _ranges(model: onnx.ModelProto) -> dict[str, tuple[int, int]]:
    """For each integer input the values that all its uses allow, as [low, high)."""
    graph = model.graph
    weights = {tensor.name for tensor in graph.initializer}
    integers = [v for v in graph.input if v.name not in weights and is_integer(v.type.tensor_type.elem_type)]
    if not integers:
        return {}
    uses = uses_of(every_node(graph.node))
    facts = _Facts(model)
    out = {}
    for value in integers:
        wide = (0, 256 if value.type.tensor_type.elem_type == TensorProto.UINT8 else 127)
        found = list(_limits(value.name, uses, facts))
        default = wide if value.type.tensor_type.elem_type in _BYTES else (0, 2)
        low, high = max((a for a, _ in found), default=default[0]), min((b for _, b in found), default=default[1])
        out[value.name] = (low, high) if low < high else default
    return out


def uses_of(nodes: Iterable[onnx.NodeProto]) -> Uses:
    """The nodes that read each value, and the places of the value among their operands."""
    uses: Uses = {}
    for node in nodes:
        for position, name in enumerate(node.input):
            uses.setdefault(name, []).append((node, position))
    return uses


def _limits(name: str, uses: Uses, facts: _Facts) -> Iterator[tuple[int, int]]:
    """The limits that each use of a value, or of something that holds its elements, sets."""
    seen, todo = {name}, [name]
    while todo:
        for node, position in uses.get(todo.pop(), ()):
            if (limit := _limit(node, position, facts)) is not None:
                yield limit
            elif node.op_type in _MOVES and (position == 0 or node.op_type == "Concat"):
                fresh = [output for output in node.output if output not in seen]
                seen.update(fresh)
                todo.extend(fresh)


def _limit(node: onnx.NodeProto, position: int, facts: _Facts) -> tuple[int, int] | None:
    if _INDEXES.get(node.op_type) == position:
        size = facts.size(node.input[0], _attribute(node, "axis", 0))
        return None if size is None else (0, size)
    if node.op_type == "GatherND" and position == 1:
        sizes = facts.shape(node.input[0])
        return None if not sizes else (0, max(1, min(size or 1 for size in sizes)))
    if node.op_type == "OneHot" and position == 0:
        depth = facts.number(node.input[1])
        return None if depth is None else (0, depth)
    if node.op_type in ("Div", "Mod") and position == 1:
        return 1, 127
    if node.op_type in _RECURRENT and position == 4:
        size = facts.size(node.input[0], 0)
        return None if size is None else (1, size + 1)
    if node.op_type in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"):
        number = facts.number(node.input[1 - position])
        # one that satisfies the comparison, so that the branch meant for it runs
        return None if number is None or node.op_type != "Equal" else (number, number + 1)
    return None


def _attribute(node: onnx.NodeProto, name: str, default: int) -> int:
    return next((int(a.i) for a in node.attribute if a.name == name), default)


def is_integer(elem_type: int) -> bool:
    """Return whether an element type of ONNX is one of integers."""
    dtype = numpy_type(elem_type)
    return (
        dtype is not None
        and elem_type not in (TensorProto.STRING, TensorProto.BOOL)
        and bool(np.issubdtype(dtype, np.integer))
    )


class _Facts:
    """Shapes and single numbers of a model's values; shape inference runs once, on demand."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        held = [node for node in model.graph.node if node.op_type == "Constant"]
        self._tensors = {node.output[0]: one.t for node in held for one in node.attribute if one.name == "value"}
        self._tensors |= {tensor.name: tensor for tensor in model.graph.initializer}

    @cached_property
    def _inferred(self) -> dict[str, tuple[int | None, ...]]:
        inferred = self._model
        with suppress(onnx.shape_inference.InferenceError, onnx.checker.ValidationError, ValueError, RuntimeError):
            if inferred.ByteSize() < 1 << 30:
                inferred = onnx.shape_inference.infer_shapes(inferred)
        values = (*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output)
        types = {value.name: value.type.tensor_type for value in values if value.type.HasField("tensor_type")}
        return {
            name: tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in type.shape.dim)
            for name, type in types.items()
            if type.HasField("shape")
        }

    def shape(self, name: str) -> tuple[int | None, ...] | None:
        return tuple(self._tensors[name].dims) if name in self._tensors else self._inferred.get(name)

    def size(self, name: str, axis: int) -> int | None:
        shape = self.shape(name)
        return None if shape is None or not -len(shape) <= axis < len(shape) else shape[axis]

    def number(self, name: str) -> int | None:
        tensor = self._tensors.get(name)
        if tensor is None or tensor.data_location == TensorProto.EXTERNAL:
            return None
        array = numpy_helper.to_array(tensor)
        return int(array.reshape(-1)[0]) if array.size == 1 and np.issubdtype(array.dtype, np.number) else None
