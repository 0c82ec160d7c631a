"""Drawn inputs of a model: floats from a normal distribution, integers that their uses prove valid."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from enum import Enum
from functools import cached_property
from math import inf, prod
from typing import Any, Literal, TypeAlias

import numpy as np
import onnx

# loaded with this module: while its extensions are initialized a Ctrl-C is lost, and a run would go on
from numpy.random import Generator, default_rng
from onnx import NodeProto, TensorProto, TensorShapeProto, helper, numpy_helper

from dslc.onnx.protos import captured, domain_of, every_node, operand_types, opset_of, schema_of
from dslc.records import record

# ---- drawn inputs --------------------------------------------------------------------------------------------------

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


@record
class InputSpec:
    """One input that must be given; `low` and `high` (exclusive) bound integers. Of a sequence, its tensors and how many there are."""

    name: str
    elem_type: int
    shape: tuple[int, ...]
    low: int = 0
    high: int = 2
    length: int | None = None


@record
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
    specs: list[InputSpec] = []
    assumed: dict[str, AssumedSize] = {}
    strange: list[str] = []
    ranges = _ranges(model)
    for value in wanted(model):
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
    out: dict[str, tuple[Any, tuple[int | None, ...] | None]] = {}
    for value in wanted(model):
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
    integers = [value for value in wanted(model) if is_integer(value.type.tensor_type.elem_type)]
    if not integers:
        return {}
    uses = uses_of(every_node(model.graph.node))
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
    """The nodes that read each value, and the places of the value among their operands: -1 where a subgraph reads it."""
    uses: Uses = {}
    for node in nodes:
        for position, name in (*enumerate(node.input), *((-1, name) for name in captured(node))):
            uses.setdefault(name, []).append((node, position))
    return uses


def reached(name: str, uses: Uses, passes: Callable[[NodeProto, int], bool]) -> Iterator[tuple[NodeProto, int]]:
    """The uses of a value, and of what holds its elements: the results of nodes that pass them on."""
    seen, todo = {name}, [name]
    while todo:
        for node, position in uses.get(todo.pop(), ()):
            yield node, position
            if passes(node, position):
                fresh = [output for output in node.output if output and output not in seen]
                seen.update(fresh)
                todo.extend(fresh)


def wanted(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs that must be given: those that are no weights."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in weights]


def _limits(name: str, uses: Uses, facts: _Facts) -> Iterator[tuple[int, int]]:
    """The limits that each use of a value, or of something that holds its elements, sets."""

    def passes(node: NodeProto, position: int) -> bool:
        return node.op_type in _MOVES and position >= 0 and (position == 0 or node.op_type == "Concat")

    for use in reached(name, uses, passes):
        if (limit := _limit(*use, facts)) is not None:
            yield limit


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


# ---- special numbers -----------------------------------------------------------------------------------------------

Kind = Literal["extremes", "zeros", "edges", "logarithms"]
KINDS: tuple[Kind, ...] = ("extremes", "zeros", "edges", "logarithms")

_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16})
_NUMBERS = frozenset({"tensor(float)", "tensor(double)", "tensor(float16)"})
# operators that look at no element
_SHAPES = frozenset({"Shape", "Size"})
# operators of which all operands are conditions, where each is only a number
_LOGIC = frozenset({"And", "Or", "Xor", "Not", "Where"})
# operands that may be floating-point numbers and yet decide on a length, a position, or whether there is a result at all
_LENGTHS: Mapping[str, frozenset[int]] = {
    "Range": frozenset({0, 1, 2}), "NonZero": frozenset({0}), "Unique": frozenset({0}), "OneHot": frozenset({0, 1}),
    "Div": frozenset({1}), "Mod": frozenset({0, 1}), "Pow": frozenset({1}), "Resize": frozenset({1, 2, 3}),
    "Upsample": frozenset({1}), "GridSample": frozenset({1}), "RoiAlign": frozenset({1, 2}), "MaxRoiPool": frozenset({1}),
    "NonMaxSuppression": frozenset({0, 1, 2, 3, 4}),
}  # fmt: skip


def special(
    model: onnx.ModelProto, specs: Sequence[InputSpec], kind: Kind, seed: int = 0, keep: Set[str] = frozenset(),
    plain: Set[str] | None = None,
) -> dict[str, Any] | None:  # fmt: skip
    """Inputs of which those that are only numbers are special; None where no input can be drawn so.

    They are zeros, or (integers) of their type's whole range, or (others) hold numbers at the ends of their type in a few places,
    or logarithms of denormal ones. Of integers half are the type's ends and numbers near 0, so that equal ones meet.

    Args:
        keep: inputs that are drawn as ever.
        plain: the result of `only_numbers`, where it is known.
    """
    plain = (only_numbers(model) if plain is None else plain) - keep

    def fits(array: Any, integers: bool) -> bool:
        return kind == "zeros" or (integers if kind == "extremes" else floating(array))

    out = draw(specs, seed)
    chosen = [spec for spec in specs if spec.name in plain and fits(out[spec.name], is_integer(spec.elem_type))]
    if not chosen:
        return None
    generator = np.random.default_rng([seed, 0xE57])
    for spec in chosen:
        dtype, array = numpy_type(spec.elem_type), out[spec.name]
        if kind == "zeros":
            out[spec.name] = np.zeros(spec.shape, dtype)
        elif kind == "extremes":
            out[spec.name] = extremes(dtype, spec.shape, generator)
        else:
            # the largest one would leave nothing but infinities
            out[spec.name] = placed(array, ends_of(dtype)[1:]) if kind == "edges" else moved(array, AllOf.LOGARITHMS)
    return out


def extremes(dtype: Any, shape: Sequence[int], generator: np.random.Generator) -> Any:
    """Integers over the whole range of a type; half of them from its ends, 0, 1, -1 and one number that occurs often."""
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    anywhere = generator.integers(low, high, tuple(shape), dtype=dtype, endpoint=True)
    ends = [
        low,
        low + 1,
        high,
        high - 1,
        0,
        1,
        max(low, -1),
        int(generator.integers(low, high, dtype=dtype, endpoint=True)),
    ]
    chosen = np.asarray(ends, dtype)[generator.integers(0, len(ends), tuple(shape))]
    return np.asarray(np.where(generator.random(tuple(shape)) < 0.5, chosen, anywhere), dtype)


def only_numbers(model: onnx.ModelProto) -> frozenset[str]:
    """The inputs no element of which becomes a position, a length or a divisor, nor reaches a node that is not known.

    Of integers and conditions also none becomes a floating-point number.
    """
    uses = uses_of(model.graph.node)
    opset = opset_of(model) or 0

    def only_number(value: onnx.ValueInfoProto) -> bool:
        floats = value.type.tensor_type.elem_type in _FLOATS
        found = reached(value.name, uses, lambda node, _: not _is_shape(node))
        return all(_is_shape(node) or _computes(node, position, opset, floats) for node, position in found)

    return frozenset(value.name for value in wanted(model) if value.type.HasField("tensor_type") and only_number(value))


def _is_shape(node: NodeProto) -> bool:
    return node.op_type in _SHAPES and not domain_of(node)


def _computes(node: NodeProto, position: int, opset: int, floats: bool) -> bool:
    """Return whether a node computes with an operand: whatever its elements are, the node has a result, of the same shape.

    `floats`: of what type the operand is; integers that become floating-point numbers are left as they are.
    """
    to_floats = node.op_type == "Cast" and any(one.name == "to" and one.i in _FLOATS for one in node.attribute)
    return (
        (floats or not (to_floats or node.op_type == "CastLike"))
        and not domain_of(node)
        and not captured(node)
        and _operates(node.op_type, position, opset)
    )


@functools.lru_cache(2048)
def _operates(operator: str, position: int, opset: int) -> bool:
    """Return whether an operator of ONNX's own, without subgraphs, computes with an operand."""
    schema = schema_of(operator, "", opset)
    if schema is None or position in _LENGTHS.get(operator, ()):
        return False
    return operator in _LOGIC or bool(operand_types(schema, position) & _NUMBERS)


