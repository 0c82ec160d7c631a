"""Scopes as a sum of products of two reads, and the dimensions of a read that windows slide over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from dslc.cuda.patterns import Dim, Pattern, Reading
from dslc.cuda.views import View, slopes
from dslc.ir.graph import Scope
from dslc.ir.scalar import Apply, Iter, Num, Read, Reduce, Scalar, read, rebuild, walk


@dataclass(frozen=True, slots=True, eq=False)
class Summed:
    """A scope, taken apart: the two factors of its sum, what else it reads, and what it computes of both."""

    scope: Scope
    views: tuple[View, ...]
    result: View
    factors: tuple[Read, Read]
    others: tuple[Read, ...]
    computed: Scalar
    extents: Mapping[Iter, int]
    summed: frozenset[Iter]
    #: strides of the result by iterator
    written: Mapping[Iter, int]


def summed_of(scope: Scope, views: Sequence[View], result: View) -> Summed | None:
    """A scope with one sum of products of two reads; None for any other. `result` is where its elements are to be."""
    sums = [node for node in walk(scope.body) if isinstance(node, Reduce)]
    if len(sums) != 1:
        return None
    (total,) = sums
    body = total.body
    if total.kind != "sum" or total.where is not None or not (isinstance(body, Apply) and body.name == "*" and len(body.args) == 2):
        return None
    left, right = body.args
    if not (isinstance(left, Read) and isinstance(right, Read)) or not all(isinstance(e, Num) for e in total.extents):
        return None
    others: dict[Read, int] = {}

    def leaf(node: Scalar) -> Scalar | None:
        if node is total:
            return read(0, ())
        if isinstance(node, Read):
            return read(others.setdefault(node, len(others) + 1), ())
        return None

    computed = rebuild(scope.body, leaf)
    if computed.free:
        return None
    extents = {it: int(str(e)) for it, e in zip(scope.iters, scope.extents, strict=True)}
    extents |= {it: int(str(e)) for it, e in zip(total.iters, total.extents, strict=True)}
    if min(extents.values(), default=1) < 1:
        return None
    written: dict[Iter, int] = {}
    at = 0
    for axis, count in enumerate(scope.groups or (1,) * len(scope.extents)):
        step = result.strides[axis]
        for it in reversed(scope.iters[at : at + count]):
            written[it] = step
            step *= extents[it]
        at += count
    return Summed(
        scope, tuple(views), result, (left, right), tuple(others), computed, extents, frozenset(total.iters), written
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Windows:
    """The dimensions of a tensor whose positions are computed: which dimension of the operand is which of the pattern, the iterators of
    each index, and coefficients by name."""

    tensor: str = ""
    order: tuple[int, ...] = ()
    iters: Mapping[str, tuple[tuple[Iter, ...], ...]] | None = None
    coefficients: Mapping[str, tuple[int, ...]] | None = None


def windows_of(pattern: Pattern, target: Summed, reads: Mapping[str, Read]) -> Iterator[Windows]:
    with_windows = [one for one in pattern.factors if one.window]
    if not with_windows:
        yield Windows()
        return
    (reading,) = with_windows[:1]
    if len(with_windows) > 1:
        return
    node = reads[reading.tensor]
    fixed = [dim for dim in reading.dims if not dim.star]
    many = len(node.index) - len(fixed)
    if many < 0 or (many and many == len(node.index)) or (many and not any(dim.star for dim in reading.dims)):
        return
    for taken in permutations(range(len(node.index)), len(fixed)):
        rest = iter([k for k in range(len(node.index)) if k not in taken])
        chosen = iter(taken)
        order: list[tuple[int, ...]] = [tuple(rest) if dim.star else (next(chosen),) for dim in reading.dims]
        found = _unified(pattern, target, reading, node, order, reads)
        if found is not None:
            yield found


def _unified(
    pattern: Pattern, target: Summed, reading: Reading, node: Read, order: Sequence[tuple[int, ...]], reads: Mapping[str, Read]
) -> Windows | None:
    """The dimensions of a read as those of a pattern in one order."""
    if node.other is not None and not (reading.other and isinstance(node.other, Num) and node.other.value == 0):
        return None
    every = tuple(target.extents)
    iters: dict[str, list[tuple[Iter, ...]]] = {}
    coefficients: dict[str, list[int]] = {}
    shape = target.views[node.operand].shape
    for dim, places in zip(reading.dims, order, strict=True):
        for place in places:
            found = slopes(node.index[place], every)
            if found is None:
                return None
            *steps, start = found
            used = [(it, step) for it, step in zip(every, steps, strict=True) if step and target.extents[it] > 1]
            by_term = _by_term(pattern, target, dim, [it for it, _ in used], reads)
            if by_term is None:
                return None
            if dim.window:
                at = dict(used)
                for term, own in zip(dim.terms, by_term, strict=True):
                    if len(own) > 1 or (own and at[own[0]] < 1) or (own and term.factor is None and at[own[0]] != 1):
                        return None
                    if term.factor is not None:
                        coefficients.setdefault(term.factor, []).append(at[own[0]] if own else 1)
                names = [(sign, name) for sign, name in dim.added if isinstance(name, str)]
                known = sum(sign * one for sign, one in dim.added if isinstance(one, int))
                if len(names) > 1 or (not names and start != known):
                    return None
                for sign, name in names:
                    coefficients.setdefault(name, []).append(sign * (start - known))
            elif start or not _radix(used, by_term, target, shape[place]):
                return None
            for term, own in zip(dim.terms, by_term, strict=True):
                iters.setdefault(term.index, []).append(own)
    return Windows(
        reading.tensor, tuple(place for places in order for place in places),
        {name: tuple(own) for name, own in iters.items()}, {name: tuple(own) for name, own in coefficients.items()},
    )  # fmt: skip


def _by_term(
    pattern: Pattern, target: Summed, dim: Dim, used: Sequence[Iter], reads: Mapping[str, Read]
) -> tuple[tuple[Iter, ...], ...] | None:
    """Which iterators of a dimension are which term's, by the tensors in which they stand."""
    out: list[list[Iter]] = [[] for _ in dim.terms]
    for it in used:
        where = {name for name, node in reads.items() if it in node.free and name in {one.tensor for one in pattern.factors}}
        if it not in target.summed:
            where.add(pattern.output.tensor)
        own = [k for k, term in enumerate(dim.terms) if pattern.role(term.index) - {o.tensor for o in pattern.others} == where]
        if len(own) != 1:
            return None
        out[own[0]].append(it)
    return tuple(map(tuple, out))


def _radix(used: Sequence[tuple[Iter, int]], by_term: Sequence[Sequence[Iter]], target: Summed, size: int) -> bool:
    """Whether iterators make up a whole dimension together, those of the first term the slowest."""
    step, place = 1, {it: k for k, own in enumerate(by_term) for it in own}
    last = len(by_term)
    for it, slope in sorted(used, key=lambda one: one[1]):
        if slope != step or place[it] > last:
            return False
        last = place[it]
        step *= target.extents[it]
    return step == size


__all__ = ["Summed", "Windows", "summed_of", "windows_of"]
