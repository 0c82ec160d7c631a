"""Costs that count a shared part once (PACT'24, Algorithm 2), kept up to date while an e-graph grows.

Each class knows its best choice, what that costs with all it needs, and what it needs as bits. A choice is charged for each class that
it reads what is not needed already. So (x + y) * (x - y) pays for x and y once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

from dslc.deadline import FOREVER, Deadline
from dslc.egraph.extract.table import Choice, ChoiceTable, Extraction, ExtractionProblem, Walked, walk

LESS = 1e-9  #: share by which a choice has to be better, so that rounding never decides
LOOKS = 60  #: how often a class is looked at, at most, on average
BYTES = 1 << 30  #: bytes of all sets of needed classes together, beyond which no more are kept
ASK = 1 << 8  #: classes after which the clock and the memory are asked
ASK_BITS = 1 << 22  #: bits of what classes need after which they are asked, too


class Best(NamedTuple):
    """A class's best choice, what it costs with all that it needs, and that as bits, itself included."""

    cost: float
    mask: int
    choice: Choice


class DagCosts:
    """The best choices of a table's classes. `update` after every change; `clone` follows a clone of the table."""

    __slots__ = ("_best", "_dead", "_own", "table")

    def __init__(self, table: ChoiceTable) -> None:
        self.table = table
        self._best: dict[int, Best] = {}
        self._own: dict[int, float] = {}
        self._dead = 0

    def clone(self, table: ChoiceTable) -> DagCosts:
        new = DagCosts(table)
        new._best, new._own, new._dead = self._best.copy(), self._own.copy(), self._dead
        return new

    def best(self, number: int) -> Choice | None:
        """The choice of a class; None where it cannot be had."""
        found = self._best.get(number)
        return None if found is None else found.choice

    def cost(self, number: int) -> float:
        """The estimated cost of a class with all that it needs."""
        found = self._best.get(self.table.find(number))
        return inf if found is None else found.cost

    def update(self, changed: Iterable[int], until: Deadline = FOREVER) -> bool:
        """Looks at changed classes, then at what reads those that became cheaper; False where it had to stop before the end."""
        find, best, own = self.table.find, self._best, self._own
        queue: deque[int] = deque()
        waiting: set[int] = set()
        for number in changed:
            leader = find(number)
            if leader != number:
                self._dead |= 1 << number
                best.pop(number, None)
            if leader not in waiting:
                waiting.add(leader)
                queue.append(leader)
        looked, most, held, bits = 0, LOOKS * (len(best) + len(queue)), 0, 0
        while queue:
            number = queue.popleft()
            waiting.discard(number)
            looked += 1
            if (looked % ASK == 0 or bits > ASK_BITS) and (looked > most or held > BYTES or until.over):
                return False
            if bits > ASK_BITS:
                bits = 0
            old = best.get(number)
            choices = self.table.choices(number)
            found, stays = self._cheapest(number, choices, None if old is None else old.choice)
            if found is None:
                continue
            # a choice is no more, or by now reads what needs this very class
            gone = old is not None and not stays
            if old is not None and not gone and not found.cost < old.cost - LESS * abs(old.cost):
                continue
            best[number] = found
            own[number] = found.choice.cost
            held += found.mask.bit_length() >> 3
            bits += found.mask.bit_count() * len(choices)
            for above, _ in self.table.uses(number):
                if above not in waiting:
                    waiting.add(above)
                    queue.append(above)
        return True

    def _cheapest(self, number: int, choices: Sequence[Choice], old: Choice | None) -> tuple[Best | None, bool]:
        """The cheapest choice, and whether the old one can still be had."""
        best, own, dead = self._best, self._own, self._dead
        found: Best | None = None
        stays = False
        for choice in choices:
            cost, mask = choice.cost, 1 << number
            for kid in choice.kids:
                below = best.get(kid)
                if below is None:
                    break
                needs = below.mask
                if needs & dead:
                    below = self._alive(kid, below)
                    needs = below.mask
                if needs >> number & 1:
                    break
                fresh = needs & ~mask
                if fresh == needs:
                    cost += below.cost
                elif fresh:
                    twice = needs & mask
                    if twice.bit_count() < fresh.bit_count():
                        cost += below.cost - _sum(twice, own)
                    else:
                        cost += _sum(fresh, own)
                mask |= needs
            else:
                stays = stays or choice == old
                if found is None or cost < found.cost:
                    found = Best(cost, mask, choice)
        return found, stays

    def _alive(self, number: int, old: Best) -> Best:
        """The same in terms of the classes that there are now."""
        mask, dead = old.mask & ~self._dead, old.mask & self._dead
        while dead:
            low = dead & -dead
            dead ^= low
            mask |= 1 << self.table.find(low.bit_length() - 1)
        mask |= 1 << number
        self._own[number] = old.choice.cost
        new = self._best[number] = Best(_sum(mask, self._own), mask, old.choice)
        return new


def _sum(bits: int, own: dict[int, float]) -> float:
    # as a text, since taking bit by bit out of a long number takes time by its square
    digits, place, total = bin(bits)[:1:-1], -1, 0.0
    while (place := digits.find("1", place + 1)) >= 0:
        total += own.get(place, 0.0)
    return total


def greedy_of(
    problem: ExtractionProblem, until: Deadline = FOREVER, start: Extraction | None = None
) -> Extraction | None:
    """The program of the cheapest trees; `estimate` is what they cost as trees."""
    del until, start
    if problem.roots is None:
        return None
    found = walk(lambda number: problem.tree[number][0], problem.roots, problem.find)
    if found is None:
        return None
    return Extraction(found.cost, found.choice, sum(problem.tree[root][1] for root in problem.roots))


def shared_of(
    problem: ExtractionProblem, until: Deadline = FOREVER, start: Extraction | None = None
) -> Extraction | None:
    """The program by costs that count shared parts once; the one to begin with, or the greedy one, where that is cheaper."""
    plain = start or greedy_of(problem, until)
    if plain is None or problem.roots is None:
        return plain
    state = DagCosts(problem)
    done = state.update(range(len(problem)), until)

    def chosen(number: int) -> Choice | None:
        return state.best(number) or (None if done else problem.tree[number][0])

    found: Walked | None = walk(chosen, problem.roots, problem.find)
    estimate = sum(state.cost(root) for root in problem.roots) if done else plain.estimate
    if found is None or found.cost >= plain.cost:
        return Extraction(plain.cost, plain.choice, estimate)
    return Extraction(found.cost, found.choice, estimate)
