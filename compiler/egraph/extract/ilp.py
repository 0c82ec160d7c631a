"""The cheapest program by integer programming (HiGHS): a variable for each choice and each class that are left (`reduced`), circles
forbidden by cuts (`cuts`)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import gcd

from dslc.deadline import FOREVER, Deadline
from dslc.egraph.extract.columns import IntegerProgram
from dslc.egraph.extract.joint import joint_of
from dslc.egraph.extract.reduced import Reduced
from dslc.egraph.extract.solver import solved
from dslc.egraph.extract.table import Extraction, ExtractionProblem, Walked, walk

#: columns; larger problems are not handed to the solver: it would not look at the clock for long
MOST_COLUMNS = 300_000
SCALE = 1e3  #: what the first program may save, as the solver sees it, whatever the unit: its tolerances are absolute
ROUNDED = 1e-14  #: share by which rounding makes sums differ
SAME = 1e-9  #: share by which two sums of the same numbers differ
SOLVED = 1e-7  #: share by which the solver's word on a saving is wrong
PLACES = 6  #: places behind the point of costs that are multiples of something
COARSE = 1e-5  #: share of what may be saved below which such a step says nothing
TRIED = 2_000  #: choices that are tried one by one, where the solver may have been wrong by a little


def ilp_of(problem: ExtractionProblem, until: Deadline = FOREVER, start: Extraction | None = None) -> Extraction | None:
    """The cheapest program that is found in time, never dearer than `start`, or than the one by joint switches."""
    first = joint_of(problem, until) if start is None else start
    if first is None or problem.roots is None or first.cost <= 0 or until.over:
        return (
            first if first is None or first.cost > 0 else Extraction(first.cost, first.choice, first.cost, first.cost)
        )
    left = Reduced(problem, first, until)
    save = first.cost - left.base
    if save <= ROUNDED * first.cost:
        return Extraction(first.cost, first.choice, first.cost, first.cost)
    first = Extraction(first.cost, first.choice, first.cost, left.base)
    if len(left) > MOST_COLUMNS or until.over:
        return first
    step = _step([choice.cost for row in problem.rows for choice in row])
    step = step if step > COARSE * save else 0.0
    program = _program(left, first, SCALE / save, step)
    answer = solved(program, until.left())
    if answer is None:
        return first
    over = max(0.0, answer.bound * save / SCALE)
    if step:
        # programs cost what one costs, or less by whole steps
        over = max(over, save - step * ((save - over + SOLVED * save) // step))
    else:
        over = max(0.0, over - SAME * save)
    bound = left.base + over
    columns = [column for row in left.rows.values() for column in row]
    numbers = list(left.rows)
    chosen = {numbers[program.owner[place]]: columns[place].choice for place in answer.chosen} | left.inside
    found = walk(chosen.get, problem.roots, problem.find)
    best = first if found is None or found.cost >= first.cost else Extraction(found.cost, found.choice, found.cost)
    if not step:
        best = _polished(problem, best, until)
    return Extraction(best.cost, best.choice, best.cost, min(bound, best.cost))


def _polished(problem: ExtractionProblem, found: Extraction, until: Deadline) -> Extraction:
    """A program after what is too small for a solver that sees large costs beside it: classes that are cheaper by another choice."""
    assert problem.roots is not None
    spare = [row[0] for row in problem.tree]
    for number, choice in found.choice.items():
        spare[number] = choice
    best = Walked(found.cost, dict(found.choice))
    tried = ((number, choice) for number in found.choice for choice in problem.rows[number])
    for number, choice in islice(tried, TRIED):
        if until.over:
            break
        before = spare[number]
        spare[number] = choice
        other = walk(spare.__getitem__, problem.roots, problem.find, best.cost)
        if other is None:
            spare[number] = before
        else:
            best = other
    return Extraction(best.cost, best.choice, best.cost)


def _step(costs: Sequence[float]) -> float:
    """What all costs are multiples of, rounding aside; 0 where that is no decimal number with few places."""
    distinct = list(dict.fromkeys(costs))
    for places in range(PLACES + 1):
        unit = 10.0**places
        scaled = [cost * unit for cost in distinct]
        whole = [round(one) for one in scaled]
        if all(abs(one - near) <= SAME * one for one, near in zip(scaled, whole, strict=True)):
            return gcd(*whole) / unit
    return 0.0


def _program(left: Reduced, first: Extraction, scale: float, step: float) -> IntegerProgram:
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
    return IntegerProgram(len(place), [place[root] for root in left.roots], owner, costs, kids, begin, step * scale)
