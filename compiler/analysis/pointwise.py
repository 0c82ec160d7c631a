"""Whether an output element depends only on the elements at its own position (operands may be broadcast)."""

from __future__ import annotations

from dslc.ir.dtype import Dim
from dslc.ir.graph import Constant, Input, Scope, ScopeNode, Value, topological
from dslc.ir.scalar import Iter, Num, Read, Reduce, Scalar, walk


def is_pointwise_scope(scope: Scope, shapes: tuple[tuple[Dim, ...], ...]) -> bool:
    """For one expression over operands of the given shapes."""
    iters = scope.iters
    if any(count != 1 for count in scope.groups or ()):
        return False
    if _placed(scope.body):
        return False
    for node in walk(scope.body):
        if isinstance(node, Reduce):
            return False
        if isinstance(node, Read):
            shape = shapes[node.operand]
            if node.other is not None or len(shape) > len(iters):
                return False
            own = iters[len(iters) - len(shape) :]
            extents = scope.extents[len(iters) - len(shape) :]
            for index, iterator, size, extent in zip(node.index, own, shape, extents, strict=True):
                same = index is iterator and size == extent
                if not same and not (size == 1 and isinstance(index, Num) and index.value == 0):
                    return False
    return True


def _placed(node: Scalar) -> bool:
    """Whether a value depends on its position other than by what is read there."""
    if isinstance(node, Read):
        return node.other is not None and _placed(node.other)
    return isinstance(node, Iter) or any(map(_placed, node.children))


def is_pointwise(inputs: tuple[Value, ...], outputs: tuple[Value, ...]) -> bool:
    """For an expanded graph (scopes, constants and inputs only) at given shapes; compositions are seen through."""
    if not inputs:
        return False
    for node in topological(value.node for value in outputs):
        if isinstance(node, ScopeNode):
            if not is_pointwise_scope(node.scope, tuple(arg.type.shape for arg in node.args)):
                return False
        elif not isinstance(node, Input | Constant):
            return False
    return True
