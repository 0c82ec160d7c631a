"""Whole models against each other: interleaved, in pairs, each in a process of its own that halts while others run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import ceil, inf
from typing import Any

from dslc.cost.clock import Clock, TimeUp
from dslc.cost.machine import available_memory
from dslc.cost.process import ModelFile, Worker, WorkerFailed, on_disk
from dslc.cost.statistics import Interval, balanced, interval, median, quick_mean
from dslc.errors import error

#: memory taken by a session: the runtime itself, and its weights with what it packs of them
BASE, PER_WEIGHT = 150 << 20, 2.0
#: processes are started anew so often: at least where time allows, and at most
FEWEST, MOST = 5, 200
#: rounds with the same processes: at least (each order once), and at most
ROUNDS, MANY_ROUNDS = 2, 60
#: a block lasts about this many seconds, but has at least four samples where these are not long
BLOCK, SAMPLES, MOST_SAMPLES = 0.03, 4, 50
#: of the time of a race, a generation takes such a share, so many seconds at most, but no less than what its start took
GENERATION, LONGEST = 1 / 12, 2.0
#: one more is begun where time for such a part of it is left
WORTH = 0.7
#: what is asked for by itself may take so many seconds longer, for the first of it
FIRST = 30.0


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
    *,
    clock: Clock | None = None,
    least: float = 0.0,
    times: Times | None = None,
) -> list[Timing]:
    """Times models on the same inputs; the first is the one that the others are compared with.

    Rounds of one block for each model, each round in the opposite order of the one before; a block is several runs, of which the
    fastest quarter counts. Every now and then all processes are started anew, in the opposite order, and the intervals come from
    the spread between these generations. It ends when `seconds` have passed, or after five generations as soon as it is decided:
    see `dslc.cost.statistics.interval` for what that takes. Whatever is undecided gets all of the time.

    Args:
        clock: ends the race at once, and processes that hang with it.
        least: gains below this share are not worth more time: it ends, too, where no model has a chance of a larger one.
        times: collects what was measured, so that it is there when the race is interrupted.

    Raises:
        WorkerFailed: a model does not run.
        MemoryShort: memory does not suffice to keep all in it.
        TimeUp: the clock ended before a single pair was complete.
    """
    check_memory(models)
    found = Times() if times is None else times
    found.of(len(models))
    ends = Clock() if clock is None else clock
    start, last = time.monotonic(), 0.0
    with on_disk(models) as stored:
        for generation in range(MOST):
            began = time.monotonic()
            if generation and last * WORTH > min(seconds - (began - start), ends.left()):
                break
            try:
                _generation(stored, feeds, threads, found, seconds, ends)
            except WorkerFailed as failed:
                if not failed.late:
                    raise
                break
            last = time.monotonic() - began
            if on_block is not None:
                on_block(generation + 1)
            if time.monotonic() - start > seconds:
                break
            if generation + 1 >= FEWEST and (found.settled() or found.hopeless(least)):
                break
    if not found.complete:
        raise TimeUp
    return found.timings()


def _generation(
    stored: Sequence[ModelFile], feeds: Mapping[str, Any], threads: int, found: Times, seconds: float, clock: Clock
) -> None:
    """New processes, and rounds with them. Who is started first lies elsewhere in memory: that changes from one to the next."""
    began = time.monotonic()
    order = list(range(len(stored)))
    if found.generations % 2:
        order.reverse()
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(threads, clock.left, file.runner)) for file in stored]
        for k in order:
            workers[k].start()
        once = [0.0] * len(stored)
        for k in order:
            workers[k].load(stored[k])
            once[k] = _bound(workers[k], feeds, found)
        if found.plain and found.plan is None:
            # all in the same way: allocating outputs takes time
            once = [_bound(worker, feeds, found) for worker in workers]
        load = time.monotonic() - began
        share = min(max(min(seconds * GENERATION, LONGEST), load), max(load / 3, seconds / FEWEST - load))
        if found.plan is None:
            found.plan = _plan(once, share)
        found.begin()
        _rounds(workers, found, order, found.plan, time.monotonic() + share)


@dataclass(frozen=True, slots=True)
class Plan:
    """Samples in a block, the same for all models: the least of few is larger than that of many. Runs in a sample, by model."""

    calls: int
    inner: tuple[int, ...]


def _plan(once: Sequence[float], share: float) -> Plan:
    """From seconds of a run of each model: a sample is well above the clock's resolution, and two rounds fit in the share."""
    inner = tuple(max(1, ceil(1e-4 / max(seconds, 1e-7))) for seconds in once)
    sample = [seconds * count for seconds, count in zip(once, inner, strict=True)]
    calls = max(SAMPLES, min(MOST_SAMPLES, round(BLOCK / max(sample))))
    return Plan(max(1, min(calls, int(share / (2 * sum(sample))))), inner)


