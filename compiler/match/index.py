"""Indexes of graphs and e-graphs for matching: calls by operator, producers and users of a value, order, dependences."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeAlias

from dslc.ir.constants import number_of
from dslc.ir.dtype import TensorType
from dslc.ir.graph import Call, Graph, Head, Node, Value, Values
from dslc.ir.scalar import Number
from dslc.records import record
from dslc.semantics.env import AttrSet

#: what guards and right sides can ask of a tensor: its type and whether it is constant; where it holds one number, that value itself
Kind: TypeAlias = tuple[TensorType | None, bool] | Value


@record
class Fitting:
    """The calls that a prefilter lets through, in the order of the index."""

    calls: tuple[Call, ...]
    members: frozenset[Call]


class Earlier(NamedTuple):
    """Calls that a prefilter let through in an earlier index, the calls of this one of which that says nothing, and its nodes."""

    fitting: Fitting
    unknown: Mapping[Call, None]
    there: Container[Node]


@dataclass(slots=True)
class IndexMemory:
    """Answers of an index to all rules. It belongs to the index and goes with it: a changed e-graph starts anew."""

    fitting: dict[Any, Fitting] = field(default_factory=dict)
    #: what a call looks like by itself, and the number of each look: calls of one differ in nothing but what produces their arguments
    signatures: dict[Call, int] = field(default_factory=dict)
    numbers: dict[object, int] = field(default_factory=dict)
    #: the signatures that a prefilter lets through as far as they say, and those that it does not
    verdicts: dict[object, dict[int, bool]] = field(default_factory=dict)
    within: dict[Call, set[Value]] = field(default_factory=dict)
    rests: dict[tuple[Head, tuple[str, ...]], AttrSet] = field(default_factory=dict)
    ways: dict[object, Any] = field(default_factory=dict)
    made: dict[Head, dict[Value, Values]] = field(default_factory=dict)
    attributes: dict[Call, dict[str, object]] = field(default_factory=dict)
    number: dict[Value, Number | None] = field(default_factory=dict)
    known: dict[Value, tuple[int, Kind]] = field(default_factory=dict)
    #: operands that were joined as those of a call: the operator with its attributes and number of operands, and the operands
    built: dict[tuple[object, ...], Value | None] = field(default_factory=dict)
    #: results of inverses in groups, with their attributes
    grouped: dict[tuple[object, ...], Sequence[tuple[Values, dict[str, Any]]]] = field(default_factory=dict)
    #: whether some matches are enough: parts are matched one after the other then, as joining them begins with all ways of each
    few: bool = False
    #: matches without a top among these calls are known: only the others are looked for
    changed: Mapping[Call, None] | None = None
    #: the calls that a prefilter let through in an earlier index; None where that is not known
    earlier: Callable[[Any], Earlier | None] | None = None


class Index(Protocol):
    """The matcher's only view of a graph.

    A value of a graph has one producer. A value of an e-graph stands for a class, and every call of that class is a producer: the
    matcher goes back to the next one where one leads nowhere. The arguments of a call are values that the index knows.
    """

    @property
    def by_operator(self) -> Mapping[str, Sequence[Call]]:
        """The calls of each operator, by `position`."""

    @property
    def calls(self) -> Sequence[Call]:
        """All calls, by `position`."""

    @property
    def position(self) -> Mapping[Node, int]:
        """An order of the nodes in which arguments stand first where no value has several producers; of values' nodes too."""

    @property
    def rank(self) -> Mapping[Node, int]:
        """Another such order, independent of the users of a node."""

    @property
    def memory(self) -> IndexMemory:
        """Kept as long as the answers stay what they are."""

    def nodes(self, value: Value) -> Sequence[Node]:
        """The nodes that produce a value: one in a graph, any number in an e-graph; always in the same order."""

    def results(self, node: Call) -> Values:
        """The values that a call produces, by position."""

    def users(self, value: Value) -> Sequence[Call]:
        """The calls that read a value, by `position`."""

    def number(self, value: Value) -> Number | None:
        """The number that a value holds everywhere, None for others."""

    def below(self, values: Iterable[Value]) -> int:
        """Return the nodes that values are computed from, their own included, as bits by `position`.

        Nodes outside of the index are seen through.
        """

    def needing(self, marks: Mapping[Value, int]) -> Mapping[Node, int]:
        """For every node the marks of all values that it is, or that are computed from it; marks are bits, the values of the index."""

    def depends(self, values: Iterable[Value], on: Iterable[Value]) -> bool:
        """Return whether one of `values` is one of `on` (values of the index), is computed with it or from it."""


