"""Packs of a rule that are batches, so that the instance without them says it all. The lemmas and proofs: docs/proofs.md, "Ranks".

A pack of a rule is a *batch* where every scope of both sides reads its axis by one iterator that goes on, alone, as an axis of the
result: then the rule is one and the same rule at every position of that axis.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dslc.analysis.reads import computed
from dslc.ir import scalar
from dslc.ir.dtype import Dim, TensorType
from dslc.ir.graph import (
    Constant,
    Input,
    Node,
    Scope,
    ScopeNode,
    Value,
    Values,
    nodes_of,
    rebuild,
    retyped,
    scope_value,
)
from dslc.ir.scalar import Iter, Num, Read, Scalar, Sym, num, scalars, walk
from dslc.ir.scopes import substitute
from dslc.prove.instances.instances import Labels, SymbolicInstance
from dslc.semantics.definitions import FunctionDef, Module, OperatorDef, SubstitutionDef
from dslc.semantics.walk import conditions_in, names_in, nodes, terms_in
from dslc.syntax import tree as t

# ---- packs ----------------------------------------------------------------------------------------------------


def packs_of(sub: SubstitutionDef) -> tuple[str, ...]:
    """The names of the packs in the types of a rule's parameters."""
    nodes = t.walk(tuple(param.type.dims for param in sub.params if param.type))
    return tuple(dict.fromkeys(n.value.id for n in nodes if isinstance(n, t.Pack) and isinstance(n.value, t.Name)))


def broadcast_guards(conditions: Iterable[t.Expr]) -> Iterator[tuple[t.Call, t.Expr]]:
    """The guards `broadcast(Q, L) == L`: the call, and the other side."""
    for condition in conditions:
        if condition.equated:
            for call, other in (condition.equated, condition.equated[::-1]):
                if isinstance(call, t.Call) and call.function == "broadcast":
                    yield call, other


def fitted(sub: SubstitutionDef) -> set[str]:
    """Packs that a guard lets broadcast to a shape which other names give: longer ones never fit."""
    found = set()
    for call, other in broadcast_guards(conditions_in(sub.left)):
        found |= {arg.bare for arg in call.args if arg.bare} - names_in(other)
    return found & set(packs_of(sub))


# ---- broadcasts ---------------------------------------------------------------------------------------------------


def padded(sub: SubstitutionDef) -> frozenset[str]:
    """Packs of tensors that are only ever broadcast: a shape with leading axes of size 1 means the same as one without them."""
    found = set()
    uses = (sub.left, sub.right)
    terms = {s.name for s in terms_in(sub.left) if len(s.params) > 1}
    asked = [node for node in nodes(t.Call, uses) if node.function in {"broadcast", "rank"}]
    for name in packs_of(sub):
        own = [param for param in sub.params if name in names_in(param.type)]
        whole = all(_whole_pack(param) == name for param in own)
        inside = sum(_count(node, {name}) for node in asked)
        names = {param.name for param in own}
        if whole and inside == _count(uses, {name}) and _only_broadcast(sub.module, uses, names, terms):
            found.add(name)
    return frozenset(found)


def _count(node: object, names: set[str]) -> int:
    return sum(part.bare in names for part in t.walk(node))


def _whole_pack(param: t.Param) -> str | None:
    """The pack that is the whole shape of a parameter."""
    match param.type.dims if param.type else None:
        case (t.Pack(value=t.Name(id=name)),):
            return name
    return None


def _only_broadcast(module: Module, uses: object, names: set[str], terms: Collection[str] = ()) -> bool:
    """Return whether tensors stand only where an operator broadcasts its operand, or in `constant(X)`."""
    good = 0
    for call in nodes(t.Call, uses):
        found = module.lookup(call.function)
        for k, arg in enumerate(call.args):
            if arg.bare not in names:
                continue
            if isinstance(found, OperatorDef):
                good += broadcasts(found, k)
            elif isinstance(found, FunctionDef):
                good += _only_broadcast(found.module, found.syntax.body, {found.syntax.params[k]})
            else:
                good += call.function == "constant" or call.function in terms
    return good == _count(uses, names)


@functools.lru_cache(maxsize=1024)
def broadcasts(op: OperatorDef, position: int) -> bool:
    """Return whether an operator reads a parameter only at `fit(i, P)`, P its whole shape, and uses P for nothing but broadcasting."""
    param = op.params[min(position, len(op.params) - 1)]
    pack = _whole_pack(param)
    if pack is None:
        return False
    others = tuple(p for p in op.params if p is not param)
    statements = tuple(s for s in op.statements if not isinstance(s, t.OnnxMap | t.OnnxDef))
    meaning = (others, op.outputs, statements)
    calls = [node for node in nodes(t.Call, meaning) if node.function in {"fit", "broadcast"}]
    reads = 0
    for node in t.walk(meaning):
        match node:
            case t.Subscript(
                base=t.Name(id=name), subs=(t.Pack(value=t.Call(function="fit", args=(_, t.Name(id=shape)))),)
            ) if (name, shape) == (param.name, pack):
                reads += 1
    return 0 < reads == _count(meaning, {param.name}) and sum(_count(call, {pack}) for call in calls) == _count(
        meaning, {pack}
    )


