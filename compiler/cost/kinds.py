"""What the cost model needs to know of an operator, from its equation: is it pointwise, is its result the same bytes?"""

from __future__ import annotations

from typing import Any

import numpy as np

from dslc.analysis.numeric import Unknown, vector
from dslc.analysis.pointwise import is_pointwise
from dslc.errors import DslcError
from dslc.ir.graph import Call, Constant, Input, ScopeNode, Value
from dslc.ir.scalar import Read
from dslc.semantics.elaborate import Instance, expanded
from dslc.semantics.env import EvalError, Mismatch
from dslc.semantics.library import Rules

#: positions at which a view is tried
_TRIED = 512


def instance_of(rules: Rules, node: Call) -> Instance | None:
    """The equations of an application; None where they have no meaning at these types."""
    try:
        return expanded(rules, node.op, tuple(arg.type for arg in node.args), node.attrs)
    except (Mismatch, EvalError, DslcError, ValueError):
        return None


def pointwise(rules: Rules, node: Call) -> bool:
    """Whether every element of the result depends on the elements at its own position only."""
    instance = instance_of(rules, node)
    return instance is not None and is_pointwise(instance.params, instance.outputs)


def view(rules: Rules, node: Call) -> bool:
    """Whether the only result holds the same elements in the same order as an argument that is no constant.

    The runtime then passes the memory on; measured alone, it would have to copy. Positions are tried, not proved: a cost
    depends on it, never a result.
    """
    instance = instance_of(rules, node)
    if instance is None or len(instance.outputs) != 1:
        return False
    source = _source(instance.outputs[0])
    if source is None or source not in instance.params:
        return False
    return not node.args[instance.params.index(source)].constant


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
    return value if isinstance(value.node, Input) and not isinstance(value.node, Constant) else None


def _same_order(node: ScopeNode, body: Read, below: Value) -> bool:
    extents, shape = node.scope.extents, below.type.shape
    if not all(isinstance(size, int) for size in (*extents, *shape)):
        return False
    count = int(np.prod(extents, dtype=np.int64))  # type: ignore[arg-type]
    if count != int(np.prod(shape, dtype=np.int64)) or count == 0:  # type: ignore[arg-type]
        return False
    flat = np.random.default_rng(0).integers(0, count, _TRIED) if count > _TRIED else np.arange(count)
    places: tuple[Any, ...] = np.unravel_index(flat, extents) if extents else ()  # type: ignore[arg-type]
    at = dict(zip(node.scope.iters, places, strict=True))
    try:
        read: Any = np.zeros(len(flat), np.int64)
        for index, size in zip(body.index, shape, strict=True):
            position = vector(index, at)
            if body.other is not None and not (np.all(position >= 0) and np.all(position < size)):
                return False
            read = read * size + position
    except Unknown:
        return False
    return bool(np.array_equal(np.broadcast_to(read, flat.shape), flat))
