"""Operator matching: a scope that is a product, as an operator of the library between two changes of layout (EinNet, section 5.1).

Which iterators stand where decides, and no name: an iterator of both operands and the output is of the batch, one of the left
operand and the output is a row, and so on (Table 2). Operands that are not what the operator reads are made by scopes of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from math import gcd

from dslc.analysis.iterators import coefficient_of
from dslc.derive.pieces import Box, Operands, View, in_bounds, view_of
from dslc.errors import error
from dslc.ir.graph import Value
from dslc.ir.scalar import Apply, Iter, Num, Read, Reduce, Scalar, apply, num, read, walk
from dslc.ir.scopes import substitute
from dslc.semantics.apply import apply as call
from dslc.semantics.apply import rules_cache
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules
from dslc.syntax import tree as t


class Miss(Enum):
    """Why a scope is not an operator."""

    NO_PRODUCT = "no sum of products of two factors"
    GROUP = "an iterator stands where the operator has none"
    NOT_AFFINE = "an index is no sum of iterators with coefficients"
    PADS = "positions before or after the data that the operator does not take"
    TYPES = "element types that the operator does not take"


@dataclass(frozen=True, slots=True)
class Parts:
    """A sum of products of two factors: their iterators by where they stand."""

    view: View
    factors: tuple[Scalar, Scalar]
    batch: tuple[Iter, ...]
    rows: tuple[Iter, ...]
    columns: tuple[Iter, ...]
    summed: tuple[Iter, ...]

    def extent(self, it: Iter) -> Scalar:
        if it in self.view.iters:
            return self.view.box.extents[self.view.iters.index(it)]
        return self.view.sum_extents[self.view.sums.index(it)]

    def box(self, iters: Sequence[Iter]) -> Box:
        return Box.of([self.extent(it) for it in iters])


@dataclass(frozen=True, slots=True)
class Operators:
    """An operator that scopes are matched with: the library's name for a product, or for a convolution."""

    product: str
    convolution: str


def operators_of(rules: Rules) -> Operators:
    """The operators of a library that ONNX's product and convolution stand for, whatever the library calls them.

    Raises:
        DslcError: E0909 where it has none.
    """
    cache = rules_cache(rules, "operators of products")
    found: Operators | None = cache.get("")
    if found is None:
        names: dict[str, str] = {}
        for name, op in rules.operators.items():
            for statement in op.syntax.statements:
                if isinstance(statement, t.OnnxMap):
                    names.setdefault(statement.op, name)
        try:
            found = cache[""] = Operators(names["MatMul"], names["Conv"])
        except KeyError as missing:
            raise error("E0909", f"no operator of these libraries is ONNX's {missing.args[0]}") from None
    return found


def instances(rules: Rules, value: Value, target: Operators | None = None) -> Iterator[tuple[str, Value]]:
    """A scope by operators: their names, and values equal to that of the scope."""
    target = target or operators_of(rules)
    operands = Operands()
    view = view_of(value, operands)
    if view is None:
        return
    for turned in (False, True):
        parts = _parts(view, turned)
        if isinstance(parts, Miss):
            return
        # the other way round a product is as good
        product = Miss.GROUP if turned else _product(rules, parts, operands, target)
        for name, made in ((target.product, product), (target.convolution, _convolution(rules, parts, operands, target))):
            if isinstance(made, Value):
                yield name, made


def misses(rules: Rules, value: Value, target: Operators | None = None) -> dict[str, Miss]:
    """Why a scope is none of a target's operators."""
    target = target or operators_of(rules)
    operands = Operands()
    view = view_of(value, operands)
    if view is None:
        return {target.product: Miss.NO_PRODUCT, target.convolution: Miss.NO_PRODUCT}
    found: dict[str, Miss] = {}
    for turned in (False, True):
        parts = _parts(view, turned)
        if isinstance(parts, Miss):
            return {target.product: parts, target.convolution: parts}
        product = _product(rules, parts, operands, target)
        for name, made in ((target.product, product), (target.convolution, _convolution(rules, parts, operands, target))):
            if isinstance(made, Miss):
                found.setdefault(name, made)
            else:
                found.pop(name, None)
    return found


def _parts(view: View, turned: bool) -> Parts | Miss:
    body = view.body
    if view.kind != "sum" or not (isinstance(body, Apply) and body.name == "*") or any(isinstance(n, Reduce) for n in walk(body)):
        return Miss.NO_PRODUCT
    factors = list(body.args)
    if len(factors) != 2 or not all(factor.reads for factor in factors):
        return Miss.NO_PRODUCT
    left, right = (factors[1], factors[0]) if turned else (factors[0], factors[1])
    groups: dict[tuple[bool, bool, bool], list[Iter]] = {}
    for it, extent in (*zip(view.iters, view.box.extents, strict=True), *zip(view.sums, view.sum_extents, strict=True)):
        where = (it in left.free, it in right.free, it in view.iters)
        if extent is num(1) and where[:2] == (False, False):
            continue
        groups.setdefault(where, []).append(it)
    known = {(True, True, True), (True, False, True), (False, True, True), (True, True, False)}
    if not groups.keys() <= known:
        return Miss.GROUP
    batch, rows, columns, summed = (
        tuple(groups.get(key, ())) for key in ((True, True, True), (True, False, True), (False, True, True), (True, True, False))
    )
    if not summed:
        return Miss.GROUP
    return Parts(view, (left, right), batch, rows, columns, summed)