class AllOf(Enum):
    """Kinds of numbers that fill a whole array."""

    DENORMAL = "denormal numbers"
    LARGE = "large numbers, whose squares are infinite"
    LOGARITHMS = "logarithms of denormal numbers"


def floating(array: Any) -> bool:
    """True for arrays of numpy's own floating-point types."""
    return bool(array.dtype.kind == "f" and array.size)


def ends_of(dtype: Any) -> Any:
    """Numbers next to powers of two, denormal ones, and nearly the largest."""
    info = np.finfo(dtype)
    one, whole, tiny = (np.array(number, dtype) for number in (1, 2 / info.eps, info.tiny))
    up, zero = np.array(inf, dtype), np.array(0, dtype)
    found = (
        info.max * (1 - dtype.type(2**-10)), np.nextafter(one, up), np.nextafter(one, zero), np.nextafter(whole, up),
        np.nextafter(whole, zero), tiny, np.nextafter(tiny, zero), info.smallest_subnormal, -tiny,
    )  # fmt: skip
    return np.array(found, dtype)


def moved(array: Any, kind: AllOf) -> Any:
    """An array of ordinary numbers as one of others."""
    info = np.finfo(array.dtype)
    wide = array.astype(np.float64)
    if kind is AllOf.LOGARITHMS:
        low = float(np.log(np.float64(info.tiny)) + np.log(np.float64(info.eps)) / 2)
        return np.asarray(low + wide / 8).astype(array.dtype)
    by = float(info.tiny) / 512 if kind is AllOf.DENORMAL else float(info.max) * float(info.eps)
    return np.asarray(np.clip(wide, -8, 8) * by).astype(array.dtype)


def room(array: Any, count: int) -> int:
    """In how many places of an array something special may be at once: ordinary numbers are around it."""
    return int(min(count, max(1, array.size // 4)))


def placed(array: Any, numbers: Any) -> Any:
    """An array with some of the numbers in a few places."""
    out, count = array.copy(), room(array, len(numbers))
    places = np.random.default_rng(array.size).choice(array.size, count, replace=False)
    out.reshape(-1)[places] = numbers[:count].astype(array.dtype)
    return out
