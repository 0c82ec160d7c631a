"""The work of an expression: floating point operations, and distinct elements read and written.

A product that is summed counts 2 per summand (multiply, add), a scalar function 1, integer index arithmetic nothing. Conditions
are taken to hold, so that padding counts as if it were computed. Elements that several operands share count once per operand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dslc.analysis.numeric import DataDependent, interval, vector
from dslc.analysis.reads import accesses, intervals
from dslc.ir.dtype import TensorType
from dslc.ir.graph import Constant, Scope, ScopeNode, Values, nodes_of
from dslc.ir.scalar import Apply, Num, Read, Reduce, Scalar

MOST_POINTS = 1 << 22  #: positions that are counted one by one


@dataclass(frozen=True)
class WorkCounts:
    """`flops` per evaluation; `read` and `written` in elements, `bytes` of both together."""

    flops: int
    read: int
    written: int
    bytes: int

    def __add__(self, other: WorkCounts) -> WorkCounts:
        return WorkCounts(
            self.flops + other.flops, self.read + other.read, self.written + other.written, self.bytes + other.bytes
        )


NOTHING = WorkCounts(0, 0, 0, 0)


def scope_counts(scope: Scope, operands: Sequence[TensorType]) -> WorkCounts:
    """For one expression. Sizes must be numbers: raises Unknown otherwise."""
    flops, written = scope_flops(scope, operands), scope.type.elements
    read = elements_read(scope, [tuple(int(s) for s in t.shape) for t in operands])  # type: ignore[arg-type]
    moved = sum(count * operand.dtype.bytes for count, operand in zip(read, operands, strict=True))
    return WorkCounts(flops, sum(read), written, moved + written * scope.dtype.bytes)


def scope_flops(scope: Scope, operands: Sequence[TensorType]) -> int:
    """The operations of one expression. Sizes must be numbers: raises Unknown otherwise."""
    if not scope.type.is_static or not all(operand.is_static for operand in operands):
        raise DataDependent("symbolic sizes")
    positions: dict[Scalar, tuple[int, int]] = {i: (0, max(e - 1, 0)) for i, e in scope.ranges if isinstance(e, int)}
    return round(_flops(scope.body, {}, positions) * scope.type.elements)


def graph_counts(outputs: Values) -> WorkCounts:
    """The sum over the scopes of an expanded graph; what only constants need is computed once, and does not count."""
    return sum((scope_counts(node.scope, [arg.type for arg in node.args]) for node in _counted(outputs)), NOTHING)


def _counted(outputs: Values) -> Iterator[ScopeNode]:
    for node in nodes_of(outputs):
        if isinstance(node, ScopeNode) and (not node.constant or isinstance(node, Constant) or not node.args):
            yield node


def known_flops(outputs: Values) -> float | None:
    """Operations of an expanded graph; None where its sizes are not known."""
    try:
        return sum(scope_flops(node.scope, [arg.type for arg in node.args]) for node in _counted(outputs))
    except (DataDependent, ValueError, TypeError):
        return None


def _flops(node: Scalar, memo: dict[Scalar, float], extents: dict[Scalar, tuple[int, int]]) -> float:
    """Operations for one position; a subexpression that occurs twice is computed once."""
    if node in memo:
        return 0
    memo[node] = 0
    if isinstance(node, Num) or node.integral:
        return 0
    if isinstance(node, Read):
        return _flops(node.other, memo, extents) if node.other else 0
    if isinstance(node, Reduce):
        if node.kind == "sum" and isinstance(node.body, Num):
            return 0  # counts positions
        inner = dict(extents)
        count = 1.0
        for iterator, extent in node.ranges:
            low, high = interval(extent, inner)
            inner[iterator] = (0, max(high - 1, 0))
            count *= (max(low, 0) + max(high, 0)) / 2
        each = _flops(node.body, dict(memo), inner) + 1
        if node.where:
            each += _flops(node.where, dict(memo), inner)
        return count * each
    if isinstance(node, Apply):
        if all(arg.integral for arg in node.args):
            return 0  # a comparison of positions
        if node.name == "select":
            condition, then, otherwise = node.args
            branch = max(_flops(then, dict(memo), extents), _flops(otherwise, dict(memo), extents))
            return branch + _flops(condition, memo, extents)
        below = sum(_flops(arg, memo, extents) for arg in node.args)
        own = len(node.args) - 1 if node.name in {"+", "*"} else 1
        if node.name.startswith("convert:") or node.name in {"and", "or", "not"}:
            own = 0
        return below + own
    return 0


def elements_read(scope: Scope, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Distinct elements read of each operand (exact where a dimension's index is affine in iterators of its own)."""
    found = [0] * len(shapes)
    boxes: list[set[tuple[object, ...]]] = [set() for _ in shapes]
    for access in accesses(scope):
        node = access.node
        if not isinstance(node, Read):
            continue
        shape, known = shapes[node.operand], intervals(access.loops)
        if known is None:
            continue
        ranges = {it: high + 1 for it, (_, high) in known.items()}
        positions = math.prod(ranges[i] for i in node.free if i in ranges)
        per_dim = [_positions(index, size, ranges) for index, size in zip(node.index, shape, strict=True)]
        if tuple(per_dim) in boxes[node.operand]:
            continue
        boxes[node.operand].add(tuple(per_dim))
        product = math.prod(len(each) for each in per_dim)
        found[node.operand] = min(math.prod(shape), found[node.operand] + min(product, positions))
    return tuple(found)


def _positions(index: Scalar, size: int, ranges: dict[Scalar, int]) -> frozenset[int]:
    """The positions of one dimension that are read, those outside left out."""
    own = [i for i in index.free if i in ranges]
    if math.prod(ranges[i] for i in own) <= MOST_POINTS:
        try:
            grid = np.ogrid[tuple(slice(0, ranges[i]) for i in own)] if own else []
            found = np.unique(vector(index, dict(zip(own, grid, strict=True))))
            return frozenset(int(k) for k in found if 0 <= k < size)
        except DataDependent:
            pass
    return frozenset(range(size))