def _operand(parts: Parts, operands: Operands, factor: Scalar, dims: Sequence[Sequence[Iter]]) -> Value:
    """A factor as a tensor whose dimensions are these iterators, several of one dimension merged."""
    iters = [it for dim in dims for it in dim]
    if isinstance(factor, Read) and factor.other is None and all(len(dim) == 1 for dim in dims):
        value = operands.values[factor.operand]
        shape = tuple(parts.extent(it) for it in iters)
        sizes = tuple(size if isinstance(size, Scalar) else num(size) for size in value.type.shape)
        if factor.index == tuple(iters) and sizes == shape:
            return value
    # a dimension of no iterators has one position
    box, groups = [], []
    names: list[Iter] = []
    for dim in dims:
        own = tuple(dim) or operands.fresh()
        names += own
        box += [parts.extent(it) if it in dim else num(1) for it in own]
        groups.append(len(own))
    return operands.scope(names, Box.of(box), factor, parts.view.dtype, tuple(groups))


def _merged(parts: Parts, iters: Sequence[Iter]) -> Scalar:
    """The position in a dimension that iterators make up together."""
    position: Scalar = num(0)
    for it in iters:
        position = apply("+", apply("*", position, parts.extent(it)), it)
    return position


def _back(parts: Parts, operands: Operands, result: Value, index: Sequence[Scalar]) -> Value:
    view = parts.view
    return operands.scope(view.iters, view.box, read(operands.number(result), tuple(index)), view.dtype)


def _product(rules: Rules, parts: Parts, operands: Operands, target: Operators) -> Value | Miss:
    """`Y[b, m, n] = sum[k] A[b, m, k] * B[b, k, n]`."""
    if not parts.rows or not parts.columns:
        return Miss.GROUP
    batch = [(it,) for it in parts.batch]
    left = _operand(parts, operands, parts.factors[0], [*batch, parts.rows, parts.summed])
    right = _operand(parts, operands, parts.factors[1], [*batch, parts.summed, parts.columns])
    try:
        (made,) = call(rules, target.product, [left, right])
    except Mismatch:
        return Miss.TYPES
    return _back(parts, operands, made, (*parts.batch, _merged(parts, parts.rows), _merged(parts, parts.columns)))


@dataclass(frozen=True, slots=True)
class _Spatial:
    """A dimension that a window slides over: `unit * (out * stride + inside * dilation - before) + rest` of the data's positions.

    `inside` is None for a window of one position.
    """

    dim: int
    out: Iter
    inside: Iter | None
    unit: int
    stride: int
    dilation: int
    before: int
    rest: Scalar