# ---- batches ------------------------------------------------------------------------------------------------------


def _pack(label: str) -> str:
    return label.rpartition(".")[0]


def batches(names: Sequence[str], instances: Sequence[SymbolicInstance], sufficient: int) -> tuple[str, ...]:
    """The packs that are batches in all instances that have an axis of them, some of which are of the sufficient rank."""
    left = {name for name in names if any(each.ranks[name] >= sufficient for each in instances)}
    for each in instances:
        parts = computed(each.values)
        unknown = each.mixing or any(isinstance(part, Sym) and part.name in each.entries for part in parts)
        broken = _every(each) if unknown else AxisTrace(each, ones=not each.listed).broken
        left -= set(map(_pack, broken))
    return tuple(name for name in names if name in left)


def _every(instance: SymbolicInstance) -> set[str]:
    return {name for labels in instance.axes.values() for label in labels.values() for name in label}


def projects(instance: SymbolicInstance, bases: Iterable[SymbolicInstance], batch: Collection[str]) -> bool:
    """Return whether an instance without its batch axes is one of `bases`, which assumes nothing more."""
    lost = frozenset(name for name in _every(instance) if _pack(name) in batch)
    types, ranks = _without(instance, batch), {k: rank for k, rank in instance.ranks.items() if k not in batch}
    possible = [
        base
        for base in bases
        if {name: rank for name, rank in base.ranks.items() if name not in batch} == ranks
        and _without(base, batch) == types
        and set(base.conditions) <= set(instance.conditions)
    ]
    if not possible or instance in possible:
        return bool(possible)
    sides = sides_without(instance, lost)
    if any(sides == (base.left, base.right) for base in possible):
        return True
    # what is read where both operands have size 1 is an axis of size 1 in between
    squeezed = sides_without(instance, lost, ones=True)
    return squeezed is not None and any(squeezed == sides_without(base, frozenset(), ones=True) for base in possible)


def _without(instance: SymbolicInstance, gone: Collection[str]) -> list[tuple[Dim, ...]]:
    return [
        tuple(
            size
            for axis, size in enumerate(value.type.shape)
            if not any(_pack(name) in gone for name in labels.get(axis, ()))
        )
        for value, labels in instance.axes.items()
    ]


Sides = tuple[Values, Values]


def sides_without(instance: SymbolicInstance, gone: Collection[str], ones: bool = False) -> Sides | None:
    """Both sides at one position of every axis that has one of some labels.

    `ones`: without any axes of size 1 either, which say nothing. None where something else than their only position is read.
    """
    known: dict[Value, Value] = {}
    cut: dict[Value, frozenset[int]] = {}
    for value, labels in instance.axes.items():
        shape = value.type.shape
        batch = {axis for axis, label in labels.items() if not label.isdisjoint(gone)}
        cut[value] = frozenset(axis for axis, size in enumerate(shape) if axis in batch or (ones and size == 1))
        kept = tuple(size for axis, size in enumerate(shape) if axis not in cut[value])
        kind = TensorType(value.type.dtype, kept)
        known[value] = retyped(value.node, kind) if isinstance(value.node, Input) else value

    def step(node: Node, args: Values) -> Values:
        if not isinstance(node, ScopeNode):
            return node.values
        scope, cut[Value(node)] = _scope_without(node.scope, [cut.get(arg, frozenset()) for arg in node.args], ones)
        return (scope_value(scope, args),)

    try:
        values = rebuild(instance.values, step, known)
    except _ReadElsewhere:
        return None
    return values[: len(instance.left)], values[len(instance.left) :]


class _ReadElsewhere(Exception):
    """Something else than the only position of an axis is read."""


def _scope_without(scope: Scope, cut: Sequence[frozenset[int]], ones: bool) -> tuple[Scope, frozenset[int]]:
    """A scope whose operands have lost some axes, without the iterators that read them; and the axes of its result that are lost.

    Raises:
        _ReadElsewhere
    """
    every = positions_alone(scope)
    reads = list(scalars(Read, scope.body))
    lost = {part.index[axis] for part in reads for axis in cut[part.operand]}
    single = {i for i, extent in scope.ranges if ones and extent == 1 and i in every}
    positions = {i: k for i, k in every.items() if i in lost or i in single}
    if any(index not in positions and not (isinstance(index, Num) and index.value == 0) for index in lost):
        raise _ReadElsewhere
    if not positions and not lost:
        return scope, frozenset()
    renamed: dict[Iter, Scalar] = {i: num(0) for i in single}
    for each in (i for i in scope.iters if i not in positions):
        renamed[each] = scalar.iterator(f"i{len(renamed) - len(single)}")

    def on_read(part: Read, index: tuple[Scalar, ...], other: Scalar | None, depth: int) -> Scalar:
        kept = tuple(each for axis, each in enumerate(index) if axis not in cut[part.operand])
        return scalar.read(part.operand, kept, other)

    extents = tuple(extent for each, extent in scope.ranges if each not in positions)
    at = set(positions.values())
    groups = None if scope.groups is None else tuple(count for k, count in enumerate(scope.groups) if k not in at)
    return Scope(extents, substitute(scope.body, renamed, 0, on_read), scope.dtype, groups), frozenset(at)


