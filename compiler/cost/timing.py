"""Whole models against each other: in rounds, each in a process of its own that halts while others run, until it is decided."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from math import ceil, inf, log
from typing import Any

from dslc.cost.clock import Clock
from dslc.cost.confidence_sequence import Rounds, Timing
from dslc.cost.machine import available_memory
from dslc.cost.process import ModelFile, PrestartedWorkers, Worker, WorkerFailed, on_disk
from dslc.deadline import Deadline, TimeUp
from dslc.errors import error

BASE = 150 << 20  #: bytes of memory that a session takes: the runtime itself,
PER_WEIGHT = 2.0  #: and so many times its weights, some of them packed
BLOCK = 0.03  #: seconds that a block of runs lasts about
SAMPLE = 1e-4  #: seconds of a sample: well above the clock's resolution
MOST_SAMPLES = 50  #: samples of fast models in a block, at most; slow ones have a single run
GENERATION = 2.0  #: seconds; new processes are started when these ran as long as starting took, but no longer,
SHORTEST = 0.4  #: seconds; and no shorter, where processes were started ahead,
ROUNDS = 10  #: unless a model seems to be so far ahead or behind that so many rounds of a generation tell it
WORTH = 0.7  #: a generation is begun where time for such a part of the last one is left
LEAST = 0.01  #: gains below this share are not worth more time
MATTERS = 0.02  #: of two models that are both faster the better one is looked for as long as it may gain such a share,
CHOICE = 0.2  #: with this probability of a wrong choice, which is no claim
BEHIND = 1.1  #: a model that is so many times slower than the best one leaves the race
PRECISE = 1.05  #: a ratio is known where the ends of its interval are no more than so many times apart
NOISE = 0.97  #: a model that may not be slower is none as long as its ratio is above this
HOPELESS = 10.0  #: a model whose first runs take so many times the original's is stopped in them,
#: seconds; but where these are short not before so many: on a busy machine a run may be disturbed by far more
PATIENT = 2.0
FIRST = 30.0  #: seconds longer that what is asked for by itself may take, for the first of it


class Goal(Enum):
    """Question that a race answers about a model."""

    FASTER = "whether it is faster than the original, and of several that are the best"
    NO_SLOWER = "whether it is slower than the original beyond noise"
    EITHER = "whether it is faster or slower"
    RATIO = "how many times as fast it is"


class MemoryShort(Exception):
    """There is not enough memory to load a model."""


def check_memory(files: Sequence[ModelFile]) -> None:
    """Raises MemoryShort where the models cannot all be loaded at once."""
    needed = sum(BASE + int(PER_WEIGHT * file.bytes) for file in files)
    free = available_memory()
    if needed > free:
        raise MemoryShort(f"running it takes about {needed / 2**30:.1f} GiB of memory, {free / 2**30:.1f} GiB are free")


@dataclass(slots=True)
class InterleavedBenchmark:
    """Models timed against the first one, whenever there is time: all rounds that were ever run count.

    The order of a round is drawn anew, so that intervals hold at every look (`dslc.cost.confidence_sequence`), and
    one is taken after each round. Every now and then all processes are started anew, since a process may be lucky
    as a whole. Models may enter at any time.

    Attributes:
        clock: ends it at once, and processes that hang with it.
        spares: processes that were started ahead.
    """

    original: ModelFile
    feeds: Mapping[str, Any]
    threads: int
    clock: Clock = field(default_factory=Clock)
    goal: Goal = Goal.FASTER
    rounds: Rounds = field(default_factory=Rounds)
    #: what models fail with that were left out for it
    failed: dict[int, WorkerFailed] = field(default_factory=dict)
    files: list[ModelFile] = field(default_factory=list)
    spares: PrestartedWorkers | None = None
    #: as of the first generation: samples in a block, and whether runs allocate their outputs
    _calls: int = 0
    _plain: bool = False
    _last: float = 0.0
    #: seconds that binding the original's inputs took, at most
    _took: float = 0.0

    def enter(self, file: ModelFile) -> int:
        """The number of a model, from 1 on; the same for one that entered before."""
        if file not in self.files:
            self.files.append(file)
        return self.files.index(file) + 1

    def run(self, seconds: float, models: Sequence[int], on_block: Callable[[int], None] | None = None) -> bool:
        """Runs generations until it is decided of these models, or so many seconds have passed; whether it is.

        At least one generation runs where it is not decided, however little time there is.

        Raises:
            WorkerFailed: the original does not run, or none of the others.
            MemoryShort: memory does not suffice to keep all in it.
        """
        until, generations = Deadline.after(seconds), 0
        while not self.decided(models):
            if generations and self._last * WORTH > min(until.left(), self.clock.left()):
                return False
            start = time.monotonic()
            try:
                self._generation([k for k in models if not self.out(k, models)], until)
            except WorkerFailed as problem:
                if not problem.late:
                    raise
                return False
            finally:
                self.rounds.end()
            self._last = time.monotonic() - start
            generations += 1
            if on_block is not None:
                on_block(generations)
        return True

    # ---- what is decided -------------------------------------------------------------------------------------------

    def decided(self, models: Sequence[int]) -> bool:
        """Return whether more rounds would change nothing that matters about these models."""
        alive = [k for k in models if not self.out(k, models)]
        if self.goal is not Goal.FASTER or not alive:
            return not alive
        best = max(alive, key=self.rounds.ratio)
        # of two that are faster the better one is looked for, where that matters
        return self.rounds.interval(best).low > 1 and all(
            self.rounds.possible(k, best, CHOICE).high < 1 + MATTERS for k in alive if k != best
        )

    def out(self, model: int, models: Sequence[int] = ()) -> bool:
        """Return whether more rounds would change nothing about a model, beside whatever others there are."""
        if model in self.failed or model in self.rounds.stopped:
            return True
        if not self.rounds.known(model):
            return False
        found = self.rounds.interval(model)
        if self.goal is Goal.EITHER:
            return found.low > 1 or found.high < 1 or found.within(LEAST)
        if self.goal is Goal.RATIO:
            return found.high < found.low * PRECISE
        if self.goal is Goal.NO_SLOWER:
            return found.high < 1 or self.rounds.possible(model, 0, CHOICE).low > NOISE
        if found.high < 1 + LEAST:
            return True
        best = max(models, key=self.rounds.ratio, default=model)
        return best != model and self.rounds.possible(model, best, self.rounds.test.level, BEHIND).high < 1

    # ---- generations -----------------------------------------------------------------------------------------------

    def _generation(self, models: Sequence[int], until: Deadline) -> None:
        """New processes, and rounds with them. Who is started first lies elsewhere in memory: that, too, is drawn."""
        began, number = time.monotonic(), len(self.rounds.generations)
        chance = random.Random(number)
        order = [0, *models]
        # of two generations the second one has it the other way round: there may be few
        random.Random(number // 2).shuffle(order)
        if number % 2:
            order.reverse()
        with ExitStack() as stack:
            every = stack.enter_context(_started(self, order))
            if not self._took:
                # the original says how long the others may take
                order.sort(key=bool)
            once = {k: every[k].bound(self.feeds, self._plain) for k in order}
            self._took = max(self._took, every[0].took)
            if any(each.plain for each in every.values() if not each.ended) and not self._plain:
                # all in the same way: allocating outputs takes time
                self._plain = True
                once = {k: each.bound(self.feeds, True) for k, each in every.items() if not each.ended}
            for k, each in sorted(every.items()):
                if each.ended:
                    self._left_out(k, each, once[0])
                elif k:
                    once[k] = self._hopeful(each, once[k], once[0])
                    if once[k] > HOPELESS * once[0]:
                        self._stop(k, once[k], once[0])
            if all(k in self.failed for k in models):
                raise self.failed[models[0]]
            inner = {k: max(1, ceil(SAMPLE / max(seconds, 1e-7))) for k, seconds in once.items()}
            if not self._calls:
                sample = once[0] * inner[0]
                self._calls = max(1, min(MOST_SAMPLES, round(BLOCK / sample)))
            self.rounds.begin()
            load = time.monotonic() - began
            ends = time.monotonic() + min(max(load, SHORTEST), GENERATION)
            while active := [k for k in models if not self.out(k, models)]:
                turn = [0, *active]
                chance.shuffle(turn)
                times = {}
                for k in turn:
                    try:
                        times[k] = every[k].timed(self._calls, inner[k], once[k] < BLOCK)
                    except WorkerFailed as problem:
                        every[k].ended = problem
                        self._left_out(k, every[k], once[0])
                self.rounds.add(times)
                moment = time.monotonic()
                if self.decided(models) or until.over:
                    break
                if moment > ends and not self._soon(active) and self._both_orders(active):
                    break

    def _hopeful(self, process: _Process, once: float, original: float) -> float:
        """Seconds of a run, the least of several where they seem to be hopelessly many."""
        began = time.monotonic()
        while once > HOPELESS * original and time.monotonic() - began + once < PATIENT:
            once = min(once, *process.timed(1, 1, False))
        return once

    def _both_orders(self, active: Sequence[int]) -> bool:
        """Return whether each model ran before the original and after it in this generation, or there were enough rounds for that."""
        own = self.rounds.generations[-1]
        return len(own) >= ROUNDS // 2 or all(
            len({next(k for k in one if k in {0, model}) for one in own if model in one}) == 2 for model in active
        )

    def _soon(self, active: Sequence[int]) -> bool:
        """Return whether a few more rounds with these processes may decide it."""
        found = [self.rounds.lately(k) for k in active]
        return any(abs(ratio) > log(BEHIND) and count < ROUNDS for ratio, count in found)

    def _stop(self, model: int, seconds: float, original: float) -> None:
        """A model is not looked at again: its first runs say enough."""
        self.rounds.stopped[model] = original / seconds
        self.rounds.first |= {0: original, model: seconds}

    def _left_out(self, model: int, process: _Process, original: float) -> None:
        """A model that did not run, or was stopped because it takes too long. Raises WorkerFailed for the original, and at the end."""
        assert process.ended
        if model == 0 or (process.ended.late and self.clock.left() <= 0):
            raise process.ended
        if process.ended.late:
            self._stop(model, HOPELESS * original, original)
        else:
            self.failed[model] = process.ended


@dataclass(slots=True)
class _Process:
    """A model's process; `slowest` is how many seconds binding its inputs may take, `ended` why it has none any more."""

    worker: Worker
    plain: bool = False
    ended: WorkerFailed | None = None
    #: seconds that the last binding took as a whole
    took: float = 0.0
    slowest: Callable[[], float] = lambda: inf

    def loaded(self, file: ModelFile) -> None:
        try:
            self.worker.load(file)
        except WorkerFailed as problem:
            self.ended = problem

    def bound(self, feeds: Mapping[str, Any], plain: bool) -> float:
        """Binds the inputs and halts; seconds of a run, infinitely many where it does not run."""
        if self.ended:
            return inf
        began = time.monotonic()
        try:
            answer = self.worker.ask({"do": "bind", "feeds": dict(feeds), "plain": plain}, self.slowest())
        except WorkerFailed as problem:
            self.ended = problem
            return inf
        self.worker.stop()
        self.plain, self.took = bool(answer["plain"]), time.monotonic() - began
        return float(answer["seconds"])

    def timed(self, calls: int, inner: int, warm: bool) -> list[float]:
        """Seconds of samples. Raises WorkerFailed."""
        found: list[float] = self.worker.ask({"do": "time", "calls": calls, "inner": inner, "warm": warm})["seconds"]
        self.worker.stop()
        return found


