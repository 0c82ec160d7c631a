"""Worth of a contender: by what was timed of it, or by its prediction and what predictions were worth so far."""

from __future__ import annotations

from dslc.search.runs.contenders import Contender
from dslc.search.runs.progress import Run


def expected(run: Run, one: Contender) -> float:
    """Seconds that a contender is expected to take: by what was timed of it, or as it was predicted, and by how much more than
    predicted what was timed is worth."""
    judge = run.judges.get(False)
    if judge is None or run.start is None:
        return one.candidate.cost
    found = judge.so_far(one)
    if found is not None:
        return run.start.cost / found.ratio.ratio
    timed = [(each.ratio.ratio, other.candidate.cost) for other in run.checked if (each := judge.so_far(other)) is not None]
    ratio, cost = max(timed, default=(0.0, 0.0))
    return one.candidate.cost * min(1.0, run.start.cost / (ratio * cost) if ratio * cost > 0 else 1.0)


__all__ = ["expected"]
