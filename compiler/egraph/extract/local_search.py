"""Switches of several classes together: what is taken apart from one fused product pays off only when all its parts are taken there.

Each class judged alone, half of a fused product costs the whole product. So for everything that is read by choices of several classes
of the program, all of them switch at once, and stay where the program as a whole is cheaper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from math import inf

from dslc.deadline import FOREVER, Deadline
from dslc.egraph.extract.dag_cost import shared_of
from dslc.egraph.extract.table import Choice, ChoiceTable, Extraction, ExtractionProblem, Walked, walk

MOST_CLASSES = 12  #: classes of a program with another choice that reads one; where more do, that is not tried
ROUNDS = 8  #: rounds over everything, as long as one finds something


def switched(
    table: ChoiceTable,
    roots: Sequence[int],
    chosen: Callable[[int], Choice | None],
    now_is: Walked,
    candidates: Iterable[int],
    until: Deadline = FOREVER,
    most: float = inf,
) -> tuple[Walked, dict[int, Choice]]:
    """A program after all switches that make it cheaper, and the choices that are others than `chosen`.

    Args:
        now_is: the program to begin with.
        candidates: what the switches are to read.
        most: so many switches are tried.
    """
    over: dict[int, Choice] = {n: choice for n, choice in now_is.choice.items() if chosen(n) != choice}
    tried = 0
    reads: dict[int, int] | None = None
    for number in candidates:
        together = _readers(table, number, now_is)
        if len(together) < 2:
            continue
        if tried >= most or until.over:
            break
        tried += 1
        trial = {**over, **together}

        def choice_of(n: int, trial: Mapping[int, Choice] = trial) -> Choice | None:
            return trial.get(n) or chosen(n)

        if reads is None:
            reads = _reads(now_is, roots, table.find)
        if not _saves(now_is, reads, together, choice_of, table.find):
            continue
        found = walk(choice_of, roots, table.find, now_is.cost)
        if found is not None:
            now_is, over, reads = found, trial, None
    return now_is, over


def _reads(program: Walked, roots: Iterable[int], find: Callable[[int], int]) -> dict[int, int]:
    """Count the reads of each class of a program."""
    return Counter(map(find, chain(roots, *(choice.kids for choice in program.choice.values()))))


def _saves(
    program: Walked, reads: Mapping[int, int], together: Mapping[int, Choice], choice_of: Callable[[int], Choice | None],
    find: Callable[[int], int],
) -> bool:  # fmt: skip
    """Return whether a program is cheaper after switches, as far as what comes and what goes says: it may read itself then."""
    gained = 0.0
    now: dict[int, int] = {}
    come: dict[int, Choice] = {}
    stack: list[int] = []
    for number, choice in together.items():
        gained += program.choice[number].cost - choice.cost
        stack += choice.kids
    while stack:
        kid = find(stack.pop())
        count = now.get(kid, reads.get(kid, 0))
        now[kid] = count + 1
        if not count:
            new = choice_of(kid)
            if new is None:
                return False
            come[kid] = new
            gained -= new.cost
            stack += new.kids
    for number in together:
        stack += program.choice[number].kids
    while stack:
        kid = find(stack.pop())
        count = now[kid] = now.get(kid, reads.get(kid, 0)) - 1
        if not count:
            old = together.get(kid) or come.get(kid) or program.choice[kid]
            gained += old.cost
            stack += old.kids
    return gained > 0


def _readers(table: ChoiceTable, number: int, program: Walked) -> dict[int, Choice]:
    """The classes of a program that have another choice, which reads `number`: none where they are too many."""
    out: dict[int, Choice] = {}
    for above, choice in table.uses(number):
        if above in out:
            continue
        current = program.choice.get(above)
        if current is not None and number not in current.kids:
            out[above] = choice
            if len(out) > MOST_CLASSES:
                return {}
    return out


def joint_of(
    problem: ExtractionProblem, until: Deadline = FOREVER, start: Extraction | None = None
) -> Extraction | None:
    """The program by shared costs, or another one to begin with, after all joint switches that make it cheaper."""
    found = start or shared_of(problem, until)
    if found is None or problem.roots is None:
        return found
    program = Walked(found.cost, dict(found.choice))
    several = [number for number in range(len(problem)) if len(problem.uses(number)) > 1]

    spare = problem.completed(found)
    for _ in range(ROUNDS):
        before = program.cost
        program, over = switched(problem, problem.roots, spare.__getitem__, program, several, until)
        for number, choice in over.items():
            spare[number] = choice
        if not program.cost < before or until.over:
            break
    return Extraction(program.cost, program.choice, program.cost)
