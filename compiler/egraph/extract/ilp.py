"""The cheapest program by integer programming (HiGHS).

    minimize    the sum of cost[c] * x[c], where x[c] is 1 for a choice that is taken, else 0
    roots       z[k] = 1 for a class that is wanted
    choices     z[k] <= the sum of x over the choices of k
    reading     z[j] >= the sum of x over the choices of k that read j, and over those of j that read k
    order       t[k] >= t[j] + 1 where a choice of k that reads j is taken, for k and j that may read each other in a circle

Classes that every program has (in planning: landmarks) pay for their cheapest choice before; a choice that needs its own class is
left out.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import islice
from math import isfinite
from operator import and_, or_
from typing import NamedTuple

from dslc.analysis.linear_programs import linear_program, quiet_solver
from dslc.deadline import FOREVER, Deadline
from dslc.egraph.extract.local_search import joint_of
from dslc.egraph.extract.table import Extraction, ExtractionProblem, Walked, walk
from dslc.egraph.view import components
from dslc.processes.child import Asker, Child, module
from dslc.processes.process import ProcessFailed

#: choices; larger problems are not handed to the solver: it would not look at the clock for long
MOST_CHOICES = 300_000
HERE = 4_000  #: choices; larger programs are solved in another process, which is ended where it overruns its time
QUICK = 1.0  #: seconds after which smaller programs are solved there, too: an interrupt waits until the solver is back
GRACE = 0.5  #: seconds that a process may be late
SOLVING = 0.8  #: share of its time that a process solves for: it ends a little after it should
BITS = 1 << 31  #: bits of what all classes need together, beyond which that is not looked at
SCALE = 1e3  #: what the first program may save, as the solver sees it, whatever the unit: its tolerances are absolute
ROUNDED = 1e-14  #: share by which rounding makes sums differ
SAME = 1e-9  #: share by which two costs differ that the solver cannot tell apart
TRIED = 2_000  #: choices that are tried one by one, where the solver may have been wrong by a little

#: the process that solves
_COMMAND = module("dslc.egraph.extract.ilp")


class _Program(NamedTuple):
    """The choices of each class as their costs and the classes that they read, and the classes that are wanted."""

    rows: Sequence[Sequence[tuple[float, tuple[int, ...]]]]
    roots: Sequence[int]


class _Solved(NamedTuple):
    """The place of each class's choice in the best program, nothing where none was found, and what no program is below."""

    chosen: Sequence[int]
    bound: float
    optimal: bool


def ilp_of(problem: ExtractionProblem, until: Deadline = FOREVER, start: Extraction | None = None) -> Extraction | None:
    """The cheapest program that is found in time, never dearer than `start`, or than the one by joint switches."""
    first = joint_of(problem, until) if start is None else start
    if first is None or problem.roots is None or until.over:
        return first
    needs = landmarks(problem, until)
    needed = reduce(or_, [needs[root] for root in problem.roots])
    low = [
        min(choice.cost for choice in row) if needed >> number & 1 else 0.0 for number, row in enumerate(problem.rows)
    ]
    base = sum(low)
    save = first.cost - base
    if save <= ROUNDED * first.cost:
        return replace(first, bound=first.cost)
    best = replace(first, bound=base)
    rows = [
        [
            choice
            for choice in row
            if choice.cost - low[number] <= save * (1 + SAME)
            and not any(needs[kid] >> number & 1 for kid in choice.kids)
        ]
        for number, row in enumerate(problem.rows)
    ]
    if sum(map(len, rows)) > MOST_CHOICES or until.over:
        return best
    scaled = [[((one.cost - low[number]) * SCALE / save, one.kids) for one in row] for number, row in enumerate(rows)]
    answers = list(_answers(_Program(scaled, problem.roots), until.left()))
    if not answers:
        return best
    for answer in answers:
        if answer.chosen:
            chosen = {
                number: row[place] for number, (row, place) in enumerate(zip(rows, answer.chosen, strict=True)) if row
            }
            found = walk(chosen.get, problem.roots, problem.find, best.cost)
            if found is not None:
                best = Extraction(found.cost, found.choice, found.cost)
    best = _polished(problem, best, until)
    return replace(best, bound=min(best.cost, base + max(0.0, max(one.bound for one in answers) / SCALE - SAME) * save))


