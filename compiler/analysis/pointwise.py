"""Pointwise expressions: an output element depends only on the elements at its own position (operands may be broadcast)."""

from __future__ import annotations

from dslc.ir.dtype import Dim
from dslc.ir.graph import Constant, Input, Scope, ScopeNode, Values, nodes_of
from dslc.ir.scalar import Iter, Num, Read, Scalar, scalars


def is_pointwise_scope(scope: Scope, shapes: tuple[tuple[Dim, ...], ...]) -> bool:
    """For one expression over operands of the given shapes."""
    if any(count != 1 for count in scope.groups or ()):
        return False
    if scope.body.binds or _placed(scope.body):
        return False
    return all(at_own_place(scope, node, shapes[node.operand]) for node in scalars(Read, scope.body))


def at_own_place(scope: Scope, read: Read, shape: tuple[Dim, ...]) -> bool:
    """Return whether a read takes the element at the position of the result: 0 on axes of size 1, axes aligned on the right."""
    iters = scope.iters
    skip = len(iters) - len(shape)
    if read.other or skip < 0:
        return False
    return all(
        (index is own and size == extent) or (size == 1 and isinstance(index, Num) and index.value == 0)
        for index, own, size, extent in zip(read.index, iters[skip:], shape, scope.extents[skip:], strict=True)
    )


def _placed(node: Scalar) -> bool:
    """Return whether a value depends on its position other than by what is read there."""
    if isinstance(node, Read):
        return node.other is not None and _placed(node.other)
    return isinstance(node, Iter) or any(map(_placed, node.children))


def is_pointwise(inputs: Values, outputs: Values) -> bool:
    """For an expanded graph (scopes, constants and inputs only) at given shapes; compositions are seen through."""
    if not inputs:
        return False
    for node in nodes_of(outputs):
        if isinstance(node, ScopeNode):
            if not is_pointwise_scope(node.scope, tuple(arg.type.shape for arg in node.args)):
                return False
        elif not isinstance(node, Input | Constant):
            return False
    return True
