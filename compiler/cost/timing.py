"""Whole models against each other: interleaved, in pairs, each in a process of its own that halts while others run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import ceil
from typing import Any

from dslc.cost.machine import available_memory
from dslc.cost.process import ModelFile, Worker, WorkerFailed
from dslc.cost.statistics import Interval, interval, median, quick_mean

#: memory taken by a session: the runtime itself, and its weights with what it packs of them
BASE, PER_WEIGHT = 150 << 20, 2.0
FEWEST, MOST = 8, 400
#: a block lasts about this many seconds, but has at least three samples
BLOCK = 0.02


@dataclass(frozen=True, slots=True)
class Timing:
    """One model's times in seconds, and how much faster than the first model it is (above 1: faster)."""

    median: float
    minimum: float
    blocks: int
    ratio: Interval

    @property
    def faster(self) -> bool:
        """Whether the lower end of the 95 % interval of the paired ratios is above 1."""
        return self.ratio.low > 1


class MemoryShort(Exception):
    """There is not enough memory to load a model."""


def check_memory(files: Sequence[ModelFile]) -> None:
    """Raises MemoryShort where the models cannot all be loaded at once."""
    needed = sum(BASE + int(PER_WEIGHT * file.bytes) for file in files)
    free = available_memory()
    if needed > free:
        raise MemoryShort(f"running it takes about {needed / 2**30:.1f} GiB of memory, {free / 2**30:.1f} GiB are free")


def race(
    models: Sequence[ModelFile],
    feeds: Mapping[str, Any],
    threads: int,
    seconds: float = 10.0,
    on_block: Callable[[int], None] | None = None,
) -> list[Timing]:
    """Times models on the same inputs; the first is the one that the others are compared with.

    Rounds of one block for each model, in alternating order; a block is several runs, of which the faster half counts. It
    ends when `seconds` have passed, or as soon as every interval of 99.5 % excludes 1 (looking often at one of 95 % would
    find a difference sooner or later where there is none), or after 400 rounds.

    Raises WorkerFailed where a model does not run, and MemoryShort where memory does not suffice to keep all in memory.
    """
    check_memory(models)
    with ExitStack() as stack:
        workers = []
        for model in models:
            worker = stack.enter_context(Worker(threads))
            worker.load(model)
            worker.ask({"do": "bind", "feeds": dict(feeds)})
            worker.stop()
            workers.append(worker)
        return _race(workers, seconds, on_block)


def _race(workers: Sequence[Worker], seconds: float, on_block: Callable[[int], None] | None) -> list[Timing]:
    plan = [_plan(worker) for worker in workers]
    blocks: list[list[float]] = [[] for _ in workers]
    samples: list[list[float]] = [[] for _ in workers]
    deadline = time.monotonic() + seconds
    order = list(range(len(workers)))
    for turn in range(MOST):
        for k in order:
            calls, inner = plan[k]
            times = workers[k].ask({"do": "time", "calls": calls, "inner": inner})["seconds"]
            workers[k].stop()
            blocks[k].append(quick_mean(times))
            samples[k].extend(times)
        order.reverse()
        if on_block is not None:
            on_block(turn + 1)
        if turn + 1 >= 3 and time.monotonic() > deadline:
            break
        if turn + 1 >= FEWEST and all(_settled(blocks[0], other) for other in blocks[1:]):
            break
    return [
        Timing(median(samples[k]), min(samples[k]), len(own), _ratio(blocks[0], own)) for k, own in enumerate(blocks)
    ]


def _plan(worker: Worker) -> tuple[int, int]:
    """Samples for each block, and runs for each sample, so that a sample is well above the clock's resolution."""
    once = float(worker.ask({"do": "time", "calls": 3, "inner": 1})["seconds"][-1])
    worker.stop()
    inner = max(1, ceil(1e-4 / max(once, 1e-7)))
    return max(3, min(50, round(BLOCK / (once * inner)))), inner


def _ratio(first: Sequence[float], other: Sequence[float]) -> Interval:
    if first is other:
        return Interval(1.0, 1.0, 1.0)
    return interval([a / b for a, b in zip(first, other, strict=True)])


def _settled(first: Sequence[float], other: Sequence[float]) -> bool:
    found = interval([a / b for a, b in zip(first, other, strict=True)], strict=True)
    return found.low > 1 or found.high < 1


__all__ = ["MemoryShort", "ModelFile", "Timing", "WorkerFailed", "check_memory", "race"]