class Times:
    """What was measured: seconds of samples for each model, and of blocks for each generation and model."""

    def __init__(self) -> None:
        self.samples: list[list[float]] = []
        self.blocks: list[list[list[float]]] = []
        #: as of the first generation: what a block is, and whether runs allocate their outputs
        self.plan: Plan | None = None
        self.plain = False

    def of(self, count: int) -> None:
        """How many models there are."""
        self.samples = [[] for _ in range(count)]

    @property
    def generations(self) -> int:
        return len(self.blocks)

    @property
    def complete(self) -> bool:
        """Whether there is a pair for every model."""
        return any(all(blocks) for blocks in self.blocks)

    def begin(self) -> None:
        self.blocks.append([[] for _ in self.samples])

    def add(self, model: int, times: Sequence[float]) -> None:
        self.samples[model].extend(times)
        self.blocks[-1][model].append(quick_mean(times))

    def interval(self, model: int, strict: bool = False) -> Interval:
        """How much faster than the first one a model is."""
        ratios = [[a / b for a, b in zip(blocks[0], blocks[model], strict=False)] for blocks in self.blocks]
        return interval([balanced(own) for own in ratios if own], strict)

    def _intervals(self, strict: bool = False) -> list[Interval]:
        return [self.interval(k, strict) for k in range(1, len(self.samples))]

    def settled(self) -> bool:
        """Whether every model is faster or slower, or at least none can be faster than one that is."""
        strict = self._intervals(strict=True)
        best = max((one.ratio for one in strict if one.low > 1), default=inf)
        return all(
            one.low > 1 or one.high < 1 or usual.high < best for one, usual in zip(strict, self._intervals(), strict=True)
        )

    def hopeless(self, least: float) -> bool:
        """Whether no model has a chance of a gain of such a share."""
        return all(one.high < 1 + least for one in self._intervals())

    def timings(self) -> list[Timing]:
        """As of now, for models that have a pair each."""
        ratios = [Interval(1.0, 1.0, 1.0), *self._intervals()]
        count = sum(len(blocks[0]) for blocks in self.blocks)
        return [Timing(median(own), min(own), count, ratio) for own, ratio in zip(self.samples, ratios, strict=True)]


def _bound(worker: Worker, feeds: Mapping[str, Any], found: Times) -> float:
    """Binds the inputs of a loaded model and halts; seconds of a run."""
    answer = worker.ask({"do": "bind", "feeds": dict(feeds), "plain": found.plain})
    found.plain = found.plain or bool(answer["plain"])
    worker.stop()
    return float(answer["seconds"])


def _rounds(workers: Sequence[Worker], found: Times, order: Sequence[int], plan: Plan, until: float) -> None:
    now = list(order)
    for turn in range(MANY_ROUNDS):
        for k in now:
            found.add(k, workers[k].ask({"do": "time", "calls": plan.calls, "inner": plan.inner[k]})["seconds"])
            workers[k].stop()
        now.reverse()
        # an even number: each order as often as the other
        if turn % 2 and time.monotonic() > until:
            break


def runs(models: Sequence[ModelFile], feeds: Mapping[str, Any], threads: int) -> bool:
    """Whether every model runs on some inputs, within half a minute each."""
    try:
        for model in models:
            with Worker(threads, lambda: FIRST) as worker:
                worker.load(model)
                worker.ask({"do": "bind", "feeds": dict(feeds)})
    except WorkerFailed:
        return False
    return True


def raced(
    models: Sequence[ModelFile], names: Sequence[str], feeds: Mapping[str, Any], threads: int, clock: Clock
) -> list[Timing]:
    """As `race` for what is left of a clock, or until every model ran once; failures are diagnostics.

    Raises:
        DslcError: E0811 where a model does not run, or does not end; E0905 where memory does not suffice.
    """
    seconds = clock.left()
    try:
        return race(models, feeds, threads, seconds, clock=Clock(seconds + FIRST))
    except MemoryShort as problem:
        raise error("E0905", str(problem), path=", ".join(names)) from None
    except TimeUp:
        raise error("E0811", f"the models did not run once within {seconds + FIRST:.0f} s", hint="--budget gives more time") from None
    except WorkerFailed as problem:
        for model, name in zip(models, names, strict=True):
            with Worker(threads, lambda: FIRST) as worker:
                try:
                    worker.load(model)
                    worker.ask({"do": "run", "feeds": dict(feeds)})
                except WorkerFailed as own:
                    raise error("E0811", f"ONNX Runtime cannot run it: {own}", path=name) from None
        raise error("E0811", f"ONNX Runtime cannot run the models: {problem}") from None


__all__ = ["MemoryShort", "ModelFile", "Times", "Timing", "WorkerFailed", "check_memory", "race", "raced", "runs"]
