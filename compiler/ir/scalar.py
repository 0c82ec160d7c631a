"""Scalar expressions: what an equation computes for one element, and every symbolic integer.

Nodes are hash-consed: structurally equal expressions are one object, so `is` decides equality and results may be cached by
identity. Iterators are named by position (see `Scope`), so that the names in a `.rules` file vanish. Sums of integers are kept
in a normal form by the smart constructors (`add`, `mul`, ...): constants folded, terms sorted, like terms joined.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from math import nan
from operator import is_
from typing import Any, ClassVar, TypeVar

Number = bool | int | Fraction | float
_INTEGRAL = frozenset({"+", "*", "//", "%", "min", "max", "abs"})
_KINDS = frozenset({bool, int, Fraction, float})
_NONE: frozenset[Any] = frozenset()
_Kind = TypeVar("_Kind", bound="Scalar")


class Scalar:
    """Base of all scalar expressions. Build them with the functions of this module, never by the class."""

    # equality and hash are those of the object: no node exists twice
    __slots__ = ("__weakref__", "_key", "_text", "binds", "free", "integral", "reads", "weight")
    _pool: ClassVar[dict[Any, weakref.KeyedRef[Any, Scalar]]] = {}
    _key: tuple[Any, ...]
    _text: str | None
    #: iterators that occur and are not bound inside
    free: frozenset[Iter]
    #: whether it is an integer made of sizes, iterators and integer arithmetic only
    integral: bool
    #: whether an element of a tensor occurs in it
    reads: bool
    #: whether a reduction occurs in it, which binds iterators
    binds: bool
    #: how many nodes it has when it is written out
    weight: int
    #: the function that an `Apply` applies, and to what; empty for all others
    op: str = ""
    args: tuple[Scalar, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self)._make, self._key)  # type: ignore[attr-defined]

    def __str__(self) -> str:
        if self._text is None:
            from dslc.ir.show import show_scalar

            return show_scalar(self)
        return self._text

    def __repr__(self) -> str:
        return f"<{self}>"

    @property
    def children(self) -> tuple[Scalar, ...]:
        return ()


def _known(key: tuple[Any, ...]) -> Any:
    """The node with a key, where there is one. A key starts with the class."""
    found = Scalar._pool.get(key)
    return found() if found else None


def _new(key: tuple[Any, ...], parts: tuple[Any, ...], free: frozenset[Iter], integral: bool) -> Any:
    """A leaf of the class `key[0]`; `parts` is what makes it again. Its class sets its own attributes."""
    cls = key[0]
    node = cls.__new__(cls)
    node._key, node._text = parts, None
    node.free, node.integral, node.reads, node.binds, node.weight = free, integral, False, False, 1
    Scalar._pool[key] = weakref.KeyedRef(node, _forget, key)
    return node


def _above(key: tuple[Any, ...], parts: tuple[Any, ...], children: tuple[Scalar, ...]) -> Any:
    """A node of the class `key[0]` that is no leaf; `parts` is what makes it again. Its class sets its own attributes."""
    cls = key[0]
    node = cls.__new__(cls)
    node._key, node._text, node.integral = parts, None, False
    reads = binds = False
    free, weight = _NONE, 1
    for child in children:
        weight += child.weight
        if child.free and child.free is not free:
            free = free | child.free if free else child.free
        reads = reads or child.reads
        binds = binds or child.binds
    node.free, node.reads, node.binds, node.weight = free, reads, binds, weight
    Scalar._pool[key] = weakref.KeyedRef(node, _forget, key)
    return node


def _forget(gone: weakref.KeyedRef[Any, Scalar], pool: dict[Any, weakref.KeyedRef[Any, Scalar]] = Scalar._pool) -> None:
    # the pool is a default because an interpreter that ends forgets the names of modules before the last nodes;
    # a node of the same key may have been made in the meantime
    if pool.get(gone.key) is gone:
        del pool[gone.key]


class Num(Scalar):
    """A number: bool, int, exact Fraction or float (inf included)."""

    __slots__ = ("value",)
    value: Number

    @staticmethod
    def _make(value: Number) -> Num:
        if type(value) is Fraction and value.denominator == 1:
            value = int(value)
        # the type beside the value keeps True, 1 and 1.0 apart
        kind = type(value)
        if kind not in _KINDS:
            value = value.item()  # type: ignore[union-attr]  # a number of numpy
            kind = type(value)
        if kind is float and value != value:
            value = nan  # which equals nothing, and is one object
        # zeros of both signs are equal, and not the same
        key = (Num, kind, value) if value or kind is not float else (Num, kind, repr(value))
        found: Num | None = _known(key)
        if not found:
            found = _new(key, (value,), _NONE, kind is int)
            found.value = value
        return found


class Sym(Scalar):
    """An unknown integer: a symbolic size or attribute. `least` is a known lower bound."""

    __slots__ = ("least", "name")
    least: int | None
    name: str

    @staticmethod
    def _make(least: int | None, name: str) -> Sym:
        key = (Sym, least, name)
        found: Sym | None = _known(key)
        if not found:
            found = _new(key, (least, name), _NONE, True)
            found.least, found.name = least, name
        return found


class Iter(Scalar):
    """An iterator of the enclosing scope (`i0`, `i1`, ...) or reduction (`r0`, `r1`, ...)."""

    __slots__ = ("name",)
    name: str

    @staticmethod
    def _make(name: str) -> Iter:
        key = (Iter, name)
        node: Iter | None = _known(key)
        if not node:
            node = _new(key, (name,), _NONE, True)
            node.name = name
            # it is what is free in itself
            node.free = frozenset((node,))
        return node


class Read(Scalar):
    """One element of an operand of the scope; `other` is the value outside its bounds, None where it is never outside."""

    __slots__ = ("index", "operand", "other")
    index: tuple[Scalar, ...]
    operand: int
    other: Scalar | None

    @staticmethod
    def _make(index: tuple[Scalar, ...], operand: int, other: Scalar | None) -> Read:
        key = (Read, operand, index, other)
        found: Read | None = _known(key)
        if not found:
            found = _above(key, (index, operand, other), (*index, other) if other else index)
            found.index, found.operand, found.other, found.reads = index, operand, other, True
        return found

    @property
    def children(self) -> tuple[Scalar, ...]:
        return (*self.index, self.other) if self.other else self.index


class Table(Scalar):
    """An element of a constant matrix that is written in the rules: nested tuples of numbers."""

    __slots__ = ("index", "values")
    index: tuple[Scalar, ...]
    values: tuple[Any, ...]

    @staticmethod
    def _make(index: tuple[Scalar, ...], values: tuple[Any, ...]) -> Table:
        key = (Table, index, exactly(values))
        found: Table | None = _known(key)
        if not found:
            found = _above(key, (index, values), index)
            found.index, found.values = index, values
        return found

    @property
    def children(self) -> tuple[Scalar, ...]:
        return self.index


class Apply(Scalar):
    """A scalar function or operator of the language's vocabulary: `+ * // % ^ min max exp < == and select ...`.

    `+` and `*` are n-ary; `select(c, a, b)` is `a if c else b`; `convert` has a Num-free second part in `name`
    (`convert:int64`).
    """

    __slots__ = ("args", "name")
    args: tuple[Scalar, ...]
    name: str

    @staticmethod
    def _make(args: tuple[Scalar, ...], name: str) -> Apply:
        key = (Apply, name, args)
        found: Apply | None = _known(key)
        if not found:
            found = _above(key, (args, name), args)
            found.args, found.name = args, name
            found.integral = name in _INTEGRAL and all(arg.integral for arg in args)
        return found

    @property
    def children(self) -> tuple[Scalar, ...]:
        return self.args


# one slot by two names: iterators and sizes have names too
Apply.op = Apply.__dict__["name"]


class Reduce(Scalar):
    """`kind[iters where cond] body` with kind sum, prod, max, min, any or all; an extent may use outer iterators."""

    __slots__ = ("body", "extents", "iters", "kind", "where")
    body: Scalar
    extents: tuple[Scalar, ...]
    iters: tuple[Iter, ...]
    kind: str
    where: Scalar | None

    @staticmethod
    def _make(
        body: Scalar, extents: tuple[Scalar, ...], iters: tuple[Iter, ...], kind: str, where: Scalar | None
    ) -> Reduce:
        key = (Reduce, kind, iters, extents, body, where)
        found: Reduce | None = _known(key)
        if not found:
            inner = (*extents, body, where) if where else (*extents, body)
            found = _above(key, (body, extents, iters, kind, where), inner)
            found.body, found.extents, found.iters, found.kind, found.where = body, extents, iters, kind, where
            found.free, found.binds = found.free.difference(iters), True
        return found

    @property
    def children(self) -> tuple[Scalar, ...]:
        return (*self.extents, self.where, self.body) if self.where else (*self.extents, self.body)

    @property
    def ranges(self) -> Iterator[tuple[Iter, Scalar]]:
        """Each iterator with its extent."""
        return zip(self.iters, self.extents, strict=True)


# ---- constructors --------------------------------------------------------------------------------------------


def exactly(value: Any) -> Any:
    """Equal for values, and tuples of them, that are the same: True, 1 and 1.0 are three, 0.0 and -0.0 are two, NaN is one."""
    if isinstance(value, tuple):
        return tuple(map(exactly, value))
    return (type(value), repr(value) if isinstance(value, float) else value)


def num(value: Number) -> Num:
    """A number as an expression."""
    return Num._make(value)


def sym(name: str) -> Sym:
    """An unknown integer of either sign."""
    return Sym._make(None, name)


def dimension(name: str) -> Sym:
    """An unknown size of a model: at least 1."""
    return Sym._make(1, name)


def iterator(name: str) -> Iter:
    """The iterator of a name."""
    return Iter._make(name)


@lru_cache(maxsize=1024)
def traversal(place: int) -> Iter:
    """The iterator of a place among those of a scope's result: `i0`, `i1`, ..."""
    return Iter._make(f"i{place}")


