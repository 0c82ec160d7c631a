"""Measured times of small models: one operator, or a group that the runtime may fuse."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from dslc.cost.cache import CostCache
from dslc.cost.machine import Target
from dslc.cost.process import Worker, WorkerFailed

#: no single operator is measured longer, in seconds, however busy the machine is
LONGEST = 0.3
#: what is faster than the run that surrounds it still costs this much, in seconds
LEAST = 2e-7
#: nodes of the chain that tells the time of a node from the time of a run
CHAIN = 32
#: times that were taken in another way are not comparable: part of every key
METHOD = "blocks"


@dataclass(frozen=True, slots=True)
class Sample:
    """A model to be measured, which computes the same thing `copies` times on inputs and weights of their own.

    `text` says what it is in the words of the rules, so that nothing has to be built for what is known; `build` makes the model
    with inputs for weights (None: ONNX cannot say it), whose contents are the key under which equal models of differently named
    operators meet; `weights` are the inputs that become constants where it is measured: a runtime packs those.
    """

    text: str
    build: Callable[[], bytes | None]
    copies: int = 1
    weights: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of one copy: for the work itself, for each input that enters the runtime's blocked layout, and for leaving it."""

    body: float
    enter: float = 0.0
    leave: float = 0.0


class Measurer:
    """Times on one target, from the cache or measured in one process that is used again and again.

    A time is the least of many runs with inputs and outputs bound, less the time of a run without nodes; infinite for what the
    runtime refuses or dies of.
    """

    def __init__(self, target: Target, cache: CostCache) -> None:
        self.target = target
        self.cache = cache
        self.count = 0
        self._context = f"{target.device}; threads={target.threads}; {target.runtime}; {METHOD}"
        self._worker = Worker(target.threads)
        self._overhead: float | None = None

    def close(self) -> None:
        self._worker.close()

    def measured(self, sample: Sample, times: int = 1) -> Measured:
        """The times of a sample, from the cache or measured and kept.

        The first measurement stays what it was, so that a search that is repeated finds the same; the least of several, taken at
        different times, is kept beside it: of as many as `times` says, one more in each call.
        """
        by_text = "text:" + hashlib.sha256(sample.text.encode()).hexdigest()
        least = "" if times == 1 else ":least"
        found = self._known(by_text + least, times)
        if found is not None:
            return found
        model = sample.build()
        if model is None:
            return Measured(inf)
        contents = hashlib.sha256(model + repr((sample.weights, sample.copies)).encode()).hexdigest()
        by_model = f"model:{contents}"
        found = self._known(by_model + least, times)
        count = times
        if found is None:
            count = 1
            found = self._measure(model, sample.weights, sample.copies)
            earlier = self._known(by_model + least) or self._known(by_model)
            if earlier is not None:
                found = min(found, earlier, key=lambda one: one.body + one.enter + one.leave)
                count = 1 + round(self.cache.seconds(self._context, f"{by_model}{least}:times") or 1)
        parts = {"": found.body, ":enter": found.enter, ":leave": found.leave, ":times": float(count)}
        self.cache.put_seconds(
            self._context, {key + least + part: time for key in (by_text, by_model) for part, time in parts.items()}
        )
        return found

    def _known(self, key: str, times: int = 1) -> Measured | None:
        """What the cache has, where it was measured so many times; what cannot be run is not tried again."""
        parts = [self.cache.seconds(self._context, key + part) for part in ("", ":enter", ":leave", ":times")]
        if parts[0] is None or (times > (parts[3] or 1) and parts[0] < inf):
            return None
        return Measured(parts[0], parts[1] or 0.0, parts[2] or 0.0)

    def _measure(self, model: bytes, weights: Sequence[str], copies: int) -> Measured:
        self.count += 1
        try:
            overhead = self.overhead
            answer = self._ask(model, weights, copies)
        except WorkerFailed:
            return Measured(inf)
        inputs, entering, leaving = answer["layout"]
        seconds = max(LEAST * copies, answer["seconds"] - overhead)
        # a profile is coarse: what it says of layouts cannot be more than most of the whole
        share = min(1.0, 0.8 * seconds / (entering + leaving)) if entering + leaving > 0 else 0.0
        enter, leave = share * entering, share * leaving
        return Measured((seconds - enter - leave) / copies, enter / inputs if inputs else 0.0, leave / copies)

    def _ask(self, model: bytes, weights: Sequence[str] = (), copies: int = 1) -> dict[str, Any]:
        return self._worker.measure(model, LONGEST, weights, copies)

    @property
    def overhead(self) -> float:
        """Seconds of a run without any node: part of every model's time, and of no operator's.

        Two chains of nodes that compute next to nothing say what a run takes before its first node. Raises WorkerFailed where
        ONNX Runtime runs nothing at all.
        """
        if self._overhead is None:
            from dslc.onnx.empty import empty_model

            known = self.cache.seconds(self._context, "overhead")
            if known is None:
                few, many = (float(self._ask(empty_model(nodes))["seconds"]) for nodes in (1, 1 + CHAIN))
                known = few - min(max(many - few, 0.0) / CHAIN, few)
                self.cache.put_seconds(self._context, {"overhead": known})
            self._overhead = known
        return self._overhead
