"""The cheapest program by integer programming (HiGHS): one variable for each choice, order variables only inside cycles."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf

from dslc.egraph.extract.joint import joint_of
from dslc.egraph.extract.solver import Program, solved
from dslc.egraph.extract.table import Choice, Extraction, Problem, walk
from dslc.egraph.view import components

#: choices of a class beyond which they are not compared with each other
_COMPARED = 64
#: larger problems are not handed to the solver: it would not look at the clock for long
_MOST_COLUMNS = 300_000
#: the solver sees the first program's cost as this, whatever the unit: its tolerances are absolute
_SCALE = 1e3


class _Rows:
    """A sparse matrix, row by row."""

    def __init__(self) -> None:
        self.starts: list[int] = [0]
        self.columns: list[int] = []
        self.factors: list[float] = []
        self.lower: list[float] = []
        self.upper: list[float] = []

    def add(self, entries: Sequence[tuple[int, float]], lower: float, upper: float) -> None:
        for column, factor in entries:
            self.columns.append(column)
            self.factors.append(factor)
        self.starts.append(len(self.columns))
        self.lower.append(lower)
        self.upper.append(upper)


def ilp_of(
    problem: Problem, deadline: float = inf, now: Callable[[], float] = time.monotonic, start: Extraction | None = None
) -> Extraction | None:
    """The cheapest program that is found in time, never dearer than `start`, or than the one by joint switches."""
    first = joint_of(problem, deadline, now) if start is None else start
    if first is None or problem.roots is None or first.cost <= 0 or now() > deadline:
        return first if first is None or first.cost > 0 else Extraction(first.cost, first.choice, first.cost, first.cost)
    rows = pruned(problem, first, deadline, now)
    columns = [(number, choice) for number, row in enumerate(rows) for choice in row]
    if len(columns) > _MOST_COLUMNS or now() > deadline:
        return first
    program = _model(problem, rows, columns, _SCALE / first.cost, first, deadline, now)
    answer = None if program is None else solved(program, deadline - now())
    if answer is None:
        return first
    bound = max(0.0, answer.bound * first.cost / _SCALE)
    found = _read(problem, columns, answer.values)
    if found is None or found.cost >= first.cost:
        return Extraction(first.cost, first.choice, first.cost, min(bound, first.cost))
    return Extraction(found.cost, found.choice, found.cost, min(bound, found.cost))


def pruned(
    problem: Problem, keep: Extraction, deadline: float = inf, now: Callable[[], float] = time.monotonic
) -> list[tuple[Choice, ...]]:
    """The choices without those that another one of the class makes needless: it reads a part of what they read, at no higher cost.

    The choices of `keep` stay. What is looked at after the deadline keeps all.
    """
    assert problem.roots is not None
    out: list[tuple[Choice, ...]] = [()] * len(problem)
    seen = set(problem.roots)
    stack = list(seen)
    late = False
    while stack:
        number = stack.pop()
        row = problem.rows[number]
        late = late or now() > deadline
        out[number] = _needed(row, keep.choice.get(number)) if len(row) <= _COMPARED and not late else row
        for choice in out[number]:
            for kid in choice.kids:
                if kid not in seen:
                    seen.add(kid)
                    stack.append(kid)
    return out


def _needed(row: Sequence[Choice], keep: Choice | None) -> tuple[Choice, ...]:
    reads = [frozenset(choice.kids) for choice in row]
    out: list[Choice] = []
    for k, choice in enumerate(row):
        other = (
            row[j].cost <= choice.cost and reads[j] <= reads[k] and ((row[j].cost, reads[j]) != (choice.cost, reads[k]) or j < k)
            for j in range(len(row))
            if j != k
        )
        if choice == keep or not any(other):
            out.append(choice)
    return tuple(out)


def _model(
    problem: Problem, rows: Sequence[Sequence[Choice]], columns: Sequence[tuple[int, Choice]], scale: float, first: Extraction,
    deadline: float, now: Callable[[], float],
) -> Program | None:  # fmt: skip
    """The program for the solver, which begins with `first`; None where time was up before it was written."""
    own: list[list[int]] = [[] for _ in rows]
    for column, (number, _) in enumerate(columns):
        own[number].append(column)
    matrix = _Rows()
    assert problem.roots is not None
    for root in dict.fromkeys(problem.roots):
        matrix.add([(column, 1.0) for column in own[root]], 1.0, inf)
    kids = {n: tuple(dict.fromkeys([kid for choice in row for kid in choice.kids])) for n, row in enumerate(rows) if row}
    for number, below in kids.items():
        if now() > deadline:
            return None
        for kid in below:
            # whichever choice of the class reads it, it has to be there
            readers = [(column, -1.0) for column in own[number] if kid in columns[column][1].kids]
            matrix.add([*[(column, 1.0) for column in own[kid]], *readers], 0.0, inf)
    cycles: list[dict[int, int]] = []
    size = len(columns)
    upper = [1.0] * size
    for members in components(kids):
        if len(members) < 2:
            continue
        order = {number: len(upper) + k for k, number in enumerate(members)}
        cycles.append(order)
        if now() > deadline:
            return None
        big = float(len(members))
        upper += [big - 1] * len(members)
        for number in members:
            for column in own[number]:
                for kid in dict.fromkeys(columns[column][1].kids):
                    if kid in order:
                        matrix.add([(order[number], 1.0), (order[kid], -1.0), (column, -big)], 1.0 - big, inf)
    values = [1.0 if first.choice.get(number) == choice else 0.0 for number, choice in columns]
    at = {number: k for k, number in enumerate(_below_first(first))}
    for cycle in cycles:
        # any order in which a class is behind what it reads will do; what the program lacks comes last
        ranked = sorted(cycle, key=lambda number: at.get(number, len(at)))
        place = {number: float(k) for k, number in enumerate(ranked)}
        values += [place[number] for number in cycle]
    costs = [choice.cost * scale for _, choice in columns] + [0.0] * (len(upper) - size)
    return Program(costs, upper, size, matrix.starts, matrix.columns, matrix.factors, matrix.lower, matrix.upper, values)


def _below_first(program: Extraction) -> list[int]:
    """The classes of a program, those that a class reads before it."""
    out: list[int] = []
    seen: set[int] = set()
    for root in program.choice:
        stack = [(root, False)]
        while stack:
            number, done = stack.pop()
            if done:
                out.append(number)
            elif number not in seen:
                seen.add(number)
                stack.append((number, True))
                stack += [(kid, False) for kid in program.choice[number].kids if kid not in seen]
    return out


def _read(problem: Problem, columns: Sequence[tuple[int, Choice]], values: Sequence[float]) -> Extraction | None:
    if not values:
        return None
    chosen: dict[int, tuple[float, Choice]] = {}
    for (number, choice), value in zip(columns, values, strict=False):
        if value > 0.5 and (number not in chosen or choice.cost < chosen[number][0]):
            chosen[number] = (choice.cost, choice)
    assert problem.roots is not None
    found = walk(lambda n: chosen[n][1] if n in chosen else None, problem.roots, problem.find)
    return None if found is None else Extraction(found.cost, found.choice, found.cost)


__all__ = ["ilp_of", "pruned"]
