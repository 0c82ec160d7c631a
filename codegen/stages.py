"""Stages: parts of a group that run in one pass over common outer loops, so that what they hand on stays in a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod

from dslc.codegen.arithmetic import count
from dslc.codegen.group import Part, Parts, reads_of
from dslc.codegen.packing import is_product
from dslc.codegen.poly import (
    NotPolynomial,
    Poly,
    Quotient,
    Ranges,
    Var,
    const,
    floordiv,
    known,
    of,
    of_scalar,
    of_size,
    product,
)
from dslc.ir.graph import Value
from dslc.ir.scalar import Iter, Num, Read, Reduce, Scalar, Sym, scalars
from dslc.ir.scopes import positions
from dslc.records import record

ROW = 1 << 16  #: elements of a row's buffer: beyond, values go through memory
ALONE = 1 << 14  #: elements of all that may be done by one task


@record
class PlacedInStage:
    """A part in a stage. `outer`: the number of its iterator for each outer loop; `inner`: those of its own loops."""

    part: Part
    outer: tuple[int, ...]
    inner: tuple[int, ...]

    def at(self, places: Sequence[Poly]) -> dict[Iter, Poly]:
        """Return positions of all iterators where the outer ones are at some places; the others are 0."""
        iters = self.part.scope.iters
        return dict.fromkeys(iters, const(0)) | {
            iters[number]: place for number, place in zip(self.outer, places, strict=True)
        }

    def volume(self, usual: int) -> int:
        """Evaluations for one position of the outer loops, where sizes that are not known are usual ones."""
        return prod(sizes(self.part)[k].number or usual for k in self.inner)


@record
class Stage:
    """Outer loops and what is done in them, in order."""

    extents: tuple[Poly, ...]
    placed: tuple[PlacedInStage, ...]

    @property
    def values(self) -> frozenset[Value]:
        return frozenset(each.part.value for each in self.placed)


def sizes(part: Part) -> tuple[Poly, ...]:
    """The extents of a part's iterators."""
    return tuple(of_size(extent) for extent in part.scope.extents)


def stages_of(parts: Parts, fuse: bool = True) -> tuple[Stage, ...]:
    """Every part in a stage; a stage comes after those whose values it reads."""
    stages: list[Stage] = []
    home: dict[Value, int] = {}
    for part in parts.parts:
        below = [home[arg] for arg in part.args if arg in home]
        at = max(below, default=len(stages) - 1)
        joined = _joined(stages[at], part) if fuse and at >= 0 else None
        if not joined:
            stages.append(_alone(part))
            at = len(stages) - 1
        else:
            stages[at] = joined
        home[part.value] = at
    return tuple(stages)


def _alone(part: Part) -> Stage:
    extents = sizes(part)
    outer = tuple(k for k, extent in enumerate(extents) if extent.number != 1)
    return Stage(tuple(extents[k] for k in outer), (PlacedInStage(part, outer, ()),))


def _joined(stage: Stage, part: Part) -> Stage | None:
    """A stage with one part more; None where they have too little in common."""
    found = None if part.alone or any(each.part.alone for each in stage.placed) else _mapping(stage, part)
    if found is None:
        return None
    kept = [k for k, at in enumerate(found) if at is not None]
    outer = tuple(at for at in found if at is not None)
    extents = sizes(part)
    inner = tuple(k for k, extent in enumerate(extents) if k not in outer and extent.number != 1)
    placed = [
        PlacedInStage(
            each.part,
            tuple(each.outer[k] for k in kept),
            tuple(sorted((*each.inner, *(each.outer[k] for k in range(len(each.outer)) if k not in kept)))),
        )
        for each in stage.placed
    ]
    placed.append(PlacedInStage(part, outer, inner))
    out = Stage(tuple(stage.extents[k] for k in kept), tuple(placed))
    return out if _worthwhile(out) and not _unblocked(out) else None


def _unblocked(stage: Stage) -> bool:
    """Return whether a product of matrices would be computed row by row.

    Since something in the stage has loops of its own: as a stage of its own it is computed by blocks that share what
    they read, many times as fast.
    """
    return any(each.inner for each in stage.placed) and any(is_product(each.part.scope) for each in stage.placed)


def _worthwhile(stage: Stage) -> bool:
    outer = known(stage.extents)
    volumes = [known([sizes(each.part)[k] for k in each.inner]) for each in stage.placed]
    if any(volume is not None and volume > ROW for volume in volumes):
        return False
    if outer is not None and outer < 8:
        lengths = [_length(each.part) for each in stage.placed]
        whole = sum((volume or ALONE) * length * max(outer, 1) for volume, length in zip(volumes, lengths, strict=True))
        return whole <= ALONE
    return not (outer is not None and not stage.extents)


def _length(part: Part) -> float:
    """Elements of the longest reduction for one result; unknown sizes are taken to be usual ones."""
    return max((count(node.extents) for node in scalars(Reduce, part.scope.body)), default=1.0)


