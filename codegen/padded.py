"""Operands of products with what is around them written out, so that inner loops ask no position whether it is inside.

`{[o: n] sum[r: 3] X[o + r - 1, other=0] * K[r]}` becomes `P = {[i: n + 2] X[i - 1, other=0]}` and
`{[o: n] sum[r: 3] P[o + r] * K[r]}`.
"""

from __future__ import annotations

from math import prod

from dslc.analysis.numeric import Interval, Unknown, interval
from dslc.codegen.factored import apart, factor_of
from dslc.codegen.group import Part, Parts
from dslc.codegen.separate import outermost, part_of
from dslc.ir.dtype import Dim, DType
from dslc.ir.graph import Scope, Value, scope_value
from dslc.ir.scalar import Apply, Iter, Num, Read, Reduce, Scalar, apply, iterator, num, read, rebuild
from dslc.ir.scopes import scope_of

#: how often an element must be read, and how many times as large the copy may be
_USED, _LARGER = 4, 2


def padded(parts: Parts) -> Parts:
    """The same with a copy of every operand that products read beyond its ends; equal where there are none."""
    new: dict[Value, Value] = {}
    out: list[Part] = []
    for part in parts.parts:
        args = tuple(new.get(arg, arg) for arg in part.args)
        body = part.scope.body
        sizes = dict(zip(part.scope.iters, part.scope.extents, strict=True))
        for node in outermost(body):
            if node.kind != "sum" or not isinstance(node.body, Apply) or node.body.name != "*":
                continue
            for each in node.body.args:
                found = _copy(each, node, sizes, args) if isinstance(each, Read) and each.other is not None else None
                if found is not None:
                    copy, inner = found
                    out.append(copy)
                    args = (*args, copy.value)
                    body = rebuild(body, {each: inner}.get)
        whole = part
        if args != part.args:
            # a quotient, as of a channel by its group, is a loop of its own
            value = apart(scope_value(Scope(part.scope.extents, body, part.scope.dtype, part.scope.groups), args))
            whole = part_of(scope_of(value), value.node.args, part.alone)
        new[part.value] = whole.value
        out.append(whole)
    return Parts(parts.inputs, tuple(out), tuple(new.get(value, value) for value in parts.outputs))


def _copy(each: Read, node: Reduce, sizes: dict[Iter, Dim], args: tuple[Value, ...]) -> tuple[Part, Scalar] | None:
    """A copy of what is read, and the read of it as the next argument."""
    shape = args[each.operand].type.shape
    known = {it: int(str(size)) for it, size in extents_of(node, sizes).items() if size.isdigit()}
    ranges: dict[Scalar, Interval] = {it: (0, size - 1) for it, size in known.items()}
    try:
        ends = [interval(index, ranges) for index in each.index]
    except Unknown:
        return None
    inside = all(isinstance(size, int) and low >= 0 and high < size for (low, high), size in zip(ends, shape, strict=True))
    if inside or not isinstance(each.other, Num) or not all(isinstance(size, int) for size in shape):
        return None
    counts = [high - low + 1 for low, high in ends]
    times = prod(known.values())
    if times < _USED * prod(counts) or prod(counts) > _LARGER * max(1, prod(int(str(size)) for size in shape)):
        return None
    # along the last loop that moves it an operand is read side by side
    moved = [(axis, factor_of(index, it)) for it in sizes for axis, index in enumerate(each.index) if it in index.free]
    if not moved or moved[-1][1] != 1:
        return None
    order = sorted(range(len(counts)), key=lambda axis: axis == moved[-1][0])
    places = tuple(apply("+", iterator(f"i{order.index(k)}"), num(low)) for k, (low, _) in enumerate(ends))
    dtype = args[each.operand].type.dtype
    kept = DType.F32 if dtype in {DType.F16, DType.BF16} else dtype
    copy = part_of(Scope(tuple(counts[axis] for axis in order), read(each.operand, places, each.other), kept), args, alone=True)
    index = tuple(apply("+", each.index[axis], num(-ends[axis][0])) for axis in order)
    return copy, read(len(args), index)


def extents_of(node: Reduce, sizes: dict[Iter, Dim]) -> dict[Iter, str]:
    """The sizes of all iterators as they are printed."""
    return {**{it: str(size) for it, size in sizes.items()}, **dict(zip(node.iters, map(str, node.extents), strict=True))}


__all__ = ["padded"]
