"""What a user may say about a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the optimizer tells what it does: a phase by name, and what is known so far (cost over first cost, steps)."""

    phase: Callable[[str], None] = lambda _: None
    best: Callable[[float, int], None] = lambda _ratio, _steps: None


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of a run; `dslc.optimize` documents them."""

    rules: Sequence[str | Path] = ()
    only: Sequence[str] = ()
    disable: Sequence[str] = ()
    budget: float = 60.0
    alpha: float = 1.05
    seed: int = 0
    steps: int | None = None
    tolerance: float | None = None
    bind: Sequence[Mapping[str, int]] = ({},)
    inputs: str | Path | None = None
    threads: int | None = None
    timing: bool = True
    specialize: bool = False
    cache: str | Path | None = None
    progress: Progress = Progress()
