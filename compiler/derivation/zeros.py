"""Zeros of terms, and positions at which they have a value: by reads beside tensors, and by guards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dslc.analysis.iterators import coefficient_of
from dslc.analysis.numeric import DataDependent, in_bounds, interval
from dslc.derivation.pieces import Box, Iters, Operands, Ranges, UnknownTerm
from dslc.ir.scalar import Apply, Iter, Num, Read, Reduce, Scalar, apply, conjuncts, num, scalars, walk
from dslc.ir.scopes import substitute


def only_positions(
    body: Scalar, iters: Sequence[Iter], box: Box, at: Ranges, operands: Operands
) -> Mapping[Iter, Scalar]:
    """For iterators of a sum the one position where a term is not 0: `r` is `b` where there is nothing but for `(b - r) % 2 == 0`.

    `at`: where iterators run. An iterator runs through the divisor's positions at most; others of the sum stay out of its guard.
    """
    found: dict[Iter, Scalar] = {}
    for guard, divisor in _divided(body, operands):
        own = [it for it in iters if it in guard.free]
        if len(own) != 1 or own[0] in found:
            continue
        (it,) = own
        slope, low, extent = coefficient_of(guard, it), *((each[iters.index(it)]) for each in (box.low, box.extents))
        if slope is None or abs(slope) != 1 or low is not num(0) or not isinstance(extent, Num):
            continue
        place = apply("*", num(-slope), substitute(guard, {it: num(0)}))
        try:
            least, most = interval(place, at)
        except DataDependent:
            continue
        if divisor is None or (extent.value <= divisor and least >= 0 and most < divisor):
            found[it] = place
        elif extent.value <= divisor:
            found[it] = apply("%", place, num(divisor))
    return found


def _divided(body: Scalar, operands: Operands) -> Iterator[tuple[Scalar, int | None]]:
    """Positions that have to be divisible by a number (None: be 0), or a term is 0: by guards and reads of dimensions of one."""
    zeros = [apply("-", *each.args) for each in _guards(body) if each.op == "==" and len(each.args) == 2]
    for factor, guard in _factors(body):
        if not guard and isinstance(factor, Read) and isinstance(factor.other, Num) and factor.other.value == 0:
            shape = operands.values[factor.operand].type.shape
            zeros += [at for at, size in zip(factor.index, shape, strict=True) if size == 1]
    for each in zeros:
        if each.op == "%" and isinstance(each.args[1], Num):
            yield each.args[0], int(each.args[1].value)
        elif each.integral:
            yield each, None


def read_at(body: Scalar) -> frozenset[Iter]:
    """The iterators that alone are a position of something that is read."""
    return frozenset(at for node in scalars(Read, body) for at in node.index if isinstance(at, Iter))


def nonzero_box(term: UnknownTerm, index: tuple[Iters, Box], operands: Operands, beyond: bool = False) -> Box | None:
    """The least box outside of which a term is 0 for every input; None where it is everything that is asked for.

    A product is 0 where one of its factors reads beside its tensor and 0 is the value there. `beyond`: that is its value beside
    every tensor, as in a box that is larger than what the term was written for.
    """
    iters, box = index
    low, high = list(box.low), [apply("+", a, n) for a, n in zip(box.low, box.extents, strict=True)]
    for factor, guard in _factors(term.body):
        if guard or not isinstance(factor, Read):
            continue
        zero = isinstance(factor.other, Num) and factor.other.value == 0
        if not zero and not (beyond and not factor.other):
            continue
        shape = operands.values[factor.operand].type.shape
        for at, size in zip(factor.index, shape, strict=True):
            inside = [it for it in iters if it in at.free]
            if len(inside) != 1 or at.free != {inside[0]} or coefficient_of(at, inside[0]) != 1:
                continue
            k = iters.index(inside[0])
            shift = apply("-", at, inside[0])
            first = apply("-", num(0), shift)
            low[k] = apply("max", low[k], first)
            high[k] = apply("min", high[k], apply("+", first, size if isinstance(size, Scalar) else num(size)))
    for condition in _guards(term.body):
        found_guard = _bound(condition, iters)
        if found_guard is not None:
            k, start, after = found_guard
            low[k] = low[k] if start is None else apply("max", low[k], start)
            high[k] = high[k] if after is None else apply("min", high[k], after)
    extents = tuple(apply("-", b, a) for a, b in zip(low, high, strict=True))
    if any(isinstance(extent, Num) and extent.value <= 0 for extent in extents):
        return None
    found_box = Box(tuple(low), extents)
    return None if found_box == box else found_box


def _factors(body: Scalar) -> Iterator[tuple[Scalar, bool]]:
    """The factors of a term, and conditions without which it is 0, as True."""
    match body:
        case Reduce(kind="sum"):
            yield from _factors(body.body)
        case Apply(name="select", args=(condition, inner, Num(value=0))):
            yield from ((each, True) for each in conjuncts(condition))
            yield from _factors(inner)
        case Apply(name="*"):
            for factor in body.args:
                yield factor, False
                yield from ((each, True) for each, guard in _factors(factor) if guard)
        case _:
            yield body, False


def _guards(body: Scalar) -> Iterator[Scalar]:
    return (each for each, guard in _factors(body) if guard)


def _bound(condition: Scalar, iters: Iters) -> tuple[int, Scalar | None, Scalar | None] | None:
    """An iterator that a comparison with a constant bounds: the first position, and the one after the last."""
    if condition.op not in {"==", "<", "<="}:
        return None
    left, right = condition.args
    for it, limit, turned in ((left, right, False), (right, left, True)):
        if isinstance(it, Iter) and it in iters and not limit.free:
            k, after = iters.index(it), apply("+", limit, num(1))
            if condition.op == "==":
                return k, limit, after
            if not turned:
                return k, None, limit if condition.op == "<" else after
            return k, after if condition.op == "<" else limit, None
    return None


def cuts(body: Scalar, iters: Iters) -> set[tuple[int, int]]:
    """The cuts at which choices of a term change along one iterator: its place, and the first position of the next piece."""
    found: set[tuple[int, int]] = set()
    for node in walk(body):
        if node.op != "select":
            continue
        for condition in walk(node.args[0]):
            bound = _bound(condition, iters)
            if bound is not None:
                found |= {(bound[0], at.value) for at in bound[1:] if isinstance(at, Num) and isinstance(at.value, int)}
    return found


def total(term: UnknownTerm, at: Ranges, operands: Operands) -> bool:
    """Return whether a term has a value wherever its iterators are: it reads inside its tensors, or has a value outside."""
    for node in walk(term.body):
        if isinstance(node, Read) and not node.other:
            if not in_bounds(node.index, operands.values[node.operand].type.shape, at):
                return False
        elif isinstance(node, Reduce):
            return False
    return True
