"""One clock for a whole command: what is left of its budget, what every phase took, and which phases were cut short."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import inf

from dslc.deadline import Deadline

STARVED = 0.6  #: share of one processor; a command that never rests and got less of it was kept waiting by others


class Clock:
    """Seconds since a command began, and until its budget ends. Everything that may take long is handed this object and asks it.

    Args:
        budget: seconds for the whole command; infinite where nothing bounds it.
        now: the time in seconds; deadlines that are made by this clock read the same one.
        began: when the command began, by `now`, where that was before what makes a clock was loaded.
        phase: what the command does since then.
    """

    def __init__(
        self,
        budget: float = inf,
        now: Callable[[], float] = time.monotonic,
        began: float | None = None,
        phase: str = "",
    ) -> None:
        self.budget = budget
        self.now = now
        self.began = now() if began is None else began
        self._end = self.began + budget
        self._name = phase
        self._since = self.began
        self._phases: dict[str, float] = {}
        self._cut: dict[str, None] = {}
        self._moments: dict[str, float] = {}
        self._spans: list[tuple[str, float, float]] = []
        self._processor = _spent() if began is None else 0.0

    @property
    def seconds(self) -> float:
        """Seconds since the command began."""
        return self.now() - self.began

    @property
    def processor(self) -> float:
        """Seconds of processor time that this process got since then, with its children that have ended."""
        return _spent() - self._processor

    @property
    def starved(self) -> bool:
        """True where the process got much less of a processor than one: others had it, or a limit was set."""
        return self.processor < STARVED * self.seconds

    def left(self) -> float:
        """Seconds until the budget's end; never below 0."""
        return max(0.0, self._end - self.now())

    def until(self, keep: float = 0.0) -> Deadline:
        """The deadline that keeps so many seconds of the budget; it comes sooner where the budget is shortened."""
        return Deadline(self._end - keep, self.now, self._ends)

    def _ends(self) -> Deadline:
        return Deadline(self._end, self.now)

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
            self._spans.append((self._name, self._since, moment))
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

    def resume(self, names: Collection[str]) -> None:
        """Says that phases go on which had ended before they were done."""
        for name in names:
            self._cut.pop(name, None)

    def reached(self, what: str) -> None:
        """Keeps when something was there for the first time."""
        self._moments.setdefault(what, self.seconds)

    @property
    def moments(self) -> Mapping[str, float]:
        """Seconds from the beginning until something was there for the first time."""
        return dict(self._moments)

    @property
    def phases(self) -> Mapping[str, float]:
        """Seconds of every phase, in the order in which they began."""
        self.enter(self._name)
        return dict(self._phases)

    def timeline(self, most: int = 400) -> tuple[tuple[str, float, float], ...]:
        """Phases with the seconds from the beginning at which each began and ended, in order.

        Where phases alternate so fast that there would be more than `most`, each of as many equal slices is of the
        phase that took most of it.
        """
        self.enter(self._name)
        spans = [(name, begin - self.began, end - self.began) for name, begin, end in self._spans if end > begin]
        if len(joined := _joined(spans)) > most:
            spans = _sliced(joined, most)
        return tuple(_joined(spans))

    @property
    def cuts(self) -> tuple[str, ...]:
        """The phases that ended before they were done."""
        return tuple(self._cut)


def _spent() -> float:
    """Seconds of processor time of this process and of its children that have ended; 0 where the system counts none."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _joined(spans: Iterable[tuple[str, float, float]]) -> list[tuple[str, float, float]]:
    """The same, spans of one phase that follow each other as one."""
    out: list[tuple[str, float, float]] = []
    for name, begin, end in spans:
        if out and out[-1][0] == name and out[-1][2] == begin:
            out[-1] = (name, out[-1][1], end)
        else:
            out.append((name, begin, end))
    return out


def _sliced(spans: list[tuple[str, float, float]], count: int) -> list[tuple[str, float, float]]:
    """So many slices of equal length, each of the phase that took most of it."""
    first, width = spans[0][1], (spans[-1][2] - spans[0][1]) / count
    parts: list[dict[str, float]] = [{} for _ in range(count)]
    for name, begin, end in spans:
        for k in range(int((begin - first) / width), min(count, int((end - first) / width) + 1)):
            inside = min(end, first + (k + 1) * width) - max(begin, first + k * width)
            parts[k][name] = parts[k].get(name, 0.0) + max(0.0, inside)
    edges = [first + k * width for k in range(count + 1)]
    return [(max(part, key=lambda one: part[one]), edges[k], edges[k + 1]) for k, part in enumerate(parts) if part]
