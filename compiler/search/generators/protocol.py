"""Generators of candidates as a protocol, and their priors: what asking is worth before a run knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

from dslc.search.rewrites.candidate import Candidate
from dslc.search.runs.context import SearchContext

#: of one candidate: what each unit of work found, often nothing; asked again it goes on, and where its time was over it tries again
Proposer = Callable[[Candidate], Iterator[Sequence[Candidate]]]


@dataclass(frozen=True, slots=True)
class Prior:
    """What asking is worth before a run knows.

    `gain` is the share of what it promises that it mostly keeps, after about so many `seconds`; a turn takes such a `share` of the time
    that is left, and `most` seconds.
    """

    gain: float
    seconds: float
    share: float = 1.0
    most: float = inf


class Generator(Protocol):
    """Proposes candidates beside others. A frozen dataclass, whose fields are its tuning; adding one is a line in
    `dslc.search.generators.table`."""

    @property
    def name(self) -> str:
        """As in reports."""

    @property
    def phase(self) -> str:
        """The phase of the run that its seconds belong to."""

    @property
    def prior(self) -> Prior:
        """What asking is worth before a run knows."""

    @property
    def needed(self) -> bool:
        """Whether something is missing where there was no time for it."""

    @property
    def again(self) -> bool:
        """Whether it is asked about what it proposed itself."""

    @property
    def gathers(self) -> bool:
        """Whether it goes by what others found, and is asked again when that is more."""

    def promise(self, context: SearchContext, base: Candidate) -> float:
        """The share of a candidate's time that it might save at most; 0 where it is not to be asked. Raises TimeUp."""

    def begin(self, context: SearchContext) -> Proposer:
        """Begins a run."""
