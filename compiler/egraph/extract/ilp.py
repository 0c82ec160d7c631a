"""The cheapest program by integer programming (HiGHS): a variable for each choice and each class that are left (`reduced`), circles
forbidden by cuts (`cuts`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import gcd

from dslc.deadline import FOREVER, Deadline
from dslc.egraph.extract.columns import IntegerProgram
from dslc.egraph.extract.joint import joint_of
from dslc.egraph.extract.reduced import Reduced
from dslc.egraph.extract.solver import solved
from dslc.egraph.extract.table import Extraction, ExtractionProblem, Walked, walk


@dataclass(frozen=True, slots=True)
class _Tuning:
    """Limits and tolerances of what is handed to the solver.

    Attributes:
        most_columns: columns; larger problems are not handed to the solver: it would not look at the clock for long.
        scale: what the first program may save, as the solver sees it, whatever the unit: its tolerances are absolute.
        rounded: share by which rounding makes sums differ.
        same: share by which two sums of the same numbers differ.
        solved: share by which the solver's word on a saving is wrong.
        places: places behind the point of costs that are multiples of something.
        coarse: share of what may be saved below which such a step says nothing.
        tried: choices that are tried one by one, where the solver may have been wrong by a little.
    """

    most_columns: int = 300_000
    scale: float = 1e3
    rounded: float = 1e-14
    same: float = 1e-9
    solved: float = 1e-7
    places: int = 6
    coarse: float = 1e-5
    tried: int = 2_000


_TUNING = _Tuning()


def ilp_of(
    problem: ExtractionProblem, until: Deadline = FOREVER, start: Extraction | None = None
) -> Extraction | None:
    """The cheapest program that is found in time, never dearer than `start`, or than the one by joint switches."""
    first = joint_of(problem, until) if start is None else start
    if first is None or problem.roots is None or first.cost <= 0 or until.over:
        return first if first is None or first.cost > 0 else Extraction(first.cost, first.choice, first.cost, first.cost)
    left = Reduced(problem, first, until)
    save = first.cost - left.base
    if save <= _TUNING.rounded * first.cost:
        return Extraction(first.cost, first.choice, first.cost, first.cost)
    first = Extraction(first.cost, first.choice, first.cost, left.base)
    if len(left) > _TUNING.most_columns or until.over:
        return first
    step = _step([choice.cost for row in problem.rows for choice in row])
    step = step if step > _TUNING.coarse * save else 0.0
    program = _program(left, first, _TUNING.scale / save, step)
    answer = solved(program, until.left())
    if answer is None:
        return first
    over = max(0.0, answer.bound * save / _TUNING.scale)
    if step:
        # programs cost what one costs, or less by whole steps
        over = max(over, save - step * ((save - over + _TUNING.solved * save) // step))
    else:
        over = max(0.0, over - _TUNING.same * save)
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
    for number, choice in islice(tried, _TUNING.tried):
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
    for places in range(_TUNING.places + 1):
        unit = 10.0**places
        scaled = [cost * unit for cost in distinct]
        whole = [round(one) for one in scaled]
        if all(abs(one - near) <= _TUNING.same * one for one, near in zip(scaled, whole, strict=True)):
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


__all__ = ["ilp_of"]
