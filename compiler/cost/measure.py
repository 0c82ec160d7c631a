"""Measured times of small models: one operator, or a group that the runtime may fuse."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from dslc.cost.cache import CostCache
from dslc.cost.machine import Target
from dslc.cost.process import Worker, WorkerFailed

#: no single operator is measured longer, in seconds
LONGEST = 1.0
#: what is faster than the run that surrounds it still costs this much, in seconds
LEAST = 2e-7


@dataclass(frozen=True, slots=True)
class Sample:
    """A model to be measured.

    `text` says what it is in the words of the rules, so that nothing has to be built for what is known; `build` makes the model
    with inputs for weights (None: ONNX cannot say it), whose contents are the key under which equal models of differently named
    operators meet; `fill` adds contents and gives inputs.
    """

    text: str
    build: Callable[[], bytes | None]
    fill: Callable[[bytes], tuple[bytes, Mapping[str, Any]]]


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

    def seconds(self, sample: Sample) -> float:
        """The time of a sample, from the cache or measured and kept."""
        by_text = "text:" + hashlib.sha256(sample.text.encode()).hexdigest()
        found = self.cache.seconds(self._context, by_text)
        if found is not None:
            return found
        model = sample.build()
        if model is None:
            return inf
        by_model = "model:" + hashlib.sha256(model).hexdigest()
        found = self.cache.seconds(self._context, by_model)
        if found is None:
            found = self._measure(*sample.fill(model))
        self.cache.put_seconds(self._context, {by_text: found, by_model: found})
        return found

    def _measure(self, model: bytes, feeds: Mapping[str, Any]) -> float:
        self.measured += 1
        try:
            overhead = self._empty()
            return max(LEAST, self._ask(model, feeds) - overhead)
        except WorkerFailed:
            return inf

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

