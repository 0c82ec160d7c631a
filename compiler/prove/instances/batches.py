"""Up to which ranks a rule has to be looked at, so that it holds at all ranks. The lemma and its proof: docs/proofs.md, "Ranks".

A pack of a rule is a *batch* where every scope of both sides reads its axis by one iterator that goes on, alone, as an axis of the
result: then the rule is one and the same rule at every position of that axis, and the instance without the axis says it all.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dslc.ir import scalar
from dslc.ir.dtype import Dim, TensorType
from dslc.ir.graph import Constant, Input, Node, Scope, ScopeNode, Value, rebuild, retyped, scope_value, topological
from dslc.ir.scalar import Iter, Num, Read, Scalar, Sym, num, walk
from dslc.ir.scopes import substitute
from dslc.semantics.definitions import FunctionDef, Module, OperatorDef, SubstitutionDef
from dslc.semantics.walk import walk_expr
from dslc.syntax import tree as t

ALONE = 3  #: of the only pack of a rule
MOST = 2  #: of one of several
GUARDED = 6  #: of one that a guard fits to others


Labels = Mapping[int, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Ranks:
    """`most`: the largest rank of each pack to look at; `bounded`: the packs for which that is a bound."""

    most: Mapping[str, int]
    bounded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Probe:
    """Both sides at small ranks.

    `axes`: the axes of each input that are a pack's, with the name and the position in the pack; `listed`: an attribute was
    enumerated by rank; `mixing`: a permutation or a list of sizes was; `entries`: the unknowns that are entries of lists.
    """

    left: tuple[Value, ...]
    right: tuple[Value, ...]
    axes: Mapping[Value, Labels]
    listed: bool
    mixing: bool
    same_shape: bool
    ranks: Mapping[str, int]
    conditions: frozenset[Scalar]
    entries: frozenset[str] = frozenset()
    #: how many entries lists have of which nothing says it
    lengths: Mapping[str, int] = field(default_factory=dict)
    #: the values of the rule's names, in every case that gives these sides
    names: tuple[Mapping[str, Any], ...] = ()


# ---- packs ----------------------------------------------------------------------------------------------------


def packs_of(sub: SubstitutionDef) -> tuple[str, ...]:
    """The names of the packs in the types of a rule's parameters."""
    found: dict[str, None] = {}
    for param in sub.syntax.params:
        for node in walk_expr((param.type.dims or ()) if param.type is not None else ()):
            if isinstance(node, t.Pack) and isinstance(node.value, t.Name):
                found[node.value.id] = None
    return tuple(found)


def at_most(sub: SubstitutionDef, batches: Iterable[str]) -> Ranks:
    """The ranks to look at where some packs are batches."""
    packs = [name for name in packs_of(sub) if name not in set(batches)]
    most = dict.fromkeys(batches, 0)
    most.update((name, ALONE if len(packs) == 1 else MOST) for name in packs)
    most.update((name, GUARDED) for name in fitted(sub) if name in packs)
    return Ranks(most, tuple(packs))


def to_probe(sub: SubstitutionDef, sufficient: int) -> dict[str, int]:
    """The ranks at which packs show what they are; those that a guard fits to other packs may be longer."""
    return {name: GUARDED if name in fitted(sub) else sufficient for name in packs_of(sub)}


def fitted(sub: SubstitutionDef) -> set[str]:
    """Packs that a guard lets broadcast to a shape which other names give: longer ones never fit."""
    found = set()
    for statement in sub.syntax.left:
        for condition in statement.conditions if isinstance(statement, t.Where) else ():
            if isinstance(condition, t.Compare) and condition.ops == ("==",):
                for call, other in (condition.operands, condition.operands[::-1]):
                    if isinstance(call, t.Call) and call.function == "broadcast":
                        found |= {arg.id for arg in call.args if isinstance(arg, t.Name)} - _names(other)
    return found


def pack_axes(param: t.Param, ranks: Mapping[str, int]) -> dict[int, frozenset[str]]:
    """The axes of a parameter that are those of packs of known ranks."""
    out: dict[int, frozenset[str]] = {}
    at = 0
    for element in (param.type.dims or ()) if param.type is not None else ():
        name = element.value.id if isinstance(element, t.Pack) and isinstance(element.value, t.Name) else None
        width = 1 if not isinstance(element, t.Pack) else ranks.get(name, 0) if name is not None else 0
        if name is not None:
            out.update((at + k, frozenset((f"{name}.{k}",))) for k in range(width))
        at += width
    return out


# ---- broadcasts ---------------------------------------------------------------------------------------------------


