"""Intervals for paired ratios of times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt

# two-sided quantiles of Student's t distribution by degrees of freedom: (df, 95 %, 99.5 %)
_T = (
    (1, 12.706, 127.321),
    (2, 4.303, 14.089),
    (3, 3.182, 7.453),
    (4, 2.776, 5.598),
    (5, 2.571, 4.773),
    (6, 2.447, 4.317),
    (7, 2.365, 4.029),
    (8, 2.306, 3.833),
    (9, 2.262, 3.690),
    (10, 2.228, 3.581),
    (12, 2.179, 3.428),
    (15, 2.131, 3.286),
    (20, 2.086, 3.153),
    (30, 2.042, 3.030),
    (60, 2.000, 2.915),
    (1 << 30, 1.960, 2.807),
)


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio with the ends of its interval."""

    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.ratio:.3f} [{self.low:.3f}, {self.high:.3f}]"


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


def interval(groups: Sequence[Sequence[float]], strict: bool = False) -> Interval:
    """The geometric mean of paired ratios with its 95 % interval (`strict`: 99.5 %).

    `groups` are the ratios by process: where a process happens to lie in memory makes it a little faster or slower as long as
    it lives, so pairs of the same processes do not count as independent. Each group gives its median, and Student's interval is
    that of the medians. One group proves nothing.
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
