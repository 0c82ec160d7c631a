"""Both sides of an instance in ONNX Runtime: what differs there, where the interpreter tells nothing apart."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.attacking import Attack
from dslc.checking.rule_tests import newest_opset
from dslc.errors import DslcError
from dslc.interpret.differ import feeds_of, pair_of
from dslc.interpret.floats import Floats
from dslc.ir.dtype import DType
from dslc.ir.graph import Value
from dslc.onnx.exporter import node_model
from dslc.onnx.runtime import run
from dslc.semantics.composites import spelled_out

_SECONDS = 3.0
# what float32 may round in a chain of operations; narrower types say nothing
_TOLERANCE = 1e-3
_TYPES = frozenset({DType.F32, DType.F64, DType.I64, DType.I32, DType.BOOL})


def differences(attack: Attack, count: int) -> list[str]:
    """What `count` instances of a rule do in ONNX Runtime: a line for each that differs there, without its optimizations."""
    notes: list[str] = []
    ends = time.monotonic() + _SECONDS
    for _ in range(4 * count):
        drawn = attack.instance(ends)
        if drawn is None or count == 0:
            break
        instance, _terms = drawn
        values = (*instance.inputs, *instance.left.values(), *instance.right.values())
        if any(value.type.dtype not in _TYPES for value in values) or any(value.type.elements == 0 for value in values):
            continue
        left, right = tuple(instance.left.values()), tuple(instance.right.values())
        pair = pair_of(attack.rules, instance.inputs, left, right)
        if pair is None:
            continue
        feeds = feeds_of(pair, "small", attack.rng, attack.named)
        if pair.difference(feeds) is not None:
            continue
        try:
            results = [_computed(attack, instance.inputs, side, feeds) for side in (left, right)]
        except DslcError:
            continue  # no kernel, or no form in ONNX
        count -= 1
        for value, a, b in zip(left, *results, strict=True):
            close = Floats().close(a, b, _TOLERANCE) if value.type.dtype.is_float else np.asarray(a == b)
            if a.shape != b.shape or not bool(np.all(close)):
                notes.append(f"ONNX Runtime tells the sides apart where the interpreter does not: {instance}")
    return notes


def _computed(attack: Attack, inputs: tuple[Value, ...], side: tuple[Value, ...], feeds: object) -> list[np.ndarray]:
    outputs = spelled_out(attack.rules, side)
    model, names = node_model(outputs, attack.rules, newest_opset(), inputs=inputs)
    given = {name: feeds[value] for name, value in zip(names, inputs, strict=True)}  # type: ignore[index]
    found = run(model, given, [f"y{k}" for k in range(len(outputs))], optimize=False)
    return [np.asarray(array) for array in found]
