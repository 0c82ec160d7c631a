"""Whole models against each other: interleaved, in pairs, each in a process of its own that halts while others run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import ceil
from typing import Any

from dslc.cost.machine import available_memory
from dslc.cost.process import ModelFile, Worker, WorkerFailed, on_disk
from dslc.cost.statistics import Interval, interval, median, quick_mean
from dslc.errors import error

#: memory taken by a session: the runtime itself, and its weights with what it packs of them
BASE, PER_WEIGHT = 150 << 20, 2.0
#: processes are started anew so often: at least, and at most
FEWEST, MOST = 5, 40
#: rounds with the same processes: at least, and at most
ROUNDS, MANY_ROUNDS = 4, 30
#: a block lasts about this many seconds, but has at least four samples
BLOCK, SAMPLES = 0.03, 4
#: a likely gain that a noisy machine leaves undecided gets this many times the time
PATIENCE, LIKELY = 3, 1.03


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

    Rounds of one block for each model, in alternating order; a block is several runs, of which the fastest quarter counts. Every
    now and then all processes are started anew, and the intervals come from the spread between these generations. It ends
    when `seconds` have passed (three times as many where a gain is likely but not certain), or as soon as every interval of
    99.5 % excludes 1: looking often at one of 95 % would find a difference sooner or later where there is none. There are at
    least five generations, three where loading takes long.

    Raises WorkerFailed where a model does not run, and MemoryShort where memory does not suffice to keep all in memory.
    """
    check_memory(models)
    found = _Times(len(models))
    start = time.monotonic()
    with on_disk(models) as stored:
        for generation in range(MOST):
            share = time.monotonic() + seconds / 12
            with ExitStack() as stack:
                workers = [_ready(stack.enter_context(Worker(threads)), model, feeds) for model in stored]
                found.begin()
                _rounds(workers, found, share)
            if on_block is not None:
                on_block(generation + 1)
            taken = time.monotonic() - start
            if generation + 1 < FEWEST and (generation + 1 < 3 or taken < 2 * seconds):
                continue
            if found.settled() or taken > (PATIENCE * seconds if found.likely() else seconds):
                break
    return found.timings()


class _Times:
    """What was measured: seconds of samples for each model, and of blocks for each generation and model."""

    def __init__(self, count: int) -> None:
        self.samples: list[list[float]] = [[] for _ in range(count)]
        self.blocks: list[list[list[float]]] = []

    def begin(self) -> None:
        self.blocks.append([[] for _ in self.samples])

    def add(self, model: int, times: Sequence[float]) -> None:
        self.samples[model].extend(times)
        self.blocks[-1][model].append(quick_mean(times))

    def ratios(self, model: int) -> list[list[float]]:
        return [[a / b for a, b in zip(blocks[0], blocks[model], strict=True)] for blocks in self.blocks]

    def settled(self) -> bool:
        found = [interval(self.ratios(k), strict=True) for k in range(1, len(self.samples))]
        return all(one.low > 1 or one.high < 1 for one in found)

    def likely(self) -> bool:
        """Whether some model is probably faster, but not yet certainly."""
        found = [interval(self.ratios(k)) for k in range(1, len(self.samples))]
        return not any(one.low > 1 for one in found) and any(one.ratio > LIKELY for one in found)

    def timings(self) -> list[Timing]:
        ratios = [Interval(1.0, 1.0, 1.0), *(interval(self.ratios(k)) for k in range(1, len(self.samples)))]
        count = sum(len(blocks[0]) for blocks in self.blocks)
        return [Timing(median(own), min(own), count, ratio) for own, ratio in zip(self.samples, ratios, strict=True)]


def _ready(worker: Worker, model: ModelFile, feeds: Mapping[str, Any]) -> Worker:
    """The worker with the model loaded and its inputs bound, halted."""
    worker.load(model)
    worker.ask({"do": "bind", "feeds": dict(feeds)})
    worker.stop()
    return worker


def _rounds(workers: Sequence[Worker], found: _Times, until: float) -> None:
    plan = [_plan(worker) for worker in workers]
    order = list(range(len(workers)))
    for turn in range(MANY_ROUNDS):
        for k in order:
            calls, inner = plan[k]
            found.add(k, workers[k].ask({"do": "time", "calls": calls, "inner": inner})["seconds"])
            workers[k].stop()
        order.reverse()
        if turn + 1 >= ROUNDS and time.monotonic() > until:
            break


def raced(
    models: Sequence[ModelFile], names: Sequence[str], feeds: Mapping[str, Any], threads: int, seconds: float
) -> list[Timing]:
    """As `race`, with failures as diagnostics.

    Raises:
        DslcError: E0811 where a model does not run, E0905 where memory does not suffice.
    """
    try:
        return race(models, feeds, threads, seconds)
    except MemoryShort as problem:
        raise error("E0905", str(problem), path=", ".join(names)) from None
    except WorkerFailed as problem:
        for model, name in zip(models, names, strict=True):
            with Worker(threads) as worker:
                try:
                    worker.load(model)
                    worker.ask({"do": "run", "feeds": dict(feeds)})
                except WorkerFailed as own:
                    raise error("E0811", f"ONNX Runtime cannot run it: {own}", path=name) from None
        raise error("E0811", f"ONNX Runtime cannot run the models: {problem}") from None


def _plan(worker: Worker) -> tuple[int, int]:
    """Samples for each block, and runs for each sample, so that a sample is well above the clock's resolution."""
    once = float(worker.ask({"do": "time", "calls": 3, "inner": 1})["seconds"][-1])
    worker.stop()
    inner = max(1, ceil(1e-4 / max(once, 1e-7)))
    return max(SAMPLES, min(50, round(BLOCK / (once * inner)))), inner


__all__ = ["MemoryShort", "ModelFile", "Timing", "WorkerFailed", "check_memory", "race"]
