"""Positions in arithmetic progression as what they are: an operator's, and no data.

    Before: `gather(X, I)`, where the weight I is [[0, 2, 4], [1, 3, 5]]. After: `gather(X, places(shape=[2, 3], step=[1, 2]))`.

So a window that is gathered is one whose positions are known: it can be part of a sum, of a kernel, and of a derivation.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from dslc.ir.graph import Call, Constant, Value, with_args
from dslc.onnx.known import static_shape
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules

LEAST = 8  #: elements: fewer are as good as data, and more take long to read
MOST = 1 << 26  #: elements: fewer are as good as data, and more take long to read

#: the trait that names, for an operator, the one that gives its positions
TRAIT = "placed_by"


def placed(rules: Rules, value: Value) -> Iterator[tuple[Value, Value]]:
    """What an operator reads as data and what its library has for it: `property gather is placed_by places`."""
    node = value.node
    name = rules.traits_of(node.op).named.get(TRAIT) if isinstance(node, Call) else None
    if name is None:
        return
    for arg in node.args:
        found = _progression(arg)
        if found is not None:
            start, step = found
            attrs = {"dtype": arg.type.dtype, "shape": arg.type.shape, "step": step, "start": start}
            yield arg, apply(rules, name, (), attrs)[0]


def with_places(value: Value, given: dict[Value, Value]) -> Value:
    """A result of an operator, over such positions."""
    args = tuple(given.get(arg, arg) for arg in value.node.args)
    return with_args(value.node, args)[value.index]


def _progression(value: Value) -> tuple[int, tuple[int, ...]] | None:
    """The first position and the step along every axis of a weight; None where it is no such progression."""
    shape = static_shape(value.type) if value.known else None
    if not shape or not isinstance(value.node, Constant) or not value.type.dtype.is_integer:
        return None
    if not LEAST < prod(shape) <= MOST:
        return None
    elements: Any = np.asarray(value.node.data.load())
    start = int(elements.reshape(-1)[0])
    step = tuple(
        int(np.take(elements, 1, axis=k).reshape(-1)[0]) - start if size > 1 else 0 for k, size in enumerate(shape)
    )
    expected = start + sum(one * np.arange(size).reshape([-1 if j == k else 1 for j in range(len(shape))])
                           for k, (one, size) in enumerate(zip(step, shape, strict=True)))  # fmt: skip
    return (start, step) if any(step) and np.array_equal(elements, np.broadcast_to(expected, shape)) else None
