"""Sizes that are 0, or may be although something is left to compute: sums over nothing."""

from __future__ import annotations

from collections.abc import Sequence

from dslc.codegen.group import Part, Parts
from dslc.codegen.text import NotGenerated, Reason
from dslc.ir.dtype import Dim, TensorType
from dslc.ir.scalar import Apply, Iter, Num, Read, Reduce, Scalar, Sym, as_scalar, num, rebuild, scalars, walk
from dslc.records import record

_NONE: frozenset[Iter] = frozenset()


def reducible_at_zero(parts: Parts, sizes: Sequence[Sym]) -> frozenset[Sym]:
    """The sizes at which 0 leaves a kernel as it should be, alone and together.

    What was known of a size (at least 1) is used all over a kernel. It does no harm where such a size occurs in extents only: parts
    that have it as an extent are empty, and `{[i: M] max[k: N] A[i, k]}` runs over nothing at N = 0 and gives -inf. With N anywhere
    else (`sum / N`, `A[i, N - 1]`, `k // N`) nothing is certain.
    """
    return frozenset(size for size in sizes if all(_Zero(size).holds(part) for part in parts.parts))


def refuse_nothing(parts: Parts) -> None:
    """Raises NotGenerated where something is known to have no elements, or a reduction no steps: the nodes say what that gives."""
    shapes = [extent for value in parts.inputs for extent in value.type.shape]
    for part in parts.parts:
        shapes += part.scope.extents
        shapes += [extent for node in scalars(Reduce, part.scope.body) for extent in node.extents]
    if any(isinstance(known := as_scalar(extent), Num) and known.value == 0 for extent in shapes):
        raise NotGenerated(Reason.FORM, "something that has no elements")


@record
class _Zero:
    size: Sym

    def holds(self, part: Part) -> bool:
        """Return whether a part is empty, or reads and computes nothing that needs the size."""
        if any(self.gone(extent) for extent in part.scope.extents):
            return True
        if any(self.occurs(extent) for extent in part.scope.extents):
            return False
        return self.expression(part.scope.body, [arg.type for arg in part.args], _NONE)

    def expression(self, node: Scalar, operands: Sequence[TensorType], empty: frozenset[Iter]) -> bool:
        """Return whether an expression is right. `empty`: the iterators around it that run over nothing."""
        if isinstance(node, Reduce):
            inside = empty | {it for it, extent in node.ranges if self.gone(extent)}
            if inside == empty and any(self.occurs(extent) for extent in node.extents):
                return False
            return all(self.expression(one, operands, inside) for one in node.children if one not in node.extents)
        if isinstance(node, Read) and any(self.gone(extent) for extent in operands[node.operand].shape):
            # it has no elements; what does not move with an empty loop may be read before that loop
            return (
                node.other is None
                and any(not empty.isdisjoint(index.free) for index in node.index)
                and not self.divides(node)
            )
        if self.divides(node) or (node is self.size and not empty):
            return False
        return all(self.expression(one, operands, empty) for one in node.children)

    def gone(self, extent: Dim) -> bool:
        found = rebuild(as_scalar(extent), lambda node: num(0) if node is self.size else None)
        return isinstance(found, Num) and found.value == 0

    def occurs(self, extent: Dim) -> bool:
        return isinstance(extent, Scalar) and any(node is self.size for node in walk(extent))

    def divides(self, node: Scalar) -> bool:
        """Return whether the size is in a divisor of whole numbers, which is computed where a loop begins."""
        return any(
            each.op in {"//", "%"} and self.occurs(each.args[1])
            for each in ([node] if isinstance(node, Apply) else walk(node))
        )
