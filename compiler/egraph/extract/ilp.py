"""The cheapest program by integer programming (HiGHS).

    minimize    the sum of cost[c] * x[c], where x[c] is 1 for a choice that is taken, else 0
    roots       z[k] = 1 for a class that is wanted
    choices     z[k] <= the sum of x over the choices of k
    reading     z[j] >= the sum of x over the choices of k that read j, and over those of j that read k
    order       t[k] >= t[j] + 1 where a choice of k that reads j is taken, for k and j that may read each other in a circle

Classes that every program has (in planning: landmarks) pay for their cheapest choice before; a choice that needs its own class is
left out, as is one that needs all that a cheaper one reads. The program without the order bounds the cost, too, and says which choices
are worth to be tried with an order. Beside the solver, neighbourhoods of the best program are solved (large neighbourhood search).
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import islice
from math import isfinite
from operator import and_, or_
from typing import NamedTuple

from dslc.analysis.linear_programs import linear_program, quiet_solver
from dslc.deadline import FOREVER, OVER, Deadline
from dslc.egraph.extract.local_search import joint_of
from dslc.egraph.extract.table import Choice, Extraction, ExtractionProblem, Walked, walk
from dslc.egraph.view import components
from dslc.processes.child import Asker, Child, module, ready
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
WIDE = 8  #: classes that are looked through, or gone on to, from one
COMPARED = 20  #: cheaper choices of its class that one is compared with
PART = 1.0  #: seconds for one neighbourhood
EASY = 0.15  #: seconds of the processor for one, after which the next is smaller
LEAST = 10  #: choices to spare of a neighbourhood; more, as long as they take little time
TRIED = 2_000  #: choices that are tried one by one, where the solver may have been wrong by a little

#: the process that solves
_COMMAND = module("dslc.egraph.extract.ilp")
#: the programs that it solves one after another: with an order of the classes, or without
_ORDERED = (False, True)


class _Program(NamedTuple):
    """The choices of each class as their costs and the classes that they read, and the classes that are wanted."""

    rows: Sequence[Sequence[tuple[float, tuple[int, ...]]]]
    roots: Sequence[int]


class _Reduced(NamedTuple):
    """The choices of each class that are left, as a program of what may be saved (`save`) beyond what every program costs (`base`)."""

    rows: Sequence[Sequence[Choice]]
    program: _Program
    base: float
    save: float


class _Rows(NamedTuple):
    """A table of extraction."""

    rows: Sequence[Sequence[Choice]]

    def choices(self, number: int) -> Sequence[Choice]:
        return self.rows[number]


class _Solved(NamedTuple):
    """The place of each class's choice in the best program, nothing where none was found, and what no program is below."""

    chosen: Sequence[int]
    bound: float


def ilp_of(problem: ExtractionProblem, until: Deadline = FOREVER, start: Extraction | None = None) -> Extraction | None:
    """The cheapest program that is found in time, never dearer than `start`, or than the one by joint switches.

    What is not proved at once is solved in a process of its own; meanwhile neighbourhoods of the program are solved here.
    """
    first = start or joint_of(problem, until)
    if first is None or problem.roots is None or until.over:
        return first
    reduced = _reduced(problem, first.cost, until)
    if reduced.save <= ROUNDED * first.cost:
        return replace(first, bound=first.cost)
    best = replace(first, bound=reduced.base)
    small, timed = sum(map(len, reduced.rows)), isfinite(until.left())
    if small > MOST_CHOICES or until.over:
        return best
    answers: list[_Solved] = []
    if small <= HERE or not timed:
        # an order is asked for where it matters only: the program without one often has none of the circles, or few
        answers.append(_solve(reduced.program, min(until.left(), QUICK) if timed else until.left(), ordered=False))
        best = _induced(problem, reduced, answers[0], best, until)
    if not timed and not _proved(best, reduced, answers):
        answers.append(_solve(reduced.program, until.left()))
        best = _taken(problem, reduced, answers[-1], best)
    late = until.part()
    if timed and late.left() > 2 * GRACE and not _proved(best, reduced, answers):
        end = Deadline.after(late.left() - GRACE)
        with contextlib.suppress(ProcessFailed), Child(_COMMAND) as child:
            child.send((reduced.program, end.end), late)
            for _ in _ORDERED:
                for found in _improvements(problem, best, end):
                    best = found
                    if ready([child], OVER):
                        break
                answers.append(_Solved(*child.receive(late)))
                best = _induced(problem, reduced, answers[-1], best, late)
                if _proved(best, reduced, answers):
                    break
    if answers:
        best = _polished(problem, best, until)
    return replace(best, bound=min(best.cost, _bound(reduced, answers)))


def _bound(reduced: _Reduced, answers: Sequence[_Solved]) -> float:
    """A cost that no program is below."""
    return reduced.base + max(0.0, max([one.bound for one in answers], default=0.0) / SCALE - SAME) * reduced.save


def _proved(best: Extraction, reduced: _Reduced, answers: Sequence[_Solved]) -> bool:
    """Return whether no program is cheaper."""
    return replace(best, bound=_bound(reduced, answers)).optimal


