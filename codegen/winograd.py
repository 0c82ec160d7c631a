"""Products between transforms by constant tables, as minimal filtering (Winograd's) has them: their parts, and how they are laid out.

    V = {[row, c, e] sum[i] B[e, i] * X[row + i, c]}        a tile of an operand, transformed
    P = {[row, f, e] sum[c] U[f, c, e] * V[row, c, e]}      one product for each e
    Y = {[f, o] ... sum[e] A[o % m, e] * P[o // m, f, e]}   transformed back

V and P have many times as many elements as X and Y, and are never written whole: `Z = {[row, k, f] sum[e] A[k, e] * P[row, f, e]}` is
one part, whose stage takes some rows at a time through all three steps (`filtered_code`). Around it are parts of their own: X with its
surroundings and its channels last, U in panels (once for a session where it depends on weights alone), and Y, which reads Z.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from dslc.codegen.arithmetic import ceiling, over, plus, rest, times
from dslc.codegen.factoring import factor_of
from dslc.codegen.group import Part, Parts, reads_of, tabled
from dslc.codegen.split_reductions import factors_of, outermost, part_of
from dslc.ir.dtype import Dim, DType
from dslc.ir.graph import Scope, ScopeNode, Value, scope_value
from dslc.ir.scalar import (
    Iter,
    Num,
    Read,
    Reduce,
    Scalar,
    Table,
    apply,
    as_scalar,
    iterator,
    num,
    raw_apply,
    read,
    reduce,
    replaced,
)
from dslc.ir.scopes import inline, scope_of, substitute
from dslc.records import record
from dslc.semantics.lists import plain

TERMS = 8  #: terms of the product, with fewer of which the transforms take longer than it
TILE = 128  #: numbers of a tile, beyond which a transform is not written out


@record
class Factor:
    """A constant table over axes of a transform."""

    values: Any
    axes: tuple[str, ...]


@record
class Transform:
    """`sum[tile axes] product of factors * tile[tile axes]`; `sizes` has the length of each axis."""

    factors: tuple[Factor, ...]
    tile: tuple[str, ...]
    made: tuple[str, ...]
    sizes: dict[str, int]


@record
class Filter:
    """Parameters of the stage of Z.

    part: Z, over `rows` and `tiles` (which of its iterators these are) and columns, the last. It reads the weights in panels
    `[panel, points, channel, column]`, and then the operand `[places, channel]`, whose place is the sum of `moves` (for each row, by
    how much it moves each index) and `steps` (the same for each axis of a tile). `before` makes points of a tile, `after` tiles of
    points. `terms`: channels, without those that are only there to fill a vector.
    """

    part: Part
    rows: tuple[int, ...]
    tiles: tuple[int, ...]
    before: Transform
    after: Transform
    moves: tuple[tuple[int, ...], ...]
    steps: dict[str, tuple[int, ...]]
    terms: Dim


def filtered(parts: Parts, lanes: int, panel: int) -> tuple[Parts, dict[Value, Filter]]:
    """The same with products between transforms as parts of their own, and what their stages need; equal where there are none.

    Args:
        lanes: elements of a vector: channels are a multiple of it.
        panel: columns of a panel, a multiple of `lanes`.
    """
    by_value = {part.value: part for part in parts.parts}
    uses = [arg for part in parts.parts for arg in part.args]
    new: dict[Value, Value] = {}
    first: list[Part] = []
    out: list[Part] = []
    found: dict[Value, Filter] = {}
    for part in parts.parts:
        args = tuple(new.get(arg, arg) for arg in part.args)
        last = part_of(part.scope, args, part.alone)
        for chain in _chains(part, by_value):
            inner = {chain.product.value, chain.operand.value}
            if any(uses.count(value) > 1 or value in parts.outputs for value in inner):
                continue
            whole = _whole(chain, part, new, lanes, panel)
            if whole is not None:
                (panels, *around), filter, last = whole
                first.append(panels)
                out += [*around, filter.part]
                found[filter.part.value] = filter
                break
        new[part.value] = last.value
        out.append(last)
    if not found:
        return parts, {}
    outputs = tuple(new.get(value, value) for value in parts.outputs)
    return Parts(parts.inputs, _needed((*first, *out), first, outputs), outputs), found


def _needed(parts: Sequence[Part], first: Sequence[Part], outputs: Sequence[Value]) -> tuple[Part, ...]:
    """Dependencies of outputs, producers first, `first` and its own before the others."""
    values = {part.value: part for part in parts}
    done: dict[Value, Part] = {}

    def take(value: Value) -> None:
        part = values.get(value)
        if part and value not in done:
            for arg in part.args:
                take(arg)
            done[value] = part

    for value in (*(part.value for part in first), *outputs):
        take(value)
    return tuple(done.values())


# ---- finding them ----------------------------------------------------------------------------------------------------------


@record
class _Chain:
    """A sum over tables of the element of a product, whose other parts are `product` and `operand`."""

    node: Reduce
    read: Read
    product: Part
    operand: Part
    weights: Read
    moved: Read


def _chains(part: Part, by_value: dict[Value, Part]) -> Iterator[_Chain]:
    for node in outermost(part.scope.body):
        taken = _table_sum(node)
        if not taken:
            continue
        product = by_value.get(part.args[taken.operand])
        if not product or len(list(reads_of(part.scope.body, [taken.operand]))) != 1:
            continue
        body = product.scope.body
        if not isinstance(body, Reduce) or body.kind != "sum" or body.where or len(body.iters) != 1:
            continue
        sides = factors_of(body)
        if len(sides) != 2 or not all(isinstance(each, Read) and _plain(each) for each in sides):
            continue
        for weights, moved in (sides, sides[::-1]):
            assert isinstance(weights, Read) and isinstance(moved, Read)
            operand = by_value.get(product.args[moved.operand])
            if not operand or product.args[weights.operand] == operand.value:
                continue
            if isinstance(operand.scope.body, Reduce) and _table_sum(operand.scope.body):
                yield _Chain(node, taken, product, operand, weights, moved)


def _table_sum(node: Reduce) -> Read | None:
    """The element read in a sum of products of tables and one element; None where a node is no such sum."""
    known = not node.where and all(isinstance(extent, Num) for extent in node.extents)
    return tabled(node) if known else None


def _plain(each: Read) -> bool:
    """Return whether every index is an iterator of its own, or a number."""
    iters = [at for at in each.index if isinstance(at, Iter)]
    return each.other is None and len(set(iters)) == len(iters) and all(isinstance(at, Iter | Num) for at in each.index)


# ---- taking them apart -----------------------------------------------------------------------------------------------------


def _whole(
    chain: _Chain, part: Part, new: dict[Value, Value], lanes: int, panel: int
) -> tuple[list[Part], Filter, Part] | None:
    """The parts of the weights and the operand, Z, and what reads it; None where one of them has another form."""
    product, operand, total = chain.product, chain.operand, chain.product.scope.body
    inner = operand.scope.body
    assert isinstance(total, Reduce) and isinstance(inner, Reduce)
    (channel,), (terms,) = total.iters, total.extents
    own = product.scope.iters
    sizes: dict[Iter, Dim] = dict(zip(own, product.scope.extents, strict=True))
    left, right = ({it for it in each.index if isinstance(it, Iter)} for each in (chain.weights, chain.moved))
    points = [it for it in own if it in left & right]
    rows = [it for it in own if it not in left]
    columns = [it for it in own if it in left - right]
    types = {product.scope.dtype, operand.scope.dtype, *product.dtypes, *operand.dtypes}
    if types != {DType.F32} or channel not in left & right or len(columns) != 1 or not points:
        return None
    if isinstance(terms, Num) and int(terms.value) < TERMS:
        return None
    (column,) = columns
    # the operand, in the iterators of the product
    taken = _table_sum(inner)
    assert taken
    here: dict[Iter, Scalar] = dict(zip(operand.scope.iters, chain.moved.index, strict=True))
    here |= {it: it for it in inner.iters}
    places = _places([substitute(one, here) for one in taken.index], (*rows, *inner.iters), channel)
    at: dict[Iter, Scalar] = dict(zip(own, chain.read.index, strict=True))
    before = _before(inner, here, points, sizes)
    back, outside = _after(chain.node, [at[it] for it in points])
    if before is None or places is None or back is None or not isinstance(at[column], Iter):
        return None
    if any(not at[it].free.isdisjoint(chain.node.iters) for it in (*rows, column)):
        return None
    args = tuple(new.get(arg, arg) for arg in part.args)
    weights = product.args[chain.weights.operand]
    panels = _panels(chain.weights, new.get(weights, weights), points, column, channel, sizes, terms, panel)
    source = operand.args[taken.operand]
    ranges = sizes | dict(zip(inner.iters, map(plain, inner.extents), strict=True))
    copied, before_it = _copied(taken, new.get(source, source), places, ranges, terms, lanes)
    # a position in a tile comes after the row that it belongs to, so that neighbours lie side by side
    order: list[Iter | str] = []
    for row in rows:
        near = [name for name, place in outside.items() if not at[row].free.isdisjoint(place.free)]
        order += [row, *(name for name in near if name not in order)]
    order += [*(name for name in outside if name not in order), column]
    names: dict[Iter | str, Iter] = {each: iterator(f"i{k}") for k, each in enumerate(order)}
    widths: list[Dim] = [back.sizes[each] if isinstance(each, str) else sizes[each] for each in order[:-1]]
    widths.append(plain(times(panels.scope.extents[0], panel)))
    body = _body(chain.node, inner, names, points, at, here, rows, column, channel, terms, places, panel)
    z = part_of(Scope(tuple(widths), body, DType.F32), (panels.value, copied.value), alone=True)
    axes = {it.name: tuple(place.factor(it) for place in places if place.spatial) for it in (*rows, *inner.iters)}
    filter = Filter(
        z, tuple(map(order.index, rows)), tuple(map(order.index, back.made)), before, back,
        tuple(axes[row.name] for row in rows), {axis: axes[axis] for axis in before.tile}, plain(terms),
    )  # fmt: skip
    index = tuple(outside[each] if isinstance(each, str) else at[each] for each in order)
    whole = replaced(part.scope.body, chain.node, read(len(args), index))
    last = part_of(replace(part.scope, body=whole), (*args, z.value), alone=True)
    return [panels, *before_it, copied], filter, last


def _before(
    inner: Reduce, here: dict[Iter, Scalar], points: Sequence[Iter], sizes: dict[Iter, Dim]
) -> Transform | None:
    """The transform of a tile: axes are the iterators of its sum, and those of the product that are points."""
    tile, made = tuple(it.name for it in inner.iters), {it.name: _number(sizes[it]) for it in points}

    def axis(place: Scalar, _: int) -> str:
        one = substitute(place, here)
        return one.name if isinstance(one, Iter) and one.name in (*tile, *made) else ""

    return _transform(inner, tile, made, axis) if made.keys().isdisjoint(tile) else None


def _after(node: Reduce, points: Sequence[Scalar]) -> tuple[Transform | None, dict[str, Scalar]]:
    """The transform of points, whose new axes stand for positions in a tile; and what these are outside."""
    outside: dict[str, Scalar] = {}
    made: dict[str, int] = {}
    tile = tuple(it.name for it in points if isinstance(it, Iter))

    def axis(place: Scalar, length: int) -> str:
        if isinstance(place, Iter) and place in node.iters:
            return place.name
        if not place.free.isdisjoint(node.iters):
            return ""
        # which position of a tile this is
        name = next((name for name, known in outside.items() if known is place), f"k{len(outside)}")
        outside[name], made[name] = place, length
        return name

    every = len(set(points)) == len(points) and set(points) == set(node.iters)
    return _transform(node, tile, made, axis) if every else None, outside


def _transform(
    node: Reduce, tile: tuple[str, ...], made: dict[str, int], axis: Callable[[Scalar, int], str]
) -> Transform | None:
    """A sum over tables as a transform; None where one of them is at a place without an axis.

    Also where it is too large to be written out, or makes the same of every tile along an axis.
    """
    factors = []
    for table in factors_of(node):
        if isinstance(table, Table):
            axes, values = [], table.values
            for place in table.index:
                axes.append(axis(place, len(values)))
                values = values[0]
            factors.append(Factor(table.values, tuple(axes)))
    used = {axis for factor in factors for axis in factor.axes}
    sizes = {it.name: _number(extent) for it, extent in node.ranges} | made
    largest = max(prod(sizes[axis] for axis in axes) for axes in (tile, made))
    fits = "" not in used and used.issuperset(made) and 0 < largest <= TILE
    return Transform(tuple(factors), tile, tuple(made), sizes) if fits else None


def _number(size: Dim) -> int:
    """A known size; 0 for others, with which no transform is written."""
    found = plain(size)
    return found if isinstance(found, int) else 0


@record
class _Place:
    """An index of the operand: `low` and multiples of iterators, or a channel."""

    low: Scalar
    factors: tuple[tuple[Iter, int], ...]
    spatial: bool = True

    def factor(self, it: Iter) -> int:
        return dict(self.factors).get(it, 0)

    def text(self, put: dict[Iter, Scalar]) -> Scalar:
        return plus(num(0), *(times(factor, put[it]) for it, factor in self.factors))


def _places(index: Sequence[Scalar], iters: Sequence[Iter], channel: Iter) -> list[_Place] | None:
    """Every index of the operand; None where one is not linear, or runs backwards."""
    out = []
    for one in index:
        if one is channel:
            out.append(_Place(num(0), ((channel, 1),), spatial=False))
            continue
        factors = tuple((it, factor_of(one, it)) for it in iters if it in one.free)
        low = substitute(one, {it: num(0) for it, _ in factors})
        if any(factor < 1 for _, factor in factors) or low.free:
            return None
        out.append(_Place(low, factors))
    return out if sum(not place.spatial for place in out) == 1 else None


# ---- the parts around ------------------------------------------------------------------------------------------------------


def _panels(
    weights: Read,
    value: Value,
    points: Sequence[Iter],
    column: Iter,
    channel: Iter,
    sizes: dict[Iter, Dim],
    terms: Scalar,
    panel: int,
) -> Part:
    """The weights as `[panel, points, channel, column]`, 0 in columns that there are not: in the order in which they are read."""
    width = sizes[column]
    extents = (plain(ceiling(width, panel)), *(sizes[it] for it in points), plain(terms), panel)
    places = [iterator(f"i{k}") for k in range(len(extents))]
    at = plus(times(panel, places[0]), places[-1])
    put: dict[Iter, Scalar] = {**dict(zip(points, places[1:], strict=False)), channel: places[-2], column: at}
    element: Scalar = read(0, tuple(put[each] if isinstance(each, Iter) else each for each in weights.index))
    if not (isinstance(width, int) and width % panel == 0):
        element = raw_apply("select", apply("<", at, as_scalar(width)), element, num(0))
    # the weights' own transform is done on the way
    whole = scope_value(Scope(extents, element, DType.F32), (value,))
    if isinstance(value.node, ScopeNode):
        whole = inline(whole, 0)
    return part_of(scope_of(whole), whole.node.args, alone=True)


def _copied(
    taken: Read, value: Value, places: Sequence[_Place], sizes: dict[Iter, Dim], terms: Scalar, lanes: int
) -> tuple[Part, list[Part]]:
    """The operand with all that tiles read of it, also beyond its ends, and its channels last, in whole vectors.

    And parts that it reads.
    """
    filled = times(ceiling(terms, lanes), lanes)
    extents: list[Dim] = []
    index: list[Scalar] = []
    channel = iterator(f"i{len(places) - 1}")
    for place in places:
        if place.spatial:
            size = plus(1, *(times(factor, plus(sizes[it], -1)) for it, factor in place.factors))
            index.append(plus(iterator(f"i{len(extents)}"), place.low))
            extents.append(plain(size))
        else:
            index.append(channel)
    extents.append(plain(filled))
    element: Scalar = read(0, tuple(index), taken.other)
    if filled is not terms:
        element = raw_apply("select", apply("<", channel, terms), element, num(0))
    whole = scope_value(Scope(tuple(extents), element, DType.F32), (value,))
    if not isinstance(value.node, ScopeNode) or value.node.scope.body.binds:
        return part_of(scope_of(whole), whole.node.args, alone=True), []
    # what is chosen or changed element by element is done on the way
    whole = inline(whole, 0)
    scope, args = scope_of(whole), list(whole.node.args)
    turned: dict[int, Part] = {}
    for number, arg in enumerate(args):
        indices = [index for index, _ in reads_of(scope.body, [number])]
        axes = {axis for index in indices for axis, at in enumerate(index) if channel in at.free}
        if len(axes) == 1 and arg.type.rank - 1 not in axes and all(index[min(axes)] is channel for index in indices):
            # neighbours of places that are anywhere are channels: these are brought together once
            turned[number] = _turned(arg, min(axes))
            args[number] = turned[number].value
    if not turned:
        return part_of(scope, tuple(args), alone=True), []

    def on_read(each: Read, index: tuple[Scalar, ...], other: Scalar | None, depth: int) -> Scalar:
        if each.operand in turned:
            index = (*(at for at in index if at is not channel), channel)
        return read(each.operand, index, other)

    body = substitute(scope.body, {}, 0, on_read)
    return part_of(replace(scope, body=body), tuple(args), alone=True), [*turned.values()]


def _turned(value: Value, axis: int) -> Part:
    """A tensor with one of its dimensions last."""
    shape = value.type.shape
    order = sorted(range(len(shape)), key=lambda k: k == axis)
    body = read(0, tuple(iterator(f"i{order.index(k)}") for k in range(len(shape))))
    return part_of(Scope(tuple(shape[k] for k in order), body, value.type.dtype), (value,), alone=True)


def _body(
    node: Reduce, inner: Reduce, names: dict[Iter | str, Iter], points: Sequence[Iter], at: dict[Iter, Scalar],
    here: dict[Iter, Scalar], rows: Sequence[Iter], column: Iter, channel: Iter, terms: Scalar, places: Sequence[_Place], panel: int,
) -> Scalar:  # fmt: skip
    """The equation of Z over the panels and the copied operand."""
    back = {at[it]: iterator(f"e{k}") for k, it in enumerate(points)}
    tile = {it: iterator(f"t{k}") for k, it in enumerate(inner.iters)}
    through = iterator("c")
    spot: dict[Iter, Scalar] = {it: back[at[it]] for it in points}
    spot |= {channel: through, **{it: names[it] for it in rows}, **tile}
    put = {it: substitute(place, spot) for it, place in here.items()}
    tables = [substitute(each, put) for each in factors_of(inner) if isinstance(each, Table)]
    moved = read(1, (*(place.text(spot) for place in places if place.spatial), through))
    one = reduce("sum", tuple(tile.values()), inner.extents, raw_apply("*", *tables, moved))
    weights = read(0, (over(names[column], panel), *(spot[it] for it in points), through, rest(names[column], panel)))
    product = reduce("sum", (through,), (terms,), raw_apply("*", weights, one))
    outside: dict[Scalar, Iter] = {}
    factors = [
        Table._make(
            tuple(
                back[place] if place in back else outside.setdefault(place, names[f"k{len(outside)}"])
                for place in table.index
            ),
            table.values,
        )
        for table in factors_of(node)
        if isinstance(table, Table)
    ]
    return reduce("sum", tuple(back[it] for it in node.iters), node.extents, raw_apply("*", *factors, product))
