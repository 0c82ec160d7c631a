"""Measured times of small models: one operator, or a group that the runtime may fuse."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from math import inf
from typing import Any

from dslc.codegen.host.processor import NATIVE
from dslc.cost.cache import CostCache
from dslc.cost.machine import Machine
from dslc.cost.process import HOPELESS, Worker, WorkerFailed
from dslc.deadline import FOREVER, Deadline, TimeUp
from dslc.kernels import generator
from dslc.records import record

LONGEST = 0.3  #: seconds that an operator is measured, at most, however busy the machine is
AGAIN = 0.15  #: seconds that it is measured once more, at most
PART = 100  #: parts of the time left of which a measurement takes one, where little is left
SHORTEST = 0.04  #: seconds of a measurement at least
LEAST = 2e-7  #: seconds that anything costs at least: what is faster than the run that surrounds it
CHAIN = 32  #: nodes of the chain that tells the time of a node from the time of a run

#: times that were taken in another way are not comparable: part of every key
METHOD = "sessions"


#: makes a model; None: ONNX cannot say it
Make = Callable[[], "bytes | None"]


@record
class Sample:
    """A model to be measured, which computes the same thing `copies` times on inputs and weights of their own.

    `text` says what it is in the words of the rules, so that nothing has to be built for what is known; `build` makes the model
    with inputs for weights (None: ONNX cannot say it), whose contents are the key under which equal models of differently named
    operators meet; `weights` are the inputs that become constants where it is measured: a runtime packs those. `library` is the
    path of one that has the kernels of the model; the model is then not looked at for layouts, and `like` makes one that says what its
    inputs may be. Without `layout` nothing is found out about layouts. What takes longer than `hopeless` seconds is run once.
    """

    text: str
    build: Make
    copies: int = 1
    weights: tuple[str, ...] = ()
    library: str = ""
    like: Make | None = None
    layout: bool = True
    hopeless: float = inf


#: of a model that is measured as it is
_PLAIN = Sample("", lambda: None)


@record
class Measured:
    """Seconds of one copy, changes of layout included, and what the runtime does about layouts.

    `entering` are the inputs, by position, that it brings into its blocked layout, `leaving` says that the outputs come out of it;
    `blocked` that it works on blocks where the other inputs come in blocks, and gives blocks then.
    """

    seconds: float
    entering: tuple[int, ...] = ()
    leaving: bool = False
    blocked: bool = False

    @property
    def number(self) -> int:
        """The layouts of a measurement as one number."""
        return sum(4 << k for k in self.entering) + 2 * self.blocked + self.leaving

    @classmethod
    def of(cls, seconds: float, number: float) -> Measured:
        """From `seconds` and `number`."""
        bits = int(number)
        entering = tuple(k for k in range(bits.bit_length()) if bits & (4 << k))
        return cls(seconds, entering, bool(bits & 1), bool(bits & 2))


class Measurer:
    """Times on one target, from the cache or measured in one process that is used again and again.

    A time is the least of many runs of one session with inputs and outputs bound, less the time of a run without nodes; infinite
    for what the runtime refuses or dies of.

    Args:
        until: when measuring ends: then `TimeUp` is raised, and what is in the cache is given all the same.
        during: what a measurement takes place in: a phase of a clock.
    """

    def __init__(
        self,
        target: Machine,
        cache: CostCache,
        until: Deadline = FOREVER,
        during: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.target = target
        self.cache = cache
        self.count = 0
        self._until, self._during = until, during
        level = "" if target.isa == NATIVE else f"; kernels for {target.isa}"
        self._context = f"{target.device}; threads={target.threads}; {target.runtime}; {METHOD}{level}"
        #: the process in which it measures, for whoever has something to run between two measurements
        self.worker = Worker(target.threads, until)

    def close(self) -> None:
        self.worker.close()

    def measured(self, sample: Sample, turn: str = "") -> Measured:
        """The time of a sample, from the cache or measured and kept.

        What is measured once stays, so that a search that is repeated finds the same; each `turn` is another measurement.
        """
        found = self._once(sample, "")
        if not turn or found.seconds == inf:
            return found
        # what the runtime does about layouts is known
        return replace(found, seconds=self._once(sample, turn).seconds)

    def _once(self, sample: Sample, turn: str) -> Measured:
        """One measurement."""
        which = (f":{turn}" if turn else "") + ("" if sample.layout else ":bare")
        if sample.library:
            # what is around kernels takes its time, too
            which += f":{generator()}"
        by_text = "text:" + hashlib.sha256(sample.text.encode()).hexdigest() + which
        found = self._known(by_text)
        if found:
            return found
        model = sample.build()
        if model is None:
            return Measured(inf)
        contents = hashlib.sha256(model + repr((sample.weights, sample.copies)).encode()).hexdigest()
        by_model = f"model:{contents}{which}"
        layout = sample.layout and not turn and not sample.library
        # a known layout has a known time, too
        found = self._known(by_model) or (None if sample.layout or turn else self._known(f"model:{contents}"))
        found = found or self._measure(model, sample, layout)
        parts = {"": found.seconds, ":layout": float(found.number)}
        self.cache.put_seconds(
            self._context, {key + part: value for key in (by_text, by_model) for part, value in parts.items()}
        )
        return found

    def verdict(self, words: str) -> dict[str, Any] | None:
        """Return the verdict on a text, made in this way on this machine, where one is kept."""
        return self.cache.verdict(self._decided(words))

    def put_verdict(self, words: str, verdict: Mapping[str, Any]) -> None:
        self.cache.put_verdict(self._decided(words), verdict)

    def _decided(self, words: str) -> str:
        return "here:" + hashlib.sha256(f"{self._context}\0{generator()}\0{words}".encode()).hexdigest()

    def _known(self, key: str) -> Measured | None:
        """Look a group up in the cache."""
        seconds, layout = (self.cache.seconds(self._context, key + part) for part in ("", ":layout"))
        return None if seconds is None else Measured.of(seconds, layout or 0.0)

    def _measure(self, model: bytes, sample: Sample, layout: bool) -> Measured:
        self.count += 1
        try:
            overhead = self.overhead
            answer = self._ask(model, sample, layout)
        except WorkerFailed as failed:
            if failed.late and not self._until.over and sample.hopeless < inf:
                return Measured(HOPELESS * sample.hopeless)
            if failed.late:
                raise TimeUp from None
            return Measured(inf)
        entering, leaving, blocked = answer["layout"]
        return Measured(max(LEAST, (answer["seconds"] - overhead) / sample.copies), tuple(entering), leaving, blocked)

    def _ask(self, model: bytes, sample: Sample, layout: bool = False) -> dict[str, Any]:
        """Answer of the process about the model of a sample."""
        left = self._until.left()
        if left <= 0:
            raise TimeUp
        longest = min(LONGEST if layout else AGAIN, max(SHORTEST, left / PART))
        like, hopeless = (sample.like and sample.like()) or b"", sample.copies * sample.hopeless
        with self._during():
            return self.worker.measure(
                model, longest, sample.weights, sample.copies, layout, sample.library, like, hopeless
            )

    @cached_property
    def overhead(self) -> float:
        """Seconds of a run without any node: part of every model's time, and of no operator's.

        Two chains of nodes that compute next to nothing say what a run takes before its first node. Raises WorkerFailed where
        ONNX Runtime runs nothing at all.
        """
        from dslc.onnx.microbenchmarks import empty_model

        known = self.cache.seconds(self._context, "overhead")
        if known is None:
            try:
                few, many = (float(self._ask(empty_model(n), _PLAIN)["seconds"]) for n in (1, 1 + CHAIN))
            except WorkerFailed as failed:
                if failed.late:
                    raise TimeUp from None
                raise
            known = few - min(max(many - few, 0.0) / CHAIN, few)
            self.cache.put_seconds(self._context, {"overhead": known})
        return known


class Unmeasured(Measurer):
    """The measurer of a target whose times are computed: nothing is run or kept, and every model takes infinitely long."""

    def __init__(self, target: Machine) -> None:
        self.target, self.count = target, 0
        # it is never started
        self.worker = Worker(target.threads)

    def verdict(self, words: str) -> dict[str, Any] | None:
        return None

    def put_verdict(self, words: str, verdict: Mapping[str, Any]) -> None:
        pass

    def measured(self, sample: Sample, turn: str = "") -> Measured:
        return Measured(inf)

    @cached_property
    def overhead(self) -> float:
        return 0.0