@contextmanager
def _started(race: InterleavedBenchmark, order: Sequence[int]) -> Iterator[dict[int, _Process]]:
    """Processes in which these models are loaded, one after the other."""
    files = [race.original if k == 0 else race.files[k - 1] for k in order]
    check_memory(files)
    with ExitStack() as stack:
        stored = dict(zip(order, stack.enter_context(on_disk(files)), strict=True))
        every: dict[int, _Process] = {}

        def slowest() -> float:
            return max(PATIENT, HOPELESS * max(race._took, every[0].took))

        for k in order:
            worker = stack.enter_context(Worker(race.threads, race.clock.until(), stored[k].runner, race.spares))
            every[k] = _Process(worker, slowest=slowest if k else lambda: inf)
        for each in every.values():
            each.worker.start()
        for k in order:
            every[k].loaded(stored[k])
        yield every


def race(
    models: Sequence[ModelFile],
    feeds: Mapping[str, Any],
    threads: int,
    seconds: float = 10.0,
    on_block: Callable[[int], None] | None = None,
    *,
    clock: Clock | None = None,
    goal: Goal = Goal.RATIO,
) -> list[Timing]:
    """Times models on the same inputs, until it is decided or `seconds` have passed; the others are compared with the first.

    Args:
        clock: ends the race at once, and processes that hang with it.

    Raises:
        WorkerFailed: a model does not run.
        MemoryShort: memory does not suffice to keep all in it.
        TimeUp: the clock ended before a single round was complete.
    """
    first, *others = models
    held = InterleavedBenchmark(first, feeds, threads, clock or Clock(), goal)
    # a file may be timed against itself, and twice
    held.files += others
    numbers = list(range(1, len(models)))
    held.run(seconds, numbers, on_block)
    for failed in held.failed.values():
        raise failed
    if not all(held.rounds.known(k) for k in numbers):
        raise TimeUp
    return [held.rounds.timing(k) for k in range(len(models))]


