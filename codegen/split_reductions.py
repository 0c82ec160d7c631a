"""Reductions that are worth a part of their own: those that several elements share, and long ones over few elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from typing import Concatenate, ParamSpec

from dslc.codegen.arithmetic import ceiling, plus, times
from dslc.codegen.functions import computed
from dslc.codegen.group import Part, Parts
from dslc.ir.dtype import DType
from dslc.ir.element import element_type
from dslc.ir.graph import Scope, Value, Values, product, scope_value
from dslc.ir.scalar import (
    Iter,
    Num,
    Read,
    Reduce,
    Scalar,
    apply,
    iterator,
    num,
    read,
    rebuild,
    reduce,
    replaced,
)
from dslc.ir.scopes import substitute
from dslc.records import record

P = ParamSpec("P")


def by_part(change: Callable[Concatenate[Part, Values, P], list[Part]]) -> Callable[Concatenate[Parts, P], Parts]:
    """Make a pass over a group's parts of a change of one: from it and its arguments to parts, of which the last is in its place."""

    def whole(parts: Parts, /, *args: P.args, **options: P.kwargs) -> Parts:
        new: dict[Value, Value] = {}
        out: list[Part] = []
        for part in parts.parts:
            out += change(part, tuple(new.get(arg, arg) for arg in part.args), *args, **options)
            new[part.value] = out[-1].value
        return Parts(parts.inputs, tuple(out), tuple(new.get(value, value) for value in parts.outputs))

    whole.__doc__ = change.__doc__
    return whole


@record
class Cutting:
    """Thresholds for a reduction in two steps: from `long` elements on, for at most `few` results, in `pieces`."""

    pieces: int = 64
    long: int = 1 << 16
    few: int = 8
    #: which parts it is about, and then only where all pieces are alike; None: all of them
    only: Callable[[Part], bool] | None = None


@by_part
def separated(part: Part, args: Values, cutting: Cutting | None = None) -> list[Part]:
    """The same with shared reductions as parts, and long ones in two steps, of which the first has many tasks.

    `{[i, j] A[i, j] / sum[r] A[i, r]}` becomes `S = {[i] sum[r] A[i, r]}` and `{[i, j] A[i, j] / S[i]}`; `{[] sum[r: N] A[r]}`
    becomes `P = {[b: 64] sum[r: N // 64] A[...]}` and `{[] sum[b: 64] P[b]}`.
    """
    found = _Taken(part.scope, args, cutting or Cutting())
    found.shared()
    found.long()
    return [*found.parts, found.whole()]


