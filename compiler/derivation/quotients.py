"""Maps of many positions to one: what is read at a quotient or a remainder is the same for all positions that have it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from dslc.analysis.iterators import coefficient_of
from dslc.analysis.numeric import value as value_at
from dslc.derivation.maps import Change, tried
from dslc.derivation.pieces import Box, Iters, Map, Operands, Ranges, UnknownTerm
from dslc.ir.scalar import Iter, Num, Scalar, apply, num, rebuild, walk
from dslc.ir.scopes import substitute

COUNTED = 1 << 12  #: positions at which values of a quotient are counted
BESIDE = 2  #: iterators that a quotient is counted relative to


def lookups(terms: Sequence[UnknownTerm], iters: Iters, box: Box, operands: Operands) -> Iterator[Change]:
    """An iterator becomes the quotient or the remainder that alone a term knows of it: `(i + j) % 6` for j, of which there are fewer.

    The way back is one of the positions that have it.
    """
    for whole in dict.fromkeys(each for term in terms for each in _divided(term.body)):
        for k, it in enumerate(iters):
            if (
                it not in whole.free
                or not whole.free <= set(iters)
                or not all(_only_in(whole, it, term.body) for term in terms)
            ):
                continue
            parts = operands.fresh()
            for each in tried(iters, k, (whole,), parts, _position(whole, it, parts[0]), box):
                size, before = each.box.extents[0], box.extents[k]
                if isinstance(size, Num) and isinstance(before, Num) and size.value < before.value:
                    yield each


def groupings(
    term: UnknownTerm,
    index: Iters,
    outer: Iters,
    at: Ranges,
    operands: Operands,
) -> Map | None:
    """For a sum over `index` the fewer positions that a term knows of: `(p + r - 1) // 2` for r, counted from p, if these are fewer.

    `at`: where iterators run. The way back is one of the positions that belong together. None where one iterator has no such quotient.
    """
    values: list[Scalar] = []
    extents: list[Scalar] = []
    back: list[Scalar] = []
    places = operands.fresh(len(outer) + len(index))
    kept, new = places[: len(outer)], places[len(outer) :]
    for k, it in enumerate(index):
        found = next(
            (
                (whole, shift) for whole in dict.fromkeys(_divided(term.body))
                if whole.op == "//" and it in whole.free and whole.free <= {it, *outer} and _only_in(whole, it, term.body)
                and (shift := _fewest(whole, it, at)) is not None
            ), None,
        )  # fmt: skip
        if found is None:
            return None
        whole, (first, count) = found
        values.append(apply("-", whole, first))
        extents.append(num(count))
        moved = _position(whole, it, apply("+", new[k], first))
        back.append(substitute(moved, dict(zip(outer, kept, strict=True))))
    low = tuple(num(0) for _ in index)
    return Map((*outer, *index), tuple(values), (*kept, *new), tuple(back), Box(low, tuple(extents)))


def _divided(body: Scalar) -> Iterator[Scalar]:
    """Quotients and remainders by numbers, of positions alone."""
    for node in walk(body):
        if node.op in {"//", "%"} and isinstance(node.args[1], Num) and not node.reads:
            yield node


def _only_in(whole: Scalar, it: Iter, body: Scalar) -> bool:
    """Return whether an expression knows an iterator by a quotient (or remainder) alone, in which it moves by one."""
    if coefficient_of(whole.args[0], it) not in {1, -1}:
        return False
    return it not in rebuild(body, lambda node: num(0) if node is whole else None).free


def _position(whole: Scalar, it: Iter, value: Scalar) -> Scalar:
    """A position of an iterator at which a quotient or a remainder has this value."""
    dividend, divisor = whole.args
    rest = substitute(dividend, {it: num(0)})
    wanted = apply("*", divisor, value) if whole.op == "//" else value
    slope = coefficient_of(dividend, it) or 1
    return apply("*", num(slope), apply("-", wanted, rest))


def _fewest(whole: Scalar, it: Iter, at: Ranges) -> tuple[Scalar, int] | None:
    """From where a quotient is counted so that there are the fewest, and how many: fewer than its iterator has positions; else None."""
    others = sorted(whole.free - {it}, key=str)
    if len(others) > BESIDE or not {it, *others} <= at.keys():
        return None
    runs = [range(at[each][0], at[each][1] + 1) for each in (it, *others)]
    if prod(map(len, runs)) > COUNTED:
        return None
    points: list[dict[Scalar, int]] = [dict(zip((it, *others), place, strict=True)) for place in product(*runs)]
    numbers = [int(value_at(whole, point)) for point in points]
    best: tuple[Scalar, int] | None = None
    for slopes in product((0, 1, -1), repeat=len(others)):
        moved = [
            number - sum(slope * point[other] for slope, other in zip(slopes, others, strict=True))
            for number, point in zip(numbers, points, strict=True)
        ]
        count = max(moved) - min(moved) + 1
        if count < (best[1] if best is not None else len(runs[0])):
            first = apply(
                "+",
                num(min(moved)),
                *(apply("*", num(slope), other) for slope, other in zip(slopes, others, strict=True)),
            )
            best = first, count
    return best