def padded(sub: SubstitutionDef) -> frozenset[str]:
    """Packs of tensors that are only ever broadcast: a shape with leading axes of size 1 means the same as one without them."""
    found = set()
    uses = (sub.syntax.left, sub.syntax.right)
    terms = {
        s.name for part in sub.syntax.left if isinstance(part, t.TermDecl) for s in part.signatures if len(s.params) > 1
    }
    asked = [node for node in walk_expr(uses) if isinstance(node, t.Call) and node.function in {"broadcast", "rank"}]
    for name in packs_of(sub):
        own = {param.name for param in sub.syntax.params if name in _names(param.type)}
        whole = all(_is_pack(p, name) for p in sub.syntax.params if p.name in own)
        inside = sum(_count(node, {name}) for node in asked)
        if whole and inside == _count(uses, {name}) and _only_broadcast(sub.module, uses, own, terms):
            found.add(name)
    return frozenset(found)


def _names(node: object) -> set[str]:
    return {part.id for part in walk_expr(node) if isinstance(part, t.Name)}


def _count(node: object, names: set[str]) -> int:
    return sum(isinstance(part, t.Name) and part.id in names for part in walk_expr(node))


def _is_pack(param: t.Param, name: str) -> bool:
    dims = param.type.dims if param.type is not None else None
    element = dims[0] if dims is not None and len(dims) == 1 else None
    return isinstance(element, t.Pack) and isinstance(element.value, t.Name) and element.value.id == name


def _only_broadcast(module: Module, uses: object, names: set[str], terms: Collection[str] = ()) -> bool:
    """Whether tensors stand only where an operator broadcasts its operand, or in `constant(X)`."""
    good = 0
    for call in (node for node in walk_expr(uses) if isinstance(node, t.Call)):
        found = module.lookup(call.function)
        for k, arg in enumerate(call.args):
            if not (isinstance(arg, t.Name) and arg.id in names):
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
    """Whether an operator reads a parameter only at `fit(i, P)`, P its whole shape, and uses P for nothing but broadcasting."""
    param = op.syntax.params[min(position, len(op.syntax.params) - 1)]
    dims = param.type.dims if param.type is not None else None
    element = dims[0] if dims is not None and len(dims) == 1 else None
    if not (isinstance(element, t.Pack) and isinstance(element.value, t.Name)):
        return False
    pack = element.value.id
    others = tuple(p for p in op.syntax.params if p is not param)
    meaning = (
        others,
        op.syntax.outputs,
        tuple(s for s in op.syntax.statements if not isinstance(s, t.OnnxMap | t.OnnxDef)),
    )
    calls = [node for node in walk_expr(meaning) if isinstance(node, t.Call) and node.function in {"fit", "broadcast"}]
    reads = [
        node for node in walk_expr(meaning)
        if isinstance(node, t.Subscript) and isinstance(node.base, t.Name) and node.base.id == param.name and _fitted(node, pack)
    ]  # fmt: skip
    if not reads or len(reads) != _count(meaning, {param.name}):
        return False
    return sum(_count(call, {pack}) for call in calls) == _count(meaning, {pack})


def _fitted(read: t.Subscript, pack: str) -> bool:
    if len(read.subs) != 1 or not isinstance(read.subs[0], t.Pack):
        return False
    value = read.subs[0].value
    return (
        isinstance(value, t.Call)
        and value.function == "fit"
        and isinstance(value.args[1], t.Name)
        and value.args[1].id == pack
    )


# ---- batches ------------------------------------------------------------------------------------------------------


@dataclass
class _Trace:
    """Labels by value and axis; labels that one iterator carries name the same batch."""

    broken: set[str] = field(default_factory=set)
    at: dict[Value, Labels] = field(default_factory=dict)
    joined: list[frozenset[str]] = field(default_factory=list)
    iterators: list[Mapping[Iter, frozenset[str]]] = field(default_factory=list)

    def break_(self, names: Iterable[str]) -> None:
        self.broken |= set(names)

    def join(self, label: frozenset[str]) -> None:
        touching = [each for each in self.joined if each & label]
        self.joined = [each for each in self.joined if not each & label] + [label.union(*touching)]

    def full(self, label: frozenset[str]) -> frozenset[str]:
        """A label with all that name the same batch."""
        return next((each for each in self.joined if each & label), label)


def _pack(label: str) -> str:
    return label.rpartition(".")[0]


def batches(names: Sequence[str], probes: Sequence[Probe], sufficient: int) -> tuple[str, ...]:
    """The packs that are batches in all instances that have an axis of them, some of which are of the telling rank."""
    left = {name for name in names if any(probe.ranks[name] >= sufficient for probe in probes)}
    for probe in probes:
        left -= {_pack(label) for label in _broken(probe)}
    return tuple(name for name in names if name in left)


