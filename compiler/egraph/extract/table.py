"""Tables for extraction: classes, each with choices of a price of their own that read other classes.

A node with several results is a class by itself, its unit: each result's class has a choice that costs nothing and reads it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import NamedTuple, Protocol

from dslc.egraph.graph import EGraph
from dslc.ir.graph import Call, Node, Value
from dslc.records import record

KEPT = 1 << 17  #: nodes whose prices are remembered; with more, all are forgotten
SAME = 2e-9  #: share by which two costs differ that a solver cannot tell apart

#: what a node costs in seconds
Price = Callable[[Node], float]
#: what it costs in seconds that nodes like one read a weight, whatever their number
Weigh = Callable[[Value, Node], float]


class Choice(NamedTuple):
    """One way to have a class: what it is called, what it costs alone, and the classes that it reads (as often as it does)."""

    key: Hashable
    cost: float
    kids: tuple[int, ...]


class Choices(Protocol):
    """Classes by number, and their choices."""

    def choices(self, number: int) -> Sequence[Choice]:
        """The choices of a class, in a fixed order."""


class ChoiceTable(Choices, Protocol):
    """Classes that change, and their readers."""

    def uses(self, number: int) -> Sequence[tuple[int, Choice]]:
        """The choices that read a class, each with the class that it is a choice of."""

    def find(self, number: int) -> int:
        """The class that a number belongs to."""


@record
class Extraction:
    """A program: one choice for every class that its roots need. Nothing reads itself, and `cost` counts each class once.

    `estimate` is what the extractor took the program to cost, `bound` what no program is below.
    """

    cost: float
    choice: Mapping[int, Choice]
    estimate: float
    bound: float = 0.0

    @property
    def optimal(self) -> bool:
        return self.cost <= self.bound + SAME * abs(self.bound)


class Walked(NamedTuple):
    """A program's true cost, and the choice of each of its classes."""

    cost: float
    choice: dict[int, Choice]


def walk(
    chosen: Callable[[int], Choice | None],
    roots: Iterable[int],
    find: Callable[[int], int],
    below: float = float("inf"),
) -> Walked | None:
    """The program of some choices and its true cost. None where it reads itself, lacks a choice, or costs `below` or more."""
    state: dict[int, bool] = {}
    out: dict[int, Choice] = {}
    total = 0.0
    stack = [find(root) for root in roots]
    while stack:
        number = stack[-1]
        done = state.get(number)
        if done is None:
            choice = chosen(number)
            if choice is None:
                return None
            total += choice.cost
            if total >= below:
                return None
            out[number] = choice
            state[number] = False
            for kid in choice.kids:
                kid = find(kid)
                seen = state.get(kid)
                if seen is None:
                    stack.append(kid)
                elif not seen:
                    return None
        else:
            stack.pop()
            state[number] = True
    return Walked(total, out)


class EGraphTable:
    """The table of an e-graph at some prices. What depends on weights only is free, and read by nothing.

    With `weigh`, a weight is a class by itself for each kind of node that reads it, with a negative number.
    """

    def __init__(self, egraph: EGraph, price: Price, weigh: Weigh | None = None) -> None:
        self.egraph = egraph
        self.price = price
        self._weigh = weigh
        self.find = egraph.find
        self._known: dict[Node, Choice] = {}
        self._read: dict[tuple[int, object], int] = {}
        self._weights: list[float] = []

    def over(self, egraph: EGraph) -> EGraphTable:
        """The table of a clone; what nodes cost is asked once for both."""
        new = EGraphTable(egraph, self.price, self._weigh)
        if len(self._known) > KEPT:
            self._known.clear()
        new._known = self._known
        return new

    def choice(self, node: Node) -> Choice:
        """A node by itself."""
        found = self._known.get(node)
        if found is None:
            entry = self.egraph.memo[node]
            pairs = list(zip(entry.kids, node.args, strict=True))
            kids = tuple([kid for kid, arg in pairs if not arg.node.constant])
            if self._weigh is not None and not node.constant:
                read = [self._weight(kid, node) for kid, arg in pairs if arg.node.constant]
                kids += tuple([number for number in read if number])
            found = self._known[node] = Choice(node, self.price(node) if node.args else 0.0, kids)
        return found

    def choices(self, number: int) -> Sequence[Choice]:
        if number < 0:
            return (Choice(None, self._weights[~number], ()),)
        egraph = self.egraph
        members = egraph.members.get(number)
        if members is None:
            node = egraph.units.get(number)
            return (self.choice(node),) if node else ()
        if egraph.constant(number):
            return (Choice(None, 0.0, ()),)
        out: list[Choice] = []
        for node in members:
            unit = egraph.memo[node].unit
            out.append(self.choice(node) if unit < 0 else Choice(node, 0.0, (egraph.find(unit),)))
        return out

    def _weight(self, number: int, node: Node) -> int:
        """The class of a weight that such nodes read; 0 where that is free."""
        assert self._weigh is not None
        kind = node.op if isinstance(node, Call) else type(node)
        found = self._read.get((number, kind))
        if found is None:
            price = self._weigh(self.egraph.value(number), node)
            self._weights += [price] * (price > 0)
            found = self._read[number, kind] = -len(self._weights) if price > 0 else 0
        return found

    def uses(self, number: int) -> Sequence[tuple[int, Choice]]:
        egraph = self.egraph
        node = egraph.units.get(number)
        if node:
            choice = Choice(node, 0.0, (number,))
            return [(out, choice) for out in dict.fromkeys([egraph.find(out) for out in egraph.memo[node].outs])]
        entries = [(user, egraph.memo[user]) for user in egraph.users.get(number, ())]
        return [(egraph.find(one.outs[0] if one.unit < 0 else one.unit), self.choice(user)) for user, one in entries]