class GraphIndex:
    """An index of one graph. Everything beyond the order of the nodes is computed when first asked for."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.order: list[Node] = graph.nodes()
        self.position: dict[Node, int] = {node: k for k, node in enumerate(self.order)}
        self.memory = IndexMemory()
        self._results: dict[Call, Values] = {}

    @cached_property
    def by_operator(self) -> dict[str, list[Call]]:
        out: dict[str, list[Call]] = {}
        for node in self.calls:
            out.setdefault(node.op, []).append(node)
        return out

    @cached_property
    def calls(self) -> list[Call]:
        return [node for node in self.order if isinstance(node, Call)]

    @cached_property
    def rank(self) -> dict[Node, int]:
        """By depth, then by the arguments' ranks.

        Branches that do the same with the same operands are in the same order, wherever in the graph they are read: what joins
        pairs of one branch joins the same pairs of the others.
        """
        depth: dict[Node, int] = {}
        # the first node of a level reads one of the level before
        levels: dict[int, list[Node]] = {}
        for node in self.order:
            depth[node] = 1 + max((depth[arg.node] for arg in node.args), default=-1)
            levels.setdefault(depth[node], []).append(node)
        first = {value.node: k for k, value in enumerate(self.graph.inputs)}
        out: dict[Node, int] = {}
        for level in levels.values():
            level.sort(key=lambda node: ([out[arg.node] for arg in node.args], first.get(node, len(first))))
            for node in level:
                out[node] = len(out)
        return out

    @cached_property
    def _users(self) -> dict[Value, list[Call]]:
        out: dict[Value, list[Call]] = {}
        for node in self.calls:
            for arg in dict.fromkeys(node.args):
                out.setdefault(arg, []).append(node)
        return out

    def nodes(self, value: Value) -> tuple[Node]:
        return (value.node,)

    def results(self, node: Call) -> Values:
        found = self._results.get(node)
        if found is None:
            found = self._results[node] = node.values
        return found

    def users(self, value: Value) -> Sequence[Call]:
        return self._users.get(value, ())

    def number(self, value: Value) -> Number | None:
        return number_of(value)

    @cached_property
    def _below(self) -> list[int]:
        """For every node the set of nodes that it depends on, itself included, as bits."""
        out: list[int] = []
        for k, node in enumerate(self.order):
            bits = 1 << k
            for arg in node.args:
                bits |= out[self.position[arg.node]]
            out.append(bits)
        return out

    def below(self, values: Iterable[Value]) -> int:
        position, below = self.position, self._below
        bits, seen = 0, set[Node]()
        todo = [value.node for value in values]
        while todo:
            node = todo.pop()
            at = position.get(node)
            if at is not None:
                bits |= below[at]
            elif node not in seen:
                seen.add(node)
                todo += [arg.node for arg in node.args]
        return bits

    def needing(self, marks: Mapping[Value, int]) -> Mapping[Node, int]:
        out: dict[Node, int] = {}
        for value, bits in marks.items():
            out[value.node] = out.get(value.node, 0) | bits
        for node in reversed(self.order):
            bits = out.get(node, 0)
            if bits:
                for arg in node.args:
                    out[arg.node] = out.get(arg.node, 0) | bits
        return out

    def depends(self, values: Iterable[Value], on: Iterable[Value]) -> bool:
        below = self.below(values)
        return any(below >> self.position[value.node] & 1 for value in on)


def in_order(calls: Iterable[Call], index: Index) -> list[Call]:
    """Without repetitions, by position."""
    return sorted(dict.fromkeys(calls), key=index.position.__getitem__)
