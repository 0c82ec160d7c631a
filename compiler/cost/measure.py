"""Measured times of small models: one operator, or a group that the runtime may fuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dslc.cost.cache import CostCache
from dslc.cost.machine import Target
from dslc.cost.process import ModelFile, Worker, WorkerFailed

#: no single operator is measured longer, in seconds
LONGEST = 0.4
#: what is faster than the run that surrounds it still costs this much, in seconds
LEAST = 2e-7


@dataclass(frozen=True, slots=True)
class Sample:
    """A model to be measured: `signature` is its key in the cache, `build` makes the model and its inputs."""

    signature: str
    build: Callable[[], tuple[bytes, Mapping[str, Any]]]


class Measurer:
    """Times on one target, from the cache or measured in one process that is used again and again.

    A time is the least of many runs with inputs and outputs bound, less the time of a run of an empty model; infinite for
    what the runtime refuses or dies of.
    """

    def __init__(self, target: Target, cache: CostCache) -> None:
        self.target = target
        self.cache = cache
        self.measured = 0
        self._context = f"{target.device}; threads={target.threads}; {target.runtime}"
        self._worker = Worker(target.threads)
        self._overhead: float | None = None

    def close(self) -> None:
        self._worker.close()

    def seconds(self, samples: Sequence[Sample]) -> list[float]:
        """The time of each sample, in their order; new ones are measured and kept."""
        found = {sample.signature: self.cache.seconds(self._context, sample.signature) for sample in samples}
        for sample in samples:
            if found[sample.signature] is None:
                measured = self._measure(sample)
                found[sample.signature] = measured
                self.cache.put_seconds(self._context, {sample.signature: measured})
        return [time for sample in samples if (time := found[sample.signature]) is not None]

    def _measure(self, sample: Sample) -> float:
        model, feeds = sample.build()
        self.measured += 1
        try:
            overhead = self._empty()
            return max(LEAST, self._ask(model, feeds) - overhead)
        except WorkerFailed:
            return float("inf")

    def _ask(self, model: bytes, feeds: Mapping[str, Any]) -> float:
        request = {"do": "measure", "model": model, "folder": None, "threads": self.target.threads}
        return float(self._worker.ask({**request, "feeds": dict(feeds), "seconds": LONGEST})["seconds"])

    def _empty(self) -> float:
        """The time of a run in which nothing is computed."""
        if self._overhead is None:
            import numpy as np

            from dslc.onnx.empty import empty_model

            self._overhead = self._ask(empty_model(), {"x": np.zeros(1, np.float32)})
        return self._overhead


def runnable(file: ModelFile, threads: int) -> str | None:
    """None where the runtime loads the model, else its message."""
    with Worker(threads) as worker:
        try:
            worker.load(file)
        except WorkerFailed as problem:
            return str(problem)
    return None
