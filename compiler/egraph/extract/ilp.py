"""The cheapest program by integer programming (HiGHS): a variable for each choice and each class that are left (`reduced`), circles
forbidden by cuts (`cuts`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf

from dslc.egraph.extract.joint import joint_of
from dslc.egraph.extract.reduced import Reduced
from dslc.egraph.extract.solver import Program, solved
from dslc.egraph.extract.table import Extraction, Problem, walk

#: larger problems are not handed to the solver: it would not look at the clock for long
_MOST_COLUMNS = 300_000
#: the solver sees what the first program may save as this, whatever the unit: its tolerances are absolute
_SCALE = 1e3
#: rounding makes sums differ by this share
_SAME = 1e-9


def ilp_of(
    problem: Problem, deadline: float = inf, now: Callable[[], float] = time.monotonic, start: Extraction | None = None
) -> Extraction | None:
    """The cheapest program that is found in time, never dearer than `start`, or than the one by joint switches."""
    first = joint_of(problem, deadline, now) if start is None else start
    if first is None or problem.roots is None or first.cost <= 0 or now() > deadline:
        return first if first is None or first.cost > 0 else Extraction(first.cost, first.choice, first.cost, first.cost)
    left = Reduced(problem, first, deadline, now)
    save = first.cost - left.base
    if save <= _SAME * first.cost:
        return Extraction(first.cost, first.choice, first.cost, first.cost)
    first = Extraction(first.cost, first.choice, first.cost, left.base)
    if len(left) > _MOST_COLUMNS or now() > deadline:
        return first
    program = _program(left, first, _SCALE / save)
    answer = solved(program, deadline - now())
    if answer is None:
        return first
    bound = max(left.base, left.base + answer.bound * save / _SCALE)
    columns = [column for row in left.rows.values() for column in row]
    numbers = list(left.rows)
    chosen = {numbers[program.owner[place]]: columns[place].choice for place in answer.chosen} | left.inside
    found = walk(chosen.get, problem.roots, problem.find)
    if found is None or found.cost >= first.cost:
        return Extraction(first.cost, first.choice, first.cost, min(bound, first.cost))
    return Extraction(found.cost, found.choice, found.cost, min(bound, found.cost))


def _program(left: Reduced, first: Extraction, scale: float) -> Program:
    place = {number: k for k, number in enumerate(left.rows)}
    owner: list[int] = []
    costs: list[float] = []
    kids: list[tuple[int, ...]] = []
    begin: list[int] = []
    for number, row in left.rows.items():
        known = first.choice.get(number)
        for column in row:
            if column.choice == known:
                begin.append(len(owner))
                known = None
            owner.append(place[number])
            costs.append(column.cost * scale)
            kids.append(tuple(sorted(place[kid] for kid in column.kids)))
    return Program(len(place), [place[root] for root in left.roots], owner, costs, kids, begin)


__all__ = ["ilp_of"]
