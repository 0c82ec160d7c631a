"""Inputs of a model that are only numbers, and special numbers that can be put into those.

An element that becomes a position or a length has to be in bounds, and a division of integers ends a process where the divisor is
0. ONNX's schemas tell the inputs of a node apart: what is computed with may be of many types, a position or a length of integer
types only. Integers that become floating-point numbers are left as they are too: a mask of 0 and 1 that is made a large negative
number to be added would, from other integers, leave nothing but rounding.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence, Set
from enum import Enum
from math import inf
from typing import Any, Literal

import numpy as np
import onnx
from onnx import NodeProto, TensorProto

from dslc.onnx.inputs import InputSpec, Uses, draw, is_integer, numpy_type, uses_of
from dslc.onnx.protos import captured, domain_of, operand_types, opset_of, schema_of

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
    hidden = {name for node in model.graph.node for name in captured(node)}
    opset = opset_of(model) or 0
    weights = {tensor.name for tensor in model.graph.initializer}
    return frozenset(
        value.name
        for value in model.graph.input
        if value.name not in weights
        and value.type.HasField("tensor_type")
        and _plain(value.name, uses, hidden, opset, floating=value.type.tensor_type.elem_type in _FLOATS)
    )


def _plain(name: str, uses: Uses, hidden: set[str], opset: int, floating: bool) -> bool:
    seen, todo = {name}, [name]
    while todo:
        at = todo.pop()
        if at in hidden:
            return False
        for node, position in uses.get(at, ()):
            if node.op_type in _SHAPES and not domain_of(node):
                continue
            # integers that become floating-point numbers are left as they are
            to_floats = node.op_type == "Cast" and any(one.name == "to" and one.i in _FLOATS for one in node.attribute)
            if not _computes(node, position, opset) or (not floating and (to_floats or node.op_type == "CastLike")):
                return False
            fresh = [output for output in node.output if output and output not in seen]
            seen.update(fresh)
            todo.extend(fresh)
    return True


def _computes(node: NodeProto, position: int, opset: int) -> bool:
    """Return whether a node computes with an operand: whatever its elements are, the node has a result, of the same shape."""
    return not domain_of(node) and not captured(node) and _operates(node.op_type, position, opset)


@functools.lru_cache(2048)
def _operates(operator: str, position: int, opset: int) -> bool:
    """The same of an operator of ONNX's own, without subgraphs."""
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
