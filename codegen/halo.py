"""Operands of products with what is around them written out, so that inner loops ask no position whether it is inside.

`{[o: n] sum[r: 3] X[o + r - 1, other=0] * K[r]}` becomes `P = {[i: n + 2] X[i - 1, other=0]}` and
`{[o: n] sum[r: 3] P[o + r] * K[r]}`.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from dslc.analysis.numeric import DataDependent, Interval, interval, value
from dslc.codegen.arithmetic import USUAL, plus, times
from dslc.codegen.factoring import apart, factor_of
from dslc.codegen.functions import computed
from dslc.codegen.group import Part
from dslc.codegen.split_reductions import by_part, factors_of, outermost, part_of
from dslc.ir.dtype import Dim
from dslc.ir.graph import Scope, Values, scope_value
from dslc.ir.scalar import (
    Iter,
    Num,
    Read,
    Reduce,
    Scalar,
    Sym,
    apply,
    as_scalar,
    iterator,
    num,
    read,
    rebuild,
    scalars,
)
from dslc.ir.scopes import scope_of
from dslc.semantics.lists import plain

USED = 4  #: how often an element must be read
LARGER = 2  #: how many times as large the copy may be


@by_part
def padded(part: Part, args: Values) -> list[Part]:
    """The same with a copy of every operand that products read beyond its ends; equal where there are none."""
    body, copies = part.scope.body, list[Part]()
    sizes = dict(part.scope.ranges)
    for node in outermost(body):
        for each in factors_of(node) if node.kind == "sum" else ():
            found = _copy(each, node, sizes, args) if isinstance(each, Read) and each.other else None
            if found is not None:
                copy, inner = found
                copies.append(copy)
                args = (*args, copy.value)
                body = rebuild(body, {each: inner}.get)
    if args == part.args:
        return [part]
    # a quotient, as of a channel by its group, is a loop of its own
    split = apart(scope_value(replace(part.scope, body=body), args))
    return [*copies, part_of(scope_of(split), split.node.args, part.alone)]


def _copy(each: Read, node: Reduce, sizes: dict[Iter, Dim], args: Values) -> tuple[Part, Scalar] | None:
    """A copy of what is read, and the read of it as the next argument."""
    shape = args[each.operand].type.shape
    extents: dict[Iter, Scalar] = {it: as_scalar(size) for it, size in sizes.items()}
    extents.update(node.ranges)
    try:
        ends = [_ends(index, extents) for index in each.index]
        numbers = {it: _number(size) for it, size in extents.items()}
    except DataDependent:
        return None
    counts = [plus(high, times(-1, low), 1) for low, high in ends]
    each_end = zip(ends, map(as_scalar, shape), strict=True)
    inside = all(_holds("<=", num(0), low) and _holds("<", high, size) for (low, high), size in each_end)
    if inside or not isinstance(each.other, Num):
        return None
    used, copied = prod(numbers.values()), prod(map(_number, counts))
    if used < USED * copied or copied > LARGER * max(1, prod(_number(as_scalar(size)) for size in shape)):
        return None
    # along the last loop that moves it an operand is read side by side
    moved = [(axis, factor_of(index, it)) for it in sizes for axis, index in enumerate(each.index) if it in index.free]
    if not moved or moved[-1][1] != 1:
        return None
    order = sorted(range(len(counts)), key=lambda axis: axis == moved[-1][0])
    element = read(
        each.operand, tuple(plus(iterator(f"i{order.index(k)}"), low) for k, (low, _) in enumerate(ends)), each.other
    )
    dtype = computed(args[each.operand].type.dtype)
    copy = part_of(Scope(tuple(plain(counts[axis]) for axis in order), element, dtype), args, alone=True)
    return copy, read(len(args), tuple(plus(each.index[axis], times(-1, ends[axis][0])) for axis in order))


def _ends(index: Scalar, extents: dict[Iter, Scalar]) -> tuple[Scalar, Scalar]:
    """The least and the greatest position that is read, over sizes; raises Unknown where the index is no sum of multiples."""
    low = high = plus()
    for part in index.args if index.op == "+" else (index,):
        own = [it for it in extents if it in part.free]
        if not own:
            ends = (part, part)
        elif all(isinstance(extents[it], Num) for it in own):
            ranges: dict[Scalar, Interval] = {it: (0, _number(extents[it]) - 1) for it in own}
            ends = tuple(map(num, interval(part, ranges)))  # type: ignore[assignment]
        elif factor := factor_of(part, own[0]):
            last = times(factor, plus(extents[own[0]], -1))
            ends = (num(0), last) if factor > 0 else (last, num(0))
        else:
            raise DataDependent(str(part))
        low, high = plus(low, ends[0]), plus(high, ends[1])
    return low, high


def _number(size: Scalar) -> int:
    """A size, unknown ones taken to be of some usual size; raises Unknown where it depends on more than sizes."""
    return int(value(size, dict.fromkeys(scalars(Sym, size), USUAL)))


def _holds(name: str, a: Scalar, b: Scalar) -> bool:
    found = apply(name, a, b)
    return isinstance(found, Num) and bool(found.value)
