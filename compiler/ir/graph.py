"""Graphs of operator applications, as hash-consed terms: equal subgraphs are one object, so common subexpressions vanish.

A `Value` is one output of a node. Nodes know whether they depend on weights only (`constant`). A rewrite builds new terms; nothing
is changed in place. Graphs may be deep (thousands of nodes in a chain): walk them with `topological`, never by recursion.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from operator import attrgetter
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

from dslc.ir.dtype import Dim, DType, TensorType
from dslc.ir.scalar import Iter, Scalar, apply, as_scalar, exactly, traversal
from dslc.records import record

AttrValue = bool | int | float | Fraction | str | DType | Scalar | tuple["AttrValue", ...]
Attrs = tuple[tuple[str, AttrValue], ...]


def product(sizes: Iterable[Dim]) -> Dim:
    """The product of sizes, as a number where all are known."""
    total: Dim = 1
    for size in sizes:
        if isinstance(total, int) and isinstance(size, int):
            total *= size
        else:
            total = apply("*", as_scalar(total), as_scalar(size))
    return total


@record
class Scope:
    """`{[i0: extents[0], ...] body}`: an expression over operands, which the body reads by position.

    `extents` are sizes; the iterators are `i0`, `i1`, ... in traversal order; `dtype` is the element type of the result.
    `groups` says how many neighbouring iterators make up each output dimension (a merged dimension `(g, c)` has two: its
    position is `g * C + c`); None means one each. So the iterators of merged dimensions stay apart, and indices stay affine.
    """

    extents: tuple[Dim, ...]
    body: Scalar
    dtype: DType
    groups: tuple[int, ...] | None = None

    @property
    def iters(self) -> tuple[Iter, ...]:
        return tuple([traversal(k) for k in range(len(self.extents))])

    @property
    def ranges(self) -> Iterator[tuple[Iter, Dim]]:
        """Each iterator with its extent."""
        return zip(self.iters, self.extents, strict=True)

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of iterators of each output dimension."""
        return self.groups or (1,) * len(self.extents)

    @property
    def dimensions(self) -> list[range]:
        """The places of the iterators of each output dimension."""
        return [range(end - count, end) for end, count in zip(accumulate(self.counts), self.counts, strict=True)]

    @property
    def type(self) -> TensorType:
        """The type of the result: merged dimensions have the product of their iterators' extents."""
        if self.groups is None:
            return TensorType(self.dtype, self.extents)
        return TensorType(self.dtype, tuple([product(self.extents[k] for k in axis) for axis in self.dimensions]))

    def __str__(self) -> str:
        inside = ", ".join(f"{it}: {extent}" for it, extent in self.ranges)
        return f"{{[{inside}] {self.body}}}"


class ArrayRef(Protocol):
    """Storage of a constant's elements: in memory, in a file, or still to be computed."""

    @property
    def key(self) -> str:
        """Equal keys mean equal contents."""

    def load(self) -> Any:
        """The elements as a numpy array of the constant's type (bfloat16 by ml_dtypes)."""


class Node:
    """Base of all nodes. Build them with `input_value`, `constant_value`, `call`, `scope_value`, `kernel_value` and `opaque`."""

    __slots__ = ("__weakref__", "_hash", "args", "constant", "types")
    _pool: ClassVar[dict[Any, _Kept]] = {}
    args: Values
    #: types of the outputs; None where dslc has no such type (strings, sequences, unknown ranks)
    types: tuple[TensorType | None, ...]
    #: whether the node depends on weights only
    constant: bool
    #: a hash of the term, which is the same when it is built again; nodes themselves are compared as the objects that they are
    _hash: int

    @property
    def values(self) -> Values:
        count = len(self.types)
        return (Value(self, 0),) if count == 1 else tuple([Value(self, k) for k in range(count)])


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Value:
    """Output `index` of a node."""

    node: Node
    index: int = 0

    def __init__(self, node: Node, index: int = 0) -> None:
        # as a frozen dataclass does it, in two thirds of the time: values are made more often than anything else
        _set_node(self, node)
        _set_index(self, index)

    def __hash__(self) -> int:
        return self.node._hash + self.index

    def __eq__(self, other: object) -> bool:
        # the one that a dataclass makes compares tuples, which is slow for what graphs do most
        return self is other or (other.__class__ is Value and self.node is other.node and self.index == other.index)

    @property
    def type(self) -> TensorType:
        """Raises ValueError where the type is unknown."""
        found = self.type_or_none
        if not found:
            raise ValueError("a value of unknown type")
        return found

    @property
    def type_or_none(self) -> TensorType | None:
        return self.node.types[self.index]

    @property
    def known(self) -> bool:
        return self.type_or_none is not None

    @property
    def constant(self) -> bool:
        return self.node.constant


#: several values, in order
Values: TypeAlias = tuple[Value, ...]


_set_node, _set_index = Value.__dict__["node"].__set__, Value.__dict__["index"].__set__


class Input(Node):
    """An input of the graph, a parameter of an operator, or a hole; `constant` where it stands for a weight."""

    __slots__ = ("name",)
    name: str


