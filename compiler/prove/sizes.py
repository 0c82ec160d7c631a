"""Programs at numbers for their unknown sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dslc.ir.dtype import TensorType
from dslc.ir.graph import Constant, Input, ScopeNode, Value, input_value, scope_value, topological, with_args
from dslc.ir.scalar import Num, Scalar, Sym, num, rebuild


def at_sizes(values: Sequence[Value], sizes: Mapping[str, int]) -> tuple[Value, ...]:
    """Expanded values with numbers for unknown sizes; a size that is not given is its least."""
    memo: dict[Scalar, Scalar] = {}

    def leaf(node: Scalar) -> Scalar | None:
        return num(sizes.get(node.name, max(1, node.least or 1))) if isinstance(node, Sym) else None

    return with_sizes(values, lambda item: rebuild(item, leaf, memo))


def with_sizes(values: Sequence[Value], bound: Callable[[Scalar], Scalar]) -> tuple[Value, ...]:
    """Expanded values with their sizes and bodies mapped by `bound`."""

    def size(dim: Scalar | int) -> Scalar | int:
        found = bound(dim) if isinstance(dim, Scalar) else dim
        return int(found.value) if isinstance(found, Num) else found

    known: dict[Value, Value] = {}
    for node in topological(value.node for value in values):
        args = tuple(known[arg] for arg in node.args)
        if isinstance(node, Input):
            type = Value(node).type
            known[Value(node)] = input_value(node.name, TensorType(type.dtype, tuple(size(dim) for dim in type.shape)))
        elif isinstance(node, ScopeNode):
            scope = node.scope
            extents = tuple(size(dim) for dim in scope.extents)
            known[Value(node)] = scope_value(replace(scope, extents=extents, body=bound(scope.body)), args)
        elif isinstance(node, Constant):
            known[Value(node)] = Value(node)
        else:
            known.update(zip(node.values, with_args(node, args), strict=True))
    return tuple(known[value] for value in values)
