"""Programs over columns of 0 and 1, of which a solver chooses the cheapest, and what it found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IntegerProgram:
    """Choose columns at the lowest cost: one of every class in `roots`, and of every class that a chosen one reads, in no circle.

    Classes are 0 to `classes` - 1, columns by place: `owner` is the class of each, `kids` what it reads. `first` are the columns of
    a program to begin with; costs are so that it costs about a thousand. Two programs cost the same, or differ by `step` at least.
    """

    classes: int
    roots: Sequence[int]
    owner: Sequence[int]
    costs: Sequence[float]
    kids: Sequence[Sequence[int]]
    first: Sequence[int]
    step: float = 0.0


@dataclass(frozen=True, slots=True)
class Solved:
    """The columns of the best program that was found, and what no program is below."""

    chosen: Sequence[int]
    bound: float
    optimal: bool = False