class Constant(Node):
    """A weight."""

    __slots__ = ("data",)
    data: ArrayRef


class Call(Node):
    """An operator applied: `op` is its qualified name (`std.conv`), attributes complete and in declared order."""

    __slots__ = ("attrs", "head", "op", "tag")
    #: all but the arguments
    head: Head
    op: str
    attrs: Attrs
    #: the attributes with the kinds of their values: what tells two applications apart
    tag: Any

    def attr(self, name: str) -> AttrValue:
        return dict(self.attrs)[name]


class Head:
    """The part shared by calls that differ in their arguments only: one object for all of them, so that it is compared at once."""

    __slots__ = ("__weakref__", "attrs", "code", "op", "tag", "types")
    _pool: ClassVar[weakref.WeakValueDictionary[Any, Head]] = weakref.WeakValueDictionary()
    #: a hash of what it says, which is the same when it is made again
    code: int
    op: str
    attrs: Attrs
    tag: Any
    types: tuple[TensorType, ...]


class ScopeNode(Node):
    """An expression applied to operands: an eOperator, or an equation of an operator."""

    __slots__ = ("scope",)
    scope: Scope


class Kernel(Node):
    """A group of nodes that runs as one: `group` is a program over inputs of its own, which stand for the arguments (holes).

    What varies and what is a weight are both arguments, so equal groups are one object whatever they are applied to. A kernel means
    its program, see `unfolded`; it has a price, and code, of its own.
    """

    __slots__ = ("group",)
    group: Graph


class Opaque(Node):
    """A node that is kept word for word. `payload` is what the importer needs to write it again, compared by `key`."""

    __slots__ = ("key", "label", "payload")
    key: str
    label: str
    payload: Any


class _Kept(weakref.ref[Node]):
    """A node of the pool with its key; cheaper to make than what `WeakValueDictionary` keeps."""

    __slots__ = ("key",)
    key: Any


def _gone(kept: _Kept, pool: dict[Any, _Kept] = Node._pool) -> None:
    found = pool.pop(kept.key, None)
    # an equal node may have been made between the end of this one and this call
    if found is not kept and found:
        pool[kept.key] = found


def _keep(key: Any, node: Node) -> None:
    kept = _Kept(node, _gone)
    kept.key = key
    Node._pool[key] = kept


def _intern(
    cls: Any,
    key: tuple[Any, ...],
    args: Values,
    types: Callable[[], tuple[TensorType | None, ...]],
    constant: bool | None = None,
    /,
    **own: Any,
) -> Any:
    """The node of a key; made with its `own` attributes where there is none. It is `constant` as its arguments are, or as is said."""
    tagged = (cls, *key)
    kept = Node._pool.get(tagged)
    found = kept() if kept else None
    if found is None:
        found = cls.__new__(cls)
        found.args, found.types, found._hash = args, types(), hash(tagged)
        found.constant = all(arg.constant for arg in args) if constant is None else constant
        for name, value in own.items():
            setattr(found, name, value)
        _keep(tagged, found)
    return found


def input_value(name: str, type: TensorType | None, constant: bool = False) -> Value:
    """A value without a producer; `constant` where it stands for what depends on weights only."""
    # what varies keeps the hash that it has without holes for weights, which deterministic orders rest on
    key = (name, type, True) if constant else (name, type)
    return Value(_intern(Input, key, (), lambda: (type,), constant, name=name))


def retyped(node: Input, type: TensorType | None) -> Value:
    """The same input of another type."""
    return input_value(node.name, type, node.constant)


def constant_value(data: ArrayRef, type: TensorType) -> Value:
    """A weight as a value."""
    return Value(_intern(Constant, (data.key, type), (), lambda: (type,), data=data))


def call(op: str, args: Values, attrs: Attrs, types: tuple[TensorType, ...]) -> Values:
    """An application. Callers that don't know the types use `dslc.semantics.apply`, which infers and checks them."""
    tag = exactly(tuple(value for _, value in attrs))
    key = (op, tag, tuple(name for name, _ in attrs), types)
    head = Head._pool.get(key)
    if not head:
        head = Head()
        head.op, head.attrs, head.tag, head.types, head.code = op, attrs, tag, types, hash(key)
        Head._pool[key] = head
    return called(head, args)


#: tells values apart as they do themselves, without a call of Python's
_place = attrgetter("node", "index")


def called(head: Head, args: Values) -> Values:
    """All that a call is but its arguments, over arguments of the types that it takes."""
    pool = Node._pool
    key = (head, *map(_place, args))
    kept = pool.get(key)
    node: Any = kept() if kept else None
    if node is None:
        node = Call.__new__(Call)
        node.args, node.types, node.constant = args, head.types, True
        for arg in args:
            if not arg.node.constant:
                node.constant = False
                break
        node.head, node.op, node.attrs, node.tag = head, head.op, head.attrs, head.tag
        node._hash = hash((head.code, args))
        pool[key] = kept = _Kept(node, _gone)
        kept.key = key
    return node.values  # type: ignore[no-any-return]


def scope_value(scope: Scope, args: Values) -> Value:
    """A scope over operands as a value."""
    return Value(_intern(ScopeNode, (scope, args), args, lambda: (scope.type,), scope=scope))


