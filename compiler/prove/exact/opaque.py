"""Places that isl cannot tell, as names: what is read at `(o - d * b) // s` is a tensor of its own, read at `(b, o)`.

So is a comparison with such a place a tensor of truth values. Both only make a claim stronger: what is so of all tensors is so of the
one that has the elements at these places, and of the truth of the comparison at each position.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from dslc.analysis.poly import COMPARISONS
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Value, input_value
from dslc.ir.scalar import Apply, Iter, Read, Scalar, iterator, read, rebuild, walk
from dslc.prove.exact.radix import quotient_by_size


def named_places(roots: Sequence[Scalar], inputs: list[Value]) -> list[Scalar] | None:
    """The expressions over names for places that are quotients by sizes; None where a tensor is read otherwise too.

    `inputs`: the tensors that are read; those of truth values are added.
    """
    found: dict[tuple[int, int], set[Scalar]] = {}
    for node in {part: None for root in roots for part in walk(root)}:
        if isinstance(node, Read):
            for axis, index in enumerate(node.index):
                found.setdefault((node.operand, axis), set()).add(_shape(index))
    places = {place for place, shapes in found.items() if any(map(quotient_by_size, shapes))}
    if any(len(found[place]) > 1 for place in places):
        return None
    truths: dict[Scalar, int] = {}
    memo: dict[Scalar, Scalar] = {}

    def leaf(node: Scalar) -> Scalar | None:
        if isinstance(node, Apply) and node.name in COMPARISONS and not node.reads and quotient_by_size(node):
            at = _iterators(node)
            shape = _shape(node)
            if shape not in truths:
                truths[shape] = len(inputs)
                inputs.append(input_value(f"truth {len(truths)}", TensorType(DType.BOOL, tuple(1 for _ in at))))
            return read(truths[shape], at)
        if isinstance(node, Read) and any((node.operand, axis) in places for axis in range(len(node.index))):
            index: list[Scalar] = []
            for axis, part in enumerate(node.index):
                index.extend(_iterators(part) if (node.operand, axis) in places else (rebuild(part, leaf, memo),))
            return read(node.operand, tuple(index), None if node.other is None else rebuild(node.other, leaf, memo))
        return None

    return [rebuild(root, leaf, memo) for root in roots]


def _iterators(node: Scalar) -> tuple[Iter, ...]:
    return tuple(sorted(node.free, key=lambda it: it.name))


def _shape(node: Scalar) -> Scalar:
    """The expression without the names of its iterators."""
    names: dict[Scalar, Scalar] = {it: iterator(f"#{k}") for k, it in zip(count(), _iterators(node), strict=False)}
    return rebuild(node, names.get)
