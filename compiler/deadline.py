"""One value that says when something ends: everything that may take long is handed one and asks it."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf

from dslc.records import record


class TimeUp(Exception):
    """The time for what was begun is over; what is known so far counts."""


@record
class Deadline:
    """The end of something, in seconds of a clock.

    Attributes:
        end: the moment, by `now`; what `outer` says may come sooner.
        now: the time in seconds.
        outer: the end of what this is a part of, where that may still move: a command that is interrupted, a turn that ends.
    """

    end: float = inf
    now: Callable[[], float] = time.monotonic
    outer: Callable[[], Deadline] | None = None

    @classmethod
    def after(cls, seconds: float, now: Callable[[], float] = time.monotonic) -> Deadline:
        """The end in so many seconds."""
        return cls(now() + seconds, now)

    def left(self) -> float:
        """Seconds until then; never below 0."""
        own = max(0.0, self.end - self.now())
        return own if self.outer is None else min(own, self.outer().left())

    @property
    def over(self) -> bool:
        """True where nothing is left."""
        return self.now() >= self.end or (self.outer is not None and self.outer().over)

    def part(self, share: float = 1.0, most: float = inf) -> Deadline:
        """The end of such a share of what is left, or of so many seconds where that is sooner."""
        left = self.left()
        return (
            self
            if left == inf and most == inf
            else Deadline(self.now() + min(share * left, most), self.now, self.outer)
        )


#: never
FOREVER = Deadline()
#: already: nothing new is begun
OVER = Deadline(-inf)