def kernel_value(group: Graph, args: Values) -> Values:
    """The outputs of a group that runs as one, over arguments of the types of the group's inputs."""
    if tuple(arg.type for arg in args) != tuple(hole.type for hole in group.inputs):
        raise ValueError("arguments of other types than the holes of the group")
    key = (group.inputs, group.outputs, args)
    node: Kernel = _intern(Kernel, key, args, lambda: tuple(value.type for value in group.outputs), group=group)
    return node.values


def unfolded(node: Kernel, args: Values | None = None) -> Values:
    """Expand a kernel to its program over its arguments, or over others.

    Before: `kernel{h0, h1 -> relu(add(h0, h1))}(X, Y)`. After: `relu(add(X, Y))`.
    """
    return replace(node.group.outputs, dict(zip(node.group.inputs, node.args if args is None else args, strict=True)))


def opaque(key: str, label: str, payload: Any, args: Values, types: tuple[TensorType | None, ...]) -> Values:
    """A node kept as it is. Give each its own `key` unless two with equal keys and arguments may be merged."""
    found = _intern(Opaque, (key, args), args, lambda: types, False, key=key, label=label, payload=payload)
    return found.values  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Graph:
    """Inputs and outputs; everything else is reached from the outputs."""

    inputs: Values
    outputs: Values

    def nodes(self) -> list[Node]:
        return nodes_of(self.outputs)


def nodes_of(values: Iterable[Value]) -> list[Node]:
    """Every node that values are computed by, arguments first."""
    return topological(value.node for value in values)


def topological(roots: Iterable[Node]) -> list[Node]:
    """Every node below the roots, arguments first; deterministic."""
    out: list[Node] = []
    seen: set[Node] = set()
    for root in roots:
        stack: list[tuple[Node, int]] = [(root, 0)]
        while stack:
            node, at = stack.pop()
            if at == 0:
                if node in seen:
                    continue
                seen.add(node)
            if at < len(node.args):
                stack.append((node, at + 1))
                below = node.args[at].node
                if below not in seen:
                    stack.append((below, 0))
            else:
                out.append(node)
    return out


def with_args(node: Node, args: Values) -> Values:
    """The same node over other arguments of the same types."""
    if args == node.args:
        return node.values
    if isinstance(node, Call):
        return called(node.head, args)
    if isinstance(node, ScopeNode):
        return (scope_value(node.scope, args),)
    if isinstance(node, Kernel):
        return kernel_value(node.group, args)
    if isinstance(node, Opaque):
        return opaque(node.key, node.label, node.payload, args, node.types)
    return node.values


T = TypeVar("T")


def rebuild(
    outputs: Iterable[Value],
    step: Callable[[Node, tuple[T, ...]], Sequence[T]],
    known: Mapping[Value, T] | None = None,
    memo: dict[Node, Sequence[T]] | None = None,
) -> tuple[T, ...]:
    """The outputs after `step` has made every node anew, arguments first: `step(node, arguments)` gives one result per value.

    `known` says what values are already: they are taken as they are, and what is only below them is not looked at. `memo` keeps the
    results of whole nodes, for several graphs that have parts in common. Each node is made once, in the order of `topological`;
    graphs may be deep.

    Before: `relu(add(X, Y))` with `known={X: Z}` and `with_args`. After: `relu(add(Z, Y))`.
    """
    done: dict[Node, Sequence[T]] = {} if memo is None else memo
    some: dict[Node, dict[int, T]] = {}
    for value, given in (known or {}).items():
        some.setdefault(value.node, {})[value.index] = given
    if memo is None:
        # nodes of which every value is known are done, and asked for no more
        done.update(
            (node, [found[k] for k in range(len(found))])
            for node, found in some.items()
            if len(found) == len(node.types)
        )
        some = {node: found for node, found in some.items() if node not in done}
    roots = tuple(outputs)
    stack = [root.node for root in reversed(roots) if root.index not in some.get(root.node, ())]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        missing = [arg.node for arg in node.args if arg.node not in done]
        if missing and some:
            missing = [
                arg.node for arg in node.args if arg.node not in done and arg.index not in some.get(arg.node, ())
            ]
        if missing:
            stack += missing[::-1]
            continue
        stack.pop()
        if not some:
            done[node] = step(node, tuple([done[arg.node][arg.index] for arg in node.args]))
            continue
        found = step(node, tuple([_made(arg, done, some) for arg in node.args]))
        here = some.get(node)
        done[node] = found if here is None else [here.get(k, each) for k, each in enumerate(found)]
    return tuple([_made(root, done, some) for root in roots])


def _made(value: Value, done: Mapping[Node, Sequence[T]], some: Mapping[Node, Mapping[int, T]]) -> T:
    given = some.get(value.node)
    return given[value.index] if given is not None and value.index in given else done[value.node][value.index]


def replace(outputs: Values, new: Mapping[Value, Value]) -> Values:
    """Rebuilds the terms above the replaced values. Replacements are taken as they are (not searched again)."""
    return rebuild(outputs, with_args, new)