def _reduced(problem: ExtractionProblem, cost: float, until: Deadline) -> _Reduced:
    """Choices that may be cheaper than `cost`: those that need their own class go, and those that need all that a cheaper one reads."""
    assert problem.roots is not None
    needs = landmarks(problem, until)
    needed = reduce(or_, [needs[root] for root in problem.roots])
    low = [
        min(choice.cost for choice in row) if needed >> number & 1 else 0.0 for number, row in enumerate(problem.rows)
    ]
    base = sum(low)
    save = cost - base
    rows: list[list[Choice]] = []
    for number, row in enumerate(problem.rows):
        kept: list[Choice] = []
        for choice in sorted(row, key=lambda one: one.cost):
            below = reduce(or_, [needs[kid] for kid in choice.kids], 0)
            if choice.cost - low[number] > save * (1 + SAME):
                break
            if not below >> number & 1 and not any(
                all(below >> kid & 1 for kid in one.kids) for one in kept[:COMPARED]
            ):
                kept.append(choice)
        rows.append(kept)
    unit = save / SCALE if save > 0 else 1.0
    scaled = [[((one.cost - low[number]) / unit, one.kids) for one in row] for number, row in enumerate(rows)]
    return _Reduced(rows, _Program(scaled, problem.roots), base, save)


def _taken(problem: ExtractionProblem, reduced: _Reduced, answer: _Solved, best: Extraction) -> Extraction:
    """The program that a solver found; `best` where that is not dearer."""
    assert problem.roots is not None
    chosen = {
        k: row[place] for k, (row, place) in enumerate(zip(reduced.rows, answer.chosen, strict=False)) if place >= 0
    }
    found = walk(chosen.get, problem.roots, problem.find, best.cost)
    return best if found is None else Extraction(found.cost, found.choice, found.cost)


def _induced(
    problem: ExtractionProblem, reduced: _Reduced, answer: _Solved, best: Extraction, until: Deadline
) -> Extraction:
    """The best program of the choices of a known one and of one that was solved for, which may have circles."""
    found = _taken(problem, reduced, answer, best)
    if found is not best:
        return found
    rows: list[tuple[Choice, ...]] = [(choice,) for choice in problem.completed(best)]
    for number, place in enumerate(answer.chosen):
        if place >= 0:
            rows[number] += (reduced.rows[number][place],)
    return _anew(problem, rows, best, until)


def _anew(
    problem: ExtractionProblem, rows: Sequence[Sequence[Choice]], best: Extraction, until: Deadline
) -> Extraction:
    """The best program of fewer choices."""
    assert problem.roots is not None
    part = ExtractionProblem(_Rows(rows), problem.roots)
    reduced = _reduced(part, best.cost, until)
    if reduced.save <= ROUNDED * best.cost:
        return best
    found = _taken(part, reduced, _solve(reduced.program, min(until.left(), PART)), best)
    return best if found is best else part.named(found)


def _improvements(problem: ExtractionProblem, best: Extraction, until: Deadline) -> Iterator[Extraction]:
    """The best program after each solved neighbourhood: classes near one of the program choose anew, all others stay as they are."""
    rng = random.Random(0)
    spare = [row[0] for row in problem.tree]
    size, seeds = 2 * LEAST, list[int]()
    while not until.over:
        for number, choice in best.choice.items():
            spare[number] = choice
        seeds = seeds or rng.sample(list(best.choice), len(best.choice))
        free = _neighbourhood(problem, seeds.pop(), size, rng)
        seeds = [seed for seed in seeds if seed not in free]
        rows = [row if number in free else (spare[number],) for number, row in enumerate(problem.rows)]
        began = time.process_time()
        best = _anew(problem, rows, best, until)
        size = max(LEAST, int(size * (1.3 if time.process_time() - began < EASY else 0.7)))
        yield best


def _neighbourhood(problem: ExtractionProblem, seed: int, size: int, rng: random.Random) -> set[int]:
    """Classes around one, until they have so many choices to spare."""
    free, queue = {seed}, [seed]
    while queue and size > 0:
        number = queue.pop(rng.randrange(len(queue)))
        size -= len(problem.rows[number]) - 1
        near = {kid for choice in problem.rows[number] for kid in choice.kids}
        near.update(above for above, _ in problem.uses(number))
        fresh = sorted(near - free)
        fresh = rng.sample(fresh, min(len(fresh), WIDE))
        free.update(fresh)
        queue += fresh
    return free


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


def _solve(program: _Program, seconds: float, ordered: bool = True) -> _Solved:
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
    before: dict[int, dict[int, set[int]]] = {}
    through: list[set[int]] = []
    for number, row in enumerate(program.rows):
        chain = {number}
        if len(row) == 1 and all(kid < number for kid in row[0][1]):
            chain = {further for kid in row[0][1] for further in through[kid]}
        through.append(chain if len(chain) <= WIDE else {number})
        if number in through[number]:
            before[number] = {}
    for number, earlier in before.items():
        for kid, which in below[number].items():
            for further in through[kid]:
                earlier.setdefault(further, set()).update(which)
        for column in earlier.pop(number, ()):
            upper[column] = 0.0
    for members in components({number: list(earlier) for number, earlier in before.items() if ordered}):
        place = {number: len(upper) + k for k, number in enumerate(members)}
        big = len(members)
        upper += [big - 1.0] * big
        rows += [
            ([(place[number], 1.0), (place[kid], -1.0), *((column, -big) for column in which)], 1.0 - big)
            for number in members
            for kid, which in before[number].items()
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
    taken = len(values) and [next((k for k, column in enumerate(one) if values[column] > 0.5), -1) for one in own]
    return _Solved(taken or [], max(0.0, bound) if isfinite(bound) else 0.0)


def _polished(problem: ExtractionProblem, found: Extraction, until: Deadline) -> Extraction:
    """A program after what is too small for a solver that sees large costs beside it: classes that are cheaper by another choice."""
    assert problem.roots is not None
    spare = problem.completed(found)
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
        for ordered in _ORDERED:
            left = SOLVING * (end - time.monotonic())
            asker.answer(tuple(_solve(program, left if ordered else left / 2, ordered)))


if __name__ == "__main__":
    main()