class _Taken:
    """One part, and what is taken out of it."""

    def __init__(self, scope: Scope, args: Values, cutting: Cutting) -> None:
        self.cutting = cutting
        self.scope, self.args, self.body = scope, args, scope.body
        self.parts: list[Part] = []

    @property
    def dtypes(self) -> tuple[DType, ...]:
        return tuple(arg.type.dtype for arg in self.args)

    def whole(self) -> Part:
        scope = replace(self.scope, body=self.body)
        return part_of(scope, self.args)

    def shared(self) -> None:
        """Takes out reductions that are the same for several elements."""
        loops = {it for it, extent in self.scope.ranges if extent != 1}
        for node in list(outermost(self.body)):
            used = [it for it in self.scope.iters if it in node.free]
            if not loops <= set(used):
                self._take(node, used)

    def _take(self, node: Reduce, used: list[Iter]) -> None:
        extents = dict(self.scope.ranges)
        own: dict[Iter, Scalar] = {it: iterator(f"i{k}") for k, it in enumerate(used)}
        scope = Scope(tuple(extents[it] for it in used), substitute(node, own), self._type(node))
        taken = part_of(scope, self.args)
        self.parts.append(taken)
        self._put(node, read(len(self.args), tuple(used)), taken.value)

    def long(self) -> None:
        """Long reductions of a part with few elements in pieces."""
        cutting, count = self.cutting, product(self.scope.extents)
        if not isinstance(count, int) or count > cutting.few:
            return
        if cutting.only is not None and not cutting.only(self.whole()):
            return
        for node in list(outermost(self.body)):
            sizes = [extent.value if isinstance(extent, Num) else None for extent in node.extents]
            known = [size for size in sizes if isinstance(size, int)]
            if len(known) == len(sizes) and prod(known) < cutting.long:
                continue
            # an extent may use the iterators before it: only one on which none depends, and that depends on none, is cut
            used = {it for extent in node.extents for it in extent.free}
            free = [k for k, extent in enumerate(node.extents) if not extent.free and node.iters[k] not in used]
            lengths = [one if isinstance(one, int) else cutting.long for one in sizes]
            longest = max(free, key=lengths.__getitem__, default=None)
            if longest is None:
                continue
            whole = sizes[longest]
            if isinstance(whole, int) and whole < 4 * cutting.pieces:
                continue
            if cutting.only is None:
                self._cut(node, longest)
            elif isinstance(whole, int) and whole % cutting.pieces == 0:
                self._cut(node, longest, whole // cutting.pieces)

    def _cut(self, node: Reduce, at: int, even: int = 0) -> None:
        """Leave pieces of a long reduction to a part of its own, along one of its iterators.

        `even`: pieces of so many terms each, the outermost loop of the part; else its innermost one, and its last piece is
        shorter.
        """
        pieces, own, extent, it = self.cutting.pieces, self.scope.iters, node.extents[at], node.iters[at]
        size = num(even) if even else ceiling(extent, pieces)
        first = times(iterator("i0" if even else f"i{len(own)}"), size)
        rest = size if even else apply("max", num(0), apply("min", size, plus(extent, times(-1, first))))
        moved: dict[Scalar, Scalar] = {it: plus(first, it)}
        if even:
            moved |= {each: iterator(f"i{k + 1}") for k, each in enumerate(own)}
        where = rebuild(node.where, moved.get) if node.where else None
        extents = (*node.extents[:at], rest, *node.extents[at + 1 :])
        partial = substitute(reduce(node.kind, node.iters, extents, rebuild(node.body, moved.get), where), {})
        inner = iterator("pieces")
        loops, index = ((*self.scope.extents, pieces), (*own, inner))
        if even:
            loops, index = ((pieces, *self.scope.extents), (inner, *own))
        taken = part_of(Scope(loops, partial, self._type(node)), self.args, alone=not even)
        self.parts.append(taken)
        whole = reduce(node.kind, (inner,), (num(pieces),), read(len(self.args), index))
        self._put(node, whole, taken.value)

    def _put(self, node: Scalar, new: Scalar, value: Value) -> None:
        self.body = substitute(replaced(self.body, node, new), {})
        self.args = (*self.args, value)

    def _type(self, node: Reduce) -> DType:
        """The type in which a reduction is kept: that in which it is computed."""
        if node.kind in {"any", "all"}:
            return DType.BOOL
        found = element_type(node.body, self.dtypes)
        if found is None:
            return DType.I64 if self.scope.dtype.is_integer else DType.F64
        return computed(found)


def part_of(scope: Scope, args: Values, alone: bool = False) -> Part:
    """A part that reads each argument under one number, and none that it does not read."""
    order: dict[Value, int] = {}

    def on_read(node: Read, index: tuple[Scalar, ...], other: Scalar | None, depth: int) -> Scalar:
        return read(order.setdefault(args[node.operand], len(order)), index, other)

    numbered = replace(scope, body=substitute(scope.body, {}, 0, on_read))
    value = scope_value(numbered, tuple(order))
    return Part(value, numbered, tuple(order), alone)


def outermost(body: Scalar) -> Iterator[Reduce]:
    """Reductions inside no other one and under no condition: what is computed anyway may be computed before."""
    stack, seen = [body], set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Reduce):
            if node.reads:
                yield node
        elif node.op == "select":
            stack.append(node.args[0])
        elif not isinstance(node, Read):
            stack.extend(node.children)


def factors_of(node: Scalar) -> tuple[Scalar, ...]:
    """Return the factors of a reduction's body, or of another expression; none where it is no product."""
    body = node.body if isinstance(node, Reduce) else node
    return body.args if body.op == "*" else ()
