"""Index maps that are tried: changes of iterators that an expression suggests, splits by factors, merges, and several at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from dslc.analysis.iterators import coefficient_of
from dslc.analysis.numeric import DataDependent, interval
from dslc.derivation.pieces import Box, Map, Operands, Unfit, UnknownTerm, ranges
from dslc.ir.scalar import Apply, Iter, Num, Read, Scalar, apply, num, rebuild, walk
from dslc.ir.scopes import substitute


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


def changed(each: Map) -> int:
    """How many iterators a map involves: those that it does not keep, and what they are computed of."""
    kept = {value for value in each.values if isinstance(value, Iter)}
    others = {it for value in each.values if not isinstance(value, Iter) for it in value.free}
    return len(others | (set(each.params) - kept))


def together(iters: tuple[Iter, ...], maps: Sequence[tuple[int, Map]], operands: Operands) -> Iterator[Map]:
    """Changes of several iterators at once: the first that there is for each, where none of them needs what another one changes."""
    chosen: dict[int, Map] = {}
    for k, each in maps:
        changed = {iters[j] for j in (*chosen, k)}
        parts = [_part(iters, j, one) for j, one in {**chosen, k: each}.items()]
        alone = all((set().union(*(v.free for v in values)) & changed) <= {iters[j]} for j, values, _, _ in parts)
        if k not in chosen and alone:
            chosen[k] = each
    if len(chosen) < 2:
        return
    values: list[Scalar] = []
    low: list[Scalar] = []
    extents: list[Scalar] = []
    places: list[tuple[int, int]] = []
    for j, it in enumerate(iters):
        if j in chosen:
            one = chosen[j]
            width = len(one.values) - len(iters) + 1
            assert one.box is not None
            values += one.values[j : j + width]
            low += one.box.low[j : j + width]
            extents += one.box.extents[j : j + width]
        else:
            width = 1
            values.append(it)
            first = next(iter(chosen.values()))
            assert first.box is not None
            at = j if j < next(iter(chosen)) else j + len(first.values) - len(iters)
            low.append(first.box.low[at])
            extents.append(first.box.extents[at])
        places.append((len(values) - width, width))
    back = operands.fresh(len(values))
    inverse: list[Scalar] = []
    for j in range(len(iters)):
        start, width = places[j]
        if j not in chosen:
            inverse.append(back[start])
            continue
        one = chosen[j]
        assert one.back is not None
        own: dict[Iter, Scalar] = {}
        for i in range(len(iters)):
            # of its parameters, those of the others, and its own
            at = i if i < j else i + len(one.values) - len(iters)
            if i != j:
                own[one.back_params[at]] = back[places[i][0]]
        for n in range(width):
            own[one.back_params[j + n]] = back[start + n]
        inverse.append(substitute(one.back[j], own))
    partly = any(one.box is not None and one.box.hull_only for one in chosen.values())
    yield Map(iters, tuple(values), back, tuple(inverse), Box(tuple(low), tuple(extents), partly))


def _part(iters: tuple[Iter, ...], k: int, one: Map) -> tuple[int, tuple[Scalar, ...], tuple[Iter, ...], Scalar | None]:
    """What a change of one iterator makes of it."""
    width = len(one.values) - len(iters) + 1
    return k, one.values[k : k + width], one.back_params[k : k + width], None if one.back is None else one.back[k]


def by_reads(term: UnknownTerm, iters: tuple[Iter, ...], box: Box, operands: Operands) -> Iterator[tuple[int, Map]]:
    """An iterator becomes an expression of iterators that something is read at: `h + 2 * r` for h, where r stays."""
    seen: set[tuple[int, Scalar]] = set()
    inside = set(iters)
    for node in walk(term.body):
        if not isinstance(node, Read):
            continue
        for index in node.index:
            own = [it for it in iters if it in index.free]
            summed = index.free - inside
            divided = [part for part in walk(index) if isinstance(part, Apply) and part.name == "//"]
            if not own or any(coefficient_of(each, it) is None for it in summed for each in _affine(index, divided)):
                continue
            if len(own) < 2 and all(part.free.isdisjoint(summed) for part in divided):
                continue
            if divided:
                # `(o + b - r) // s + 1` too
                for whole, divisor in dict.fromkeys(part.args for part in divided):
                    if isinstance(divisor, Num):
                        dividend = substitute(whole, {it: num(0) for it in summed})
                        yield from _by_quotient(dividend, int(divisor.value), iters, box, operands)
                continue
            # of a window that is summed where it begins: `h + 3 * a` of `h + 3 * a + b`
            index = substitute(index, {it: num(0) for it in summed})
            for it in own:
                slope = coefficient_of(index, it)
                if not slope or (abs(slope) != 1 and not _overlaps(index, own, iters, box)):
                    continue
                constant = substitute(index, {other: num(0) for other in index.free})
                value = apply("-", index, constant)
                k = iters.index(it)
                if (k, value) in seen:
                    continue
                seen.add((k, value))
                try:
                    after = image(iters, (*iters[:k], value, *iters[k + 1 :]), box)
                except Unfit:
                    continue
                back = operands.fresh(len(iters))
                rest = substitute(value, {it: num(0)})
                moved = substitute(rest, dict(zip(iters, back, strict=True)))
                # with a stride not every position comes from one: those between are computed too, where the term has a value there
                inverse = apply("*", num(Fraction(1, slope)), apply("-", back[k], moved))
                yield (
                    k,
                    Map(iters, (*iters[:k], value, *iters[k + 1 :]), back, (*back[:k], inverse, *back[k + 1 :]), after),
                )


def _affine(index: Scalar, divided: Sequence[Apply]) -> list[Scalar]:
    """An index, or where parts of it are quotients what is divided, and the index without them."""
    return [*(part.args[0] for part in divided), rebuild(index, lambda node: num(0) if node in divided else None)]


def _overlaps(index: Scalar, own: Sequence[Iter], iters: tuple[Iter, ...], box: Box) -> bool:
    """Whether some positions of an index are read at more than once, as those of strided windows are that overlap."""
    sizes = [box.extents[iters.index(it)] for it in own]
    try:
        (extent,) = image(iters, (index,), box).extents
    except Unfit:
        return False
    every: Scalar = num(1)
    for size in sizes:
        every = apply("*", every, size)
    return isinstance(extent, Num) and isinstance(every, Num) and extent.value < every.value


def _by_quotient(
    index: Scalar, divisor: int, iters: tuple[Iter, ...], box: Box, operands: Operands
) -> Iterator[tuple[int, Map]]:
    """`(o + b - r) // s` for o: the quotient and the remainder of what is divided, where r stays."""
    for k, it in enumerate(iters):
        if it not in index.free or coefficient_of(index, it) != 1:
            continue
        parts = (apply("//", index, num(divisor)), apply("%", index, num(divisor)))
        values = (*iters[:k], *parts, *iters[k + 1 :])
        try:
            after = image(iters, values, box)
        except Unfit:
            continue
        back = operands.fresh(len(iters) + 1)
        kept = dict(zip((*iters[:k], *iters[k + 1 :]), (*back[:k], *back[k + 2 :]), strict=True))
        rest = substitute(apply("-", index, it), kept)
        whole = apply("+", apply("*", back[k], num(divisor)), back[k + 1])
        inverse = apply("-", whole, rest)
        yield k, Map(iters, values, back, (*back[:k], inverse, *back[k + 2 :]), after)


def split(iters: tuple[Iter, ...], box: Box, k: int, factor: int, operands: Operands) -> Map | None:
    """`x → (x // factor, x % factor)`, where the factor divides the extent and is less."""
    low, extent = box.low[k], box.extents[k]
    if not (isinstance(low, Num) and low.value == 0 and isinstance(extent, Num) and isinstance(extent.value, int)):
        return None
    if extent.value % factor or extent.value <= factor:
        return None
    blocks = extent.value // factor
    values = (*iters[:k], apply("//", iters[k], num(factor)), apply("%", iters[k], num(factor)), *iters[k + 1 :])
    back = operands.fresh(len(iters) + 1)
    joined = apply("+", apply("*", back[k], num(factor)), back[k + 1])
    return Map(
        iters, values, back, (*back[:k], joined, *back[k + 2 :]),
        Box((*box.low[:k], num(0), num(0), *box.low[k + 1 :]), (*box.extents[:k], num(blocks), num(factor), *box.extents[k + 1 :])),
    )  # fmt: skip


def merged(iters: tuple[Iter, ...], box: Box, k: int, operands: Operands) -> Map | None:
    """`(a, b) → a * size(b) + b`."""
    if not all(isinstance(low, Num) and low.value == 0 for low in box.low[k : k + 2]):
        return None
    size = box.extents[k + 1]
    value = apply("+", apply("*", iters[k], size), iters[k + 1])
    back = operands.fresh(len(iters) - 1)
    parts = (apply("//", back[k], size), apply("%", back[k], size))
    return Map(
        iters, (*iters[:k], value, *iters[k + 2 :]), back, (*back[:k], *parts, *back[k + 1 :]),
        Box((*box.low[:k], num(0), *box.low[k + 2 :]), (*box.extents[:k], apply("*", box.extents[k], size), *box.extents[k + 2 :])),
    )  # fmt: skip


def flattened(iters: tuple[Iter, ...], box: Box, operands: Operands) -> Map | None:
    """`(a, b, c) → (a * size(b) + b) * size(c) + c`: any number of iterators as one; None where a box does not begin at 0."""
    if not iters or not all(isinstance(low, Num) and low.value == 0 for low in box.low):
        return None
    (place,) = operands.fresh()
    value: Scalar = num(0)
    whole: Scalar = num(1)
    back: list[Scalar] = []
    for k, (it, size) in enumerate(zip(iters, box.extents, strict=True)):
        value = apply("+", apply("*", value, size), it)
        whole = apply("*", whole, size)
        inner: Scalar = num(1)
        for each in box.extents[k + 1 :]:
            inner = apply("*", inner, each)
        own = apply("//", place, inner)
        # the outermost needs no remainder
        back.append(own if k == 0 else apply("%", own, size))
    return Map(iters, (value,), (place,), tuple(back), Box((num(0),), (whole,)))