def _convolution(rules: Rules, parts: Parts, operands: Operands, target: Operators) -> Value | Miss:
    """`Y[n, (g, f), *o] = sum[c, *r] X[n, (g, c), *(o * s + r * d - p), other=0] * K[(g, f), c, *r]`."""
    data, kernel = parts.factors
    if not isinstance(data, Read):
        return Miss.NO_PRODUCT
    spatial = _spatial(parts, data)
    if isinstance(spatial, Miss):
        return spatial
    if not 1 <= len(spatial) <= 3:
        return Miss.GROUP
    shape = operands.values[data.operand].type.shape
    outside = isinstance(data.other, Num) and data.other.value == 0
    places = operands.fresh(len(spatial))
    index = list(data.index)
    sizes: dict[Iter, Scalar] = {}
    before, after = [], []
    whole = True
    for each, place in zip(spatial, places, strict=True):
        size, count = shape[each.dim], parts.extent(each.out)
        width = num(1) if each.inside is None else parts.extent(each.inside)
        if not (isinstance(size, int) and isinstance(count, Num) and isinstance(width, Num)):
            return Miss.PADS
        reach = (int(count.value) - 1) * each.stride + (int(width.value) - 1) * each.dilation + 1
        own = each.unit == 1 and each.rest is num(0)
        last = reach - size - each.before
        if own and each.before >= 0 and last >= 0 and (outside or each.before == last == 0):
            # the operator's own padding
            index[each.dim], sizes[place] = place, num(size)
            before.append(each.before)
            after.append(last)
        else:
            # all that the windows see, outside of the data too
            moved = apply("*", num(each.unit), apply("-", place, num(each.before)))
            index[each.dim], sizes[place] = apply("+", moved, each.rest), num(reach)
            before.append(0)
            after.append(0)
            whole = False
    taken = {it for each in spatial for it in (each.out, each.inside)}
    images = [it for it in parts.rows if it not in taken]
    channels = [it for it in parts.summed if it not in taken]
    every = [*((it, parts.extent(it)) for it in (*parts.view.iters, *parts.view.sums)), *sizes.items()]
    inside: dict[Scalar, tuple[int, int]] = {it: (0, int(size.value) - 1) for it, size in every if isinstance(size, Num)}
    other = None if whole and in_bounds(index, shape, inside) else data.other
    inner = read(data.operand, tuple(index), other)
    dims: list[Sequence[Iter]] = [images, [*parts.batch, *channels], *[(place,) for place in places]]
    image = _image(parts, operands, inner, dims, sizes)
    windows = [() if each.inside is None else (each.inside,) for each in spatial]
    weights = _operand(parts, operands, kernel, [[*parts.batch, *parts.columns], channels, *windows])
    groups = 1
    for it in parts.batch:
        extent = parts.extent(it)
        if not isinstance(extent, Num):
            return Miss.GROUP
        groups *= int(extent.value)
    attrs = {
        "stride": tuple(each.stride for each in spatial), "dilation": tuple(each.dilation for each in spatial),
        "pads": (*before, *after), "groups": groups,
    }  # fmt: skip
    try:
        (made,) = call(rules, target.convolution, [image, weights], attrs)
    except Mismatch:
        return Miss.TYPES
    at = (_merged(parts, images), _merged(parts, [*parts.batch, *parts.columns]), *(each.out for each in spatial))
    return _back(parts, operands, made, at)


def _image(parts: Parts, operands: Operands, factor: Scalar, dims: Sequence[Sequence[Iter]], sizes: dict[Iter, Scalar]) -> Value:
    """The data of a convolution: as `_operand`, with positions of their own along the spatial dimensions."""
    value = operands.values[factor.operand] if isinstance(factor, Read) else None
    names: list[Iter] = []
    box: list[Scalar] = []
    groups: list[int] = []
    for dim in dims:
        own = tuple(dim) or operands.fresh()
        names += own
        box += [sizes[it] if it in sizes else parts.extent(it) if it in dim else num(1) for it in own]
        groups.append(len(own))
    if value is not None and isinstance(factor, Read) and factor.other is None and set(groups) == {1}:
        shape = tuple(size if isinstance(size, Scalar) else num(size) for size in value.type.shape)
        index = tuple(num(0) if box[k] is num(1) else it for k, it in enumerate(names))
        if shape == tuple(box) and tuple(num(0) if shape[k] is num(1) else at for k, at in enumerate(factor.index)) == index:
            return value
    return operands.scope(names, Box.of(box), factor, parts.view.dtype, tuple(groups))


def _spatial(parts: Parts, data: Read) -> tuple[_Spatial, ...] | Miss:
    """The dimensions of the data that a window slides over; where there are none, rows are windows of one position."""
    found = []
    for dim, index in enumerate(data.index):
        inside = [it for it in parts.summed if it in index.free]
        out = [it for it in parts.rows if it in index.free]
        if len(index.free) < 2 or not inside or not out:
            continue
        if len(inside) != 1:
            return Miss.GROUP
        (within,) = inside
        slopes = {it: coefficient_of(index, it) for it in (*out, within)}
        if any(slope is None for slope in slopes.values()):
            return Miss.NOT_AFFINE
        dilated = slopes[within] or 0
        # the window's own iterator is the one that moves it by the most
        chosen = max(out, key=lambda it: (gcd(slopes[it] or 0, dilated), slopes[it] or 0))
        stride = slopes[chosen] or 0
        unit = gcd(stride, dilated)
        if stride < 1 or dilated < 1:
            return Miss.NOT_AFFINE
        rest = substitute(index, {chosen: num(0), within: num(0)})
        constant = substitute(rest, {it: num(0) for it in rest.free})
        if not isinstance(constant, Num):
            return Miss.NOT_AFFINE
        before = -(int(constant.value) // unit)
        rest = apply("+", rest, num(before * unit))
        # an iterator that stands elsewhere too is none of a window
        if any(it in other.free for it in (chosen, within) for k, other in enumerate(data.index) if k != dim):
            return Miss.GROUP
        found.append(_Spatial(dim, chosen, within, unit, stride // unit, dilated // unit, before, rest))
    if found:
        return tuple(found)
    for dim, index in enumerate(data.index):
        if isinstance(index, Iter) and index in parts.rows and sum(index in other.free for other in data.index) == 1:
            found.append(_Spatial(dim, index, None, 1, 1, 1, 0, num(0)))
    return tuple(found[-2:]) or Miss.GROUP
