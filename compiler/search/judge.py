"""The last word: original and contenders timed, and what follows from it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dslc.cost.cache import CostCache
from dslc.cost.clock import Clock, TimeUp
from dslc.cost.machine import Machine
from dslc.cost.process import ModelFile
from dslc.cost.statistics import Interval
from dslc.cost.timing import MemoryShort, Times, Timing, race
from dslc.search.contenders import Contender

#: a model that gains at one size may lose this much at another before it counts as slower there: what timing cannot tell apart
UNCLEAR = 0.99
#: no time is spent on the chance of a smaller gain
LEAST = 0.01
_HIGH = 1e9


@dataclass(frozen=True, slots=True)
class Verdict:
    """A contender's times in seconds against the original's, at one choice of sizes."""

    before: float
    after: float
    ratio: Interval

    @property
    def faster(self) -> bool:
        return self.ratio.low > 1

    @property
    def slower(self) -> bool:
        return self.ratio.high < 1 or self.ratio.ratio < UNCLEAR


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict on each contender, and whether the time was over before it was decided whether the best is faster."""

    verdicts: tuple[Verdict, ...]
    cut: bool = False


def judge(
    original: ModelFile,
    identity: str,
    contenders: Sequence[Contender],
    feeds: Mapping[str, Any],
    machine: Machine,
    seconds: float,
    cache: CostCache,
    clock: Clock | None = None,
    times: Times | None = None,
    load: float = 0.0,
) -> Judged:
    """A verdict on each contender, from the cache or timed now, for so many seconds at most.

    Args:
        clock: ends everything at once.
        times: collects what is measured of contenders that are timed together.
        load: seconds of loading a model; nothing is begun where the clock has not twice as many.

    Raises:
        WorkerFailed: a model does not run.
        MemoryShort: not even two models fit into memory.
        TimeUp: time did not suffice for anything that could be judged.
    """
    keys = [_key(identity, contender, feeds, machine) for contender in contenders]
    known = [cache.verdict(key) for key in keys]
    fresh = [k for k, found in enumerate(known) if found is None]
    if fresh:
        if clock is not None and clock.left() < 2 * load:
            raise TimeUp
        files = [contenders[k].file for k in fresh]
        for k, (first, own) in zip(fresh, _timed(original, files, feeds, machine, seconds, clock, times), strict=True):
            known[k] = {
                "before": first.median,
                "after": own.median,
                "ratio": own.ratio.ratio,
                "low": own.ratio.low,
                # JSON has no infinity
                "high": min(own.ratio.high, _HIGH),
            }
            cache.put_verdict(keys[k], known[k] or {})
    verdicts = tuple(_verdict(found) for found in known if found is not None)
    # one that is faster decides; as long as none is, one that still may be does not
    open_ends = [verdict for verdict in verdicts if verdict.ratio.low <= 1 and verdict.ratio.high > 1 + LEAST]
    return Judged(verdicts, bool(open_ends) and not any(verdict.faster for verdict in verdicts))


def _timed(
    original: ModelFile,
    files: Sequence[ModelFile],
    feeds: Mapping[str, Any],
    machine: Machine,
    seconds: float,
    clock: Clock | None,
    times: Times | None,
) -> list[tuple[Timing, Timing]]:
    """The original's and the own times of each file."""
    try:
        first, *others = race(
            [original, *files], feeds, machine.threads, seconds, clock=clock, least=LEAST, times=times
        )
        return [(first, own) for own in others]
    except MemoryShort:
        if len(files) == 1:
            raise
    found = []
    for file in files:
        first, own = race([original, file], feeds, machine.threads, seconds / len(files), clock=clock, least=LEAST)
        found.append((first, own))
    return found


def _verdict(found: Mapping[str, float]) -> Verdict:
    return Verdict(found["before"], found["after"], Interval(found["ratio"], found["low"], found["high"]))


def _key(identity: str, contender: Contender, feeds: Mapping[str, Any], machine: Machine) -> str:
    total = hashlib.sha256(f"{identity}|{machine}|".encode())
    total.update(b"" if contender.file.kernels else b"without kernels|")
    total.update(contender.file.model if isinstance(contender.file.model, bytes) else contender.file.model.encode())
    for name in sorted(feeds):
        total.update(f"|{name} {feeds[name].dtype} {feeds[name].shape}".encode())
    return "timed:" + total.hexdigest()


def winner(verdicts: Sequence[Sequence[Verdict]]) -> int | None:
    """Which contender is faster at one choice of sizes at least and slower at none; of several the one with the best product.

    `verdicts` are by choice of sizes, then by contender.
    """
    best, score = None, 1.0
    for k in range(len(verdicts[0])):
        own = [at[k] for at in verdicts]
        total = 1.0
        for verdict in own:
            total *= verdict.ratio.ratio
        if any(v.faster for v in own) and not any(v.slower for v in own) and total > score:
            best, score = k, total
    return best
