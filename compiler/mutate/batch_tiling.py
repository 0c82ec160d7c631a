"""A region's result in tiles that are images of a batch, and a batch as one image: right everywhere (PET's Figure 1 without a seam).

Tiles that overlap, each by an operator on what it reads, where tiles that only touch each other are wrong beside the seams; what they
share is read twice.

`Y[h] = sum[r] X[h + r] * K[r]` is `Y[(a, b)] = sum[r] X[10 * a + b + r] * K[r]`, which an operator that knows images computes from the
images `X'[a, u] = X[10 * a + u]`. That is found as derived programs are: by matching what an operator computes.

Images side by side as one image, with as much room between them as windows see:

    X'[c, (a, u), (b, v)] = X[4 * a + b, c, u, v] where u < H and v < W, else 0
    Y[n, f, h, w] = conv(X', K)[f, (n // 4, h), (n % 4, w)]

An operator in tiles of some positions has fewer of them where images are smaller than a few tiles: four of 5x5 take 2x2 tiles of 4x4
each, a sheet of 23x23 takes 6x6 of them instead of 8x8.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from math import prod

from dslc.derivation.programs import calls_of
from dslc.derivation.targets import instances, targets_of
from dslc.errors import DslcError
from dslc.ir.graph import Call, Scope, ScopeNode, Value, scope_value
from dslc.ir.scalar import Iter, Num, Read, Scalar, apply, num, read, traversal, walk
from dslc.ir.scopes import substitute
from dslc.mutate.images import Slide, batch_of, slides_of_call
from dslc.mutate.problem import applied, expanded, shape_of
from dslc.semantics.env import Mismatch, Unbound
from dslc.semantics.library import Rules

PARTS: tuple[int, ...] = (2, 4)  #: parts of a dimension
WAYS = 12  #: ways to compute one tiling by operators that are looked at


def overlapping(rules: Rules, old: Value) -> Iterator[Value]:
    """Programs of a region in tiles that overlap, over its holes; of every choice of dimensions and parts those by its own operators.

    None for a region of several expressions, or of symbolic sizes.
    """
    (value,) = expanded(rules, (old,)) or (None,)
    if (
        not value
        or not isinstance(value.node, ScopeNode)
        or any(isinstance(arg.node, ScopeNode) for arg in value.node.args)
    ):
        return
    scope = value.node.scope
    if not all(isinstance(extent, int) for extent in scope.extents):
        return
    sliding = _sliding(scope)
    targets = targets_of(rules, [node.op for node in calls_of(old)])
    seen: set[Value] = set()
    for axes in (sliding, *((axis,) for axis in sliding if len(sliding) > 1)):
        for count in PARTS:
            tiled = _tiled(value, axes, count) if axes else None
            if not tiled:
                continue
            try:
                for _, made in islice(instances(rules, tiled, targets), WAYS):
                    back = _untiled(made, scope, axes, old)
                    if back not in seen:
                        seen.add(back)
                        yield back
            except (Mismatch, DslcError):
                continue


def _sliding(scope: Scope) -> tuple[int, ...]:
    """The iterators of a result along which windows slide: they are added to others in an index."""
    found: dict[int, None] = {}
    for part in walk(scope.body):
        if isinstance(part, Read):
            for at in part.index:
                if not isinstance(at, Iter | Num) and len(at.free) > 1:
                    found.update((k, None) for k, it in enumerate(scope.iters) if it in at.free)
    # merged dimensions are added as well, and cut nothing
    merged: set[int] = set()
    start = 0
    for count in scope.groups or ():
        if count > 1:
            merged.update(range(start, start + count))
        start += count
    return tuple(k for k in sorted(found) if k not in merged and int(str(scope.extents[k])) > 1)


def _tiled(value: Value, axes: Sequence[int], count: int) -> Value | None:
    """`{[n, h, w] f}` as `{[n, a, b, h', w'] f}` with `h = a * tile + h'`; None where that would read outside of a tensor."""
    node = value.node
    assert isinstance(node, ScopeNode)
    scope = node.scope
    sizes = {axis: -(-int(str(scope.extents[axis])) // count) for axis in axes}
    if any(size < 2 for size in sizes.values()):
        return None
    beyond = any(sizes[axis] * count != scope.extents[axis] for axis in axes)
    cut = {scope.iters[axis] for axis in axes}
    if beyond and any(
        isinstance(part, Read) and part.other is None and any(not cut.isdisjoint(at.free) for at in part.index)
        for part in walk(scope.body)
    ):
        return None
    # the tiles stand beside the first dimension: they are images
    first = next((k for k in range(len(scope.extents)) if k not in axes), 0)
    order: list[tuple[int, bool]] = []
    for k in range(len(scope.extents)):
        order.append((k, False))
        if k == first:
            order += [(axis, True) for axis in axes]
    at = {pair: traversal(place) for place, pair in enumerate(order)}
    index: dict[Iter, Scalar] = {}
    for k, it in enumerate(scope.iters):
        inner: Scalar = at[k, False]
        index[it] = apply("+", apply("*", at[k, True], num(sizes[k])), inner) if k in sizes else inner
    extents = tuple(count if outer else sizes.get(k, scope.extents[k]) for k, outer in order)
    return scope_value(Scope(extents, substitute(scope.body, index), scope.dtype), node.args)


def _untiled(made: Value, scope: Scope, axes: Sequence[int], old: Value) -> Value:
    """Put what tiles hold in the place where the region has it."""
    shape, sizes = shape_of(old), shape_of(made)
    # the positions of the region's iterators: merged dimensions are taken apart
    index: list[Scalar] = []
    for axis, count in enumerate(scope.counts):
        own = [int(str(size)) for size in scope.extents[len(index) : len(index) + count]]
        for k in range(count):
            inner = prod(own[k + 1 :])
            index.append(
                apply("%", apply("//", traversal(axis), num(inner)), num(own[k])) if count > 1 else traversal(axis)
            )
    first = next((k for k in range(len(index)) if k not in axes), 0)
    places: list[Scalar] = []
    for k, at in enumerate(index):
        tile = num(sizes[_place(k, first, axes)])
        places.append(apply("%", at, tile) if k in axes else at)
        if k == first:
            places += [apply("//", index[axis], num(sizes[_place(axis, first, axes)])) for axis in axes]
    return scope_value(Scope(shape, read(0, tuple(places)), old.type.dtype), (made,))


def _place(axis: int, first: int, axes: Sequence[int]) -> int:
    """The place of an iterator of the region among those of the tiles."""
    return axis + (len(axes) if axis > first else 0)


def sheets(rules: Rules, old: Value) -> Iterator[Value]:
    """Programs of an operator over holes with its images on sheets, of all grids of the whole batch; none for what has no images."""
    core = old.node
    if not isinstance(core, Call) or any(isinstance(arg.node, Call) for arg in core.args):
        return
    batch = None
    with suppress(Mismatch, Unbound, DslcError, ValueError):
        operand, along = slides_of_call(rules, core) or (0, ())
        batch = batch_of(rules, core, operand, core.attrs, [slide.axis for slide in along]) if along else None
    if batch is None:
        return
    count = shape_of(core.args[operand])[batch[0]]
    for grid in _grids(count, len(along)):
        made = _on_sheet(rules, core, operand, along, batch, grid)
        if made:
            yield made


def _grids(count: int, axes: int) -> list[tuple[int, ...]]:
    """Ways to put images on a grid, those first that are almost as high as wide."""
    if axes == 1:
        return [(count,)] if count > 1 else []
    found = [
        (high, count // high, *(1,) * (axes - 2)) for high in range(1, count + 1) if count > 1 and count % high == 0
    ]
    return sorted(found, key=lambda grid: (max(grid[:2]) / min(grid[:2]), grid))[:4]


def _on_sheet(
    rules: Rules, core: Call, operand: int, along: tuple[Slide, ...], batch: tuple[int, int], grid: tuple[int, ...]
) -> Value | None:
    images = core.args[operand]
    shape, wanted = shape_of(images), shape_of(core.values[0])
    step: dict[int, int] = {}
    sizes = list(shape)
    sizes[batch[0]] = 1
    index: list[Scalar] = [traversal(k) for k in range(len(shape))]
    at: list[Scalar] = [traversal(k) for k in range(len(wanted))]
    number: Scalar = num(0)
    left: Scalar = traversal(batch[1])
    held: Scalar = num(True)
    places: list[Scalar] = []
    for parts in reversed(grid):
        places.insert(0, apply("%", left, num(parts)))
        left = apply("//", left, num(parts))
    for slide, parts, place in zip(along, grid, places, strict=True):
        size, result = shape[slide.axis], wanted[slide.result]
        apart = max(size - slide.first, result + slide.first + slide.window)
        if apart < size:
            return None
        step[slide.axis] = apart
        sizes[slide.axis] = (parts - 1) * apart + size
        it = traversal(slide.axis)
        number = apply("+", apply("*", number, num(parts)), apply("//", it, num(apart)))
        index[slide.axis] = apply("%", it, num(apart))
        held = apply("and", held, apply("<", index[slide.axis], num(size)))
        at[slide.result] = apply("+", apply("*", place, num(apart)), traversal(slide.result))
    index[batch[0]] = number
    at[batch[1]] = num(0)
    body = apply("select", held, read(0, tuple(index)), num(0))
    sheet = scope_value(Scope(tuple(sizes), body, images.type.dtype), (images,))
    args = [sheet if k == operand else arg for k, arg in enumerate(core.args)]
    (made,) = applied(rules, core.op, args, dict(core.attrs)) or (None,)
    if not made:
        return None
    given = shape_of(made)
    fits = all(
        given[slide.result] >= (parts - 1) * step[slide.axis] + wanted[slide.result]
        for slide, parts in zip(along, grid, strict=True)
    )
    if not fits or prod(given) < prod(wanted):
        return None
    return scope_value(Scope(wanted, read(0, tuple(at)), core.values[0].type.dtype), (made,))
