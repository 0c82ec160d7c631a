"""Instances that smaller ones stand for: an axis is a batch, has size 1, or is joined with one that is treated alike.

The lemmas and their proofs: docs/proofs.md, "Ranks", Lemmas 3 and 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dslc.ir.dtype import DType
from dslc.ir.graph import Input, Scope, ScopeNode, Value, topological
from dslc.ir.scalar import Apply, Iter, Read, Reduce, Scalar, Sym, as_scalar, num, rebuild, walk
from dslc.ir.scopes import substitute
from dslc.ir.sizes import with_sizes
from dslc.prove.instances.axis_reading import Readings, natural
from dslc.prove.instances.axis_sets import AxisSets, NotRankPolymorphic
from dslc.prove.instances.batches import Labels, Probe, packs_of, positions_alone, sides_without, trace_of
from dslc.prove.instances.choice import LEVELS, Choice
from dslc.prove.instances.maps import Mapped, mapped
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.env import AttrSet
from dslc.semantics.values import numbers_of


def enough(readings: Readings, rank: int) -> bool:
    """Whether instances of a rank have room for every axis that attributes name, and for one of every list that keeps one."""
    return all(len(reading.named) + len(_apart(reading.needed)) <= rank for reading in readings.values())


def _apart(needed: Sequence[AxisSets]) -> list[AxisSets]:
    """The lists without those of which another one is a part: what is in the part is in them."""
    return [one for one in needed if not any(set(other) < set(one) for other in needed)]


def bases(readings: Readings, probes: Sequence[Probe], top: int) -> list[Probe] | None:
    """The instances that no smaller one stands for; None where one of the largest rank is among them, or another rank is looked at."""
    by_rank: dict[int, list[Probe]] = {}
    packs = next(iter(readings.values())).packs
    try:
        for probe in probes:
            (rank,) = {probe.ranks[name] for name in packs}
            by_rank.setdefault(rank, []).append(probe)
        if top not in by_rank or max(by_rank) > top:
            return None
        smaller = {rank: {_plain_key(probe) for probe in each} for rank, each in by_rank.items()}
        out = []
        for rank, each in by_rank.items():
            for probe in each:
                cases = [_moves(readings, probe, names, rank, smaller.get(rank - 1, set())) for names in probe.names]
                if rank == top and not all(cases):
                    return None
                if not any(cases):
                    out.append(probe)
    except (NotRankPolymorphic, ValueError):
        return None
    return out


_Key = tuple[tuple[Value, ...], tuple[Value, ...]]


def _plain_key(probe: Probe) -> tuple[_Key, _Key | None, frozenset[Scalar]]:
    own = _resized(probe, {})
    # without axes of size 1, which say nothing
    return (own.left, own.right), sides_without(own, frozenset(), ones=True), own.conditions


def _moves(
    readings: Readings,
    probe: Probe,
    names: Mapping[str, Any],
    rank: int,
    smaller: set[tuple[_Key, _Key | None, frozenset[Scalar]]],
) -> bool:
    """Whether an instance without one of its axes is one of some smaller ones, which assumes nothing more."""
    values = _flat(names)
    reading = next(
        (each for flags, each in readings.items() if all(values.get(name) is value for name, value in flags)), None
    )
    if reading is None or not probe.same_shape:
        return False
    packs = reading.packs
    kept = {reading.spaces.axis(name, probe.ranks, values) for name in reading.named}
    for segments in reading.needed:
        listed = reading.spaces.axes(segments, probe.ranks, values)
        kept |= set(listed) if len(listed) == 1 else set()
    broken, at = trace_of(probe)
    for axis in (k for k in range(rank) if k not in kept):
        labels = frozenset(f"{pack}.{axis}" for pack in packs)
        sizes = {value.type.shape[k] for value, own in probe.axes.items() for k, label in own.items() if label & labels}
        names_after = {name: size for name, size in _renamed(probe, packs, axis).items() if name not in sizes}
        unknown = {size for size in sizes if isinstance(size, Sym)}
        found: list[tuple[_Key | None, bool, frozenset[Scalar]]] = []
        if not labels & broken and not _shared(unknown, probe.conditions):
            moved = _resized(probe, names_after)
            found.append((sides_without(moved, labels), False, moved.conditions))
        if sizes == {1}:
            moved = _resized(probe, names_after)
            found.append((sides_without(moved, frozenset(), ones=True), True, moved.conditions))
        elif len(sizes) == len(unknown) == 1 and any(
            _alike(probe, packs, at, axis, other) for other in range(rank) if other != axis
        ):
            moved = _resized(probe, {**names_after, **dict.fromkeys(unknown, num(1))})
            found.append((sides_without(moved, frozenset(), ones=True), True, moved.conditions))
        for sides, ones, conditions in found:
            if sides is not None and any(
                sides == (less[1] if ones else less[0]) and less[2] <= conditions for less in smaller
            ):
                return True
    return False


def _flat(names: Mapping[str, Any]) -> dict[str, Any]:
    """The values of names, with those in `**a` as `a.name`."""
    out = dict(names)
    for name, value in names.items():
        if isinstance(value, AttrSet):
            out.update((f"{name}.{inner}", each) for inner, each in value.values.items())
    return out


def _shared(sizes: set[Sym], conditions: frozenset[Scalar]) -> bool:
    """Whether a condition says something of the sizes of an axis and of something else."""
    for condition in conditions:
        unknown = {node for node in walk(condition) if isinstance(node, Sym)}
        if unknown & sizes and not unknown <= sizes:
            return True
    return False


def _renamed(probe: Probe, packs: frozenset[str], axis: int) -> dict[Scalar, Scalar]:
    """The names of the sizes of later axes, as they are without the axis."""
    names = {f"{pack}{k}": f"{pack}{k - 1}" for pack in packs for k in range(axis + 1, probe.ranks[pack])}
    return {each: Sym._make(each.least, names[each.name]) for each in _unknowns(probe) if each.name in names}


def _unknowns(probe: Probe) -> Iterator[Sym]:
    seen: dict[Sym, None] = {}
    for root in (*probe.conditions, *_scalars(probe)):
        seen.update((node, None) for node in walk(root) if isinstance(node, Sym))
    return iter(seen)


def _scalars(probe: Probe) -> Iterator[Scalar]:
    for node in topological(value.node for value in (*probe.left, *probe.right, *probe.axes)):
        if isinstance(node, ScopeNode):
            yield node.scope.body
            yield from (extent for extent in node.scope.extents if isinstance(extent, Scalar))
        elif isinstance(node, Input):
            yield from (size for size in node.values[0].type.shape if isinstance(size, Scalar))


def _resized(probe: Probe, sizes: Mapping[Scalar, Scalar]) -> Probe:
    """Both sides with other sizes in the place of some, and without the iterators of reductions that have one position."""

    def put(size: Scalar) -> Scalar:
        return rebuild(size, sizes.get)

    def body(each: Scalar) -> Scalar:
        return substitute(put(each), {}, units=False)

    ends = len(probe.left), len(probe.left) + len(probe.right)
    values = with_sizes((*probe.left, *probe.right, *probe.axes), put, body)
    return replace(
        probe,
        left=values[: ends[0]],
        right=values[ends[0] : ends[1]],
        axes=dict(zip(values[ends[1] :], probe.axes.values(), strict=True)),
        conditions=frozenset(map(put, probe.conditions)),
    )


# ---- axes that are treated alike ------------------------------------------------------------------------------------


@dataclass
class _Pairs:
    """How one scope reads two axes; iterators stand with the reduction that binds them (None: an axis of the result)."""

    sizes: tuple[Scalar, Scalar]
    pairs: set[tuple[tuple[Reduce | None, Iter], tuple[Reduce | None, Iter]]] = field(default_factory=set)
    elsewhere: set[tuple[Reduce | None, Iter]] = field(default_factory=set)
    fits: bool = True


def _alike(probe: Probe, packs: frozenset[str], at: Mapping[Value, Labels], one: int, other: int) -> bool:
    """Whether two axes are read side by side everywhere, by iterators that nothing else depends on, and sizes only as a product."""
    first, second = ({f"{pack}.{k}" for pack in packs} for k in (one, other))
    sizes: list[Scalar] = []
    for labels in (first, second):
        found = {value.type.shape[k] for value, own in probe.axes.items() for k, label in own.items() if label & labels}
        size = next(iter(found))
        if len(found) > 1 or not isinstance(size, Sym):
            return False
        sizes.append(size)
    asked = _Pairs((sizes[0], sizes[1]))
    for condition in probe.conditions:
        _visit(condition, {}, (), asked)
    if sizes[0] is sizes[1] or not asked.fits:
        return False

    def axes(value: Value) -> tuple[list[int], list[int]]:
        own = at.get(value, {}).items()
        return [k for k, label in own if label & first], [k for k, label in own if label & second]

    for left, right in zip(probe.left, probe.right, strict=True):
        if axes(left) != axes(right):
            return False
    for node in topological(value.node for value in (*probe.left, *probe.right)):
        if isinstance(node, ScopeNode):
            if not _paired(node.scope, [axes(arg) for arg in node.args], (sizes[0], sizes[1])):
                return False
        elif not isinstance(node, Input) and node.args:
            return False
    return True


def _paired(scope: Scope, axes: Sequence[tuple[list[int], list[int]]], sizes: tuple[Scalar, Scalar]) -> bool:
    """Whether one scope reads two axes alike."""
    if any(len(a) != len(b) or len(a) > 1 for a, b in axes):
        return False
    found = _Pairs(sizes)
    outer: dict[Iter, Reduce | None] = dict.fromkeys(scope.iters)
    _visit(scope.body, outer, axes, found)
    firsts, seconds = ({pair[k] for pair in found.pairs} for k in (0, 1))
    if len(found.pairs) != len(firsts) or len(found.pairs) != len(seconds) or firsts & seconds:
        return False
    alone = positions_alone(scope)
    for a, b in found.pairs:
        if a[0] is not b[0] or (a[0] is None and not (a[1] in alone and b[1] in alone)):
            return False
    extents: list[tuple[Reduce | None, Iter, Any]] = [
        (None, *each) for each in zip(scope.iters, scope.extents, strict=True)
    ]
    extents += [
        (node, each, extent)
        for node in walk(scope.body) if isinstance(node, Reduce)
        for each, extent in zip(node.iters, node.extents, strict=True)
    ]  # fmt: skip
    for binder, each, extent in extents:
        wanted = sizes[0] if (binder, each) in firsts else sizes[1] if (binder, each) in seconds else None
        if wanted is not None and extent is not wanted:
            return False
        if wanted is None and isinstance(extent, Scalar):
            _visit(as_scalar(extent), outer, axes, found)
    return found.fits and not (firsts | seconds) & found.elsewhere


def _visit(
    node: Scalar, binders: Mapping[Iter, Reduce | None], axes: Sequence[tuple[list[int], list[int]]], found: _Pairs
) -> None:
    if isinstance(node, Iter):
        # an iterator of an inner extent that is not bound here counts as one of the result
        found.elsewhere.add((binders.get(node), node))
    elif isinstance(node, Sym):
        found.fits = found.fits and node not in found.sizes
    elif isinstance(node, Reduce):
        # extents are looked at apart
        inner = {**binders, **dict.fromkeys(node.iters, node)}
        for part in (node.body,) if node.where is None else (node.where, node.body):
            _visit(part, inner, axes, found)
    elif isinstance(node, Read):
        first, second = axes[node.operand]
        for axis, index in enumerate(node.index):
            if axis not in first and axis not in second:
                _visit(index, binders, axes, found)
        for a, b in zip(first, second, strict=True):
            one, other = node.index[a], node.index[b]
            if isinstance(one, Iter) and isinstance(other, Iter) and one in binders and other in binders:
                found.pairs.add(((binders[one], one), (binders[other], other)))
            else:
                found.fits = False
        if node.other is not None:
            _visit(node.other, binders, axes, found)
    elif isinstance(node, Apply) and node.name == "*":
        if sum(arg is found.sizes[0] for arg in node.args) != sum(arg is found.sizes[1] for arg in node.args):
            found.fits = False
        for arg in node.args:
            if arg not in found.sizes:
                _visit(arg, binders, axes, found)
    else:
        for child in node.children:
            _visit(child, binders, axes, found)


RANKS: tuple[int, ...] = (2, 3)  #: ranks that may be enough where attributes permute or name axes
LONGEST = 6  #: rank at which a padded list is looked at first

#: the instances of a choice, and whether the right side had a meaning in all cases that the left side allows
Run = Callable[[Choice], "tuple[Sequence[Probe], bool]"]


def naturally(sub: SubstitutionDef, choice: Choice, run: Run) -> tuple[list[Probe], Choice] | None:
    """The instances that stand for all ranks where the rule says the same of every axis; None where that is not known of it."""
    read = natural(sub)
    for rank in RANKS if read is not None else ():
        if read is None or any(each.padded for each in read.values()) or not enough(read, rank):
            continue
        ranks = dict.fromkeys(packs_of(sub), rank)
        each = Choice(
            choice.level, ranks, choice.dtype, steps=set(choice.steps), reals=set(choice.reals), turning=choice.turning,
            types=choice.types, near=choice.near, signed=set(choice.signed),
        )  # fmt: skip
        probes, whole = run(each)
        small = bases(read, probes, rank) if whole else None
        if small is not None:
            return small, each
    return None


@dataclass(frozen=True, slots=True)
class Maps:
    """An instance at rank 1, and the same with arbitrary maps in the place of its windows."""

    probe: Probe
    sides: Mapped


def by_maps(sub: SubstitutionDef, run: Run, types: Mapping[str, DType]) -> list[Maps] | None:
    """Instances at rank 1 that stand for every rank and every number of the lists with one for each axis; None where none do."""
    read: Readings | None = natural(sub)
    if not packs_of(sub) or read is None or not all(reading.alike for reading in read.values()):
        return None
    first = next(iter(read.values()))
    ranks = {name: LONGEST if name in first.padded else 1 for name in packs_of(sub)}
    dtype = next(iter(types.values()), DType.F32)
    probes, whole = run(Choice(LEVELS[0], ranks, dtype, first.padded, types=types, near=numbers_of(sub)))
    probes = [probe for probe in probes if all(probe.ranks[name] == 1 for name in first.packs)]
    own = frozenset(f"{pack}0" for pack in first.packs)
    derived = tuple(f"{pack}0_" for pack in first.packs)
    cases = [
        _case(probe, first.packs, names, own | probe.entries, derived) for probe in probes for names in probe.names
    ]
    if not probes or not whole or len(set(cases)) < len(cases) or not all(probe.same_shape for probe in probes):
        return None
    found = []
    for probe in probes:
        sides = mapped(probe, first.packs, own | probe.entries, derived)
        if sides is None:
            return None
        found.append(Maps(probe, sides))
    # without windows the other lemmas say as much
    return found if any(len(each.sides.inputs) > len(each.probe.axes) for each in found) else None


def _axes_of(labels: Labels, packs: frozenset[str]) -> set[int]:
    return {axis for axis, label in labels.items() if any(f"{pack}.0" in label for pack in packs)}


def _case(
    probe: Probe, packs: frozenset[str], names: Mapping[str, Any], own: frozenset[str], derived: tuple[str, ...]
) -> tuple[object, ...]:
    """What tells cases apart that are no matter of the axis: flags, texts and types, and other sizes and what is known of them."""
    flat = dict(names)
    for name, value in names.items():
        if isinstance(value, AttrSet):
            flat.update((f"{name}.{inner}", each) for inner, each in value.values.items())
    flags = sorted((name, str(value)) for name, value in flat.items() if isinstance(value, bool | str | DType))

    def other(scalar: Any) -> bool:
        parts = walk(scalar) if isinstance(scalar, Scalar) else ()
        return not any(isinstance(part, Sym) and (part.name in own or part.name.startswith(derived)) for part in parts)

    shapes = tuple(
        tuple(str(size) if k not in axes and other(size) else "" for k, size in enumerate(value.type.shape))
        for value, axes in ((value, _axes_of(labels, packs)) for value, labels in probe.axes.items())
    )
    return tuple(flags), shapes, frozenset(condition for condition in probe.conditions if other(condition))
