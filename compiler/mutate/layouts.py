"""Changes of layout in one step: dimensions are cut into digits, and the digits are put together to other dimensions.

Any chain of reshapes and transposes is one of these, and becomes one scope. A digit that no dimension of the tensor has repeats it, one
that two have is a diagonal, and one that the result has not is read at 0. Sizes that do not divide are padded with zeros, or cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import TypeVar

import numpy as np

from dslc.derivation.kinds import in_turns
from dslc.interpret.domain import Array
from dslc.ir.graph import Scope, Value, scope_value
from dslc.ir.scalar import Scalar, apply, num, read, traversal
from dslc.records import record

T = TypeVar("T")
Shape = tuple[int, ...]
Digits = tuple[tuple[int, ...], ...]


SHIFTED = 7  #: positions of a dimension that may be shifted when it is cut: windows may, images may not


@record
class Layout:
    """`sizes` of digits; which digits the dimensions of the tensor and of the result consist of, the outer first.

    `shifts`: positions before the first of the data, by dimension of the tensor; none: no dimension has any.
    """

    sizes: tuple[int, ...]
    source: Digits
    result: Digits
    shifts: tuple[int, ...] = ()

    @property
    def shape(self) -> Shape:
        """The shape of the result."""
        return tuple(prod(self.sizes[d] for d in dim) for dim in self.result)

    @property
    def taken(self) -> Shape:
        """The shape that the digits of the tensor span, which may be larger than the tensor (zeros), or smaller (cut)."""
        return tuple(prod(self.sizes[d] for d in dim) for dim in self.source)

    @property
    def identity(self) -> bool:
        return self.source == self.result and not any(self.shifts)

    @property
    def repeats(self) -> bool:
        """Return whether the tensor occurs several times in the result."""
        return len(self.sizes) > len({d for dim in self.source for d in dim})

    @property
    def moves_all(self) -> bool:
        """Return whether a dimension goes somewhere else as a whole."""
        return not self.repeats and any(
            len(dim) > 1 and sum(self.sizes[d] > 1 for d in dim) == 1 for dim in self.source
        )

    def keeps(self, own: Shape) -> bool:
        """Return whether every element of a tensor of the shape `own` is somewhere in the result."""
        kept = {d for dim in self.result for d in dim}
        shifts = self.shifts or (0,) * len(own)
        reached = all(taken >= size + shift for taken, size, shift in zip(self.taken, own, shifts, strict=True))
        return reached and all(d in kept for dim in self.source for d in dim if self.sizes[d] > 1)


def identity(shape: Shape) -> Layout:
    """The layout that changes nothing."""
    dims = tuple((k,) for k in range(len(shape)))
    return Layout(shape, dims, dims)


def inverse(layout: Layout) -> Layout:
    """The way back, without the shifts."""
    return Layout(layout.sizes, layout.result, layout.source)


def laid(value: Value, layout: Layout, shape: Shape | None = None) -> Value:
    """A tensor in another layout: `Y[(d, e), ...] = X[(e, d), ...]`, zeros where the digits go beyond the tensor.

    `shape` cuts the result, or asks for more of it, which is zero. The tensor itself where nothing changes.
    """
    own = value.type.sizes
    shape = shape or layout.shape
    if layout.identity and own == shape == layout.taken:
        return value
    digits: dict[int, Scalar] = {}
    guard: Scalar = num(True)
    extents: list[int] = []
    groups: list[int] = []
    for dim, size, whole in zip(layout.result, shape, layout.shape, strict=True):
        if size == whole:
            for d in dim:
                digits[d] = num(0) if layout.sizes[d] == 1 else traversal(len(extents))
                extents.append(layout.sizes[d])
            if not dim:
                extents.append(1)
            groups.append(max(1, len(dim)))
            continue
        rest: Scalar = traversal(len(extents))
        if size > whole:
            guard = apply("and", guard, apply("<", rest, num(whole)))
        extents.append(size)
        groups.append(1)
        for d in reversed(dim[1:]):
            digits[d] = apply("%", rest, num(layout.sizes[d]))
            rest = apply("//", rest, num(layout.sizes[d]))
        if dim:
            digits[dim[0]] = rest
    index: list[Scalar] = []
    outside = False
    for k, dim in enumerate(layout.source):
        place: Scalar = num(0)
        for d in dim:
            place = apply("+", apply("*", place, num(layout.sizes[d])), digits.get(d, num(0)))
        shift = layout.shifts[k] if layout.shifts else 0
        outside = outside or shift > 0 or layout.taken[k] > own[k]
        index.append(apply("-", place, num(shift)))
    body: Scalar = read(0, tuple(index), num(0.0) if outside else None)
    if guard is not num(True):
        body = apply("select", guard, body, num(0.0))
    return scope_value(Scope(tuple(extents), body, value.type.dtype, tuple(groups)), (value,))


def gathered(layout: Layout, own: Shape, shape: Shape | None = None) -> Array:
    """For each position of the result (of `shape`) the position in a flat tensor of the shape `own`, -1 for zero: what `laid` reads."""
    shape = shape or layout.shape
    digits: dict[int, Array] = {}
    good = np.ones(shape, bool)
    for axis, (dim, size, whole) in enumerate(zip(layout.result, shape, layout.shape, strict=True)):
        rest = np.arange(size).reshape([-1 if k == axis else 1 for k in range(len(shape))])
        good &= rest < whole
        for d in reversed(dim):
            digits[d] = rest % layout.sizes[d]
            rest = rest // layout.sizes[d]
    flat = np.zeros(shape, np.int64)
    for k, dim in enumerate(layout.source):
        place = np.zeros((1,) * len(shape), np.int64)
        for d in dim:
            place = place * layout.sizes[d] + digits.get(d, np.zeros((), np.int64))
        place = place - (layout.shifts[k] if layout.shifts else 0)
        good &= (place >= 0) & (place < own[k])
        flat = flat * own[k] + place
    return np.where(good, flat, -1)


# ---- which there are --------------------------------------------------------------------------------------------


@record
class _Cut:
    """A part of `size` of a dimension, its outer or its inner digit, and the rest."""

    axis: int
    size: int
    inner: bool
    rest: int


def layouts(
    shape: Shape, factors: Sequence[Sequence[int]], ties: bool = False, wanted: Shape | None = None
) -> Iterator[Layout]:
    """Layouts of a tensor, the simplest first, each once.

    Args:
        factors: for each dimension the sizes of parts that are taken out of it.
        ties: also diagonals.
        wanted: only those of which the result has this shape.
    """
    seen: set[tuple[object, ...]] = set()
    for plain in _all(shape, factors, ties):
        for found in (plain, *_squeezed(plain)):
            key = _canonical(found)
            if wanted in (None, found.shape) and key not in seen:
                seen.add(key)
                yield found


def repeated(shape: Shape, counts: Sequence[int]) -> Iterator[Layout]:
    """A tensor several times: as blocks of a dimension, or along a dimension of its own before the others."""
    rank = len(shape)
    dims = [(k,) for k in range(rank)]
    for count in counts:
        for target in range(rank):
            yield Layout(
                (*shape, count), tuple(dims), tuple((rank, target) if k == target else dims[k] for k in range(rank))
            )
        yield Layout((*shape, count), tuple(dims), ((rank,), *dims))


def _canonical(layout: Layout) -> tuple[object, ...]:
    """Digits of size 1 left out and the others named in the order in which they occur: equal for equal layouts."""
    sizes = layout.sizes
    names: dict[int, int] = {}
    digits = []
    for dims in (layout.source, layout.result):
        for dim in dims:
            digits.append(tuple([names.setdefault(d, len(names)) for d in dim if sizes[d] > 1]))
    return (*digits, len(layout.result), layout.shifts, *[sizes[d] for d in names])


def _all(shape: Shape, factors: Sequence[Sequence[int]], ties: bool) -> Iterator[Layout]:
    yield identity(shape)
    cuts = [cut for axis, size in enumerate(shape) for f in factors[axis] for cut in _cuts(axis, size, f)]
    for cut in cuts:
        yield from _moved(shape, (cut,))
    for one, other in product(cuts, cuts):
        alike = (one.size == other.size and one.inner == other.inner) or (one.rest == other.rest == 1)
        if one.axis < other.axis and alike:
            yield from _moved(shape, (one, other))
    if ties:
        yield from _tied(shape, cuts)


def _cuts(axis: int, size: int, part: int) -> Iterator[_Cut]:
    if part < 1 or part > size or size == 1:
        return
    if part == size:
        yield _Cut(axis, size, True, 1)
        return
    for rest in dict.fromkeys((-(-size // part), size // part)):
        for inner in (True, False):
            yield _Cut(axis, part, inner, rest)


def _squeezed(layout: Layout) -> Iterator[Layout]:
    """Without dimensions of one position: all of them, or those before the rest."""
    kept = tuple(dim for dim in layout.result if prod(layout.sizes[d] for d in dim) > 1)
    if len(kept) < len(layout.result):
        yield Layout(layout.sizes, layout.source, kept, layout.shifts)


def _moved(shape: Shape, cuts: tuple[_Cut, ...]) -> Iterator[Layout]:
    """Parts that are cut off go somewhere else, all to one place: into a dimension, or a dimension of their own; or away."""
    stay: list[tuple[int, ...]] = [(k,) for k in range(len(shape))]
    sizes, source = [*shape], [*stay]
    moved = tuple(range(len(shape), len(shape) + len(cuts)))
    for part, cut in zip(moved, cuts, strict=True):
        sizes.append(cut.size)
        sizes[cut.axis] = cut.rest
        source[cut.axis] = (cut.axis, part) if cut.inner else (part, cut.axis)
    axes = {cut.axis for cut in cuts}
    shifts: list[tuple[int, ...]] = [()]
    if all(shape[cut.axis] <= SHIFTED and cut.rest > 1 for cut in cuts):
        for shift in range(1, max(cut.size for cut in cuts)):
            shifts.append(tuple(shift if k in axes else 0 for k in range(len(shape))))
    for moves in shifts:
        layout = partial(Layout, tuple(sizes), tuple(source), shifts=moves)
        for target in range(len(shape)):
            if axes != {target}:
                for dim in ((*moved, target), (target, *moved)):
                    yield layout((*stay[:target], dim, *stay[target + 1 :]))
        for place in range(len(shape) + 1):
            result = (*stay[:place], moved, *stay[place:])
            yield layout(result)
            # what is left of a dimension that moved as a whole is none
            kept = tuple(dim for dim in result if not (len(dim) == 1 and dim[0] in axes and sizes[dim[0]] == 1))
            if len(kept) < len(result):
                yield layout(kept)
        if not any(cut.rest == 1 for cut in cuts):
            # the first position of each part only
            yield layout(tuple(stay))


def _tied(shape: Shape, cuts: Sequence[_Cut]) -> Iterator[Layout]:
    """The positions at which a part of one dimension is that of another; it stays in the other one."""
    for one, other in product(cuts, cuts):
        divide = all(shape[cut.axis] == cut.size * cut.rest for cut in (one, other))
        if one.axis == other.axis or one.size != other.size or not divide:
            continue
        alone: list[tuple[int, ...]] = [(k,) for k in range(len(shape))]
        sizes = [*shape, one.size]
        sizes[one.axis], sizes[other.axis] = one.rest, other.rest
        source = [*alone]
        for cut in (one, other):
            source[cut.axis] = (cut.axis, len(shape)) if cut.inner else (len(shape), cut.axis)
        layout = partial(Layout, tuple(sizes), tuple(source))
        yield layout((*alone[: other.axis], source[other.axis], *alone[other.axis + 1 :]))
        for place in range(len(shape) + 1):
            yield layout((*alone[:place], (len(shape),), *alone[place:]))


# ---- of several tensors ------------------------------------------------------------------------------------------


def whole_first(ways: Sequence[Sequence[Layout]], shapes: Sequence[Shape]) -> Iterator[tuple[Layout, ...]]:
    """As `alike`, for tensors of some shapes: those that leave nothing out take turns with the others.

    Of a dimension that does not divide there are several layouts for each that pads it, of two dimensions several times as many, and
    of two tensors these are pairs. One tensor's are few.
    """
    if len(ways) < 2:
        yield from alike(ways)
        return
    kept = [{way for way in each if way.keeps(shape)} for each, shape in zip(ways, shapes, strict=True)]
    whole = alike([[way for way in each if way in own] for each, own in zip(ways, kept, strict=True)])
    rest = (every for every in alike(ways) if not all(way in own for way, own in zip(every, kept, strict=True)))
    yield from in_turns((whole, rest))


def alike(ways: Sequence[Sequence[Layout]]) -> Iterator[tuple[Layout, ...]]:
    """Layouts of several tensors that cut off parts of the same sizes: one alone is no use where operands meet."""
    if len(ways) < 2:
        yield from product(*ways)
        return
    groups = [
        _grouped(every, lambda way: tuple(sorted(size for size in way.sizes[len(way.source) :] if size > 1)))
        for every in ways
    ]
    cuts = sorted(
        (cut for cut in groups[0] if all(cut in each for each in groups)),
        key=lambda cut: (max(cut, default=0), len(cut)),
    )
    # windows and what they slide over are mostly cut and moved in one way; the cuts take turns, as there are many ways of some
    yield from in_turns(_same_first([each[cut] for each in groups]) for cut in cuts)


def _grouped(ways: Iterable[Layout], key: Callable[[Layout], T]) -> dict[T, list[Layout]]:
    found: dict[T, list[Layout]] = {}
    for way in ways:
        found.setdefault(key(way), []).append(way)
    return found


def _same_first(every: Sequence[Sequence[Layout]]) -> Iterator[tuple[Layout, ...]]:
    """One layout of each tensor: those that cut and move all of them in one way, then the others."""
    moves = [_grouped(ways, lambda way: (way.source, way.result)) for ways in every]
    same = (pair for move in moves[0] for pair in product(*[each.get(move, []) for each in moves]))
    # what is repeated meets what is moved as a whole
    whole = [[way for way in ways if way.repeats or way.moves_all] for ways in every]
    repeating = (
        chosen
        for chosen in product(*whole)
        if any(way.repeats for way in chosen) and any(way.moves_all for way in chosen)
    )
    seen = set()
    for chosen in in_turns((same, repeating)):
        yield chosen
        if chosen[0].repeats or chosen[-1].repeats:
            seen.add(chosen)
    for chosen in product(*every):
        if (
            any((way.source, way.result) != (chosen[0].source, chosen[0].result) for way in chosen)
            and chosen not in seen
        ):
            yield chosen


# ---- other sizes -------------------------------------------------------------------------------------------------


def resized(
    layout: Layout, old: Shape, new: Shape, wanted: Shape | None = None, renamed: Mapping[int, int] | None = None
) -> Iterator[Layout]:
    """A layout of a tensor of the shape `old` for one of the shape `new`: dimensions that are larger are cut anywhere.

    Args:
        wanted: only those of which the result has this shape, or spans it.
        renamed: how often a tensor is repeated that was repeated so often.
    """
    own_digits = {d for dim in layout.source for d in dim}
    options = []
    for k, dim in enumerate(layout.source):
        own = tuple(layout.sizes[d] for d in dim)
        if old[k] == new[k]:
            options.append([own])
        elif len(dim) == 1 or 1 in own:
            # a digit that was all of the dimension is all of it again
            options.append([tuple(new[k] if size > 1 or len(dim) == 1 else 1 for size in own)])
        else:
            cuts = [(new[k] // d, d) for d in range(2, new[k]) if new[k] % d == 0]
            if prod(own) != old[k]:
                # what was padded, or cut, is that again
                rests = [(part, rest) for part in own for rest in dict.fromkeys((-(-new[k] // part), new[k] // part))]
                cuts += [
                    pair
                    for one, other in rests
                    for pair in ((one, other), (other, one))
                    if one * other != new[k] and other > 0
                ]
            options.append(list(dict.fromkeys(cuts)))
    for chosen in product(*options):
        sizes = list(layout.sizes)
        known: dict[int, int] = {}
        pairs = [pair for dim, own in zip(layout.source, chosen, strict=True) for pair in zip(dim, own, strict=True)]
        if all(known.setdefault(d, size) == size for d, size in pairs):
            sizes = [known.get(d, size) for d, size in enumerate(sizes)]
            for d in {*range(len(sizes))} - own_digits:
                sizes[d] = (renamed or {}).get(sizes[d], sizes[d])
            found = Layout(tuple(sizes), layout.source, layout.result, layout.shifts)
            if wanted is None or found.shape == wanted or _spans(found.shape, wanted):
                yield found


def _spans(shape: Shape, wanted: Shape) -> bool:
    """Return whether a shape is at most a little larger or smaller: its last blocks are padded, or cut."""
    return len(shape) == len(wanted) and all(abs(a - b) * 2 <= b for a, b in zip(shape, wanted, strict=True))
