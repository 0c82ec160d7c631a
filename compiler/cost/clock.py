"""One clock for a whole command: what is left of its budget, what every phase took, and which phases were cut short."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import inf


class TimeUp(Exception):
    """The time for what was begun is over; what is known so far counts."""


class Clock:
    """Seconds since a command began, and until its budget ends. Everything that may take long is handed this object and asks it.

    Args:
        budget: seconds for the whole command; infinite where nothing bounds it.
        now: the time in seconds; `Limits` and workers that get their end from this clock read the same one.
    """

    def __init__(self, budget: float = inf, now: Callable[[], float] = time.monotonic) -> None:
        self.budget = budget
        self.now = now
        self.began = now()
        self._end = self.began + budget
        self._name = ""
        self._since = self.began
        self._phases: dict[str, float] = {}
        self._cut: dict[str, None] = {}

    @property
    def seconds(self) -> float:
        """Seconds since the command began."""
        return self.now() - self.began

    def left(self, keep: float = 0.0) -> float:
        """Seconds until the budget's end, less the share `keep` of the budget; never below 0."""
        return max(0.0, self.end(keep) - self.now())

    def end(self, keep: float = 0.0) -> float:
        """When, by `now`, the budget ends, or the part of it that leaves the share `keep`."""
        return self._end - (keep * self.budget if self._end < inf else 0.0)

    def shorten(self, seconds: float) -> None:
        """Ends everything in so many seconds, or at the budget's end where that is sooner; no share is kept any more."""
        self._end = min(self._end, self.now() + seconds)
        self.budget = min(self.budget, seconds)

    # ---- phases ------------------------------------------------------------------------------------------------

    def enter(self, name: str) -> None:
        """The phase that begins now; its seconds are added to those that it had before."""
        moment = self.now()
        if self._name:
            self._phases[self._name] = self._phases.get(self._name, 0.0) + moment - self._since
        self._name, self._since = name, moment

    @contextmanager
    def within(self, name: str) -> Iterator[None]:
        """A phase inside another one, whose seconds are not the other one's."""
        outer = self._name
        self.enter(name)
        try:
            yield
        finally:
            self.enter(outer)

    def cut(self, name: str) -> None:
        """Says that a phase ended before it was done."""
        self._cut[name] = None

    @property
    def phases(self) -> Mapping[str, float]:
        """Seconds of every phase, in the order in which they began."""
        self.enter(self._name)
        return dict(self._phases)

    @property
    def cuts(self) -> tuple[str, ...]:
        """The phases that ended before they were done."""
        return tuple(self._cut)
