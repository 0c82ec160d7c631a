"""Sums over windows of products, as a product of matrices and a sum of what it gives.

`{[f, o] sum[c, r where (o - r) % 2 == 0] X[c, (o - r) // 2] * K[c, f, r]}` adds, for each position of the input and of the kernel, the
same sum over `c` wherever the two meet: `T = {[x, f, r] sum[c] X[c, x] * K[c, f, r]}` is a product of matrices, and what is left is
`{[f, o] sum[a] T[o // 2 - a, f, o % 2 + 2 a]}`. That pays where no element of T is computed in vain: the window of a transposed
convolution, or of a convolution whose positions meet every part of its kernel.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from functools import partial
from math import gcd

from dslc.analysis.narrowing import unit_positions
from dslc.codegen.arithmetic import count, over, plus, rest, times
from dslc.codegen.functions import computed
from dslc.codegen.group import Part
from dslc.codegen.split_reductions import by_part, factors_of, outermost, part_of
from dslc.ir.dtype import Dim, DType
from dslc.ir.element import element_type
from dslc.ir.graph import Scope, Value, Values, scope_value
from dslc.ir.scalar import (
    Apply,
    Iter,
    Num,
    Read,
    Reduce,
    Scalar,
    apply,
    conjuncts,
    iterator,
    num,
    raw_apply,
    read,
    rebuild,
    reduce,
    replaced,
    scalars,
)
from dslc.ir.scopes import scope_of, split_iterator, substitute
from dslc.records import record

MORE = 1.5  #: how many times as many products the matrices may have as the windows
TERMS = 8  #: terms of the inner sum, with fewer of which it is no product of matrices


@by_part
def factored(part: Part, args: Values) -> list[Part]:
    """The same with the products of windows as parts of their own; equal where there are none."""
    scope = part.scope
    for node in outermost(scope.body):
        found = _window(node, scope, args)
        if found is not None:
            product, rest = found
            body = replaced(scope.body, node, rest)
            value = apart(scope_value(replace(scope, body=body), (*args, product.value)))
            return [product, part_of(scope_of(value), value.node.args, part.alone)]
    return [part_of(scope, args, part.alone)]


# ---- every so many positions -----------------------------------------------------------------------------------------------


def strided(node: Reduce) -> Reduce:
    """A sum over positions with a remainder as one over every so many.

    `sum[r: 4 where (o - r) % 2 == 0]` is `sum[a: 2]` at `r = o % 2 + 2 a`.
    """
    for each in conjuncts(node.where):
        found = _remainder(node, each)
        if found:
            return strided(found)
    return node


def _remainder(node: Reduce, condition: Scalar) -> Reduce | None:
    """The sum without a condition `e % s == 0`, where e is linear in an iterator of the sum by a factor that s shares nothing with."""
    if condition.op != "==":
        return None
    left, right = condition.args
    if not (isinstance(right, Num) and right.value == 0 and left.op == "%"):
        return None
    whole, by = left.args
    if not isinstance(by, Num):
        return None
    step = int(by.value)
    for at, (it, extent) in enumerate(node.ranges):
        factor = factor_of(whole, it)
        if (
            not factor
            or not isinstance(extent, Num)
            or step < 2
            or gcd(factor, step) != 1
            or any(it in e.free for e in node.extents)
        ):
            continue
        size = int(extent.value)
        others = plus(whole, times(-factor, it))
        first = rest(times(-pow(factor, -1, step), others), step)
        place = plus(first, times(step, it))
        # whatever is a multiple of the step is divided exactly
        above = others if factor == -1 else plus(others, times(factor, first))
        new = {over(whole, step): plus(over(above, step), times(factor, it)), it: place}
        kept = [rebuild(each, new.get) for each in conjuncts(node.where) if each is not condition]
        if size % step:
            kept.append(apply("<", place, extent))
        where = functools.reduce(partial(apply, "and"), kept) if kept else None
        extents = (*node.extents[:at], num(-(-size // step)), *node.extents[at + 1 :])
        found = reduce(node.kind, node.iters, extents, rebuild(node.body, new.get), where)
        return found if isinstance(found, Reduce) else None
    return None


def factor_of(whole: Scalar, it: Iter) -> int:
    """By what an iterator is multiplied in a sum; 0 where it is not linear."""
    total = 0
    for part in whole.args if whole.op == "+" else (whole,):
        if it not in part.free:
            continue
        if part is it:
            total += 1
        elif part.op == "*" and part.args[1:] == (it,) and isinstance(part.args[0], Num):
            total += int(part.args[0].value)
        else:
            return 0
    return total


def apart(value: Value) -> Value:
    """Iterators of which quotients are taken in two.

    One over whole periods, and one over the positions of a period, for each of which the quotients are linear.
    """
    scope = scope_of(value)
    for it, extent in scope.ranges:
        steps = {
            int(node.args[1].value) for node in scalars(Apply, scope.body)
            if node.name in {"//", "%"} and isinstance(node.args[1], Num) and factor_of(node.args[0], it)
        }  # fmt: skip
        step = max(steps, default=1)
        if step > 1 and extent != step and rest(extent, step) is num(0):
            return apart(split_iterator(value, it, step))
    return value


@by_part
def parted(part: Part, args: Values) -> list[Part]:
    """The same with loops that quotients are taken of in two, where they divide.

    `X[i // 3]` for `i < 3 n` as `X[a]` for `a < n`, `b < 3`.
    """
    value = apart(scope_value(part.scope, args))
    return [part_of(scope_of(value), value.node.args, part.alone)]


# ---- products of matrices --------------------------------------------------------------------------------------------------


@record
class _Side:
    """A factor: its read, the axes that are not summed over, and what it is read at there."""

    read: Read
    axes: tuple[int, ...]

    @property
    def places(self) -> tuple[Scalar, ...]:
        return tuple(self.read.index[axis] for axis in self.axes)


def _window(node: Reduce, scope: Scope, args: Values) -> tuple[Part, Scalar] | None:
    """The product as a part, and the sum that reads it as the next argument."""
    if node.kind != "sum" or any(extent.free for extent in node.extents):
        return None
    node = strided(node)
    factors = factors_of(node)
    if len(factors) != 2 or not all(isinstance(each, Read) for each in factors):
        return None
    single = unit_positions(scope)
    reads = [each for each in (substitute(factor, single) for factor in factors) if isinstance(each, Read)]
    if any(each.other is not None and not (isinstance(each.other, Num) and each.other.value == 0) for each in reads):
        return None
    summed = [it for it in node.iters if all(_alone(each, it, node.iters) for each in reads)]
    if node.where and any(it in node.where.free for it in summed):
        return None
    extents = dict(node.ranges)
    if len(summed) == len(node.iters) or not summed or count(extents[it] for it in summed) < TERMS:
        return None
    sides = [_side(each, summed) for each in reads]
    batch = tuple(it for it in scope.iters if any(it in each.index[axis].free for each, side in zip(reads, sides, strict=True)
                                                  for axis in range(len(each.index)) if axis not in side.axes))  # fmt: skip
    sizes: list[list[Dim]] = [[args[side.read.operand].type.shape[axis] for axis in side.axes] for side in sides]
    own = dict(scope.ranges)
    products = count(own[it] for it in batch) * count(sizes[0]) * count(sizes[1])
    windows = count(scope.extents) * count(extents[it] for it in node.iters if it not in summed)
    if products > MORE * windows:
        return None
    # the longer side is contiguous
    order = sorted(range(2), key=lambda k: count(sizes[k]))
    sides, sizes = [sides[k] for k in order], [sizes[k] for k in order]
    all_sizes = (*(own[it] for it in batch), *sizes[0], *sizes[1])
    places = [iterator(f"i{k}") for k in range(len(all_sizes))]
    inner = iter(places[len(batch) :])
    here: dict[Iter, Scalar] = dict(zip(batch, places, strict=False))
    terms = []
    for side in sides:
        index = [
            next(inner) if axis in side.axes else substitute(one, here) for axis, one in enumerate(side.read.index)
        ]
        terms.append(read(side.read.operand, tuple(index)))
    body = reduce("sum", tuple(summed), tuple(extents[it] for it in summed), raw_apply("*", *terms))
    dtype = element_type(node.body, tuple(arg.type.dtype for arg in args)) or DType.F32
    product = part_of(Scope(all_sizes, body, computed(dtype)), args, alone=True)
    guarded = any(side.read.other is not None for side in sides)
    at = (*batch, *sides[0].places, *sides[1].places)
    whole = read(len(args), at, num(0) if guarded else None)
    left = [it for it in node.iters if it not in summed]
    return product, reduce("sum", tuple(left), tuple(extents[it] for it in left), whole, node.where)


def _alone(factor: Read, it: Iter, iters: tuple[Iter, ...]) -> bool:
    """Return whether an iterator of a sum is, in one place of a read, by itself or behind iterators around the sum."""
    places = [one for one in factor.index if it in one.free]
    return (
        len(places) == 1
        and factor_of(places[0], it) == 1
        and not any(other in places[0].free for other in iters if other is not it)
    )


def _side(factor: Read, summed: list[Iter]) -> _Side:
    return _Side(factor, tuple(axis for axis, one in enumerate(factor.index) if one.free.isdisjoint(summed)))