@lru_cache(maxsize=1024)
def bound(depth: int) -> Iter:
    """The iterator of a reduction that so many others surround: `r0`, `r1`, ..."""
    return Iter._make(f"r{depth}")


def read(operand: int, index: tuple[Scalar, ...], other: Scalar | None = None) -> Read:
    """One element of an operand."""
    return Read._make(index, operand, other)


def table(values: tuple[Any, ...], index: tuple[Scalar, ...]) -> Scalar:
    """An element of a matrix of numbers; a number where the position is one."""
    value: Any = values
    for k, position in enumerate(index):
        if not isinstance(position, Num):
            return Table._make(index[k:], value)
        value = value[int(position.value)]
    return num(value)


def flat(values: Any) -> Iterator[Any]:
    """Flatten nested tuples, in order."""
    if isinstance(values, tuple):
        for value in values:
            yield from flat(value)
    else:
        yield values


def reduce(
    kind: str, iters: tuple[Iter, ...], extents: tuple[Scalar, ...], body: Scalar, where: Scalar | None = None
) -> Scalar:
    """A reduction; its body where there are no iterators and no condition."""
    if where and isinstance(where, Num) and where.value is True:
        where = None
    if not iters and not where:
        return body
    return Reduce._make(body, extents, iters, kind, where)


