"""Settings of a generation, and its counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from dslc.records import record

#: told about progress: the stage, how much of it is done, how much there is (0 where that is not known), and a short text
Progress = Callable[[str, int, int, str], None]


@record
class GenerationSettings:
    """One generation. Nothing here but `workers`, `provers`, `scheduler`, `budget` and `resume` may change what is found.

    `libraries` are where the operators come from; `operators` their names (empty: those of the first library of which its properties
    state laws, or all of it); `budget` seconds of wall-clock time after which no further candidate is looked at.
    """

    libraries: tuple[str, ...] = ("taso",)
    operators: tuple[str, ...] = ()
    max_operators: int = 3
    inputs: str = ""
    seed: int = 0
    proof: bool = True
    budget: float | None = None
    workers: int = 1
    #: processes that prove; 0 proves in this one, without limits of time
    provers: int = 2
    scheduler: str | None = None
    resume: Path | None = None
    #: memory of one worker of a local cluster, in bytes
    memory: int = 2 << 30


@dataclass(slots=True)
class Stages:
    """Counts, seconds and left-out rules of each stage; the report that `--report` writes."""

    counts: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=partial(defaultdict, float))
    #: of processor time; `worker processes` are those of this run that have ended
    cpu_seconds: defaultdict[str, float] = field(default_factory=partial(defaultdict, float))
    #: (rule as text, why it was left out)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    peak_memory: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "counts": self.counts,
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
            "cpu_seconds": {name: round(value, 3) for name, value in self.cpu_seconds.items()},
            "left_out": [{"rule": rule, "reason": reason} for rule, reason in self.left_out],
            "peak_memory_bytes": self.peak_memory,
        }