@dataclass
class AxisTrace:
    """The axes of all values that are read by single iterators down to the inputs; labels that one iterator carries are one batch.

    `ones`: an axis of size 1 says nothing of its pack; else it is no batch. `broken`: the labels of axes that are no batches.
    """

    instance: SymbolicInstance
    ones: bool = False
    broken: set[str] = field(default_factory=set)
    at: dict[Value, Labels] = field(default_factory=dict)
    _joined: list[frozenset[str]] = field(default_factory=list)
    _iterators: list[Mapping[Iter, frozenset[str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        instance, every = self.instance, _every(self.instance)
        for value, labels in instance.axes.items():
            sizes = {axis: value.type.shape[axis] for axis in labels}
            self.at[value] = {axis: label for axis, label in labels.items() if isinstance(sizes[axis], Sym)}
            for axis in labels.keys() - self.at[value].keys():
                if sizes[axis] != 1 or not self.ones:
                    self.broken |= labels[axis]
        for node in nodes_of(instance.values):
            if isinstance(node, ScopeNode):
                self._step(node)
            elif not isinstance(node, Input | Constant):
                self.broken |= every
        for a, b in zip(instance.left, instance.right, strict=True):
            one, other = self.at.get(a, {}), self.at.get(b, {})
            for axis in {*one, *other}:
                here, there = self._full(one.get(axis, frozenset())), self._full(other.get(axis, frozenset()))
                if here != there:
                    self.broken |= here | there
        for by_iterator in self._iterators:
            # no label belongs to two iterators
            seen: dict[str, Iter] = {}
            for iterator, label in by_iterator.items():
                for name in self._full(label):
                    if seen.setdefault(name, iterator) is not iterator:
                        self.broken |= label
        if not instance.same_shape:
            self.broken |= every

    def _full(self, label: frozenset[str]) -> frozenset[str]:
        """A label with all that name the same batch."""
        return next((each for each in self._joined if each & label), label)

    def _step(self, node: ScopeNode) -> None:
        """Follow labels through one scope."""
        scope, alone = node.scope, positions_alone(node.scope)
        labelled = [self.at.get(arg, {}) for arg in node.args]
        by_iterator: dict[Iter, frozenset[str]] = {}
        for read in scalars(Read, scope.body):
            for axis, label in labelled[read.operand].items():
                index = read.index[axis]
                if isinstance(index, Iter) and index in alone:
                    by_iterator[index] = by_iterator.get(index, frozenset()) | label
                else:
                    self.broken |= label
        for iterator, label in by_iterator.items():
            if _elsewhere(scope, iterator, labelled):
                self.broken |= label
        self._iterators.append(by_iterator)
        for label in by_iterator.values():
            touching = [each for each in self._joined if each & label]
            self._joined = [each for each in self._joined if not each & label] + [label.union(*touching)]
        # the size of a batch is nothing but the extent of its iterator
        sizes = {
            arg.type.shape[k]: label for arg, own in zip(node.args, labelled, strict=True) for k, label in own.items()
        }
        others = [e for it, e in scope.ranges if it not in by_iterator]
        for part in (part for root in (scope.body, *others) if isinstance(root, Scalar) for part in walk(root)):
            self.broken |= sizes.get(part, frozenset())
        self.at[Value(node)] = {alone[iterator]: label for iterator, label in by_iterator.items()}


def positions_alone(scope: Scope) -> dict[Iter, int]:
    """The dimension of the result that an iterator makes up alone."""
    out: dict[Iter, int] = {}
    at = 0
    for position, count in enumerate(scope.counts):
        if count == 1:
            out[scope.iters[at]] = position
        at += count
    return out


def _elsewhere(scope: Scope, iterator: Iter, labelled: Sequence[Labels]) -> bool:
    """Return whether an iterator occurs in any other place than the labelled axes, or a labelled axis is read by another."""
    stack: list[Scalar] = [scope.body, *(extent for extent in scope.extents if isinstance(extent, Scalar))]
    seen: set[Scalar] = set()
    while stack:
        node = stack.pop()
        if node is iterator:
            return True
        if node in seen or iterator not in node.free:
            continue
        seen.add(node)
        if isinstance(node, Read):
            own = labelled[node.operand]
            stack += [index for axis, index in enumerate(node.index) if axis not in own or index is not iterator]
            stack += [node.other] if node.other else []
        else:
            stack += node.children
    return False
