"""Views of an e-graph for rules: the matcher's `Index`, in which a value has as many producers as its class has e-nodes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cached_property
from math import inf

from dslc.deadline import FOREVER, Deadline
from dslc.egraph.deltas import EGraphDelta
from dslc.egraph.graph import EGraph
from dslc.ir.constants import number_of
from dslc.ir.graph import Call, Node, Value, Values
from dslc.ir.scalar import Number
from dslc.match.index import Earlier, Fitting, IndexMemory
from dslc.match.prefilter import SitePrefilter
from dslc.match.rule import CompiledRule

ASK = 1 << 10  #: calls that are looked at between two looks at the clock
BEFORE = 12  #: views before one that are asked for what they found
KEPT = 1 << 17  #: answers about values and calls by themselves; with more, all are forgotten


class OutOfTime(Exception):
    """Matching took longer than it may."""


class TooFar(Exception):
    """Matching looked at more than it may."""


class View:
    """An e-graph as it is now. What it was asked is kept, so that all rules, and all clones made here, share the answers.

    It is of no use once the e-graph has changed.
    """

    def __init__(self, egraph: EGraph, only: frozenset[Node] | None = None, before: View | None = None) -> None:
        """`only`: beside weights, just these e-nodes are seen. Where they are a program, matches are those of a graph.

        `before` is a view of what the e-graph was cloned from, at any distance: what did not change since is not asked again. Where one
        of both sees everything and the other does not, that is what is known of values and calls by themselves.
        """
        self.egraph = egraph
        self._only = only
        self.memory: IndexMemory = _carried(before.memory) if before else IndexMemory()
        #: views of everything of what the e-graph was cloned from, the nearest first
        self._before: tuple[View, ...] = ()
        self._since: dict[View, EGraphDelta] = {}
        if before and (only is None) == (before._only is None):
            self._before = (before, *before._before)[:BEFORE]
            self.memory.earlier = self._earlier
        self.until = FOREVER
        self._asked = 0
        self._most = inf
        self._results: dict[Node, Values] = {}
        self._reached: dict[Node, int] = {}

    # ---- calls -------------------------------------------------------------------------------------------------

    @cached_property
    def calls(self) -> list[Call]:
        only = self._only
        calls = [node for node in self.egraph.memo if isinstance(node, Call)]
        return calls if only is None else [node for node in calls if node in only or node.constant]

    def __contains__(self, node: object) -> bool:
        """Return whether a node is in the e-graph, and among those that are seen."""
        return node in self.egraph.memo and (self._only is None or node in self._only or node.constant)

    def _members(self, number: int) -> tuple[Node, ...]:
        members = self.egraph.members[number]
        return members if self._only is None else tuple([node for node in members if node in self])

    @cached_property
    def by_operator(self) -> dict[str, list[Call]]:
        out: dict[str, list[Call]] = {}
        for node in self.calls:
            out.setdefault(node.op, []).append(node)
        return out

    # ---- what was found before ---------------------------------------------------------------------------------

    def since(self, before: View) -> EGraphDelta:
        """Return the difference to the e-graph of another view."""
        found = self._since.get(before)
        if not found:
            seen = None if before._only is None or self._only is None else (before._only, self._only)
            found = self._since[before] = EGraphDelta(before.egraph, self.egraph, seen)
        return found

    def _earlier(self, prefilter: SitePrefilter) -> Earlier | None:
        """Return the calls that a prefilter let through in the nearest view before that was asked."""
        for before in self._before:
            found = before.memory.fitting.get(prefilter)
            if found:
                return Earlier(
                    found,
                    self.since(before).unknown(prefilter),
                    self.egraph.memo if self._only is None else self,
                )
        return None

    def settle(self) -> None:
        """Takes over what views before this one know, so that they may go."""
        for before in self._before:
            for prefilter in [*before.memory.fitting]:
                prefilter.fitting(self)
        self._before, self.memory.earlier = (), None
        self._since.clear()

    @cached_property
    def position(self) -> dict[Node, int]:
        """Classes in the order of their numbers, then e-nodes in the order in which they came."""
        egraph = self.egraph
        out: dict[Node, int] = {}
        for number in egraph.members:
            out[egraph.value(number).node] = len(out)
        for node in egraph.memo:
            if node.args:
                out[node] = len(out)
        return out

    @cached_property
    def rank(self) -> Mapping[Node, int]:
        """E-nodes by the numbers of their first results, which they keep."""
        return {node: entry.outs[0] for node, entry in self.egraph.memo.items()}

    @contextmanager
    def limited(self, until: Deadline, asked: float) -> Iterator[None]:
        """While it lasts, matching ends at a moment (OutOfTime), or when so much was looked at (TooFar), which no clock decides."""
        self.until, self._most = until, self._asked + asked
        try:
            yield
        finally:
            self.until, self._most = FOREVER, inf

    def _ask(self) -> None:
        """Counts one look. Raises TooFar or OutOfTime where matching has to end."""
        self._asked += 1
        if self._asked > self._most:
            raise TooFar
        if self._asked % ASK == 0 and self.until.over:
            raise OutOfTime

    def nodes(self, value: Value) -> tuple[Node, ...]:
        self._ask()
        number = self.egraph.class_of(value)
        return () if number is None else self._members(number)

    def results(self, node: Call) -> Values:
        self._ask()
        found = self._results.get(node)
        if found is None:
            entry = self.egraph.memo.get(node)
            found = self._results[node] = node.values if entry is None else self.egraph.values_of(entry.outs)
        return found

    def users(self, value: Value) -> list[Call]:
        number = self.egraph.class_of(value)
        return (
            []
            if number is None
            else [node for node in self.egraph.users[number] if isinstance(node, Call) and node in self]
        )

    def number(self, value: Value) -> Number | None:
        return number_of(value)

    # ---- what depends on what ----------------------------------------------------------------------------------

    @cached_property
    def _kids(self) -> dict[int, tuple[int, ...]]:
        egraph = self.egraph
        return {
            number: tuple(dict.fromkeys([kid for node in self._members(number) for kid in egraph.memo[node].kids]))
            for number in egraph.members
        }

    @cached_property
    def _components(self) -> list[list[int]]:
        return components(self._kids)

    @cached_property
    def _below(self) -> dict[int, int]:
        """For every class all that can be reached from it, itself included, as bits by `position`."""
        position, egraph, kids, out = self.position, self.egraph, self._kids, dict[int, int]()
        for members in self._components:
            places = [position[egraph.values[number].node] for number in members]
            places += [position[node] for number in members for node in egraph.members[number] if node.args]
            row = bytearray((max(places) >> 3) + 1)
            for place in places:
                row[place >> 3] |= 1 << (place & 7)
            bits = int.from_bytes(row, "little")
            for number in members:
                for kid in kids[number]:
                    bits |= out.get(kid, 0)
            for number in members:
                out[number] = bits
        return out

    def below(self, values: Iterable[Value]) -> int:
        egraph, reached = self.egraph, self._reached
        bits = 0
        stack = list(values)
        while stack:
            value = stack.pop()
            known = reached.get(value.node)
            if known is not None:
                bits |= known
                continue
            number = egraph.class_of(value)
            if number is not None:
                bits |= reached.setdefault(value.node, self._below[number])
            elif (entry := egraph.memo.get(value.node)) is not None:
                bits |= self._below[egraph.find(entry.outs[value.index])]
            else:
                # joined operands of a longer call, which no class holds
                stack += value.node.args
        return bits

    def needing(self, marks: Mapping[Value, int]) -> Mapping[Node, int]:
        egraph = self.egraph
        own: dict[int, int] = {}
        for value, bits in marks.items():
            number = egraph.class_of(value)
            if number is not None:
                own[number] = own.get(number, 0) | bits
        out: dict[Node, int] = {}
        for members in reversed(self._components):
            bits = 0
            for number in members:
                bits |= own.get(number, 0)
            if not bits:
                continue
            for number in members:
                own[number] = bits
                out[egraph.value(number).node] = bits
                for node in self._members(number):
                    if node.args:
                        out[node] = out.get(node, 0) | bits
                for kid in self._kids[number]:
                    own[kid] = own.get(kid, 0) | bits
        return out

    def depends(self, values: Iterable[Value], on: Iterable[Value]) -> bool:
        below = self.below(values)
        return any(below >> self.position[value.node] & 1 for value in on)

    # ---- chance ------------------------------------------------------------------------------------------------

    @contextmanager
    def _remembering(self, memory: IndexMemory) -> Iterator[None]:
        kept, self.memory = self.memory, memory
        try:
            yield
        finally:
            self.memory = kept

    def changed(self, calls: Mapping[Call, None]) -> AbstractContextManager[None]:
        """While it lasts, only matches are found of which a top is one of some calls."""
        return self._remembering(replace(self.memory, changed=calls, ways={}))

    def shuffled(self, rule: CompiledRule, rng: random.Random) -> AbstractContextManager[None]:
        """While it lasts, a rule's matches begin anywhere."""
        mixed = dict(self.memory.fitting)
        for top in rule.left.tops:
            prefilter = rule.prefilters[top]
            found = prefilter.fitting(self)
            mixed[prefilter] = Fitting(tuple(rng.sample(found.calls, len(found.calls))), found.members)
        return self._remembering(replace(self.memory, fitting=mixed, ways={}, few=True))


