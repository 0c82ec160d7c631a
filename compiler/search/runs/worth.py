"""Worth of a contender: by what was timed of it, or by its prediction and what predictions were worth so far; and what it takes to
know it."""

from __future__ import annotations

from math import log

from dslc.search.runs.contenders import Contender
from dslc.search.runs.progress import Run
from dslc.search.runs.stages import Referenced

STARTING = 0.25  #: seconds of starting a process, without loading a model
#: times as long as starting the models that it is about a decision takes: generations of processes, and as long
#: again for their rounds
STARTS = 6
#: times as long as starting the models that it is about a decision takes: generations of processes, and as long
#: again for their rounds
MOST_STARTS = 20
CLEAR = 1.25  #: how many times as fast needs the fewest starts
#: runs of each model beside the original's: few of them decide nothing, unless it is expected to be much faster
PAIRS = 40
#: runs of each model beside the original's: few of them decide nothing, unless it is expected to be much faster
FEWEST = 16
NEAR = 1.1  #: how many times as fast needs all of these


def expected(run: Run, one: Contender) -> float:
    """Seconds that a contender is expected to take: by what was timed of it, or as it was predicted, and by how much more than
    predicted what was timed is worth."""
    judge = run.judges.get(False)
    if judge is None or run.start is None:
        return one.candidate.cost
    found = judge.so_far(one)
    if found is not None:
        return run.start.cost / found.ratio.ratio
    timed = [
        (each.ratio.ratio, other.candidate.cost) for other in run.checked if (each := judge.so_far(other)) is not None
    ]
    ratio, cost = max(timed, default=(0.0, 0.0))
    return one.candidate.cost * min(1.0, run.start.cost / (ratio * cost) if ratio * cost > 0 else 1.0)


def deciding(referenced: Referenced, count: int, faster: float) -> float:
    """Seconds of a decision about so many contenders, the best of which is expected to be so many times as fast.

    What is a tenth faster shows in any generation of processes; less takes many (`dslc.cost.confidence_sequence`).
    """
    hope = log(max(faster, 1.001))
    starts = min(MOST_STARTS, max(STARTS, STARTS * log(CLEAR) / hope))
    pairs = min(PAIRS, max(FEWEST, PAIRS * log(NEAR) / hope))
    return (count + 1) * (starts * (referenced.load + STARTING) + pairs * referenced.seconds)
