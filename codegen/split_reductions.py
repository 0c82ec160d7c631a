"""Reductions that are worth a part of their own: those that several elements share, and long ones over few elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dslc.codegen.group import Part, Parts
from dslc.ir.dtype import DType
from dslc.ir.element import element_type
from dslc.ir.graph import Scope, Value, product, scope_value
from dslc.ir.scalar import (
    Apply,
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
    walk,
)
from dslc.ir.scopes import substitute


@dataclass(frozen=True, slots=True)
class Cutting:
    """Thresholds for a reduction in two steps: from `long` elements on, for at most `few` results, in `pieces`."""

    pieces: int = 64
    long: int = 1 << 16
    few: int = 8
    #: which parts it is about, and then only where all pieces are alike; None: all of them
    only: Callable[[Part], bool] | None = None


def separated(parts: Parts, cutting: Cutting | None = None) -> Parts:
    """The same with shared reductions as parts, and long ones in two steps, of which the first has many tasks.

    `{[i, j] A[i, j] / sum[r] A[i, r]}` becomes `S = {[i] sum[r] A[i, r]}` and `{[i, j] A[i, j] / S[i]}`; `{[] sum[r: N] A[r]}`
    becomes `P = {[b: 64] sum[r: N // 64] A[...]}` and `{[] sum[b: 64] P[b]}`.
    """
    new: dict[Value, Value] = {}
    out: list[Part] = []
    for part in parts.parts:
        args = tuple(new.get(arg, arg) for arg in part.args)
        found = _Taken(part.scope, args, cutting or Cutting())
        found.shared()
        found.long()
        out.extend(found.parts)
        whole = found.whole()
        new[part.value] = whole.value
        out.append(whole)
    return Parts(parts.inputs, tuple(out), tuple(new.get(value, value) for value in parts.outputs))


class _Taken:
    """One part, and what is taken out of it."""

    def __init__(self, scope: Scope, args: tuple[Value, ...], cutting: Cutting) -> None:
        self.cutting = cutting
        self.scope, self.args, self.body = scope, args, scope.body
        self.parts: list[Part] = []

    @property
    def dtypes(self) -> tuple[DType, ...]:
        return tuple(arg.type.dtype for arg in self.args)

    def whole(self) -> Part:
        scope = Scope(self.scope.extents, self.body, self.scope.dtype, self.scope.groups)
        return part_of(scope, self.args)

    def shared(self) -> None:
        """Takes out reductions that are the same for several elements."""
        loops = {it for it, extent in zip(self.scope.iters, self.scope.extents, strict=True) if extent != 1}
        for node in list(outermost(self.body)):
            used = [it for it in self.scope.iters if it in node.free]
            if not loops <= set(used):
                self._take(node, used)

    def _take(self, node: Reduce, used: list[Iter]) -> None:
        extents = dict(zip(self.scope.iters, self.scope.extents, strict=True))
        own: dict[Iter, Scalar] = {it: iterator(f"i{k}") for k, it in enumerate(used)}
        scope = Scope(tuple(extents[it] for it in used), substitute(node, own), self._type(node))
        taken = part_of(scope, self.args)
        self.parts.append(taken)
        self._put(node, read(len(self.args), tuple(used)), taken.value)

    def long(self) -> None:
        """Long reductions of a part with few elements in pieces."""
        count = product(self.scope.extents)
        if not isinstance(count, int) or count > self.cutting.few:
            return
        if self.cutting.only is not None and not self.cutting.only(self.whole()):
            return
        for node in list(outermost(self.body)):
            sizes = [extent.value if isinstance(extent, Num) else None for extent in node.extents]
            known = [size for size in sizes if isinstance(size, int)]
            length = 1
            for size in known:
                length *= size
            if len(known) == len(sizes) and length < self.cutting.long:
                continue
            # an extent may use the iterators before it: only one on which none depends, and that depends on none, is cut
            used = {it for extent in node.extents for it in extent.free}
            free = [k for k, extent in enumerate(node.extents) if not extent.free and node.iters[k] not in used]
            lengths = [one if isinstance(one, int) else self.cutting.long for one in sizes]
            longest = max(free, key=lengths.__getitem__, default=None)
            if longest is None or (isinstance(sizes[longest], int) and sizes[longest] < 4 * self.cutting.pieces):  # type: ignore[operator]
                continue
            if self.cutting.only is None:
                self._cut(node, longest)
                continue
            whole = sizes[longest]
            if isinstance(whole, int) and whole % self.cutting.pieces == 0:
                self._cut_evenly(node, longest, whole // self.cutting.pieces)

    def _cut(self, node: Reduce, at: int) -> None:
        count = len(self.scope.extents)
        piece, extent = iterator(f"i{count}"), node.extents[at]
        size = apply("//", apply("+", extent, num(self.cutting.pieces - 1)), num(self.cutting.pieces))
        first = apply("*", piece, size)
        rest = apply("max", num(0), apply("min", size, apply("+", extent, apply("*", num(-1), first))))
        extents = (*node.extents[:at], rest, *node.extents[at + 1 :])
        it = node.iters[at]

        def moved(each: Scalar) -> Scalar | None:
            return apply("+", first, it) if each is it else None

        where = None if node.where is None else rebuild(node.where, moved)
        partial = reduce(node.kind, node.iters, extents, rebuild(node.body, moved), where)
        scope = Scope((*self.scope.extents, self.cutting.pieces), substitute(partial, {}), self._type(node))
        taken = part_of(scope, self.args, alone=True)
        self.parts.append(taken)
        inner = iterator("pieces")
        whole = reduce(
            node.kind, (inner,), (num(self.cutting.pieces),), read(len(self.args), (*self.scope.iters, inner))
        )
        self._put(node, whole, taken.value)

    def _cut_evenly(self, node: Reduce, at: int, size: int) -> None:
        """As `_cut`, in pieces of one size, which are the slowest dimension of what is kept."""
        own: dict[Scalar, Scalar] = {it: iterator(f"i{k + 1}") for k, it in enumerate(self.scope.iters)}
        it, first = node.iters[at], apply("*", iterator("i0"), num(size))
        moved: dict[Scalar, Scalar] = {it: apply("+", first, it), **own}
        extents = (*node.extents[:at], num(size), *node.extents[at + 1 :])
        where = None if node.where is None else rebuild(node.where, moved.get)
        partial = reduce(node.kind, node.iters, extents, rebuild(node.body, moved.get), where)
        scope = Scope((self.cutting.pieces, *self.scope.extents), substitute(partial, {}), self._type(node))
        taken = part_of(scope, self.args)
        self.parts.append(taken)
        inner = iterator("pieces")
        whole = reduce(
            node.kind, (inner,), (num(self.cutting.pieces),), read(len(self.args), (inner, *self.scope.iters))
        )
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
        return DType.F32 if found in {DType.F16, DType.BF16} else found


def part_of(scope: Scope, args: tuple[Value, ...], alone: bool = False) -> Part:
    """A part that reads each argument under one number, and none that it does not read."""
    order: dict[Value, int] = {}

    def on_read(node: Read, index: tuple[Scalar, ...], other: Scalar | None, depth: int) -> Scalar:
        return read(order.setdefault(args[node.operand], len(order)), index, other)

    numbered = Scope(scope.extents, substitute(scope.body, {}, 0, on_read), scope.dtype, scope.groups)
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
            if any(isinstance(each, Read) for each in walk(node)):
                yield node
        elif isinstance(node, Apply) and node.name == "select":
            stack.append(node.args[0])
        elif not isinstance(node, Read):
            stack.extend(node.children)