class ExtractionProblem:
    """A table as it is from some roots: what they reach and can be had, numbered so that the greedy program reads lower numbers only.

    Attributes:
        names: the number of each class in the table that this was made from.
        tree: the greedy choice of each class, and its cost as a tree (egg's).
    """

    def __init__(self, table: Choices, roots: Sequence[int]) -> None:
        wanted = _reached(table, roots)
        order, tree = cheapest(wanted)
        place = {number: k for k, number in enumerate(order)}
        rows: list[tuple[Choice, ...]] = []
        for number in order:
            own = place[number]
            row: list[Choice] = []
            for choice in wanted[number]:
                # what cannot be had counts as the class itself: neither makes a program
                kids = tuple([place.get(kid, own) for kid in choice.kids])
                if own not in kids:
                    row.append(choice._replace(kids=kids))
            rows.append(tuple(row))
        self.names: list[int] = order
        self.rows = rows
        #: those whose roots can be had; None where one cannot
        self.roots: tuple[int, ...] | None = None
        if all(root in place for root in roots):
            self.roots = tuple([place[root] for root in roots])
        self.tree: list[tuple[Choice, float]] = []
        for number in order:
            choice, cost = tree[number]
            self.tree.append((choice._replace(kids=tuple([place[kid] for kid in choice.kids])), cost))

    def __len__(self) -> int:
        return len(self.rows)

    def find(self, number: int) -> int:
        return number

    def choices(self, number: int) -> Sequence[Choice]:
        return self.rows[number]

    @cached_property
    def _uses(self) -> list[list[tuple[int, Choice]]]:
        """The choices that read each class, each with the class that it is a choice of."""
        uses: list[list[tuple[int, Choice]]] = [[] for _ in self.rows]
        for own, row in enumerate(self.rows):
            for choice in row:
                for kid in dict.fromkeys(choice.kids):
                    uses[kid].append((own, choice))
        return uses

    def uses(self, number: int) -> Sequence[tuple[int, Choice]]:
        return self._uses[number]

    def completed(self, program: Extraction) -> list[Choice]:
        """A choice for every class: that of a program, and the greedy one of what is not in it."""
        return [program.choice.get(number, choice) for number, (choice, _) in enumerate(self.tree)]

    def named(self, extraction: Extraction) -> Extraction:
        """An extraction by the numbers of the table that this was made from."""
        names = self.names
        choice = {
            names[number]: one._replace(kids=tuple([names[kid] for kid in one.kids]))
            for number, one in extraction.choice.items()
        }
        return Extraction(extraction.cost, choice, extraction.estimate, extraction.bound)


def _reached(table: Choices, roots: Sequence[int]) -> dict[int, list[Choice]]:
    out: dict[int, list[Choice]] = {}
    stack = list(roots)
    while stack:
        number = stack.pop()
        if number in out:
            continue
        row = out[number] = list(table.choices(number))
        for choice in row:
            stack += [kid for kid in choice.kids if kid not in out]
    return out


def cheapest(wanted: Mapping[int, Sequence[Choice]]) -> tuple[list[int], dict[int, tuple[Choice, float]]]:
    """The classes that can be had, and each one's cheapest tree (Knuth): what a tree reads comes before it in the order."""
    readers: dict[int, list[list[float]]] = {}
    serial = count()
    heap: list[tuple[float, int, int, Choice]] = []
    open_: list[tuple[int, Choice]] = []
    for number, row in wanted.items():
        for choice in row:
            if not choice.kids:
                heap.append((choice.cost, next(serial), number, choice))
                continue
            # how many kids are missing, what it costs so far, and where it is
            state = [float(len(choice.kids)), choice.cost, float(len(open_))]
            open_.append((number, choice))
            for kid in choice.kids:
                readers.setdefault(kid, []).append(state)
    heapq.heapify(heap)
    order: list[int] = []
    best: dict[int, tuple[Choice, float]] = {}
    while heap:
        cost, _, number, choice = heapq.heappop(heap)
        if number in best:
            continue
        best[number] = (choice, cost)
        order.append(number)
        for state in readers.pop(number, ()):
            state[0] -= 1
            state[1] += cost
            if not state[0]:
                above, reader = open_[int(state[2])]
                if above not in best:
                    heapq.heappush(heap, (state[1], next(serial), above, reader))
    return order, best
