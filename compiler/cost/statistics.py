"""Intervals for paired ratios of times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# two-sided quantiles of Student's t distribution by degrees of freedom: (df, 95 %, 99.5 %)
_T = (
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
    """The mean of the faster half: a time slice taken by a neighbour does not count."""
    ordered = sorted(values)
    kept = ordered[: (len(ordered) + 1) // 2]
    return sum(kept) / len(kept)


def interval(ratios: Sequence[float], strict: bool = False) -> Interval:
    """The trimmed geometric mean of paired ratios with its 95 % interval (`strict`: 99.5 %).

    A tenth of the pairs at each end is trimmed and the deviation is that of the winsorized sample (Yuen's interval), so
    that single disturbed pairs neither move the mean nor blow up the interval. Fewer than three pairs give an infinite one.
    """
    from math import exp, inf, log, sqrt

    logs = sorted(log(ratio) for ratio in ratios)
    count = len(logs)
    cut = count // 10
    kept = logs[cut : count - cut]
    mean = sum(kept) / len(kept)
    if count < 3:
        return Interval(exp(mean), 0.0, inf)
    winsorized = [kept[0]] * cut + kept + [kept[-1]] * cut
    center = sum(winsorized) / count
    deviation = sqrt(sum((value - center) ** 2 for value in winsorized) / (count - 1))
    error = deviation / ((1 - 2 * cut / count) * sqrt(count))
    freedom = len(kept) - 1
    row = max((row for row in _T if row[0] <= freedom), key=lambda row: row[0])
    half = row[2 if strict else 1] * error
    return Interval(exp(mean), exp(mean - half), exp(mean + half))
