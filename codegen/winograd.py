"""Products between transforms by constant tables, as minimal filtering (Winograd's) has them: their parts, and how they are laid out.

    V = {[row, c, e] sum[i] B[e, i] * X[row + i, c]}        a tile of an operand, transformed
    P = {[row, f, e] sum[c] U[f, c, e] * V[row, c, e]}      one product for each e
    Y = {[f, o] ... sum[e] A[o % m, e] * P[o // m, f, e]}   transformed back

V and P have many times as many elements as X and Y, and are never written whole: `Z = {[row, k, f] sum[e] A[k, e] * P[row, f, e]}` is
one part, whose stage takes some rows at a time through all three steps (`filtered_code`). Around it are parts of their own: X with its
surroundings and its channels last, U in panels (once for a session where it depends on weights alone), and Y, which reads Z.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dslc.codegen.factoring import factor_of
from dslc.codegen.group import Part, Parts
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
    rebuild,
    reduce,
    walk,
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
    """`sum[summed] product of factors * tile[tile axes]`; `sizes` has the length of each axis."""

    factors: tuple[Factor, ...]
    tile: tuple[str, ...]
    summed: tuple[str, ...]
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
        chains = [
            chain
            for chain in _chains(part, by_value)
            if all(uses.count(value) == 1 and value not in parts.outputs for value in chain.inner)
        ]
        whole = next((one for chain in chains if (one := _whole(chain, part, new, lanes, panel)) is not None), None)
        if whole is not None:
            around, filter, last = whole
            first += around[:1]
            out += [*around[1:], filter.part, last]
            found[filter.part.value] = filter
            new[part.value] = last.value
            continue
        args = tuple(new.get(arg, arg) for arg in part.args)
        kept = part_of(part.scope, args, part.alone) if args != part.args else part
        new[part.value] = kept.value
        out.append(kept)
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
        if part is not None and value not in done:
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
    inner: frozenset[Value]


def _chains(part: Part, by_value: dict[Value, Part]) -> Iterator[_Chain]:
    for node in outermost(part.scope.body):
        taken = _table_sum(node)
        if taken is None:
            continue
        product = by_value.get(part.args[taken.operand])
        if (
            product is None
            or sum(isinstance(e, Read) and e.operand == taken.operand for e in walk(part.scope.body)) != 1
        ):
            continue
        body = product.scope.body
        if not isinstance(body, Reduce) or body.kind != "sum" or body.where is not None or len(body.iters) != 1:
            continue
        sides = factors_of(body)
        if len(sides) != 2 or not all(isinstance(each, Read) and _plain(each) for each in sides):
            continue
        for weights, moved in (sides, sides[::-1]):
            assert isinstance(weights, Read) and isinstance(moved, Read)
            operand = by_value.get(product.args[moved.operand])
            if operand is None or product.args[weights.operand] == operand.value:
                continue
            if isinstance(operand.scope.body, Reduce) and _table_sum(operand.scope.body) is not None:
                inner = frozenset({product.value, operand.value})
                yield _Chain(node, taken, product, operand, weights, moved, inner)


def _table_sum(node: Reduce) -> Read | None:
    """The element read in a sum of products of tables and one element; None where a node is no such sum."""
    if node.kind != "sum" or node.where is not None or not all(isinstance(extent, Num) for extent in node.extents):
        return None
    factors = factors_of(node)
    reads = [each for each in factors if isinstance(each, Read)]
    tables = [each for each in factors if isinstance(each, Table)]
    if len(reads) != 1 or not tables or len(reads) + len(tables) < len(factors):
        return None
    return reads[0]


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
    left = {it for it in chain.weights.index if isinstance(it, Iter)}
    right = {it for it in chain.moved.index if isinstance(it, Iter)}
    points = [it for it in own if it in left and it in right]
    rows = [it for it in own if it not in left]
    columns = [it for it in own if it not in right and it in left]
    types = {product.scope.dtype, operand.scope.dtype, *product.dtypes, *operand.dtypes}
    if types != {DType.F32} or not {channel} <= left & right or len(columns) != 1 or not points:
        return None
    if isinstance(terms, Num) and int(terms.value) < TERMS:
        return None
    (column,) = columns
    # the operand, in the iterators of the product
    taken = _table_sum(inner)
    assert taken is not None
    here: dict[Iter, Scalar] = dict(zip(operand.scope.iters, chain.moved.index, strict=True))
    moved = tuple(substitute(one, {**here, **{it: it for it in inner.iters}}) for one in taken.index)
    places = _places(moved, (*rows, *inner.iters), channel)
    at: dict[Iter, Scalar] = dict(zip(own, chain.read.index, strict=True))
    before = _before(inner, here, points, sizes)
    after = _after(chain.node, at, points, sizes)
    if before is None or places is None or after is None or not isinstance(at[column], Iter):
        return None
    if any(not at[it].free.isdisjoint(chain.node.iters) for it in (*rows, column)):
        return None
    back, outside = after
    args = tuple(new.get(arg, arg) for arg in part.args)
    weights = product.args[chain.weights.operand]
    panels = _panels(chain.weights, new.get(weights, weights), points, column, channel, sizes, terms, panel)
    source = operand.args[taken.operand]
    ranges: dict[Iter, Dim] = {
        **sizes,
        **{it: plain(extent) for it, extent in zip(inner.iters, inner.extents, strict=True)},
    }
    copied, before_it = _copied(taken, new.get(source, source), places, ranges, terms, lanes)
    # a position in a tile comes after the row that it belongs to, so that neighbours lie side by side
    order: list[Iter | str] = []
    waiting = dict(outside)
    for row in rows:
        order.append(row)
        for name, place in outside.items():
            if name in waiting and not at[row].free.isdisjoint(place.free):
                order.append(name)
                del waiting[name]
    order += [*waiting, column]
    names: dict[Iter | str, Iter] = {each: iterator(f"i{k}") for k, each in enumerate(order)}
    widths: list[Dim] = [back.sizes[each] if isinstance(each, str) else sizes[each] for each in order[:-1]]
    widths.append(_times(panels.scope.extents[0], panel))
    body = _body(chain.node, inner, names, points, at, here, rows, column, channel, terms, places, panel)
    z = part_of(Scope(tuple(widths), body, DType.F32), (panels.value, copied.value), alone=True)
    axes = {_axis(it): tuple(place.factor(it) for place in places if place.spatial) for it in (*rows, *inner.iters)}
    filter = Filter(
        z, tuple(order.index(row) for row in rows), tuple(order.index(name) for name in back.made), before, back,
        tuple(axes[_axis(row)] for row in rows), {axis: axes[axis] for axis in before.tile}, plain(terms),
    )  # fmt: skip
    index = tuple(outside[each] if isinstance(each, str) else at[each] for each in order)
    whole = rebuild(part.scope.body, lambda node: read(len(args), index) if node is chain.node else None)
    last = part_of(replace(part.scope, body=whole), (*args, z.value), alone=True)
    return [panels, *before_it, copied], filter, last


def _axis(it: Iter) -> str:
    return it.name


def _before(
    inner: Reduce, here: dict[Iter, Scalar], points: Sequence[Iter], sizes: dict[Iter, Dim]
) -> Transform | None:
    """The transform of a tile: axes are the iterators of its sum, and those of the product that are points."""
    own = {_axis(it): _number(extent) for it, extent in zip(inner.iters, inner.extents, strict=True)}
    made = {_axis(it): _number(sizes[it]) for it in points}
    put: dict[Iter, Scalar] = {**here, **{it: it for it in inner.iters}}
    tables = [each for each in factors_of(inner) if isinstance(each, Table)]
    factors = tuple(
        _factor(each.values, [substitute(place, put) for place in each.index], {**own, **made}) for each in tables
    )
    if set(own) & set(made) or None in factors:
        return None
    return _checked(Transform(tuple(e for e in factors if e), tuple(own), tuple(own), tuple(made), {**own, **made}))


def _after(
    node: Reduce, at: dict[Iter, Scalar], points: Sequence[Iter], sizes: dict[Iter, Dim]
) -> tuple[Transform, dict[str, Scalar]] | None:
    """The transform of points, whose new axes stand for positions in a tile; and what these are outside."""
    own = {_axis(it): _number(extent) for it, extent in zip(node.iters, node.extents, strict=True)}
    if [at[it] for it in points] != list(dict.fromkeys(at[it] for it in points)) or set(node.iters) != {
        at[it] for it in points
    }:
        return None
    outside: dict[Scalar, str] = {}
    lengths: dict[str, int] = {}
    factors = []
    for table in factors_of(node):
        if not isinstance(table, Table):
            continue
        axes, values = [], table.values
        for place in table.index:
            if isinstance(place, Iter) and place in node.iters:
                axes.append(_axis(place))
            elif place.free.isdisjoint(node.iters):
                # which position of a tile this is
                axes.append(outside.setdefault(place, f"k{len(outside)}"))
                lengths[axes[-1]] = len(values)
            else:
                return None
            values = values[0]
        factors.append(Factor(table.values, tuple(axes)))
    tile = tuple(_axis(it) for it in (at[point] for point in points) if isinstance(it, Iter))
    found = _checked(Transform(tuple(factors), tile, tile, tuple(lengths), {**own, **lengths}))
    return None if found is None else (found, {name: place for place, name in outside.items()})


def _factor(values: Any, index: Sequence[Scalar], sizes: dict[str, int]) -> Factor | None:
    if not all(isinstance(place, Iter) and _axis(place) in sizes for place in index):
        return None
    return Factor(values, tuple(_axis(place) for place in index if isinstance(place, Iter)))


def _checked(found: Transform) -> Transform | None:
    """None where a transform is too large to be written out, or makes the same of every tile along an axis."""
    tile = made = 1
    for axis in found.tile:
        tile *= found.sizes[axis]
    for axis in found.made:
        made *= found.sizes[axis]
    used = {axis for factor in found.factors for axis in factor.axes}
    return found if 0 < max(tile, made) <= TILE and used.issuperset(found.made) else None


def _number(size: Dim) -> int:
    """A known size; 0 for others, with which no transform is written."""
    found = as_scalar(size)
    return int(found.value) if isinstance(found, Num) else 0


@record
class _Place:
    """An index of the operand: `low` and multiples of iterators, or a channel."""

    low: Scalar
    factors: tuple[tuple[Iter, int], ...]
    spatial: bool = True

    def factor(self, it: Iter) -> int:
        return dict(self.factors).get(it, 0)

    def text(self, put: dict[Iter, Scalar]) -> Scalar:
        total: Scalar = num(0)
        for it, factor in self.factors:
            total = apply("+", total, apply("*", num(factor), put[it]))
        return total


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
    width, wide = sizes[column], num(panel)
    count = apply("//", apply("+", as_scalar(width), num(panel - 1)), wide)
    extents = (plain(count), *(sizes[it] for it in points), plain(terms), panel)
    places = [iterator(f"i{k}") for k in range(len(extents))]
    at = apply("+", apply("*", wide, places[0]), places[-1])
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
    extents: list[Dim] = []
    index: list[Scalar] = []
    filled = apply("*", apply("//", apply("+", terms, num(lanes - 1)), num(lanes)), num(lanes))
    for place in places:
        if place.spatial:
            size: Scalar = num(1)
            for it, factor in place.factors:
                size = apply("+", size, apply("*", num(factor), apply("+", as_scalar(sizes[it]), num(-1))))
            index.append(apply("+", iterator(f"i{len(extents)}"), place.low))
            extents.append(plain(size))
        else:
            index.append(num(0))
    channel = iterator(f"i{len(extents)}")
    extents.append(plain(filled))
    index = [at if place.spatial else channel for at, place in zip(index, places, strict=True)]
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
        reads = [each for each in walk(scope.body) if isinstance(each, Read) and each.operand == number]
        axes = {axis for each in reads for axis, at in enumerate(each.index) if channel in at.free}
        if (
            len(axes) == 1
            and axes != {len(arg.type.shape) - 1}
            and all(each.index[min(axes)] is channel for each in reads)
        ):
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
    order = [*(k for k in range(len(shape)) if k != axis), axis]
    places = {k: iterator(f"i{n}") for n, k in enumerate(order)}
    body = read(0, tuple(places[k] for k in range(len(shape))))
    return part_of(Scope(tuple(shape[k] for k in order), body, value.type.dtype), (value,), alone=True)


def _body(
    node: Reduce, inner: Reduce, names: dict[Iter | str, Iter], points: Sequence[Iter], at: dict[Iter, Scalar],
    here: dict[Iter, Scalar], rows: Sequence[Iter], column: Iter, channel: Iter, terms: Scalar, places: Sequence[_Place], panel: int,
) -> Scalar:  # fmt: skip
    """The equation of Z over the panels and the copied operand."""
    back = {at[it]: iterator(f"e{k}") for k, it in enumerate(points)}
    spot: dict[Iter, Scalar] = {it: back[at[it]] for it in points}
    for it in rows:
        spot[it] = names[it]
    tile = {it: iterator(f"t{k}") for k, it in enumerate(inner.iters)}
    through = iterator("c")
    spot = {**spot, **tile, channel: through}
    put: dict[Iter, Scalar] = {it: substitute(place, spot) for it, place in here.items()}
    tables = [substitute(each, {**put, **tile}) for each in factors_of(inner) if isinstance(each, Table)]
    moved = read(1, (*(place.text(spot) for place in places if place.spatial), through))
    one = reduce("sum", tuple(tile[it] for it in inner.iters), inner.extents, raw_apply("*", *tables, moved))
    wide = num(panel)
    whole = read(
        0, (apply("//", names[column], wide), *(spot[it] for it in points), through, apply("%", names[column], wide))
    )
    product = reduce("sum", (through,), (terms,), raw_apply("*", whole, one))
    new: dict[Scalar, Scalar] = {it: back[it] for it in node.iters}
    factors: list[Scalar] = []
    outside: dict[Scalar, Iter] = {}
    for table in factors_of(node):
        if isinstance(table, Table):
            index = [
                new[place] if place in new else outside.setdefault(place, names[f"k{len(outside)}"])
                for place in table.index
            ]
            factors.append(Table._make(tuple(index), table.values))
    iters = tuple(back[it] for it in node.iters)
    return reduce("sum", iters, node.extents, raw_apply("*", *factors, product))


def _times(size: Dim, factor: int) -> Dim:
    found: Dim = plain(apply("*", as_scalar(size), num(factor)))
    return found
