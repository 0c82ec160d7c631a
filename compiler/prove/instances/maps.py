"""Windows as arbitrary maps: an instance at rank 1 that stands for every rank, stride, dilation and pad.

Where a rule says the same of every axis of a pack, a position of all axes is one position of a single axis, and the place that a
window reads there is some function of the positions of its output and of its kernel. docs/proofs.md, "Ranks", Lemma 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dslc.analysis.conditions import unknowns
from dslc.ir.dtype import Dim, DType, TensorType
from dslc.ir.graph import (
    Constant,
    Input,
    Scope,
    ScopeNode,
    Value,
    input_value,
    nodes_of,
    retyped,
    scope_value,
)
from dslc.ir.scalar import (
    Apply,
    Iter,
    Num,
    Read,
    Reduce,
    Scalar,
    Sym,
    apply,
    as_scalar,
    iterator,
    num,
    read,
    rebuild,
    reduce,
    scalars,
    walk,
)
from dslc.prove.instances.axis_reading import natural
from dslc.prove.instances.batches import packs_of, positions_alone
from dslc.prove.instances.choice import LEVELS, Choice
from dslc.prove.instances.instances import Labels, SymbolicInstance
from dslc.prove.instances.smaller_ranks import Run, flat_names
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.values import numbers_of

LONGEST = 6  #: rank at which a padded list is looked at first

_CONDITIONS = frozenset("== != < <= > >= or not".split())


class NoMap(Exception):
    """Something depends on the positions of an axis in another way."""


def by_maps(sub: SubstitutionDef, run: Run, types: Mapping[str, DType]) -> list[SymbolicInstance] | None:
    """Instances at rank 1 with arbitrary maps in the place of windows, which are further inputs.

    They stand for every rank and every number of the lists with one for each axis. None where none do.
    """
    read = natural(sub)
    if not packs_of(sub) or read is None or not all(reading.alike for reading in read.values()):
        return None
    first = next(iter(read.values()))
    ranks = {name: LONGEST if name in first.padded else 1 for name in packs_of(sub)}
    dtype = next(iter(types.values()), DType.F32)
    every = run(Choice(LEVELS[0], ranks, dtype, types, numbers_of(sub), first.padded))
    instances = [each for each in every if all(each.ranks[name] == 1 for name in first.packs)]
    works = [_Work.of(each, first.packs) for each in instances]
    cases = [_case(work, each, names) for work, each in zip(works, instances, strict=True) for names in each.names]
    if not instances or len(set(cases)) < len(cases) or not all(each.same_shape for each in instances):
        return None
    try:
        found = [work.mapped(each) for work, each in zip(works, instances, strict=True)]
    except NoMap:
        return None
    # without windows the other lemmas say as much
    return found if any(work.maps for work in works) else None


def _case(work: _Work, instance: SymbolicInstance, names: Mapping[str, Any]) -> tuple[object, ...]:
    """All that tells cases apart and is no matter of the axis: flags, texts, types, and other sizes and what is known of them."""
    flat = flat_names(names).items()
    flags = sorted((name, str(value)) for name, value in flat if isinstance(value, bool | str | DType))
    shapes = tuple(
        "" if k in work.labels[value] or (isinstance(size, Scalar) and work.of_axis(size)) else str(size)
        for value in instance.axes
        for k, size in enumerate(value.type.shape)
    )
    others = frozenset(condition for condition in instance.conditions if not work.of_axis(condition))
    return tuple(flags), shapes, others


@dataclass
class _Work:
    """One instance: the unknowns of the axis (`own`: its sizes, and the entries of lists with one number for every axis).

    `derived`: the names of unknowns that its sizes are computed from begin so.
    """

    own: frozenset[str]
    derived: tuple[str, ...]
    labels: Mapping[Value, Labels]
    known: dict[Value, Value] = field(default_factory=dict)
    #: the axes of values whose positions are those of the pack's axis
    axes: dict[Value, frozenset[int]] = field(default_factory=dict)
    #: sizes that are computed from those of the axis, as unknowns of their own
    sizes: dict[Scalar, Sym] = field(default_factory=dict)
    #: the maps, and what says where they lead outside
    maps: dict[tuple[object, ...], Value] = field(default_factory=dict)

    @staticmethod
    def of(instance: SymbolicInstance, packs: frozenset[str]) -> _Work:
        """Work on an instance whose packs go together."""
        names = {f"{pack}.0" for pack in packs}
        axes = {value: {k: each for k, each in own.items() if each & names} for value, own in instance.axes.items()}
        own = {f"{pack}0" for pack in packs} | instance.entries
        return _Work(frozenset(own), tuple(f"{pack}0_" for pack in packs), axes)

    def mapped(self, instance: SymbolicInstance) -> SymbolicInstance:
        """The instance with arbitrary maps. Raises NoMap where windows are not all that depends on an axis."""
        for value in instance.axes:
            self.input(value)
        for node in nodes_of(instance.values):
            self.node(node)
        known = self.known
        return replace(
            instance,
            inputs=(*(known[value] for value in instance.axes), *self.maps.values()),
            left=tuple(known[value] for value in instance.left),
            right=tuple(known[value] for value in instance.right),
            conditions=tuple(each for each in instance.conditions if not self.of_axis(each)),
        )

    def of_axis(self, scalar: Scalar) -> bool:
        return any(each.name in self.own or each.name.startswith(self.derived) for each in unknowns(scalar))

    def size(self, size: Dim) -> Dim:
        """A size; one that is computed from those of the axis is unknown, and may be 0."""
        if not isinstance(size, Scalar) or isinstance(size, Sym) or not self.of_axis(size):
            return size
        return self.sizes.setdefault(size, Sym._make(0, f"size{len(self.sizes)}_"))

    def input(self, value: Value) -> None:
        shape = tuple(self.size(size) for size in value.type.shape)
        sizes = enumerate(value.type.shape)
        axes = {k for k, size in sizes if isinstance(size, Scalar) and self.of_axis(size)} | set(self.labels[value])
        if not isinstance(value.node, Input):
            raise NoMap
        self.known[value] = retyped(value.node, TensorType(value.type.dtype, shape))
        self.axes[value] = frozenset(axes)

    def node(self, node: object) -> None:
        if isinstance(node, ScopeNode):
            _Scope(self, node).rewrite()
        elif isinstance(node, Constant):
            for value in node.values:
                self.known[value], self.axes[value] = value, frozenset()
        elif not isinstance(node, Input) or Value(node) not in self.known:
            raise NoMap


class _Scope:
    """One scope with maps in the place of what is computed from positions of the axis."""

    def __init__(self, work: _Work, node: ScopeNode) -> None:
        self.work, self.node, self.scope = work, node, node.scope
        self.args = [work.known[arg] for arg in node.args]
        #: the iterators of the axis, with the numbers of their positions
        self.extents: dict[Iter, Dim] = {}

    def rewrite(self) -> None:
        scope, work = self.scope, self.work
        extents = [work.size(extent) for extent in scope.extents]
        alone = positions_alone(scope)
        axes = set()
        single: dict[Scalar, Scalar] = {}
        for each, old, new in zip(scope.iters, scope.extents, extents, strict=True):
            if isinstance(old, Scalar) and work.of_axis(old):
                self.extents[each] = new
                if each not in alone:
                    raise NoMap
                axes.add(alone[each])
            elif old == 1:
                single[each] = num(0)
        body = self.value(rebuild(scope.body, single.get))
        value = scope_value(Scope(tuple(extents), body, scope.dtype, scope.groups), tuple(self.args))
        work.known[Value(self.node)] = value
        # where there is one position on the axis it stands for one on each of several
        work.axes[Value(self.node)] = frozenset(axes)

    def inside(self, node: Scalar) -> bool:
        """Return whether an expression has to do with the axis."""
        return any(each in self.extents for each in node.free) or self.work.of_axis(node)

    def value(self, node: Scalar) -> Scalar:
        if not self.inside(node):
            return node
        if isinstance(node, Read):
            return self.read(node)
        if isinstance(node, Reduce):
            outer = dict(self.extents)
            extents: list[Scalar] = []
            for each, extent in node.ranges:
                extents.append(as_scalar(self.work.size(extent)))
                self.extents.pop(each, None)
                if self.work.of_axis(extent):
                    self.extents[each] = extents[-1]
            where = self.condition(node.where) if node.where else None
            body = self.value(node.body)
            self.extents = outer
            return reduce(node.kind, node.iters, tuple(extents), body, where)
        if isinstance(node, Sym):
            raise NoMap
        if isinstance(node, Apply) and node.name not in _CONDITIONS | {"and", "select"}:
            return apply(node.name, *(self.value(arg) for arg in node.args))
        if node.op == "select" and not self.inside(node.args[0]):
            return apply("select", node.args[0], *(self.value(arg) for arg in node.args[1:]))
        raise NoMap

    def condition(self, node: Scalar) -> Scalar:
        """Rewrite a restriction of positions, which holds at every axis: it is one arbitrary condition on positions of all of them."""
        if not self.inside(node):
            return node
        if node.op == "and":
            return apply("and", *(self.condition(arg) for arg in node.args))
        if node.op in _CONDITIONS:
            return apply("==", self.named("where", node, DType.F32), num(1))
        raise NoMap

    def read(self, node: Read) -> Scalar:
        operand, axes = self.node.args[node.operand], self.work.axes[self.node.args[node.operand]]
        shape = self.work.known[operand].type.shape
        index: list[Scalar] = []
        asked: list[tuple[Scalar, Dim]] = []
        for axis, place in enumerate(node.index):
            if axis not in axes:
                if self.inside(place):
                    raise NoMap
                index.append(place)
            elif isinstance(place, Iter) and self.extents.get(place) == shape[axis]:
                index.append(place)
            else:
                size = shape[axis]
                if node.other and not (isinstance(size, Sym) and size.least):
                    raise NoMap  # on an axis without positions no map leads to one
                asked.append((place, size))
                index.append(self.named("map", place, DType.I64, size))
        found = read(node.operand, tuple(index), self.value(node.other) if node.other else None)
        if not asked or not node.other:
            return found
        inside: Scalar = num(1)
        for place, size in asked:
            # outside on one axis is outside
            inside = apply("*", inside, self.named("inside", place, DType.F32, size))
        if isinstance(node.other, Num) and node.other.value == 0:
            return apply("*", inside, found)
        return apply("select", apply("==", inside, num(1)), found, self.value(node.other))

    def named(self, kind: str, node: Scalar, dtype: DType, size: Dim | None = None) -> Scalar:
        """A function of the positions in an expression, the same for the same expression."""
        free = tuple(dict.fromkeys(scalars(Iter, node)))
        if any(each not in self.extents for each in free) or any(isinstance(e, Read | Reduce) for e in walk(node)):
            raise NoMap
        places: dict[Scalar, Scalar] = {each: iterator(f"x{k}") for k, each in enumerate(free)}
        shape, maps = tuple(self.extents[each] for each in free), self.work.maps
        key = (kind, rebuild(node, places.get), size, shape)
        value = maps.setdefault(key, input_value(f"map{len(maps)}_", TensorType(dtype, shape)))
        if value not in self.args:
            self.args.append(value)
        return read(self.args.index(value), free)