def _mapping(stage: Stage, part: Part) -> list[int | None] | None:
    """For each outer loop the iterator of a part that goes with it, as all its reads of the stage's values say."""
    extents = sizes(part)
    ranges = Ranges({Var(f"i{k}"): extent for k, extent in enumerate(extents)})
    numbers = {var: k for k, var in enumerate(ranges.extents)}
    by_value = {each.part.value: each for each in stage.placed}
    found: list[int | None] | None = None
    for operand, arg in enumerate(part.args):
        placed = by_value.get(arg)
        if not placed:
            continue
        for index, _ in reads_of(part.scope.body, [operand]):
            at = positions(placed.part.scope, index)
            here: list[int | None] = []
            for k, number in enumerate(placed.outer):
                place = _plain(at[placed.part.scope.iters[number]], ranges)
                match = numbers.get(place) if place else None
                here.append(match if match is not None and extents[match] == stage.extents[k] else None)
            found = here if found is None else [a if a == b else None for a, b in zip(found, here, strict=True)]
    if found is None:
        # nothing in common but the shape: one pass for both
        free = tuple(k for k, extent in enumerate(extents) if extent.number != 1)
        if any(each.inner for each in stage.placed) or tuple(extents[k] for k in free) != stage.extents:
            return None
        return list(free)
    taken = [at for at in found if at is not None]
    return None if len(set(taken)) != len(taken) else found


def _plain(node: Scalar, ranges: Ranges) -> Var | None:
    """The iterator of the part that an expression is."""
    try:
        value = of_scalar(node, lambda each: of(Var(each.name)) if isinstance(each, Iter) else None, ranges)
    except NotPolynomial:
        return None
    return next((atom for atom in value.atoms if isinstance(atom, Var) and value == of(atom)), None)


def ragged(body: Scalar, iters: Iterable[Iter]) -> bool:
    """True where the length of a reduction depends on some iterators: their positions share no loop then."""
    found = frozenset(iters)
    return any(extent.free & found for node in scalars(Reduce, body) for extent in node.extents)


# ---- loops that are one --------------------------------------------------------------------------------------------------


def split_up(var: Var, extents: Sequence[Poly], ranges: Ranges) -> list[Poly]:
    """The positions of several loops, from that of the loop over all of them."""
    out: list[Poly] = []
    rest = of(var)
    for extent in reversed(extents[1:]):
        above = floordiv(rest, extent, ranges)
        out.append(rest - above * extent)
        rest = above
    return [rest, *reversed(out)]


def merged(extents: Sequence[Poly], uses: Callable[[list[Poly], Ranges], Iterable[Poly] | None]) -> list[list[int]]:
    """Neighbouring loops that can be one: all positions in `uses` are then linear in its variable.

    `uses` gives, for what each loop's iterator is, every position that is used; None where that is not known.
    """
    groups = [[k] for k in range(len(extents))]
    for at in reversed(range(len(groups) - 1)):
        trial = [*groups[:at], [*groups[at], *groups[at + 1]], *groups[at + 2 :]]
        if _linear(extents, trial, at, uses):
            groups = trial
    return groups


def places(extents: Sequence[Poly], groups: Sequence[Sequence[int]], vars: Sequence[Var], ranges: Ranges) -> list[Poly]:
    """Iterators as loop variables, by group."""
    out: list[Poly] = [const(0)] * len(extents)
    for group, var in zip(groups, vars, strict=True):
        for k, place in zip(group, split_up(var, [extents[k] for k in group], ranges), strict=True):
            out[k] = place
    return out


def _linear(
    extents: Sequence[Poly],
    groups: list[list[int]],
    at: int,
    uses: Callable[[list[Poly], Ranges], Iterable[Poly] | None],
) -> bool:
    vars = [Var(f"merged{k}") for k in range(len(groups))]
    ranges = Ranges({var: product(extents[k] for k in group) for group, var in zip(groups, vars, strict=True)})
    found = uses(places(extents, groups, vars, ranges), ranges)
    if found is None:
        return False
    quotients = (atom for value in found for atom in value.deep if isinstance(atom, Quotient))
    return not any(vars[at] in atom.top.deep | atom.bottom.deep for atom in quotients)


def positions_in(
    node: Scalar,
    iters: dict[Iter, Poly],
    ranges: Ranges,
    address: Callable[[Read, list[Poly]], Poly | None],
    weight: float = 1.0,
) -> Iterator[tuple[Poly, bool, float]]:
    """Every position that an expression uses: whether it is that of an element, and how often it is needed per evaluation.

    Positions that are data are left out; what they are computed from is not.
    """

    def leaf(each: Scalar) -> Poly | None:
        return iters.get(each) if isinstance(each, Iter) else None

    def poly(each: Scalar) -> Poly | None:
        try:
            return of_scalar(each, leaf, ranges)
        except NotPolynomial:
            return None

    stack: list[tuple[Scalar, float]] = [(node, weight)]
    seen: set[Scalar] = set()
    while stack:
        each, times = stack.pop()
        if each in seen or isinstance(each, Num | Sym):
            continue
        seen.add(each)
        if isinstance(each, Reduce):
            inner = dict(iters)
            for it, extent in each.ranges:
                size = poly(extent)
                var = Var(f"{it.name}/{len(ranges.extents)}")
                if size:
                    ranges.extents[var] = size
                inner[it] = of(var)
                times *= 16 if size is None or size.number is None else max(size.number, 1)
            for child in each.children:
                yield from positions_in(child, inner, ranges, address, times)
            continue
        if isinstance(each, Read):
            index = [part for one in each.index if (part := poly(one))]
            if len(index) == len(each.index):
                found = address(each, index)
                if found:
                    yield found, True, times
                if each.other:
                    stack.append((each.other, times))
                    # its bounds are compared
                    yield from ((part, False, times) for part in index)
                continue
        elif each.op in {"<", "<=", ">", ">=", "==", "!="} and all(arg.integral for arg in each.args):
            a, b = (poly(arg) for arg in each.args)
            if a and b:
                yield a - b, False, times
                continue
        elif each.integral:
            found = poly(each)
            if found:
                yield found, False, times
                continue
        stack.extend((child, times) for child in each.children)
