"""What is left of a problem for integer programming: some cheapest program is made of it, and so is the one that was known before.

    a class with one node that only one class reads     is part of the nodes that read it
    a node of a class whose programs need all that another one reads, which costs no more      goes
    a node that reads what every way to its class leads through, or whose      goes: it could only close a circle
        every program needs its own class
    a node that with all it needs costs more than the program that is known     goes

What a class needs is what occurs in every program of it (in planning: its landmarks).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

from dslc.deadline import FOREVER, Deadline
from dslc.egraph.extract.table import Choice, Extraction, ExtractionProblem

COMPARED = 2_000_000  #: pairs of nodes of all classes that are compared with each other, in one round
ROUNDS = 6  #: rounds, as long as something goes
WIDE = 8  #: classes that a node reads at most which takes others into itself
BITS = 1 << 31  #: bits of what all classes need together, beyond which that is not looked at
LESS = 1e-9  #: share by which a node may be too dear and stays: rounding decides nothing


class Column(NamedTuple):
    """A node that may be chosen for a class: what it costs with what it took in, and the classes that it reads beside that."""

    cost: float
    kids: frozenset[int]
    choice: Choice


class Reduced:
    """Classes by number, and their columns; `base` is what any program pays for its necessary classes, and no column does."""

    def __init__(self, problem: ExtractionProblem, known: Extraction, until: Deadline = FOREVER) -> None:
        assert problem.roots is not None
        self.roots: tuple[int, ...] = tuple(dict.fromkeys(problem.roots))
        self.base = 0.0
        self._known = known
        self._place: dict[int, int] = {}
        self._needs: dict[int, int] | None = None
        #: classes that are part of what reads them, with their only choice
        self.inside: dict[int, Choice] = {}
        self._until = until
        self.rows: dict[int, list[Column]] = {
            number: [Column(choice.cost, frozenset(choice.kids), choice) for choice in row]
            for number, row in enumerate(problem.rows)
        }
        if self._late():
            return
        self._reach()
        for _ in range(ROUNDS):
            before = len(self)
            for part in (self._pay, self._enclose, self._above, self._need, self._compare, self._pay):
                if self._late():
                    return
                part()
                self._reach()
            if len(self) == before:
                break

    def __len__(self) -> int:
        """How many columns there are."""
        return sum(map(len, self.rows.values()))

    def _late(self) -> bool:
        return self._until.over

    def _reach(self) -> None:
        """What no root reaches goes."""
        rows, out = self.rows, dict[int, list[Column]]()
        stack = list(self.roots)
        while stack:
            number = stack.pop()
            if number in out:
                continue
            row = out[number] = rows[number]
            for column in row:
                stack += [kid for kid in column.kids if kid not in out]
        # in the order of numbers, in which the greedy program reads lower ones only
        self.rows = {number: out[number] for number in sorted(out)}

    def _keeps(self, number: int, column: Column) -> bool:
        return self._known.choice.get(number) == column.choice

    def _need(self) -> None:
        """What each column needs, where there is room and time to say; what needs itself goes."""
        self._place = {number: k for k, number in enumerate(self.rows)}
        self._needs = None
        if len(self.rows) ** 2 > BITS:
            return
        self._needs = needs = needed(
            {n: [c.kids for c in row] for n, row in self.rows.items()}, self._place, self._late
        )
        if needs is None:
            return
        for number, row in self.rows.items():
            own = 1 << self._place[number]
            kept = [c for c in row if all(kid in needs for kid in c.kids) and not own & _all(needs, c.kids)]
            if len(kept) < len(row):
                self.rows[number] = kept

    def _compare(self) -> None:
        left = COMPARED
        for number, row in self.rows.items():
            if len(row) < 2:
                continue
            left -= len(row) ** 2
            if left < 0 or self._late():
                return
            kept: list[Column] = []
            read: list[int] = []
            bits = [self._bits(column) for column in row]
            # whatever makes another one needless comes before it
            for k in sorted(range(len(row)), key=lambda k: (row[k].cost, bits[k][1].bit_count(), len(row[k].kids))):
                own, whole = bits[k]
                if self._keeps(number, row[k]) or not any(other & ~whole == 0 for other in read):
                    kept.append(row[k])
                    read.append(own)
            if len(kept) < len(row):
                self.rows[number] = kept

    def _bits(self, column: Column) -> tuple[int, int]:
        """What a column reads, and what it needs."""
        reads = 0
        for kid in column.kids:
            reads |= 1 << self._place[kid]
        return reads, reads if self._needs is None else _all(self._needs, column.kids)

    def _enclose(self) -> None:
        """Classes with one column, which is free and reads one class at most, or is read by one class only, become part of that."""
        rows = self.rows
        readers: dict[int, int] = {}
        for number, row in rows.items():
            for column in row:
                for kid in column.kids:
                    # -1 where there are several
                    readers[kid] = number if readers.get(kid, number) == number else -1
        roots = set(self.roots)
        single = {n: row[0] for n, row in rows.items() if len(row) == 1 and n not in roots and n not in row[0].kids}
        # those that several read have to stay free
        free = {n for n, one in single.items() if readers.get(n, 0) < 0 and not one.cost and len(one.kids) < 2}
        gone = {
            n: one
            for n, one in single.items()
            if n in free or (readers.get(n, -1) >= 0 and readers[n] not in free and len(one.kids) <= WIDE)
        }
        if not gone:
            return
        whole: dict[int, tuple[float, frozenset[int]]] = {}
        for number in _below(gone):
            whole[number] = _taken(gone[number], whole)
        for number, row in rows.items():
            if number not in whole:
                rows[number] = [self._with(column, whole) for column in row]
        for number in whole:
            self.inside[number] = rows.pop(number)[0].choice

    @staticmethod
    def _with(column: Column, whole: Mapping[int, tuple[float, frozenset[int]]]) -> Column:
        if whole.keys().isdisjoint(column.kids):
            return column
        cost, kids = _taken(column, whole)
        return Column(cost, kids, column.choice)

    def _above(self) -> None:
        """Columns that read what every way from the roots to their class leads through, or their class, go."""
        parent = dominators(
            {n: {kid for column in row for kid in column.kids} for n, row in self.rows.items()}, self.roots, self._late
        )
        if parent is None:
            return
        enter, leave = _intervals(parent)
        for number, row in self.rows.items():
            at, end = enter[number], leave[number]
            kept = [c for c in row if not any(enter[kid] <= at and end <= leave[kid] for kid in c.kids)]
            if len(kept) < len(row):
                self.rows[number] = kept

    def _pay(self) -> None:
        """What every program pays, and columns that are too dear beside that, with what leads to them and what they need."""
        rows, needs = self.rows, self._needs
        number_at = list(self._place)
        forced = set(self.roots)
        if needs is not None:
            for root in self.roots:
                forced.update(number_at[k] for k in _ones(needs[root]))
        least: dict[int, float] = {}
        for number, row in rows.items():
            low = min((column.cost for column in row), default=0.0)
            if number in forced and low > 0:
                self.base += low
                rows[number] = [column._replace(cost=column.cost - low) for column in row]
            elif low > 0:
                least[number] = low
        room = (self._known.cost - self.base) + LESS * self._known.cost
        least_of, above = _dearest(rows), _nearest(rows, self.roots)
        for number, row in rows.items():
            kept = []
            most = room - above[number]
            for column in row:
                dear = column.cost + max((least_of[kid] for kid in column.kids), default=0.0)
                if needs is not None and dear <= most and least:
                    dear = max(
                        dear, column.cost + sum(least.get(number_at[k], 0.0) for k in _ones(_all(needs, column.kids)))
                    )
                if dear <= most or self._keeps(number, column):
                    kept.append(column)
            if len(kept) < len(row):
                rows[number] = kept


def _all(needs: Mapping[int, int], kids: Iterable[int]) -> int:
    out = 0
    for kid in kids:
        out |= needs[kid]
    return out


def _ones(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        bits ^= low
        yield low.bit_length() - 1


def needed(
    rows: Mapping[int, Sequence[Collection[int]]], place: Mapping[int, int], late: Callable[[], bool] = lambda: False
) -> dict[int, int] | None:
    """For every class that can be had what all its programs need, itself included, as bits by place; None where time was up.

    A class has columns, of which each reads classes.
    """
    readers: dict[int, list[tuple[int, Collection[int]]]] = {}
    out: dict[int, int] = {}
    queue: deque[int] = deque()
    waiting: set[int] = set()
    for number, row in rows.items():
        for kids in row:
            for kid in kids:
                readers.setdefault(kid, []).append((number, kids))
            if not kids and number not in waiting:
                waiting.add(number)
                queue.append(number)
    looked = 0
    while queue:
        number = queue.popleft()
        waiting.discard(number)
        looked += 1
        if looked & 0xFF == 0 and late():
            return None
        found = -1
        for kids in rows[number]:
            needs = 0
            for kid in kids:
                below = out.get(kid)
                if below is None:
                    break
                needs |= below
            else:
                found &= needs
        found |= 1 << place[number]
        if out.get(number) == found:
            continue
        out[number] = found
        for above, _ in readers.get(number, ()):
            if above not in waiting:
                waiting.add(above)
                queue.append(above)
    return out


def _taken(column: Column, whole: Mapping[int, tuple[float, frozenset[int]]]) -> tuple[float, frozenset[int]]:
    """What a column costs and reads with those it takes in: each once, whatever reads it."""
    cost, kids = column.cost, set[int]()
    for kid in column.kids:
        found = whole.get(kid)
        if found is None:
            kids.add(kid)
        else:
            cost += found[0]
            kids |= found[1]
    return cost, frozenset(kids)


def _below(columns: Mapping[int, Column]) -> list[int]:
    """Some classes, those that others read before these; those that read themselves are left out."""
    out: list[int] = []
    state: dict[int, bool] = {}
    bad: set[int] = set()
    for root in columns:
        stack = [root]
        while stack:
            number = stack[-1]
            done = state.get(number)
            if done is None:
                state[number] = False
                for kid in columns[number].kids:
                    if kid in columns:
                        if kid not in state:
                            stack.append(kid)
                        elif not state[kid]:
                            bad.add(number)
            else:
                stack.pop()
                if not done:
                    state[number] = True
                    if number not in bad:
                        out.append(number)
    return out


def dominators(
    kids: Mapping[int, Iterable[int]], roots: Sequence[int], late: Callable[[], bool] = lambda: False
) -> dict[int, int] | None:
    """For what some roots reach: the nearest number that every way to it leads through, -1 for none (Cooper, Harvey, Kennedy).

    None where time was up.
    """
    order: list[int] = []
    seen: set[int] = set()
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        stack = [(root, iter(kids[root]))]
        while stack:
            number, rest = stack[-1]
            for kid in rest:
                if kid not in seen:
                    seen.add(kid)
                    stack.append((kid, iter(kids[kid])))
                    break
            else:
                stack.pop()
                order.append(number)
    order.reverse()
    place = {number: k + 1 for k, number in enumerate(order)}
    before: list[list[int]] = [[] for _ in range(len(order) + 1)]
    for number in order:
        for kid in kids[number]:
            before[place[kid]].append(place[number])
    for root in roots:
        before[place[root]].append(0)
    nearest = [0] + [-1] * len(order)
    changed = True
    while changed:
        changed = False
        for at in range(1, len(order) + 1):
            if at & 0xFFF == 0 and late():
                return None
            new = -1
            for other in before[at]:
                if nearest[other] < 0:
                    continue
                if new < 0:
                    new = other
                    continue
                one = other
                while one != new:
                    if one > new:
                        one = nearest[one]
                    else:
                        new = nearest[new]
            if nearest[at] != new:
                nearest[at] = new
                changed = True
    return {number: order[nearest[place[number]] - 1] if nearest[place[number]] else -1 for number in order}


def _intervals(parent: Mapping[int, int]) -> tuple[dict[int, int], dict[int, int]]:
    """When a walk of a tree enters and leaves each number."""
    below: dict[int, list[int]] = {}
    for number, above in parent.items():
        below.setdefault(above, []).append(number)
    enter: dict[int, int] = {}
    leave: dict[int, int] = {}
    clock = 0
    stack = [(number, False) for number in below.get(-1, ())]
    while stack:
        number, done = stack.pop()
        clock += 1
        if done:
            leave[number] = clock
            continue
        enter[number] = clock
        stack.append((number, True))
        stack += [(kid, False) for kid in below.get(number, ())]
    return enter, leave


def _dearest(rows: Mapping[int, Sequence[Column]]) -> dict[int, float]:
    """What each class costs at least: its dearest chain of the cheapest columns."""
    readers: dict[int, list[int]] = {}
    missing: list[int] = []
    owner: list[int] = []
    heap: list[tuple[float, int]] = []
    cost: list[float] = []
    for number, row in rows.items():
        for column in row:
            at = len(owner)
            owner.append(number)
            cost.append(column.cost)
            missing.append(len(column.kids))
            for kid in column.kids:
                readers.setdefault(kid, []).append(at)
            if not column.kids:
                heap.append((column.cost, number))
    heapq.heapify(heap)
    out = dict.fromkeys(rows, inf)
    while heap:
        value, number = heapq.heappop(heap)
        if out[number] <= value:
            continue
        out[number] = value
        for at in readers.get(number, ()):
            missing[at] -= 1
            if not missing[at] and value + cost[at] < out[owner[at]]:
                heapq.heappush(heap, (value + cost[at], owner[at]))
    return out


def _nearest(rows: Mapping[int, Sequence[Column]], roots: Sequence[int]) -> dict[int, float]:
    """What the columns cost at least that lead from a root to each class."""
    out = dict.fromkeys(rows, inf)
    heap = [(0.0, root) for root in roots]
    while heap:
        value, number = heapq.heappop(heap)
        if out[number] <= value:
            continue
        out[number] = value
        for column in rows[number]:
            new = value + column.cost
            for kid in column.kids:
                if new < out[kid]:
                    heapq.heappush(heap, (new, kid))
    return out
