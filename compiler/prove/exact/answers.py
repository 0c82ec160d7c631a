"""What a comparison of two programs may say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Presumed(Enum):
    """What a proof takes for granted besides that floats are real numbers; the value is how it is said."""

    NOT_NAN = "what is compared is not NaN"


@dataclass(frozen=True, slots=True)
class Equal:
    """The programs are equal for all sizes that satisfy the conditions; `presumed` is no part of its identity."""

    presumed: frozenset[Presumed] = field(default=frozenset(), compare=False)


@dataclass(frozen=True, slots=True)
class Differs:
    """At these sizes, output number `output` differs at `position`, in the coefficient of `monomial`."""

    sizes: Mapping[str, int]
    output: int
    position: tuple[int, ...]
    monomial: str


@dataclass(frozen=True, slots=True)
class Undecided:
    """`places`: it is a matter of places in merged dimensions, which numbers for some sizes may decide."""

    reason: str
    places: bool = False


Answer = Equal | Differs | Undecided