def _carried(before: IndexMemory) -> IndexMemory:
    """Keep answers about values and calls that depend on nothing else."""
    if (
        len(before.attributes) + len(before.known) + len(before.built) + len(before.signatures) + len(before.grouped)
        > KEPT
    ):
        return IndexMemory()
    return replace(before, fitting={}, within={}, ways={}, made={}, few=False, changed=None, earlier=None)


def components(kids: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """The strongly connected components of a graph, those below first (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    open_: list[int] = []
    inside: set[int] = set()
    out: list[list[int]] = []
    for root in kids:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        open_.append(root)
        inside.add(root)
        stack = [(root, iter(kids[root]))]
        while stack:
            at, rest = stack[-1]
            for kid in rest:
                if kid not in index:
                    index[kid] = low[kid] = len(index)
                    open_.append(kid)
                    inside.add(kid)
                    stack.append((kid, iter(kids[kid])))
                    break
                if kid in inside and index[kid] < low[at]:
                    low[at] = index[kid]
            else:
                stack.pop()
                if stack and low[at] < low[stack[-1][0]]:
                    low[stack[-1][0]] = low[at]
                if low[at] == index[at]:
                    found: list[int] = []
                    while True:
                        member = open_.pop()
                        inside.discard(member)
                        found.append(member)
                        if member == at:
                            break
                    out.append(found)
    return out
