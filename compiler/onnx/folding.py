"""Computing weights-only values when a model is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto

from dslc.errors import DslcError, error
from dslc.ir.constants import FROM_NUMPY, NUMPY
from dslc.ir.graph import Constant, Value, topological
from dslc.onnx.known import static_shape
from dslc.semantics.library import Rules

CHUNK = 256 << 20  #: bytes of weights that one session computes with


#: writes a model that computes values from others, and names what it gets (`node_model`)
Model = Callable[..., tuple[ModelProto, list[str]]]


def compute(values: Sequence[Value], rules: Rules, opset: int, model: Model) -> dict[Value, Any]:
    """The elements of constant values: by ONNX Runtime where nodes express them, else by the reference interpreter.

    Raises:
        DslcError: E0814 where neither can.
    """
    out: dict[Value, Any] = {}
    for chunk in _chunks(values):
        try:
            out.update(zip(chunk, _by_runtime(chunk, rules, opset, model), strict=True))
        except DslcError:
            for value in chunk:
                out[value] = _alone(value, rules, opset, model)
    return out


def _chunks(values: Sequence[Value]) -> list[list[Value]]:
    chunks: list[list[Value]] = []
    size = 0
    for value in values:
        own = sum(
            node.types[0].bytes
            for node in topological([value.node])
            if isinstance(node, Constant) and node.types[0] is not None and node.types[0].is_static
        )
        if not chunks or size + own > CHUNK:
            chunks.append([])
            size = 0
        chunks[-1].append(value)
        size += own
    return chunks


def _alone(value: Value, rules: Rules, opset: int, model: Model) -> Any:
    from dslc.interpret import InterpretError

    try:
        return _by_runtime([value], rules, opset, model)[0]
    except DslcError as first:
        try:
            return _by_interpreter(value, rules)
        except (DslcError, InterpretError):
            raise error("E0814", f"a weights-only value cannot be computed: {first}") from None


def _by_runtime(values: Sequence[Value], rules: Rules, opset: int, write: Model) -> list[Any]:
    from dslc.onnx.runtime import run

    leaves = [
        Value(node)
        for node in topological(value.node for value in values)
        if isinstance(node, Constant) and node.types[0] is not None and node.types[0].elements > 1024
    ]
    model, names = write(values, rules, opset, inputs=leaves, scopes=True)
    feeds = {name: leaf.node.data.load() for name, leaf in zip(names, leaves, strict=True)}  # type: ignore[attr-defined]
    results = run(model, feeds, [output.name for output in model.graph.output], optimize=False)
    return [_checked(value, array) for value, array in zip(values, results, strict=True)]


def _checked(value: Value, array: Any) -> Any:
    """The array; raises E0814 where it is not of the value's type."""
    if FROM_NUMPY.get(array.dtype) is not value.type.dtype or tuple(array.shape) != value.type.shape:
        raise error("E0814", f"a weights-only value has the type {array.dtype}{list(array.shape)}, not {value.type}")
    return array


def _by_interpreter(value: Value, rules: Rules) -> Any:
    from dslc.interpret import Floats, run

    (result,) = run(rules, [value], {}, Floats())
    array = np.asarray(result)
    dtype = NUMPY[value.type.dtype]
    if value.type.dtype.is_integer and array.dtype.kind == "f":
        array = np.trunc(array)
    return array.astype(dtype).reshape(static_shape(value.type) or ())
