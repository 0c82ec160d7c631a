"""Intervals for paired ratios of times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt

# two-sided quantiles of Student's t distribution by degrees of freedom: (df, 97 %, 99.9 %)
_T = (
    (1, 21.205, 636.619),
    (2, 5.643, 31.599),
    (3, 3.896, 12.924),
    (4, 3.298, 8.610),
    (5, 3.003, 6.869),
    (6, 2.829, 5.959),
    (7, 2.715, 5.408),
    (8, 2.634, 5.041),
    (9, 2.574, 4.781),
    (10, 2.527, 4.587),
    (12, 2.461, 4.318),
    (15, 2.397, 4.073),
    (20, 2.336, 3.850),
    (30, 2.278, 3.646),
    (60, 2.223, 3.460),
    (1 << 30, 2.171, 3.292),
)


#: an interval whose ends are so many times apart is not shown
_WIDE = 100.0


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio with the ends of its interval."""

    ratio: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether there were enough pairs for an interval that says anything."""
        return self.low > 0 and self.high < _WIDE * self.low

    @property
    def ends(self) -> str:
        """The interval; nothing where a few pairs give none."""
        return f" [{self.low:.3f}, {self.high:.3f}]" if self.known else ""

    def __str__(self) -> str:
        return f"{self.ratio:.3f}{self.ends}"


def median(values: Sequence[float]) -> float:
    """The middle value; raises IndexError for no values."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def quick_mean(values: Sequence[float]) -> float:
    """The mean of the fastest quarter: time slices taken by neighbours do not count."""
    ordered = sorted(values)
    kept = ordered[: (len(ordered) + 3) // 4]
    return sum(kept) / len(kept)


def balanced(ratios: Sequence[float]) -> list[float]:
    """Ratios of neighbouring rounds as one each, a last one without a neighbour left out; a single one stays.

    The order of the models in a round alternates. Who comes second finds the caches full of the other one's data and is slower
    by some thousandths: in two rounds of opposite order that cancels, in one, or in an odd number of them, it does not.
    """
    if len(ratios) < 2:
        return list(ratios)
    return [sqrt(a * b) for a, b in zip(ratios[0::2], ratios[1::2], strict=False)]


def interval(groups: Sequence[Sequence[float]], strict: bool = False) -> Interval:
    """The geometric mean of paired ratios with its 95 % interval (`strict`: the one that may end a measurement early).

    `groups` are the ratios by process: where a process happens to lie in memory makes it a little faster or slower as long as
    it lives, so pairs of the same processes do not count as independent. Each group gives its median, and Student's interval is
    that of the medians. One group proves nothing.

    Whoever looks after every group, and stops when a difference shows, finds one sooner or later: the strict interval is one of
    99.9 %, the other one of 97 %, so that with all looks together fewer than 5 of 100 comparisons of equal models exclude 1.
    """
    means = [median([log(ratio) for ratio in group]) for group in groups if group]
    count = len(means)
    mean = sum(means) / count
    if count < 2:
        return Interval(exp(mean), 0.0, inf)
    deviation = sqrt(sum((value - mean) ** 2 for value in means) / (count - 1))
    row = max((row for row in _T if row[0] <= count - 1), key=lambda row: row[0])
    half = row[2 if strict else 1] * deviation / sqrt(count)
    return Interval(exp(mean), exp(mean - half), exp(mean + half))