def projects(probe: Probe, bases: Iterable[Probe], batch: Iterable[str]) -> bool:
    """Whether an instance without its batch axes is one of `bases`, which assumes nothing more."""
    gone = set(batch)
    every = {name for labels in probe.axes.values() for label in labels.values() for name in label}
    lost = frozenset(name for name in every if _pack(name) in gone)
    types = _without(probe, gone)
    ranks = {name: rank for name, rank in probe.ranks.items() if name not in gone}
    possible = [
        base
        for base in bases
        if {name: rank for name, rank in base.ranks.items() if name not in gone} == ranks
        and _without(base, gone) == types
        and base.conditions <= probe.conditions
    ]
    if any(base is probe for base in possible):
        return True
    if not possible:
        return False
    sides = sides_without(probe, lost)
    if any(sides == (base.left, base.right) for base in possible):
        return True
    # what is read where both operands have size 1 is an axis of size 1 in between
    squeezed = sides_without(probe, lost, ones=True)
    return squeezed is not None and any(squeezed == sides_without(base, frozenset(), ones=True) for base in possible)


_Sides = tuple[tuple[Value, ...], tuple[Value, ...]]


def sides_without(probe: Probe, gone: Collection[str], ones: bool = False) -> _Sides | None:
    """Both sides as they are at one position of every axis that has one of some labels.

    `ones`: without any axes of size 1 either, which say nothing. None where something else than their only position is read.
    """
    known: dict[Value, Value] = {}
    cut: dict[Value, frozenset[int]] = {}
    for value, labels in probe.axes.items():
        batch = {axis for axis, label in labels.items() if not label.isdisjoint(gone)}
        shape = value.type.shape
        cut[value] = frozenset(axis for axis, size in enumerate(shape) if axis in batch or (ones and size == 1))
        kept = tuple(size for axis, size in enumerate(shape) if axis not in cut[value])
        known[value] = (
            retyped(value.node, TensorType(value.type.dtype, kept)) if isinstance(value.node, Input) else value
        )

    def step(node: Node, args: tuple[Value, ...]) -> tuple[Value, ...]:
        if not isinstance(node, ScopeNode):
            return node.values
        scope, cut[Value(node)] = _scope_without(node.scope, [cut.get(arg, frozenset()) for arg in node.args], ones)
        return (scope_value(scope, args),)

    try:
        values = rebuild((*probe.left, *probe.right), step, known)
    except _ReadElsewhere:
        return None
    return values[: len(probe.left)], values[len(probe.left) :]


class _ReadElsewhere(Exception):
    """Something else than the only position of an axis is read."""


def _scope_without(scope: Scope, cut: Sequence[frozenset[int]], ones: bool) -> tuple[Scope, frozenset[int]]:
    """A scope whose operands have lost some axes, without the iterators that read them; and the axes of its result that are lost.

    Raises:
        _ReadElsewhere
    """
    every = positions_alone(scope)
    reads = [part for part in walk(scope.body) if isinstance(part, Read)]
    lost = {part.index[axis] for part in reads for axis in cut[part.operand]}
    single = {i for i, extent in zip(scope.iters, scope.extents, strict=True) if ones and extent == 1 and i in every}
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

    extents = tuple(extent for each, extent in zip(scope.iters, scope.extents, strict=True) if each not in positions)
    at = set(positions.values())
    groups = None if scope.groups is None else tuple(count for k, count in enumerate(scope.groups) if k not in at)
    return Scope(extents, substitute(scope.body, renamed, 0, on_read), scope.dtype, groups), frozenset(at)


def _without(probe: Probe, gone: set[str]) -> list[tuple[Dim, ...]]:
    return [
        tuple(
            size
            for axis, size in enumerate(value.type.shape)
            if not {_pack(name) for name in labels.get(axis, ())} & gone
        )
        for value, labels in probe.axes.items()
    ]


def _broken(probe: Probe) -> set[str]:
    broken, _ = trace_of(probe, ones=not probe.listed)
    nodes = topological(value.node for value in (*probe.left, *probe.right))
    parts = (part for node in nodes if isinstance(node, ScopeNode) for part in walk(node.scope.body))
    if probe.mixing or any(isinstance(part, Sym) and part.name in probe.entries for part in parts):
        return {name for labels in probe.axes.values() for label in labels.values() for name in label}
    return broken


