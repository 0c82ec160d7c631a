"""Every read of a scope with what surrounds it: the iterators in scope, and the conditions under which it is evaluated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dslc.analysis.numeric import Interval, interval
from dslc.ir.graph import Input, Scope, ScopeNode, Value, nodes_of
from dslc.ir.scalar import Iter, Read, Reduce, Scalar, Table, apply, as_scalar, walk


def inputs_of(outputs: Iterable[Value]) -> list[Value]:
    """The tensors that programs are computed of."""
    return [node.values[0] for node in nodes_of(outputs) if isinstance(node, Input)]


def computed(outputs: Iterable[Value]) -> Iterator[Scalar]:
    """All expressions in the scopes of programs."""
    for node in nodes_of(outputs):
        if isinstance(node, ScopeNode):
            yield from walk(node.scope.body)


def reads_at_data(outputs: Iterable[Value]) -> bool:
    """Return whether somewhere is read at positions that are elements."""
    return any(index.reads for part in computed(outputs) if isinstance(part, Read) for index in part.index)


@dataclass(frozen=True)
class ReadLoop:
    """An iterator and its extent, which may use iterators further out."""

    iterator: Iter
    extent: Scalar
    kind: str


@dataclass(frozen=True)
class Access:
    """A read of an operand, or an element of a constant matrix, where it stands."""

    node: Read | Table
    loops: tuple[ReadLoop, ...]
    guards: tuple[Scalar, ...]


def output_loops(scope: Scope) -> tuple[ReadLoop, ...]:
    """The loops over the positions of the output."""
    return tuple(ReadLoop(i, as_scalar(e), "traversal") for i, e in scope.ranges)


def intervals(loops: tuple[ReadLoop, ...], region: Sequence[Interval] = ()) -> dict[Scalar, Interval] | None:
    """The ranges of iterators, the first of them in a region; None where one has no position."""
    at: dict[Scalar, Interval] = {}
    for k, loop in enumerate(loops):
        at[loop.iterator] = region[k] if k < len(region) else (0, interval(loop.extent, at)[1] - 1)
        if at[loop.iterator][1] < 0:
            return None
    return at


def accesses(scope: Scope) -> list[Access]:
    """All reads, outermost first; one that stands under several conditions occurs once for each."""
    walker = _Walker()
    walker.go(scope.body, output_loops(scope), ())
    return list(walker.found)


class _Walker:
    def __init__(self) -> None:
        self.found: dict[Access, None] = {}
        self._seen: set[tuple[Scalar, tuple[ReadLoop, ...], tuple[Scalar, ...]]] = set()

    def go(self, node: Scalar, loops: tuple[ReadLoop, ...], guards: tuple[Scalar, ...]) -> None:
        if (node, loops, guards) in self._seen:
            return
        self._seen.add((node, loops, guards))
        if isinstance(node, Read | Table):
            self.found[Access(node, loops, guards)] = None
            for child in node.children:
                self.go(child, loops, guards)
        elif isinstance(node, Reduce):
            for iterator, extent in node.ranges:
                self.go(extent, loops, guards)
                loops = (*loops, ReadLoop(iterator, extent, node.kind))
            if node.where:
                self.go(node.where, loops, guards)
                guards = (*guards, node.where)
            self.go(node.body, loops, guards)
        elif node.op == "select":
            condition, then, otherwise = node.args
            self.go(condition, loops, guards)
            self.go(then, loops, (*guards, condition))
            self.go(otherwise, loops, (*guards, apply("not", condition)))
        elif node.op in {"and", "or"}:
            # evaluated from the left: what follows stands under what went before
            for arg in node.args:
                self.go(arg, loops, guards)
                guards = (*guards, arg if node.op == "and" else apply("not", arg))
        else:
            for child in node.children:
                self.go(child, loops, guards)
