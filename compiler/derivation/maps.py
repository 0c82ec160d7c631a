"""Index maps that are tried: changes of iterators that an expression suggests, splits by factors, merges, and several at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from fractions import Fraction

from dslc.analysis.iterators import coefficient_of
from dslc.analysis.numeric import DataDependent, interval
from dslc.derivation.pieces import Box, Iters, Map, Operands, Unfit, UnknownTerm, Vector, product_of, ranges
from dslc.ir.scalar import Apply, Iter, Num, Read, Scalar, apply, num, rebuild, scalars
from dslc.ir.scopes import substitute
from dslc.records import record


def image(params: Sequence[Iter], values: Sequence[Scalar], box: Box) -> Box:
    """The least box that is known to hold what a map gives on a box; raises Unfit at unknown sizes."""
    at = ranges(params, box)
    low, extents = [], []
    for value in values:
        try:
            least, most = interval(value, at)
        except DataDependent as unknown:
            raise Unfit("an image that is not known") from unknown
        low.append(num(least))
        extents.append(num(most - least + 1))
    return Box(tuple(low), tuple(extents), hull_only=True)


@record
class Change:
    """Other values in the place of the iterator number `at`, as a part of an index map.

    `inverse` is the iterator over `parts`, which stand for the values, and the other iterators; `box` is the image.
    """

    at: int
    values: Vector
    parts: Iters
    inverse: Scalar
    box: Box


def changed_by(iters: Iters, box: Box, changes: Sequence[Change], operands: Operands) -> Map:
    """The map of some changes, which keeps all other iterators."""
    kept = [Change(k, (it,), (it,), it, Box(box.low[k : k + 1], box.extents[k : k + 1])) for k, it in enumerate(iters)]
    for each in changes:
        kept[each.at] = each
    names = [it for each in kept for it in each.parts]
    back = operands.fresh(len(names))
    named: dict[Iter, Scalar] = dict(zip(names, back, strict=True))
    low = tuple(n for each in kept for n in each.box.low)
    extents = tuple(n for each in kept for n in each.box.extents)
    image = Box(low, extents, any(each.box.hull_only for each in changes))
    values = tuple(value for each in kept for value in each.values)
    return Map(iters, values, back, tuple(substitute(each.inverse, named) for each in kept), image)


def changed(each: Map) -> int:
    """The number of iterators that a map involves: those that it does not keep, and those that others are computed of."""
    kept = {value for value in each.values if isinstance(value, Iter)}
    others = {it for value in each.values if not isinstance(value, Iter) for it in value.free}
    return len(others | (set(each.params) - kept))


def together(iters: Iters, changes: Sequence[Change]) -> Sequence[Change]:
    """Changes of several iterators: the first that there is for each, where none of them needs what another one changes; else none."""
    chosen: dict[int, Change] = {}
    for each in changes:
        trial = {each.at: each, **chosen}
        touched = {iters[k] for k in trial}
        if all({it for value in one.values for it in value.free} & touched <= {iters[k]} for k, one in trial.items()):
            chosen = trial
    return [*chosen.values()] if len(chosen) > 1 else []


def tried(iters: Iters, k: int, values: Vector, parts: Iters, inverse: Scalar, box: Box) -> Iterator[Change]:
    """A change, where its image is known."""
    with suppress(Unfit):
        yield Change(k, values, parts, inverse, image(iters, values, box))


def by_reads(term: UnknownTerm, iters: Iters, box: Box, operands: Operands) -> Iterator[Change]:
    """An iterator becomes an expression of iterators that something is read at: `h + 2 * r` for h, where r stays."""
    seen: set[tuple[int, Scalar]] = set()
    inside = set(iters)
    for index in (at for node in scalars(Read, term.body) for at in node.index):
        own = [it for it in iters if it in index.free]
        summed = index.free - inside
        divided = [part for part in scalars(Apply, index) if part.name == "//"]
        if not own or any(coefficient_of(each, it) is None for it in summed for each in _affine(index, divided)):
            continue
        if len(own) < 2 and all(part.free.isdisjoint(summed) for part in divided):
            continue
        # of a window that is summed where it begins: `h + 3 * a` of `h + 3 * a + b`
        begin: dict[Iter, Scalar] = {it: num(0) for it in summed}
        if divided:
            # `(o + b - r) // s + 1` too
            for whole, divisor in dict.fromkeys(part.args for part in divided):
                if isinstance(divisor, Num):
                    yield from _by_quotient(substitute(whole, begin), divisor, iters, box, operands)
            continue
        index = substitute(index, begin)
        for it in own:
            slope = coefficient_of(index, it)
            if not slope or (abs(slope) != 1 and not _overlaps(index, own, iters, box)):
                continue
            value = apply("-", index, substitute(index, {other: num(0) for other in index.free}))
            k = iters.index(it)
            if (k, value) not in seen:
                seen.add((k, value))
                parts = operands.fresh()
                # with a stride not every position comes from one: those between are computed too, where the term has a value there
                rest = apply("-", parts[0], substitute(value, {it: num(0)}))
                yield from tried(iters, k, (value,), parts, apply("*", num(Fraction(1, slope)), rest), box)


def _affine(index: Scalar, divided: Sequence[Apply]) -> list[Scalar]:
    """An index, or where parts of it are quotients what is divided, and the index without them."""
    return [*(part.args[0] for part in divided), rebuild(index, lambda node: num(0) if node in divided else None)]


def _overlaps(index: Scalar, own: Sequence[Iter], iters: Iters, box: Box) -> bool:
    """Return whether some positions of an index are read at more than once, as those of strided windows are that overlap."""
    sizes = [box.extents[iters.index(it)] for it in own]
    try:
        (extent,) = image(iters, (index,), box).extents
    except Unfit:
        return False
    every = product_of(sizes)
    return isinstance(extent, Num) and isinstance(every, Num) and extent.value < every.value


def _by_quotient(index: Scalar, divisor: Scalar, iters: Iters, box: Box, operands: Operands) -> Iterator[Change]:
    """`(o + b - r) // s` for o: the quotient and the remainder of what is divided, where r stays."""
    for k, it in enumerate(iters):
        if coefficient_of(index, it) == 1:
            parts = operands.fresh(2)
            whole = apply("+", apply("*", parts[0], divisor), parts[1])
            inverse = apply("-", whole, apply("-", index, it))
            yield from tried(iters, k, (apply("//", index, divisor), apply("%", index, divisor)), parts, inverse, box)


def split(iters: Iters, box: Box, k: int, factor: int, operands: Operands) -> Change | None:
    """`x → (x // factor, x % factor)`, where the factor divides the extent and is less."""
    low, extent = box.low[k], box.extents[k]
    if low is not num(0) or not isinstance(extent, Num) or not isinstance(extent.value, int):
        return None
    if extent.value % factor or extent.value <= factor:
        return None
    parts, by = operands.fresh(2), num(factor)
    joined = apply("+", apply("*", parts[0], by), parts[1])
    values = (apply("//", iters[k], by), apply("%", iters[k], by))
    return Change(k, values, parts, joined, Box.of((extent.value // factor, factor)))


def merged(iters: Iters, box: Box, k: int, operands: Operands) -> Map | None:
    """`(a, b) → a * size(b) + b`."""
    if any(low is not num(0) for low in box.low[k : k + 2]):
        return None
    size = box.extents[k + 1]
    value = apply("+", apply("*", iters[k], size), iters[k + 1])
    back = operands.fresh(len(iters) - 1)
    parts = (apply("//", back[k], size), apply("%", back[k], size))
    return Map(
        iters, (*iters[:k], value, *iters[k + 2 :]), back, (*back[:k], *parts, *back[k + 1 :]),
        Box((*box.low[:k], num(0), *box.low[k + 2 :]), (*box.extents[:k], apply("*", box.extents[k], size), *box.extents[k + 2 :])),
    )  # fmt: skip


def flattened(iters: Iters, box: Box, operands: Operands) -> Map | None:
    """`(a, b, c) → (a * size(b) + b) * size(c) + c`: any number of iterators as one; None where a box does not begin at 0."""
    if not iters or any(low is not num(0) for low in box.low):
        return None
    (place,) = operands.fresh()
    value: Scalar = num(0)
    sizes = box.extents
    back: list[Scalar] = []
    for k, (it, size) in enumerate(zip(iters, sizes, strict=True)):
        value = apply("+", apply("*", value, size), it)
        own = apply("//", place, product_of(sizes[k + 1 :]))
        # the outermost needs no remainder
        back.append(own if k == 0 else apply("%", own, size))
    whole = product_of(sizes)
    return Map(iters, (value,), (place,), tuple(back), Box((num(0),), (whole,)))
