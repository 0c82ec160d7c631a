"""What a user may say about a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dslc.search.backtracking import Backtrack
from dslc.search.strategy import Strategy

#: `joint`: with every substitution, the layouts of what it builds; `after`: when no substitution gains any more; `only`: no
#: substitutions; `none`: substitutions alone
Mode = Literal["joint", "after", "only", "none"]

_TIME = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|m|min|h)?")
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, None: 1.0}


def seconds_of(text: str) -> float:
    """`90`, `90s`, `1.5m`, `2h` as seconds; raises ValueError."""
    found = _TIME.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is no time; write 60s, 2m or 1h")
    return float(found.group(1)) * _UNITS[found.group(2)]


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the optimizer tells what it does: a phase by name, steps done, and how many times as fast the best so far is."""

    phase: Callable[[str], None] = lambda _: None
    step: Callable[[int], None] = lambda _: None
    best: Callable[[float, int], None] = lambda _ratio, _steps: None


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of a run; `dslc.optimize` documents them."""

    rules: Sequence[str | Path] = ()
    only: Sequence[str] = ()
    disable: Sequence[str] = ()
    #: statuses of rules that are used beside proved and bounded ones: tested, trusted, undecided
    allow: Sequence[str] = ()
    strategy: Strategy = field(default_factory=Backtrack)
    layouts: Mode = "joint"
    budget: float = 60.0
    #: seconds without a gain after which the search ends; None: a quarter of the budget
    patience: float | None = None
    alpha: float = 1.05
    seed: int = 0
    steps: int | None = None
    tolerance: float | None = None
    bind: Sequence[Mapping[str, int]] = ({},)
    inputs: str | Path | None = None
    threads: int | None = None
    timing: bool = True
    specialize: bool = False
    #: without rules that change infinities, NaN or overflows
    strict_floats: bool = False
    cache: str | Path | None = None
    progress: Progress = Progress()
    #: how often Ctrl-C was pressed, where someone counts: libraries in C may turn the exception into an error of their own
    interrupts: Callable[[], int] = lambda: 0


def each_binding(bind: Mapping[str, int | Sequence[int]]) -> list[dict[str, int]]:
    """One dictionary for each position of the lists of sizes; a single size goes with all of them.

    Raises ValueError for lists of different lengths.
    """
    sizes = {name: [value] if isinstance(value, int) else [int(one) for one in value] for name, value in bind.items()}
    count = max((len(listed) for listed in sizes.values()), default=1)
    for name, listed in sizes.items():
        if len(listed) not in (1, count):
            raise ValueError(f"{name} has {len(listed)} sizes where another has {count}")
    return [{name: listed[k % len(listed)] for name, listed in sizes.items()} for k in range(count)]
