"""The algebra of scopes: what derivations, kernels and proofs do to expressions, each once.

A program over tensors is a graph of scopes. Every function here takes a value that a scope computes and gives an equal one in
another form, or one that a docstring describes. Bound iterators are always named by how many surround them (`r0` outermost), so
that nothing is captured when an expression moves below other reductions, and equal expressions are one object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from dslc.ir.dtype import Dim, DType
from dslc.ir.element import scalar_dtype
from dslc.ir.graph import Scope, ScopeNode, Value, scope_value
from dslc.ir.scalar import (
    Iter,
    Num,
    Read,
    Reduce,
    Scalar,
    apply,
    as_scalar,
    bound,
    iterator,
    num,
    read,
    reduce,
    traversal,
    with_children,
)

#: what a read becomes: its node, its index and the value outside as they are by now, and the number of reductions around it
OnRead = Callable[[Read, tuple[Scalar, ...], Scalar | None, int], Scalar]


def renumbered(number: Callable[[int], int]) -> OnRead:
    """Reads of operands by other numbers."""
    return lambda node, index, other, depth: read(number(node.operand), index, other)


def substitute(
    root: Scalar, values: Mapping[Iter, Scalar], depth: int = 0, on_read: OnRead | None = None, units: bool = True
) -> Scalar:
    """An expression with others in the place of its free iterators, below `depth` iterators of reductions.

    `sum[r0: K] A[i0, r0]` with `i0 -> B[r0]` at depth 1 → `sum[r1: K] A[B[r0], r1]`: nothing is captured. Without `units`, the
    iterators of reductions that have one position go.
    """
    if not values and depth == 0 and on_read is None and not root.binds:
        return root
    return _Moved(dict(values), depth, on_read, units).go(root)


class _Moved:
    """One expression on its way: what its iterators stand for by now, and how many surround it.

    `split`: the iterator of a reduction that becomes two, with the extents of both.
    """

    __slots__ = ("depth", "memo", "on_read", "split", "units", "values")

    def __init__(
        self,
        values: dict[Iter, Scalar],
        depth: int,
        on_read: OnRead | None,
        units: bool,
        split: tuple[Iter, Scalar, Scalar] | None = None,
    ) -> None:
        self.values, self.depth, self.on_read, self.units, self.split = values, depth, on_read, units, split
        self.memo: dict[Scalar, Scalar] = {}

    def inside(self) -> _Moved:
        return _Moved(dict(self.values), self.depth, self.on_read, self.units, self.split)

    def go(self, node: Scalar) -> Scalar:
        if not node.binds and (self.on_read is None or not node.reads) and self.values.keys().isdisjoint(node.free):
            return node
        found = self.memo.get(node)
        if not found:
            found = self.memo[node] = self._fresh(node)
        return found

    def _fresh(self, node: Scalar) -> Scalar:
        if isinstance(node, Iter):
            return self.values.get(node, node)
        if isinstance(node, Reduce):
            return self._reduce(node)
        if isinstance(node, Read) and self.on_read:
            other = self.go(node.other) if node.other else None
            return self.on_read(node, tuple([self.go(part) for part in node.index]), other, self.depth)
        return with_children(node, [self.go(part) for part in node.children])

    def _reduce(self, node: Reduce) -> Scalar:
        inner = self.inside()
        iters: list[Iter] = []
        extents: list[Scalar] = []
        for it, extent in node.ranges:
            # an extent may use the iterators before it
            size = extent if isinstance(extent, Num) else inner.inside().go(extent)
            if self.split is not None and self.split[0] is it:
                outer, within = bound(inner.depth), bound(inner.depth + 1)
                inner.values[it] = apply("+", apply("*", outer, self.split[2]), within)
                inner.depth += 2
                iters += (outer, within)
                extents += self.split[1:]
                continue
            if not self.units and size is num(1):
                inner.values[it] = num(0)
                continue
            name = bound(inner.depth)
            if name is not it:
                inner.values[it] = name
            else:
                inner.values.pop(it, None)
            extents.append(size)
            iters.append(name)
            inner.depth += 1
        where = inner.go(node.where) if node.where else None
        return reduce(node.kind, tuple(iters), tuple(extents), inner.go(node.body), where)


# ---- values of scopes ------------------------------------------------------------------------------------------------


def scope_of(value: Value) -> Scope:
    """The scope that computes a value. Raises TypeError where another kind of node does."""
    if not isinstance(value.node, ScopeNode):
        raise TypeError(f"{type(value.node).__name__} is no scope")
    return value.node.scope


def renumber(value: Value) -> Value:
    """The same expression with its operands numbered as they are first read, each once, and none that is not read.

    `{[i0: N] $2[i0] + $0[i0]}(A, B, C)` → `{[i0: N] $0[i0] + $1[i0]}(C, A)`.
    """
    scope, args = scope_of(value), value.node.args
    return _closed(scope, scope.extents, scope.groups, scope.body, args)


def _closed(
    scope: Scope,
    extents: Sequence[Dim],
    groups: Sequence[int] | None,
    body: Scalar,
    args: Sequence[Value],
    values: Mapping[Iter, Scalar] | None = None,
    split: tuple[Iter, Scalar, Scalar] | None = None,
) -> Value:
    """A scope over `args`, of which the body reads some, perhaps one under several numbers; `values` of its iterators are put in."""
    order: dict[Value, int] = {}
    on_read = renumbered(lambda k: order.setdefault(args[k], len(order)))
    numbered = _Moved(dict(values or {}), 0, on_read, True, split).go(body)
    merged = None if groups is None or all(count == 1 for count in groups) else tuple(groups)
    return scope_value(Scope(tuple(extents), numbered, scope.dtype, merged), tuple(order))


def inline(value: Value, operand: int) -> Value:
    """The scope that computes an operand is put in the place of each read of it.

    `{[i] f(A[g(i)])}` over `A = {[j] h(j)}` → `{[i] f(h(g(i)))}`. (EinNet §4.1, traversal merging; §4.2, expression fusion.)

    Raises:
        TypeError: the operand is computed by no scope.
    """
    scope, args = scope_of(value), value.node.args
    producer, below = scope_of(args[operand]), args[operand].node.args
    shape = args[operand].type.shape
    order: dict[Value, int] = {}
    below_it = renumbered(lambda k: order.setdefault(below[k], len(order)))

    def on_read(node: Read, index: tuple[Scalar, ...], other: Scalar | None, depth: int) -> Scalar:
        if node.operand != operand:
            return read(order.setdefault(args[node.operand], len(order)), index, other)
        element = substitute(producer.body, positions(producer, index), depth, below_it)
        element = converted(element, producer.dtype, tuple([arg.type.dtype for arg in order]))
        return apply("select", inside(index, shape), element, other) if other else element

    body = substitute(scope.body, {}, 0, on_read)
    if len({node.operand for node in each_of(Read, body)}) < len(order):
        # an index or a value outside that is needed no more
        return _closed(scope, scope.extents, scope.groups, body, tuple(order))
    return scope_value(Scope(scope.extents, body, scope.dtype, scope.groups), tuple(order))


def converted(element: Scalar, to: DType, operands: tuple[DType, ...]) -> Scalar:
    """An element of a scope's type as a part of another expression: what a scope stores has the scope's type."""
    if scalar_dtype(element, operands) is to:
        return element
    if isinstance(element, Num) and to.is_float and not isinstance(element.value, bool):
        return element
    return apply(f"convert:{to}", element)


def inside(index: Sequence[Scalar], shape: Sequence[Dim], sized: Callable[[Dim], Scalar] = as_scalar) -> Scalar:
    """Return whether a position lies within a shape; `sized` says what a size is where it is known by another expression."""
    held: Scalar = num(True)
    for at, size in zip(index, shape, strict=True):
        for condition in (apply("<=", num(0), at), apply("<", at, sized(size))):
            held = apply("and", held, condition)
    return held


def positions(scope: Scope, index: Sequence[Scalar], sized: Callable[[Dim], Scalar] = as_scalar) -> dict[Iter, Scalar]:
    """Values of a scope's iterators at a position of its result: parts of merged dimensions are taken out of it.

    `sized` says what a size is where it is known by another expression.
    """
    sizes = [sized(extent) for extent in scope.extents]
    out: dict[Iter, Scalar] = {}
    for axis, rest in zip(scope.dimensions, index, strict=True):
        for k in reversed(axis):
            if sizes[k] is num(1):
                out[traversal(k)] = num(0)
            elif all(sizes[j] is num(1) for j in range(axis.start, k)):
                out[traversal(k)] = rest
            else:
                out[traversal(k)] = apply("%", rest, sizes[k])
                rest = apply("//", rest, sizes[k])
    return out


def split_iterator(value: Value, which: Iter, factor: Dim) -> Value:
    """An iterator becomes two: one over blocks of `factor` positions, and one over the positions of a block.

    `{[i0: 6] f(i0)}` by 2 → `{[(i0: 3, i1: 2)] f(i0 * 2 + i1)}`, a merged dimension of the same size; and
    `sum[r0: 6] f(r0)` → `sum[r0: 3, r1: 2] f(r0 * 2 + r1)`.

    Raises:
        ValueError: the factor does not divide the extent, or no such iterator is there.
    """
    scope, args = scope_of(value), value.node.args
    if which in scope.iters:
        at = scope.iters.index(which)
        blocks = _quotient(scope.extents[at], factor)
        extents = (*scope.extents[:at], blocks, factor, *scope.extents[at + 1 :])
        values: dict[Iter, Scalar] = {it: traversal(k + (k > at)) for k, it in enumerate(scope.iters)}
        values[which] = apply("+", apply("*", traversal(at), as_scalar(factor)), traversal(at + 1))
        groups = [len(axis) + (at in axis) for axis in scope.dimensions]
        return _closed(scope, extents, groups, scope.body, args, values)
    found = [node for node in each_of(Reduce, scope.body) if which in node.iters]
    if len(found) != 1:
        raise ValueError(f"{len(found)} reductions bind {which}")
    extent = found[0].extents[found[0].iters.index(which)]
    split = (which, as_scalar(_quotient(extent, factor)), as_scalar(factor))
    return _closed(scope, scope.extents, scope.groups, scope.body, args, {}, split)


N = TypeVar("N", Read, Reduce)


def each_of(kind: type[N], root: Scalar) -> Iterator[N]:
    """Every read or every reduction of an expression; what has none is not looked at."""
    seen: set[Scalar] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node not in seen and (node.reads if kind is Read else node.binds):
            seen.add(node)
            if isinstance(node, kind):
                yield node
            stack.extend(node.children)


def _quotient(extent: Dim, factor: Dim) -> Dim:
    """The number of blocks. Raises ValueError where blocks of that size do not fill the extent."""
    whole = apply("//", as_scalar(extent), as_scalar(factor))
    if apply("*", whole, as_scalar(factor)) is not as_scalar(extent):
        raise ValueError(f"{factor} does not divide {extent}")
    return int(whole.value) if isinstance(whole, Num) and isinstance(whole.value, int) else whole


def _at_position(scope: Scope, axis: range, position: Scalar) -> dict[Iter, Scalar]:
    """Values of the iterators of one dimension at a position along it."""
    part = Scope(tuple(scope.extents[k] for k in axis), num(0), scope.dtype, (len(axis),))
    at = positions(part, [position])
    return {traversal(k): at[traversal(n)] for n, k in enumerate(axis)}


def restrict(value: Value, boxes: Mapping[int, tuple[Dim, Dim]]) -> Value:
    """A box of the result: for some axes a first position and an extent.

    EinNet §4.1; boundary tightening reads it backwards.

    `{[i0: N] f(i0)}` with `{0: (a, m)}` → `{[i0: m] f(i0 + a)}`. A merged dimension that is cut is one iterator afterwards.
    """
    scope = scope_of(value)
    extents: list[Dim] = []
    counts: list[int] = []
    values: dict[Iter, Scalar] = {}
    for number, axis in enumerate(scope.dimensions):
        if number in boxes:
            first, extent = boxes[number]
            values |= _at_position(scope, axis, apply("+", traversal(len(extents)), as_scalar(first)))
            extents.append(extent)
            counts.append(1)
        else:
            values.update((traversal(k), traversal(n)) for n, k in enumerate(axis, len(extents)))
            extents.extend(scope.extents[k] for k in axis)
            counts.append(len(axis))
    return _closed(scope, extents, counts, scope.body, value.node.args, values)


def stack(values: Sequence[Value]) -> Value:
    """Results of one type, one after the other on a new first axis (EinNet §4.2, expression batching).

    `{[i0: N] f(i0)}`, `{[i0: N] g(i0)}` → `{[i0: 2, i1: N] f(i1) if i0 == 0 else g(i1)}`.

    Raises:
        ValueError: the scopes differ in their extents or types.
    """
    scopes = [scope_of(value) for value in values]
    head = scopes[0]
    if any((each.extents, each.groups, each.dtype) != (head.extents, head.groups, head.dtype) for each in scopes):
        raise ValueError("scopes of several types cannot be stacked")
    moved: dict[Iter, Scalar] = {it: traversal(k + 1) for k, it in enumerate(head.iters)}
    args: list[Value] = []
    bodies: list[Scalar] = []
    for value, scope in zip(values, scopes, strict=True):
        bodies.append(substitute(scope.body, moved, 0, renumbered(len(args).__add__)))
        args.extend(value.node.args)
    types = tuple(arg.type.dtype for arg in args)
    bodies = [converted(body, head.dtype, types) for body in bodies]
    body = bodies[-1]
    for k in reversed(range(len(bodies) - 1)):
        body = apply("select", apply("==", iterator("i0"), num(k)), bodies[k], body)
    groups = None if head.groups is None else (1, *head.groups)
    return _closed(head, (len(values), *head.extents), groups, body, args)
