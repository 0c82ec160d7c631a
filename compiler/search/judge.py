"""The last word: original and contenders timed, and what follows from it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dslc.cost.cache import CostCache
from dslc.cost.machine import Target
from dslc.cost.process import ModelFile
from dslc.cost.statistics import Interval
from dslc.cost.timing import MemoryShort, Timing, race
from dslc.search.contenders import Contender

#: a model that gains at one size may lose this much at another before it counts as slower there: what timing cannot tell apart
UNCLEAR = 0.99


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


def judge(
    original: ModelFile,
    identity: str,
    contenders: Sequence[Contender],
    feeds: Mapping[str, Any],
    target: Target,
    seconds: float,
    cache: CostCache,
) -> list[Verdict]:
    """A verdict on each contender, from the cache or timed now.

    Raises WorkerFailed where a model does not run, and MemoryShort where not even two models fit into memory.
    """
    keys = [_key(identity, contender, feeds, target) for contender in contenders]
    known = [cache.verdict(key) for key in keys]
    fresh = [k for k, found in enumerate(known) if found is None]
    if fresh:
        for k, (first, own) in _timed(original, contenders, fresh, feeds, target, seconds).items():
            known[k] = {
                "before": first.median,
                "after": own.median,
                "ratio": own.ratio.ratio,
                "low": own.ratio.low,
                "high": own.ratio.high,
            }
            cache.put_verdict(keys[k], known[k] or {})
    return [_verdict(found) for found in known if found is not None]


def _timed(
    original: ModelFile,
    contenders: Sequence[Contender],
    fresh: Sequence[int],
    feeds: Mapping[str, Any],
    target: Target,
    seconds: float,
) -> dict[int, tuple[Timing, Timing]]:
    files = [contenders[k].file for k in fresh]
    try:
        first, *others = race([original, *files], feeds, target.threads, seconds)
        return {k: (first, own) for k, own in zip(fresh, others, strict=True)}
    except MemoryShort:
        if len(files) == 1:
            raise
    out = {}
    for k, file in zip(fresh, files, strict=True):
        first, own = race([original, file], feeds, target.threads, seconds / len(files))
        out[k] = (first, own)
    return out


def _verdict(found: Mapping[str, float]) -> Verdict:
    return Verdict(found["before"], found["after"], Interval(found["ratio"], found["low"], found["high"]))


def _key(identity: str, contender: Contender, feeds: Mapping[str, Any], target: Target) -> str:
    total = hashlib.sha256(f"{identity}|{target}|".encode())
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
