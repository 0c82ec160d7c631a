"""Weights-only values: computed when a model is written, or by its nodes where they would make the file grow.

8-bit weights, cast and scaled: [30522, 384] of 1 byte → Cast → Mul → [30522, 384] of 4 bytes
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto

from dslc.errors import DslcError, error
from dslc.interpret import Floats, InterpretError
from dslc.interpret import run as interpret
from dslc.ir.constants import FROM_NUMPY, NUMPY, FillRef
from dslc.ir.graph import Call, Constant, Value, nodes_of
from dslc.onnx.emit import Spec
from dslc.onnx.plan import WritePlan
from dslc.onnx.runtime import run
from dslc.semantics.library import Rules

CHUNK = 256 << 20  #: bytes of weights that one session computes with


#: writes a model that computes values from others, and names what it gets (`node_model`)
Model = Callable[..., tuple[ModelProto, list[str]]]


def compute(values: Sequence[Value], rules: Rules, opset: int, model: Model) -> dict[Value, Any]:
    """The elements of constant values: by ONNX Runtime where nodes express them, else by the reference interpreter.

    Raises:
        DslcError: E0814 where neither can.
    """
    chunks: list[list[Value]] = []
    size = 0
    for value in values:
        leaves = (node.types[0] for node in nodes_of([value]) if isinstance(node, Constant))
        own = sum(type.bytes for type in leaves if type and type.is_static)
        if not chunks or size + own > CHUNK:
            chunks.append([])
            size = 0
        chunks[-1].append(value)
        size += own
    out: dict[Value, Any] = {}
    for chunk in chunks:
        try:
            out.update(zip(chunk, _by_runtime(chunk, rules, opset, model), strict=True))
        except DslcError:
            for value in chunk:
                try:
                    (out[value],) = _by_runtime([value], rules, opset, model)
                except DslcError as first:
                    try:
                        out[value] = _by_interpreter(value, rules)
                    except (DslcError, InterpretError):
                        raise error("E0814", f"a weights-only value cannot be computed: {first}") from None
    return out


def _by_runtime(values: Sequence[Value], rules: Rules, opset: int, write: Model) -> list[Any]:
    leaves = [
        Value(node)
        for node in nodes_of(values)
        if isinstance(node, Constant) and node.types[0] and node.types[0].elements > 1024
    ]
    model, names = write(values, rules, opset, inputs=leaves, scopes=True)
    feeds = {name: leaf.node.data.load() for name, leaf in zip(names, leaves, strict=True)}  # type: ignore[attr-defined]
    results = run(model, feeds, [output.name for output in model.graph.output], optimize=False)
    for value, array in zip(values, results, strict=True):
        if FROM_NUMPY.get(array.dtype) is not value.type.dtype or tuple(array.shape) != value.type.shape:
            found = f"{array.dtype}{list(array.shape)}"
            raise error("E0814", f"a weights-only value has the type {found}, not {value.type}")
    return results


def _by_interpreter(value: Value, rules: Rules) -> Any:
    (result,) = interpret(rules, [value], {}, Floats())
    array = np.asarray(result)
    dtype = NUMPY[value.type.dtype]
    if value.type.dtype.is_integer and array.dtype.kind == "f":
        array = np.trunc(array)
    return array.astype(dtype).reshape(value.type.sizes)


SLACK = 1 << 16  #: bytes by which a file may always grow


def ordered(plan: WritePlan, outputs: Sequence[Value], weights: Iterable[Value], growth: float) -> list[Spec]:
    """The nodes to write, producers first, with enough that depend on weights alone to keep the file from growing.

    Args:
        weights: of the original file.
        growth: the share of their sizes by which the written weights may be more.

    Raises:
        DslcError: E0814 for what no ONNX node can express.
    """
    order = plan.order(outputs)
    most = (1 + growth) * sum(map(_bytes, set(weights))) + SLACK
    while plan.folded:
        read = map(plan.canonical, (*outputs, *(value for spec in order for value in spec.reads)))
        written = {one for one in read if one in plan.folded or (isinstance(one.node, Constant) and one.known)}
        excess = sum(map(_bytes, written)) - most
        dear = _dear(plan, written) if excess > 0 else []
        if not dear:
            break
        for growing, value in dear:
            plan.hold(value)
            excess -= growing
            if excess <= 0:
                break
        order = plan.order(outputs)
    return order


def _dear(plan: WritePlan, written: set[Value]) -> list[tuple[float, Value]]:
    """Values that are larger than the weights they are made of, and by how many bytes; the largest first.

    A weight that is written anyway costs nothing more where nodes read it, and one of several users its part.
    """
    folded = [value for value in written if value in plan.folded and isinstance(value.node, Call) and value.node.args]
    below = {value: [Value(node) for node in nodes_of([value]) if isinstance(node, Constant)] for value in folded}
    users = Counter(leaf for leaves in below.values() for leaf in leaves)
    found = []
    for value, leaves in below.items():
        growing = _bytes(value) - sum(_bytes(leaf) / users[leaf] for leaf in leaves if leaf not in written)
        if growing > 0:
            found.append((growing, value))
    return sorted(found, key=lambda one: -one[0])


def _bytes(value: Value) -> float:
    """Of a weight in a file; one number everywhere takes none."""
    if (
        not value.known
        or not value.type.is_static
        or (isinstance(value.node, Constant) and isinstance(value.node.data, FillRef))
    ):
        return 0.0
    return float(value.type.bytes)