def landmarks(problem: ExtractionProblem, until: Deadline = FOREVER) -> list[int]:
    """The classes that every program of a class has, itself included, as bits; no bits where there is no room or time to say."""
    needs = [-1] * len(problem)
    changed = len(problem) ** 2 <= BITS
    while changed and not until.over:
        changed = False
        for number, row in enumerate(problem.rows):
            ways = [reduce(or_, [needs[kid] for kid in choice.kids], 0) for choice in row]
            found = reduce(and_, ways) | 1 << number
            changed |= found != needs[number]
            needs[number] = found
    return needs if not changed and len(problem) ** 2 <= BITS else [0] * len(problem)


def _answers(program: _Program, seconds: float) -> Iterator[_Solved]:
    """The best in so many seconds: of a small program here, and where that is not proved at once, in a process of its own."""
    if not isfinite(seconds) or sum(map(len, program.rows)) <= HERE:
        began = time.monotonic()
        found = _solve(program, min(seconds, QUICK) if isfinite(seconds) else seconds)
        yield found
        seconds -= time.monotonic() - began
        if found.optimal or not isfinite(seconds):
            return
    late = Deadline.after(seconds)
    if seconds > 2 * GRACE:
        with contextlib.suppress(ProcessFailed), Child(_COMMAND) as child:
            child.send((program, late.end - GRACE), late)
            yield _Solved(*child.receive(late))


def _solve(program: _Program, seconds: float) -> _Solved:
    """The best in about so many seconds: preparing a large program takes as long as it takes."""
    import highspy

    own: list[range] = []
    costs: list[float] = []
    below: dict[int, dict[int, list[int]]] = {}
    for number, row in enumerate(program.rows):
        own.append(range(len(costs), len(costs) + len(row)))
        reading = below[number] = {}
        for column, (cost, kids) in zip(own[number], row, strict=True):
            costs.append(cost)
            for kid in dict.fromkeys(kids):
                reading.setdefault(kid, []).append(column)
    columns = len(costs)
    needed = [columns + number for number in range(len(own))]
    upper = [1.0] * (columns + len(own))
    rows = [([(needed[root], 1.0)], 1.0) for root in program.roots]
    rows += [([(needed[number], -1.0), *((column, 1.0) for column in one)], 0.0) for number, one in enumerate(own)]
    for number, reading in below.items():
        for kid, which in reading.items():
            either = {*which, *below[kid].get(number, ())}
            rows.append(([(needed[kid], 1.0), *((column, -1.0) for column in either)], 0.0))
    for members in components({number: list(reading) for number, reading in below.items()}):
        place = {number: len(upper) + k for k, number in enumerate(members)}
        big = len(members)
        upper += [big - 1.0] * big * (big > 1)
        rows += [
            ([(place[number], 1.0), (place[kid], -1.0), *((column, -big) for column in which)], 1.0 - big)
            for number in members
            for kid, which in below[number].items()
            if kid in place
        ]
    solver = quiet_solver()
    solver.setOptionValue("mip_rel_gap", SAME)
    solver.setOptionValue("mip_abs_gap", SAME * SCALE)
    if isfinite(seconds):
        solver.setOptionValue("time_limit", seconds)
    lp = linear_program([*costs, *[0.0] * (len(upper) - columns)], rows, upper)
    kinds = highspy.HighsVarType
    lp.integrality_ = [kinds.kInteger] * columns + [kinds.kContinuous] * (len(upper) - columns)
    solver.passModel(lp)
    # without a program to begin with: from one HiGHS 1.16 loses the constant part of the cost, and proves what is not so
    solver.run()
    values, bound = solver.getSolution().col_value, solver.getInfo().mip_dual_bound
    chosen = [max(one, key=values.__getitem__, default=one.start) - one.start for one in own] if len(values) else []
    optimal = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return _Solved(chosen, max(0.0, bound) if isfinite(bound) else 0.0, bool(optimal))


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


def main() -> None:
    """Solve each program until its moment, and answer with what was found."""
    asker = Asker()
    for program, end in asker:
        asker.answer(tuple(_solve(program, SOLVING * (end - time.monotonic()))))


if __name__ == "__main__":
    main()
