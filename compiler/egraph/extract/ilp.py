"""The cheapest program by integer programming (HiGHS): one variable for each choice, order variables only inside cycles."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from dslc.egraph.extract.joint import joint_of
from dslc.egraph.extract.table import Choice, Extraction, Problem, walk
from dslc.egraph.view import components

if TYPE_CHECKING:
    from highspy import Highs

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
    rows = pruned(problem, first)
    columns = [(number, choice) for number, row in enumerate(rows) for choice in row]
    if len(columns) > _MOST_COLUMNS or now() > deadline:
        return first
    model, cycles = _model(problem, rows, columns, _SCALE / first.cost)
    if now() > deadline:
        return first
    solver = _solver(deadline - now())
    solver.passModel(model)
    _warm(solver, columns, cycles, first)
    solver.run()
    bound = solver.getInfo().mip_dual_bound * first.cost / _SCALE
    bound = max(0.0, bound) if isfinite(bound) else 0.0
    found = _read(problem, columns, solver)
    if found is None or found.cost >= first.cost:
        return Extraction(first.cost, first.choice, first.cost, min(bound, first.cost))
    return Extraction(found.cost, found.choice, found.cost, min(bound, found.cost))


def pruned(problem: Problem, keep: Extraction) -> list[tuple[Choice, ...]]:
    """The choices without those that another one of the class makes needless: it reads a part of what they read, at no higher cost.

    The choices of `keep` stay.
    """
    assert problem.roots is not None
    out: list[tuple[Choice, ...]] = [()] * len(problem)
    seen = set(problem.roots)
    stack = list(seen)
    while stack:
        number = stack.pop()
        row = problem.rows[number]
        out[number] = _needed(row, keep.choice.get(number)) if len(row) <= _COMPARED else row
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
    problem: Problem, rows: Sequence[Sequence[Choice]], columns: Sequence[tuple[int, Choice]], scale: float
) -> tuple[Any, list[dict[int, int]]]:
    """The program for the solver, and the columns that say where in the order the classes of cycles are."""
    import highspy
    import numpy as np

    own: list[list[int]] = [[] for _ in rows]
    for column, (number, _) in enumerate(columns):
        own[number].append(column)
    matrix = _Rows()
    assert problem.roots is not None
    for root in dict.fromkeys(problem.roots):
        matrix.add([(column, 1.0) for column in own[root]], 1.0, inf)
    kids = {n: tuple(dict.fromkeys([kid for choice in row for kid in choice.kids])) for n, row in enumerate(rows) if row}
    for number, below in kids.items():
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
        big = float(len(members))
        upper += [big - 1] * len(members)
        for number in members:
            for column in own[number]:
                for kid in dict.fromkeys(columns[column][1].kids):
                    if kid in order:
                        matrix.add([(order[number], 1.0), (order[kid], -1.0), (column, -big)], 1.0 - big, inf)
    lp = highspy.HighsLp()
    lp.num_col_ = len(upper)
    lp.num_row_ = len(matrix.lower)
    lp.col_cost_ = np.array([choice.cost * scale for _, choice in columns] + [0.0] * (len(upper) - size))
    lp.col_lower_ = np.zeros(lp.num_col_)
    lp.col_upper_ = np.array(upper)
    lp.row_lower_ = np.array(matrix.lower)
    lp.row_upper_ = np.array(matrix.upper)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.array(matrix.starts, dtype=np.int32)
    lp.a_matrix_.index_ = np.array(matrix.columns, dtype=np.int32)
    lp.a_matrix_.value_ = np.array(matrix.factors)
    kinds = [highspy.HighsVarType.kInteger] * size + [highspy.HighsVarType.kContinuous] * (len(upper) - size)
    lp.integrality_ = kinds
    return lp, cycles


def _solver(seconds: float) -> Highs:
    import highspy

    # its stubs leave the constructor untyped
    make: Any = highspy.Highs
    solver: Highs = make()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("random_seed", 0)
    solver.setOptionValue("mip_rel_gap", 1e-7)
    solver.setOptionValue("mip_abs_gap", 1e-4)
    if isfinite(seconds):
        solver.setOptionValue("time_limit", max(0.1, seconds))
    return solver


def _warm(solver: Highs, columns: Sequence[tuple[int, Choice]], cycles: Sequence[Mapping[int, int]], first: Extraction) -> None:
    """Hands the solver the program to begin with."""
    import highspy

    values = [1.0 if first.choice.get(number) == choice else 0.0 for number, choice in columns]
    at = {number: k for k, number in enumerate(_below_first(first))}
    for cycle in cycles:
        # any order in which a class is behind what it reads will do; what the program lacks comes last
        ranked = sorted(cycle, key=lambda number: at.get(number, len(at)))
        place = {number: float(k) for k, number in enumerate(ranked)}
        values += [place[number] for number in cycle]
    solution = highspy.HighsSolution()
    solution.col_value = values
    solver.setSolution(solution)


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


def _read(problem: Problem, columns: Sequence[tuple[int, Choice]], solver: Highs) -> Extraction | None:
    values = list(solver.getSolution().col_value)
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
