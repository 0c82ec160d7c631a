"""Windows as arbitrary maps: an instance at rank 1 that stands for every rank, stride, dilation and pad.

Where a rule says the same of every axis of a pack, a position of all axes is one position of a single axis, and the place that a
window reads there is some function of the positions of its output and of its kernel. docs/proofs.md, "Ranks", Lemma 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dslc.ir.dtype import Dim, DType, TensorType
from dslc.ir.graph import Constant, Input, Scope, ScopeNode, Value, input_value, retyped, scope_value, topological
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
    walk,
)
from dslc.prove.instances.batches import Labels, Probe, positions_alone

_CONDITIONS = frozenset({"==", "!=", "<", "<=", ">", ">=", "or", "not"})


class NoMap(Exception):
    """Something depends on the positions of an axis in another way."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """Both sides with arbitrary maps in the place of windows, which are further inputs."""

    left: tuple[Value, ...]
    right: tuple[Value, ...]
    inputs: tuple[Value, ...]
    conditions: tuple[Scalar, ...]

    @property
    def sizes(self) -> tuple[Sym, ...]:
        """The unknown sizes of the inputs."""
        dims = [size for value in self.inputs for size in value.type.shape if isinstance(size, Scalar)]
        return tuple(dict.fromkeys(node for size in dims for node in walk(size) if isinstance(node, Sym)))


def mapped(probe: Probe, packs: frozenset[str], own: frozenset[str], derived: tuple[str, ...]) -> Mapped | None:
    """An instance at rank 1 with arbitrary maps; None where windows are not all that depends on an axis.

    Args:
        packs: the packs that go together.
        own: the names of the unknowns of the axis: its sizes, and the entries of lists of one number for every axis.
        derived: how the names of unknowns begin that its sizes are computed from.
    """
    names = {f"{pack}.0" for pack in packs}
    axes = {value: {k: label for k, label in labels.items() if label & names} for value, labels in probe.axes.items()}
    work = _Work(own, derived, axes)
    inputs = tuple(probe.axes)
    try:
        for value in inputs:
            work.input(value)
        for node in topological(each.node for each in (*probe.left, *probe.right)):
            work.node(node)
    except NoMap:
        return None
    conditions = tuple(each for each in probe.conditions if not work.of_axis(each))
    known = work.known
    return Mapped(
        tuple(known[value] for value in probe.left),
        tuple(known[value] for value in probe.right),
        (*(known[value] for value in inputs), *work.maps.values()),
        conditions,
    )


@dataclass
class _Work:
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

    def of_axis(self, scalar: Scalar) -> bool:
        names = (node.name for node in walk(scalar) if isinstance(node, Sym))
        return any(name in self.own or name.startswith(self.derived) for name in names)

    def size(self, size: Dim) -> Dim:
        """A size; one that is computed from those of the axis is unknown, and may be 0."""
        if not isinstance(size, Scalar) or not self.of_axis(size):
            return size
        if isinstance(size, Sym):
            return size
        return self.sizes.setdefault(size, Sym._make(0, f"size{len(self.sizes)}_"))

    def input(self, value: Value) -> None:
        shape = tuple(self.size(size) for size in value.type.shape)
        axes = frozenset(self.labels.get(value, {}))
        for k, size in enumerate(value.type.shape):
            if isinstance(size, Scalar) and self.of_axis(size):
                axes |= {k}
        if not isinstance(value.node, Input):
            raise NoMap
        self.known[value] = retyped(value.node, TensorType(value.type.dtype, shape))
        self.axes[value] = axes

    def node(self, node: object) -> None:
        if isinstance(node, ScopeNode):
            _Scope(self, node).rewrite()
        elif isinstance(node, Constant):
            for value in node.values:
                self.known[value], self.axes[value] = value, frozenset()
        elif not isinstance(node, Input) or Value(node) not in self.known:
            raise NoMap

    def map(self, key: tuple[object, ...], dtype: DType, shape: tuple[Dim, ...]) -> Value:
        if key not in self.maps:
            self.maps[key] = input_value(f"map{len(self.maps)}_", TensorType(dtype, shape))
        return self.maps[key]


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
                self.enter(each, new)
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

    def enter(self, each: Iter, extent: Dim) -> None:
        self.extents[each] = extent

    def inside(self, node: Scalar) -> bool:
        """Whether an expression has to do with the axis."""
        return any(each in self.extents for each in node.free) or self.work.of_axis(node)

    def value(self, node: Scalar) -> Scalar:
        if not self.inside(node):
            return node
        if isinstance(node, Read):
            return self.read(node)
        if isinstance(node, Reduce):
            outer = dict(self.extents)
            extents: list[Scalar] = []
            for each, extent in zip(node.iters, node.extents, strict=True):
                extents.append(as_scalar(self.work.size(extent)))
                if self.work.of_axis(extent):
                    self.enter(each, self.work.size(extent))
                else:
                    self.extents.pop(each, None)
            where = None if node.where is None else self.condition(node.where)
            body = self.value(node.body)
            self.extents = outer
            return reduce(node.kind, node.iters, tuple(extents), body, where)
        if isinstance(node, Sym):
            raise NoMap
        if isinstance(node, Apply) and node.name not in _CONDITIONS | {"and", "select"}:
            return apply(node.name, *(self.value(arg) for arg in node.args))
        if isinstance(node, Apply) and node.name == "select" and not self.inside(node.args[0]):
            return apply("select", node.args[0], *(self.value(arg) for arg in node.args[1:]))
        raise NoMap

    def condition(self, node: Scalar) -> Scalar:
        """What restricts positions holds at every axis: it is one arbitrary condition on positions of all of them."""
        if not self.inside(node):
            return node
        if isinstance(node, Apply) and node.name == "and":
            return apply("and", *(self.condition(arg) for arg in node.args))
        if isinstance(node, Apply) and node.name in _CONDITIONS:
            found, _ = self.named("where", node, DType.F32)
            return apply("==", found, num(1))
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
                if node.other is not None and not (isinstance(size, Sym) and size.least):
                    raise NoMap  # on an axis without positions no map leads to one
                asked.append((place, size))
                index.append(self.named("map", place, DType.I64, size)[0])
        found = read(node.operand, tuple(index), None if node.other is None else self.value(node.other))
        if not asked or node.other is None:
            return found
        inside: Scalar = num(1)
        for place, size in asked:
            # outside on one axis is outside
            inside = apply("*", inside, self.named("inside", place, DType.F32, size)[0])
        if isinstance(node.other, Num) and node.other.value == 0:
            return apply("*", inside, found)
        return apply("select", apply("==", inside, num(1)), found, self.value(node.other))

    def named(self, kind: str, node: Scalar, dtype: DType, size: Dim | None = None) -> tuple[Scalar, Value]:
        """A function of the positions in an expression, the same for the same expression."""
        free = [each for each in walk(node) if isinstance(each, Iter)]
        if any(each not in self.extents for each in free) or any(
            isinstance(each, Read | Reduce) for each in walk(node)
        ):
            raise NoMap
        places: dict[Scalar, Scalar] = {each: iterator(f"x{k}") for k, each in enumerate(dict.fromkeys(free))}
        shape = tuple(self.extents[each] for each in dict.fromkeys(free))
        value = self.work.map((kind, rebuild(node, places.get), size, shape), dtype, shape)
        if value not in self.args:
            self.args.append(value)
        return read(self.args.index(value), tuple(dict.fromkeys(free))), value