def runs(models: Sequence[ModelFile], feeds: Mapping[str, Any], threads: int) -> bool:
    """Return whether every model runs on some inputs, within half a minute each."""
    try:
        for model in models:
            with Worker(threads, Deadline.after(FIRST)) as worker:
                worker.load(model)
                worker.ask({"do": "bind", "feeds": dict(feeds)})
    except WorkerFailed:
        return False
    return True


def raced(
    models: Sequence[ModelFile],
    names: Sequence[str],
    feeds: Mapping[str, Any],
    threads: int,
    clock: Clock,
) -> list[Timing]:
    """As `race` for what is left of a clock, or until every model ran once; failures are diagnostics.

    Raises:
        DslcError: E0811 where a model does not run, or does not end; E0905 where memory does not suffice.
    """
    seconds = clock.left()
    try:
        return race(models, feeds, threads, seconds, clock=Clock(seconds + FIRST), goal=Goal.EITHER)
    except MemoryShort as problem:
        raise error("E0905", str(problem), path=", ".join(names)) from None
    except TimeUp:
        text = f"the models did not run once within {seconds + FIRST:.0f} s"
        raise error("E0811", text, hint="--budget gives more time") from None
    except WorkerFailed as problem:
        for model, name in zip(models, names, strict=True):
            with Worker(threads, Deadline.after(FIRST)) as worker:
                try:
                    worker.load(model)
                    worker.ask({"do": "run", "feeds": dict(feeds)})
                except WorkerFailed as own:
                    raise error("E0811", f"ONNX Runtime cannot run it: {own}", path=name) from None
        raise error("E0811", f"ONNX Runtime cannot run the models: {problem}") from None
