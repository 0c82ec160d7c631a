"""Instances that smaller ones stand for: an axis is a batch, has size 1, or is joined with one that is treated alike.

The lemmas and their proofs: docs/proofs.md, "Ranks", Lemmas 3 and 4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from dslc.analysis.conditions import unknowns
from dslc.ir.graph import Input, Scope, ScopeNode, Value, nodes_of
from dslc.ir.scalar import Iter, Read, Reduce, Scalar, Sym, as_scalar, num, rebuild, scalars
from dslc.ir.scopes import substitute
from dslc.ir.sizes import with_sizes
from dslc.prove.instances.axis_reading import AxesReading, Readings, natural
from dslc.prove.instances.axis_sets import NotRankPolymorphic
from dslc.prove.instances.batches import AxisTrace, Sides, packs_of, positions_alone, sides_without
from dslc.prove.instances.choice import Choice
from dslc.prove.instances.instances import Labels, SymbolicInstance
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.env import AttrSet

RANKS: tuple[int, ...] = (2, 3)  #: ranks that may be enough where attributes permute or name axes

#: the instances of a choice; none where the right side has no meaning in some case that the left side allows
Run = Callable[[Choice], Sequence[SymbolicInstance]]


def naturally(
    sub: SubstitutionDef, choice: Choice, run: Run
) -> tuple[list[SymbolicInstance], Choice, Sequence[SymbolicInstance]] | None:
    """The instances that stand for all ranks where the rule says the same of every axis, and all; None where that is not known."""
    read = natural(sub)
    if read is None or any(each.padded for each in read.values()):
        return None
    for rank in RANKS:
        if all(_enough(reading, rank) for reading in read.values()):
            each = Choice(
                choice.level, dict.fromkeys(packs_of(sub), rank), choice.dtype, choice.types, choice.near, steps=set(choice.steps),
                reals=set(choice.reals), turning=choice.turning, signed=set(choice.signed),
            )  # fmt: skip
            instances = run(each)
            small = _bases(read, instances, rank)
            if small is not None:
                return small, each, instances
    return None


def _enough(reading: AxesReading, rank: int) -> bool:
    """Return whether instances of a rank have room for every axis that attributes name, and for one of every list that keeps one."""
    # a list of which another one is a part keeps what that keeps
    apart = [one for one in reading.needed if not any(set(other) < set(one) for other in reading.needed)]
    return len(reading.named) + len(apart) <= rank


def _bases(readings: Readings, instances: Sequence[SymbolicInstance], top: int) -> list[SymbolicInstance] | None:
    """The instances that no smaller one stands for; None where one of the largest rank is among them, or another rank is looked at."""
    by_rank: dict[int, list[SymbolicInstance]] = {}
    packs = next(iter(readings.values())).packs
    try:
        for instance in instances:
            (rank,) = {instance.ranks[name] for name in packs}
            by_rank.setdefault(rank, []).append(instance)
        if max(by_rank, default=0) != top:
            return None
        smaller = {rank: {_plain_key(each) for each in group} for rank, group in by_rank.items()}
        out = []
        for rank, group in by_rank.items():
            for each in group:
                cases = [
                    _has_smaller(readings, each, names, rank, smaller.get(rank - 1, set())) for names in each.names
                ]
                if rank == top and not all(cases):
                    return None
                if not any(cases):
                    out.append(each)
    except (NotRankPolymorphic, ValueError):
        return None
    return out


_Key = tuple[Sides, Sides | None, frozenset[Scalar]]


def _plain_key(instance: SymbolicInstance) -> _Key:
    own = _resized(instance, {})
    # without axes of size 1, which say nothing
    return (own.left, own.right), sides_without(own, frozenset(), ones=True), frozenset(own.conditions)


def flat_names(names: Mapping[str, Any]) -> dict[str, Any]:
    """The values of names, with those in `**a` as `a.name`."""
    out = dict(names)
    for name, value in names.items():
        if isinstance(value, AttrSet):
            out |= {f"{name}.{inner}": each for inner, each in value.values.items()}
    return out


def _has_smaller(
    readings: Readings, instance: SymbolicInstance, names: Mapping[str, Any], rank: int, smaller: set[_Key]
) -> bool:
    """Return whether an instance without one of its axes is one of some smaller ones, which assumes nothing more."""
    values = flat_names(names)
    fitting = (each for flags, each in readings.items() if all(values.get(name) is value for name, value in flags))
    reading = next(fitting, None)
    if not reading or not instance.same_shape:
        return False
    packs, spaces = reading.packs, reading.spaces
    kept = {spaces.axis(name, instance.ranks, values) for name in reading.named}
    for sets in reading.needed:
        listed = spaces.axes(sets, instance.ranks, values)
        kept |= set(listed) if len(listed) == 1 else set()
    trace = AxisTrace(instance)
    for axis in (k for k in range(rank) if k not in kept):
        labels = frozenset(f"{pack}.{axis}" for pack in packs)
        sizes = _sizes(instance, labels)
        unknown = {size for size in sizes if isinstance(size, Sym)}
        # the sizes of later axes are named as they are without the axis
        later = {f"{pack}{k}": f"{pack}{k - 1}" for pack in packs for k in range(axis + 1, instance.ranks[pack])}
        names_after: dict[Scalar, Scalar] = {
            each: Sym._make(each.least, later[each.name])
            for root in (*instance.conditions, *_scalars(instance))
            for each in scalars(Sym, root)
            if each.name in later and each not in sizes
        }
        found: list[tuple[bool, dict[Scalar, Scalar]]] = []
        # no condition says something of the axis' sizes and of something else
        asked = map(unknowns, instance.conditions)
        if not labels & trace.broken and not any(names & unknown and not names <= unknown for names in asked):
            found.append((False, names_after))
        if sizes == {1}:
            found.append((True, names_after))
        elif len(sizes) == len(unknown) == 1 and any(
            _alike(instance, packs, trace.at, axis, other) for other in range(rank) if other != axis
        ):
            found.append((True, {**names_after, **dict.fromkeys(unknown, num(1))}))
        for ones, resized in found:
            moved = _resized(instance, resized)
            sides, assumed = sides_without(moved, frozenset() if ones else labels, ones), set(moved.conditions)
            for plain, squeezed, conditions in smaller if sides is not None else ():
                if sides == (squeezed if ones else plain) and conditions <= assumed:
                    return True
    return False


def _sizes(instance: SymbolicInstance, labels: Collection[str]) -> set[Any]:
    """The sizes that the axis of some labels has."""
    every = instance.axes.items()
    return {value.type.shape[k] for value, own in every for k, label in own.items() if not label.isdisjoint(labels)}


def _scalars(instance: SymbolicInstance) -> Iterator[Scalar]:
    for node in nodes_of((*instance.left, *instance.right, *instance.axes)):
        if isinstance(node, ScopeNode):
            yield node.scope.body
            yield from (extent for extent in node.scope.extents if isinstance(extent, Scalar))
        elif isinstance(node, Input):
            yield from (size for size in node.values[0].type.shape if isinstance(size, Scalar))


def _resized(instance: SymbolicInstance, sizes: Mapping[Scalar, Scalar]) -> SymbolicInstance:
    """Both sides with other sizes in the place of some, and without the iterators of reductions that have one position."""

    def put(size: Scalar) -> Scalar:
        return rebuild(size, sizes.get)

    def body(each: Scalar) -> Scalar:
        return substitute(put(each), {}, units=False)

    values = iter(with_sizes((*instance.left, *instance.right, *instance.axes), put, body))
    return replace(
        instance,
        left=tuple(islice(values, len(instance.left))),
        right=tuple(islice(values, len(instance.right))),
        axes=dict(zip(values, instance.axes.values(), strict=True)),
        conditions=tuple(map(put, instance.conditions)),
    )


# ---- axes that are treated alike ------------------------------------------------------------------------------------


@dataclass
class _Pairs:
    """Reads of two axes in one scope; iterators stand with the reduction that binds them (None: an axis of the result)."""

    sizes: tuple[Scalar, Scalar]
    pairs: set[tuple[tuple[Reduce | None, Iter], tuple[Reduce | None, Iter]]] = field(default_factory=set)
    elsewhere: set[tuple[Reduce | None, Iter]] = field(default_factory=set)
    fits: bool = True


def _alike(instance: SymbolicInstance, packs: frozenset[str], at: Mapping[Value, Labels], one: int, other: int) -> bool:
    """Return whether two axes are read side by side by iterators that nothing else depends on, and sizes only as a product."""
    first, second = ({f"{pack}.{k}" for pack in packs} for k in (one, other))
    found = [size for labels in (first, second) for size in _sizes(instance, labels)]
    if len(found) != 2 or found[0] is found[1] or not all(isinstance(size, Sym) for size in found):
        return False
    sizes = found[0], found[1]
    asked = _Pairs(sizes)
    for condition in instance.conditions:
        _visit(condition, {}, (), asked)
    if not asked.fits:
        return False

    def axes(value: Value) -> tuple[list[int], list[int]]:
        own = at.get(value, {}).items()
        return [k for k, label in own if label & first], [k for k, label in own if label & second]

    for left, right in zip(instance.left, instance.right, strict=True):
        if axes(left) != axes(right):
            return False
    for node in nodes_of(instance.values):
        if isinstance(node, ScopeNode):
            if not _paired(node.scope, [axes(arg) for arg in node.args], sizes):
                return False
        elif not isinstance(node, Input) and node.args:
            return False
    return True


def _paired(scope: Scope, axes: Sequence[tuple[list[int], list[int]]], sizes: tuple[Scalar, Scalar]) -> bool:
    """Return whether one scope reads two axes alike."""
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
        if a[0] is not b[0] or (not a[0] and not (a[1] in alone and b[1] in alone)):
            return False
    extents: list[tuple[Reduce | None, Iter, Any]] = [(None, *each) for each in scope.ranges]
    extents += [
        (node, each, extent)
        for node in scalars(Reduce, scope.body)
        for each, extent in node.ranges
    ]  # fmt: skip
    for binder, each, extent in extents:
        wanted = sizes[0] if (binder, each) in firsts else sizes[1] if (binder, each) in seconds else None
        if wanted and extent is not wanted:
            return False
        if not wanted and isinstance(extent, Scalar):
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
        for part in (node.where, node.body) if node.where else (node.body,):
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
        if node.other:
            _visit(node.other, binders, axes, found)
    elif node.op == "*":
        if sum(arg is found.sizes[0] for arg in node.args) != sum(arg is found.sizes[1] for arg in node.args):
            found.fits = False
        for arg in node.args:
            if arg not in found.sizes:
                _visit(arg, binders, axes, found)
    else:
        for child in node.children:
            _visit(child, binders, axes, found)
