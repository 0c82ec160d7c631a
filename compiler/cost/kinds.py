"""Kinds of operators, as the cost model needs them, from their equations: pointwise or not, and how much they compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dslc.analysis.counts import known_flops
from dslc.analysis.numeric import DataDependent, vector
from dslc.analysis.pointwise import at_own_place
from dslc.errors import DslcError
from dslc.ir.graph import Call, Input, ScopeNode, Value, nodes_of
from dslc.ir.scalar import Read, Reduce, Scalar, walk
from dslc.semantics.elaborate import Instance, expanded
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules

TRIED = 512  #: positions at which a view is tried


def instance_of(rules: Rules, node: Call) -> Instance | None:
    """The equations of an application; None where they have no meaning at these types."""
    try:
        return expanded(rules, node.op, tuple(arg.type for arg in node.args), node.attrs)
    except (Mismatch, EvalError, DslcError, ValueError):
        return None


def flops(rules: Rules, node: Call) -> float | None:
    """Operations of an application; None where they are not known."""
    instance = instance_of(rules, node)
    return known_flops(instance.outputs) if instance else None


def pointwise(rules: Rules, node: Call, weights: Sequence[bool]) -> bool:
    """Return whether every element of the result depends on the elements at its own position only, weights aside.

    `weights` says which arguments are. A scale for each channel is pointwise in this sense: what an operator does with weights
    does not stop the runtime from fusing it.
    """
    instance = instance_of(rules, node)
    if not instance or len(instance.outputs) != 1:
        return False
    varying = {param for param, weight in zip(instance.params, weights, strict=True) if not weight}
    for below in nodes_of(instance.outputs):
        if not isinstance(below, ScopeNode) or not varying.intersection(below.args):
            continue
        for part in walk(below.scope.body):
            inside = walk(part) if isinstance(part, Reduce) else ()
            if any(isinstance(read, Read) and below.args[read.operand] in varying for read in inside):
                return False
            if isinstance(part, Read) and below.args[part.operand] in varying:
                source = below.args[part.operand]
                same = source.type.shape == below.scope.type.shape and _same_order(below, part, source)
                if not same and not _broadcast(below, part, source):
                    return False
        varying.update(below.values)
    return instance.outputs[0] in varying


def _broadcast(node: ScopeNode, read: Read, below: Value) -> bool:
    """Return whether a read takes the element at the same position, 0 on axes of size 1, axes aligned on the right."""
    return all(count == 1 for count in node.scope.groups or ()) and at_own_place(node.scope, read, below.type.shape)


def view(rules: Rules, node: Call, weights: Sequence[bool]) -> bool:
    """Return whether the only result holds the same elements in the same order as an argument that is no constant.

    The runtime then passes the memory on; measured alone, it would have to copy. Positions are tried, not proved: a cost
    depends on it, never a result.
    """
    instance = instance_of(rules, node)
    if not instance or len(instance.outputs) != 1:
        return False
    source = _source(instance.outputs[0])
    if not source or source not in instance.params:
        return False
    return not weights[instance.params.index(source)]


def _source(value: Value) -> Value | None:
    """The parameter that a value is a view of."""
    while isinstance(value.node, ScopeNode):
        node = value.node
        body = node.scope.body
        if not isinstance(body, Read):
            return None
        below = node.args[body.operand]
        if below.type.dtype is not node.scope.dtype or not _same_order(node, body, below):
            return None
        value = below
    return value if isinstance(value.node, Input) else None


def _same_order(node: ScopeNode, body: Read, below: Value) -> bool:
    extents, shape = node.scope.extents, below.type.shape
    if not all(isinstance(size, int) for size in (*extents, *shape)):
        return False
    count = int(np.prod(extents, dtype=np.int64))  # type: ignore[arg-type]
    if count != int(np.prod(shape, dtype=np.int64)) or count == 0:  # type: ignore[arg-type]
        return False
    flat = np.random.default_rng(0).integers(0, count, TRIED) if count > TRIED else np.arange(count)
    places: tuple[Any, ...] = np.unravel_index(flat, extents) if extents else ()  # type: ignore[arg-type]
    at: dict[Scalar, Any] = dict(zip(node.scope.iters, places, strict=True))
    try:
        read: Any = np.zeros(len(flat), np.int64)
        for index, size in zip(body.index, shape, strict=True):
            position = vector(index, at)
            if body.other and not (np.all(position >= 0) and np.all(position < size)):
                return False
            read = read * size + position
    except DataDependent:
        return False
    return bool(np.array_equal(np.broadcast_to(read, flat.shape), flat))