def trace_of(probe: Probe, ones: bool = False) -> tuple[set[str], Mapping[Value, Labels]]:
    """The labels of axes that are no batches, and the axes of all values that are read by single iterators down to the inputs.

    `ones`: an axis of size 1 says nothing of its pack; else it is no batch.
    """
    trace = _Trace()
    every = {name for labels in probe.axes.values() for label in labels.values() for name in label}
    for value, labels in probe.axes.items():
        kept = {}
        for axis, label in labels.items():
            size = value.type.shape[axis]
            if isinstance(size, Sym):
                kept[axis] = label
            elif size != 1 or not ones:
                trace.break_(label)
        trace.at[value] = kept
    for node in topological(value.node for value in (*probe.left, *probe.right)):
        if isinstance(node, ScopeNode):
            _step(node, trace)
        elif not isinstance(node, Input | Constant):
            trace.break_(every)
    for a, b in zip(probe.left, probe.right, strict=True):
        one, other = trace.at.get(a, {}), trace.at.get(b, {})
        for axis in {*one, *other}:
            here, there = trace.full(one.get(axis, frozenset())), trace.full(other.get(axis, frozenset()))
            if here != there:
                trace.break_(here | there)
    for by_iterator in trace.iterators:
        _one_iterator_each(by_iterator, trace)
    if not probe.same_shape:
        trace.break_(every)
    return trace.broken, trace.at


def _step(node: ScopeNode, trace: _Trace) -> None:
    """Follows labels through one scope."""
    scope = node.scope
    labelled = {k: trace.at.get(arg, {}) for k, arg in enumerate(node.args)}
    by_iterator: dict[Iter, frozenset[str]] = {}
    for read in (part for part in walk(scope.body) if isinstance(part, Read)):
        for axis, label in labelled[read.operand].items():
            index = read.index[axis]
            if isinstance(index, Iter) and index in scope.iters and _alone(scope, index):
                by_iterator[index] = by_iterator.get(index, frozenset()) | label
            else:
                trace.break_(label)
    for iterator, label in by_iterator.items():
        if _elsewhere(scope, iterator, label, labelled):
            trace.break_(label)
    trace.iterators.append(by_iterator)
    for label in by_iterator.values():
        trace.join(label)
    sizes = {arg.type.shape[axis]: label for k, arg in enumerate(node.args) for axis, label in labelled[k].items()}
    _sizes_elsewhere(scope, by_iterator, sizes, trace)
    positions = positions_alone(scope)
    trace.at[Value(node)] = {
        positions[iterator]: label for iterator, label in by_iterator.items() if iterator in positions
    }


def _one_iterator_each(by_iterator: Mapping[Iter, frozenset[str]], trace: _Trace) -> None:
    """No label belongs to two iterators."""
    seen: dict[str, Iter] = {}
    for iterator, label in by_iterator.items():
        for name in trace.full(label):
            if seen.setdefault(name, iterator) is not iterator:
                trace.break_(label)


def _alone(scope: Scope, iterator: Iter) -> bool:
    return iterator in positions_alone(scope)


def positions_alone(scope: Scope) -> dict[Iter, int]:
    """The dimension of the result that an iterator makes up alone."""
    groups = scope.groups or (1,) * len(scope.extents)
    out: dict[Iter, int] = {}
    at = 0
    for position, count in enumerate(groups):
        if count == 1:
            out[scope.iters[at]] = position
        at += count
    return out


def _elsewhere(scope: Scope, iterator: Iter, label: frozenset[str], labelled: Mapping[int, Labels]) -> bool:
    """Whether an iterator occurs in any other place than the labelled axes, or a labelled axis is read by another."""
    stack: list[Scalar] = [scope.body]
    seen: set[Scalar] = set()
    while stack:
        node = stack.pop()
        if node in seen or iterator not in node.free:
            continue
        seen.add(node)
        if node is iterator:
            return True
        if isinstance(node, Read):
            for axis, index in enumerate(node.index):
                own = labelled[node.operand].get(axis)
                if own is not None and index is iterator:
                    continue
                stack.append(index)
            if node.other is not None:
                stack.append(node.other)
        else:
            stack.extend(node.children)
    return any(iterator in extent.free for extent in scope.extents if isinstance(extent, Scalar))


def _sizes_elsewhere(
    scope: Scope, by_iterator: Mapping[Iter, frozenset[str]], sizes: Mapping[Dim, frozenset[str]], trace: _Trace
) -> None:
    """The size of a batch is nothing but the extent of its iterator."""
    others = [
        extent for iterator, extent in zip(scope.iters, scope.extents, strict=True) if iterator not in by_iterator
    ]
    for root in (scope.body, *others):
        if isinstance(root, Scalar):
            for part in walk(root):
                if part in sizes:
                    trace.break_(sizes[part])