def as_scalar(value: Scalar | Number) -> Scalar:
    """A number or an expression as an expression."""
    return value if isinstance(value, Scalar) else num(value)


def apply(name: str, *args: Scalar) -> Scalar:
    """`name(args)`, simplified where that holds for every number: the smart constructors of `dslc.ir.fold`."""
    return fold.simplify(name, args)


def raw_apply(name: str, *args: Scalar) -> Apply:
    """`name(args)` as it stands."""
    return Apply._make(args, name)


# ---- walks ---------------------------------------------------------------------------------------------------


def walk(root: Scalar) -> Iterator[Scalar]:
    """Every distinct node of an expression, children first."""
    seen: set[Scalar] = set()
    stack: list[tuple[Scalar, bool]] = [(root, False)]
    while stack:
        node, done = stack.pop()
        if done:
            yield node
            continue
        if node in seen:
            continue
        seen.add(node)
        children = node.children
        if not children:
            yield node
            continue
        stack.append((node, True))
        stack.extend([(child, False) for child in reversed(children)])


def scalars(kind: type[_Kind], root: Scalar) -> Iterator[_Kind]:
    """Every distinct node of one kind in an expression, in the order of `walk`."""
    return (node for node in walk(root) if isinstance(node, kind))


def rebuild(root: Scalar, leaf: Callable[[Scalar], Scalar | None], cache: dict[Scalar, Scalar] | None = None) -> Scalar:
    """Replaces nodes top-down: where `leaf` gives a value it is taken, else the node is rebuilt from its children.

    Bound iterators are not renamed: pass replacements that cannot be captured.
    """
    return _rebuilt(root, leaf, {} if cache is None else cache)


