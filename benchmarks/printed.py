"""PACT'24's Algorithm 2 as it is printed, to compare with: parts of parts that are shared are not always charged rightly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dslc.deadline import FOREVER, Deadline
from dslc.egraph.extract.table import Choice, Extraction, ExtractionProblem, walk


@dataclass(frozen=True, slots=True)
class _Tuning:
    """Limits of looking for the cheapest expression.

    Attributes:
        rounds: rounds over all classes, as long as one finds something cheaper.
    """

    rounds: int = 30


_TUNING = _Tuning()


def printed_of(
    problem: ExtractionProblem, until: Deadline = FOREVER, start: Extraction | None = None
) -> Extraction | None:
    """The program by the paper's costs: each class has a history, what every class below was charged where it was first met.

    A child that overlaps with what was met is charged less the largest charge in the overlap, so an overlap of several classes
    that do not lie above each other is charged again in part. `estimate` is what the algorithm takes the program to cost.
    """
    del start
    if problem.roots is None:
        return None
    best: dict[int, tuple[float, Mapping[int, float], Choice]] = {}
    for _ in range(_TUNING.rounds):
        changed = False
        for number, row in enumerate(problem.rows):
            for choice in row:
                found = _charged(choice, best)
                if (
                    found is not None
                    and number not in found[1]
                    and (number not in best or found[0] < best[number][0] - 1e-12)
                ):
                    best[number] = (*found, choice)
                    changed = True
        if not changed or until.over:
            break
    program = walk(lambda n: best[n][2] if n in best else None, problem.roots, problem.find)
    if program is None:
        return None
    return Extraction(program.cost, program.choice, sum(best[root][0] for root in problem.roots))


def _charged(
    choice: Choice, best: Mapping[int, tuple[float, Mapping[int, float], Choice]]
) -> tuple[float, dict[int, float]] | None:
    total = choice.cost
    history: dict[int, float] = {}
    for kid in choice.kids:
        if kid in history:
            continue
        if kid not in best:
            return None
        cost, below, _ = best[kid]
        largest = 0.0
        for number, charge in below.items():
            if number in history:
                largest = max(largest, charge)
            else:
                history[number] = charge
        charged = max(cost - largest, 0.0)
        history[kid] = charged
        total += charged
    return total, history


__all__ = ["printed_of"]