def _rebuilt(node: Scalar, leaf: Callable[[Scalar], Scalar | None], memo: dict[Scalar, Scalar]) -> Scalar:
    # no function inside a function: one that calls itself is a cycle, which waits for the collector with all that it holds
    found = memo.get(node)
    if not found:
        found = leaf(node)
        if not found:
            found = with_children(node, [_rebuilt(child, leaf, memo) for child in node.children])
        memo[node] = found
    return found


def with_children(node: Scalar, new: list[Scalar]) -> Scalar:
    """The node over other children, in their order."""
    # what is as it was needs no smart constructor
    if all(map(is_, new, node.children)):
        return node
    if node.op:
        return apply(node.op, *new)
    if isinstance(node, Read):
        count = len(node.index)
        return read(node.operand, tuple(new[:count]), new[count] if node.other else None)
    if isinstance(node, Table):
        return table(node.values, tuple(new))
    assert isinstance(node, Reduce)
    where = new[-2] if node.where else None
    return reduce(node.kind, node.iters, tuple(new[: len(node.extents)]), new[-1], where)


def substitute(root: Scalar, values: Mapping[Any, Scalar]) -> Scalar:
    """Replaces iterators or symbols by expressions."""
    return rebuild(root, values.get)


def conjuncts(*conditions: Scalar | None) -> Iterator[Scalar]:
    """The conditions that are there, with every `and` taken apart."""
    for condition in conditions:
        if condition and condition.op == "and":
            yield from conjuncts(*condition.args)
        elif condition:
            yield condition


def replaced(root: Scalar, old: Scalar, new: Scalar) -> Scalar:
    """The expression with another node in the place of one."""
    return rebuild(root, lambda node: new if node is old else None)


def rewrite(root: Scalar, after: Callable[[Scalar], Scalar], cache: dict[Scalar, Scalar] | None = None) -> Scalar:
    """Replaces nodes bottom-up: each is rebuilt from what its children became, and is what `after` makes of that."""
    return _rewritten(root, after, {} if cache is None else cache)


def _rewritten(node: Scalar, after: Callable[[Scalar], Scalar], memo: dict[Scalar, Scalar]) -> Scalar:
    found = memo.get(node)
    if not found:
        new = with_children(node, [_rewritten(child, after, memo) for child in node.children])
        found = memo[node] = after(new)
    return found


# the two need each other: the constructors of this module are what the smart ones are made of
import dslc.ir.fold as fold  # noqa: E402
