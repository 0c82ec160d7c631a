"""The final benchmark of a run: original and contenders timed whenever there is time, and all that was ever measured counts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod
from time import time
from typing import Any, TypeAlias

from dslc.cost.cache import CostCache
from dslc.cost.clock import Clock
from dslc.cost.confidence_sequence import Interval, Rounds, TimedPair
from dslc.cost.inputs import identity_of
from dslc.cost.machine import Machine
from dslc.cost.process import ModelFile, PrestartedWorkers
from dslc.cost.timing import Goal, InterleavedBenchmark, MemoryShort
from dslc.deadline import TimeUp
from dslc.records import record
from dslc.search.runs.contenders import Contender

#: a moment of a run: a rewritten model was measured to be faster
DECIDED = "first gain decided"
UNCLEAR = 0.99  #: ratio to which a model that gains at one size may fall at another before it counts as slower there
HIGH = 1e9  #: seconds, and ratio, that stand for infinity in a file


@record
class Verdict:
    """A contender's times in seconds against the original's, at one choice of sizes, in so many pairs of blocks: in these `rounds`."""

    before: float
    after: float
    ratio: Interval
    pairs: int = 0
    rounds: tuple[TimedPair, ...] = ()
    #: seconds since the epoch, of a verdict of an earlier run
    when: float | None = None

    @property
    def faster(self) -> bool:
        return self.ratio.low > 1

    @property
    def slower(self) -> bool:
        return self.ratio.high < 1 or self.ratio.ratio < UNCLEAR

    def __str__(self) -> str:
        pairs = f" in {self.pairs} pair{'s' * (self.pairs != 1)}" if self.pairs else ""
        return f"{self.ratio.ratio:.2f}x{self.ratio.ends}{pairs}"


#: verdicts on one contender by choice of sizes, or on several at one choice
Verdicts: TypeAlias = tuple[Verdict, ...]


@record
class Decision:
    """Verdicts by choice of sizes, then by contender.

    `decided`: more time would change nothing that matters.
    """

    verdicts: tuple[Verdicts, ...]
    decided: bool

    @property
    def winner(self) -> int | None:
        """The contender that is to be taken, if any is faster."""
        return winner(self.verdicts)


@dataclass(slots=True)
class FinalBenchmark:
    """Decides whether contenders are faster than the original, as often as it is asked: what it measured before counts again.

    Attributes:
        identity: what the original and the options that matter are known by; `budget`: what else an open verdict depends on.
        feeds: inputs at every choice of sizes.
        load: seconds of loading a model; nothing is begun where the clock has not twice as many.
        goal: `NO_SLOWER` for models without their library.
        spares: processes that were started ahead.
    """

    original: ModelFile
    identity: str
    budget: float
    feeds: Sequence[Mapping[str, Any]]
    machine: Machine
    cache: CostCache
    clock: Clock = field(default_factory=Clock)
    load: float = 0.0
    goal: Goal = Goal.FASTER
    spares: PrestartedWorkers | None = None
    _races: list[InterleavedBenchmark] = field(init=False, default_factory=list)
    _values: list[str] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        for one in self.feeds:
            self._values.append(identity_of([one]))
            rounds = Rounds(families=len(self.feeds))
            self._races.append(
                InterleavedBenchmark(
                    self.original, one, self.machine.threads, self.clock, self.goal, rounds=rounds, spares=self.spares
                )
            )

    def decide(self, contenders: Sequence[Contender], seconds: float) -> Decision:
        """Verdicts on contenders, from the cache or timed now, for so many seconds at most; it ends as soon as it is decided.

        It may be asked at any time, with new contenders beside those that it knows, or again with the same ones and more time.

        Raises:
            WorkerFailed: the original does not run, or none of the contenders.
            MemoryShort: not even two models fit into memory.
            TimeUp: time did not suffice for anything that could be judged.
        """
        until, decided, found = self.clock.now() + seconds, True, []
        for at in range(len(self._races)):
            left = max(0.0, until - self.clock.now()) / (len(self._races) - at)
            own, complete = self._at(at, contenders, left)
            found.append(own)
            decided = decided and complete
        made = Decision(tuple(found), decided)
        if self.goal is Goal.FASTER and made.winner is not None:
            self.clock.reached(DECIDED)
        return made

    def narrow_intervals(self, contender: Contender, seconds: float) -> Verdicts:
        """Return verdicts on a contender that was decided about, after more rounds, until its ratio is known well.

        Intervals hold at every look. Nothing where it was not timed in this run, or does not seem to be faster any more.

        Raises:
            WorkerFailed, MemoryShort: as `decide`.
        """
        until, found = self.clock.now() + seconds, []
        for at, race in enumerate(self._races):
            if contender.file not in race.files:
                return ()
            left = max(0.0, until - self.clock.now()) / (len(self._races) - at)
            replace(race, goal=Goal.RATIO).run(left, [race.enter(contender.file)])
            one = self._measured(race, race.enter(contender.file))
            if not one:
                return ()
            found.append(one)
        if winner([[one] for one in found]) is None:
            # what was decided holds whatever is seen later
            return ()
        for at, one in enumerate(found):
            self._keep(self._key(contender, at), one, True)
        return tuple(found)

    def so_far(self, contender: Contender) -> Verdict | None:
        """Return what is known of a contender at the first choice of sizes."""
        race = self._races[0]
        return self._measured(race, race.enter(contender.file)) if contender.file in race.files else None

    def _at(self, at: int, contenders: Sequence[Contender], seconds: float) -> tuple[Verdicts, bool]:
        """Verdicts at a choice of sizes, and whether all is decided there."""
        race = self._races[at]
        keys = [self._key(one, at) for one in contenders]
        # what was timed in this run is timed on where it is not decided
        known = [
            None if one.file in race.files else self._known(key) for key, one in zip(keys, contenders, strict=True)
        ]
        fresh = [k for k, one in enumerate(known) if one is None]
        decided = all(found[1] for found in known if found is not None)
        numbers = {k: race.enter(contenders[k].file) for k in fresh}
        if fresh and not race.decided(list(numbers.values())):
            if self.clock.left() < 2 * self.load and not any(race.rounds.known(k) for k in numbers.values()):
                raise TimeUp
            entered = list(numbers.values())
            try:
                done = [race.run(seconds, entered)]
            except MemoryShort:
                if len(entered) == 1:
                    raise
                # not all of them fit into memory at once
                done = [race.run(seconds / len(entered), [one]) for one in entered]
            decided = decided and all(done)
        verdicts = []
        for k, one in enumerate(known):
            found = self._measured(race, numbers[k]) if one is None else one[0]
            if one is None and found is not None:
                self._keep(keys[k], found, race.out(numbers[k]) or found.faster)
            verdicts.append(found)
        if not any(verdicts):
            raise TimeUp
        # one that failed, or had no turn
        return tuple(one or Verdict(inf, inf, Interval(0.0, 0.0, inf)) for one in verdicts), decided

    def _measured(self, race: InterleavedBenchmark, number: int) -> Verdict | None:
        """Return what the rounds say of a contender; None where it had none."""
        if not race.rounds.known(number):
            return None
        first, own = race.rounds.timing(0), race.rounds.timing(number)
        return Verdict(first.typical, own.typical, own.ratio, race.rounds.count(number), race.rounds.pairs(number))

    # ---- the cache -------------------------------------------------------------------------------------------------

    def _known(self, key: str) -> tuple[Verdict, bool] | None:
        """A verdict of an earlier run, and whether it was decided: what a budget left open another one may decide."""
        found = self.cache.verdict(key) or self.cache.verdict(f"{key} {self.budget}")
        if found is None:
            return None
        ratio = Interval(found["ratio"], found["low"], found["high"])
        rounds = tuple(TimedPair(*one) for one in found.get("rounds", ()))
        own = Verdict(found["before"], found["after"], ratio, int(found["pairs"]), rounds, found["when"])
        return own, bool(found["decided"])

    def _keep(self, key: str, one: Verdict, decided: bool) -> None:
        # JSON has no infinity
        before, after, high = (min(each, HIGH) for each in (one.before, one.after, one.ratio.high))
        found = {"before": before, "after": after, "ratio": one.ratio.ratio, "low": one.ratio.low, "high": high, "pairs": one.pairs,
                 "decided": decided, "when": time(),
                 "rounds": [[pair.before, pair.after, pair.generation, pair.base_first] for pair in one.rounds]}  # fmt: skip
        self.cache.put_verdict(key if decided else f"{key} {self.budget}", found)

    def _key(self, contender: Contender, at: int) -> str:
        total = hashlib.sha256(f"{self.identity}|{self.machine}|{self.goal.name}|".encode())
        total.update(b"" if contender.file.kernels else b"without kernels|")
        total.update(contender.file.model if isinstance(contender.file.model, bytes) else contender.file.model.encode())
        total.update(f"|{self._values[at]}".encode())
        return "verdict:" + total.hexdigest()


def winner(verdicts: Sequence[Sequence[Verdict]]) -> int | None:
    """Return the contender that is faster at one choice of sizes at least and slower at none; of several the one with the best product.

    `verdicts` are by choice of sizes, then by contender.
    """
    best, score = None, 1.0
    for k in range(len(verdicts[0])):
        own = [at[k] for at in verdicts]
        total = prod(verdict.ratio.ratio for verdict in own)
        if any(v.faster for v in own) and not any(v.slower for v in own) and total > score:
            best, score = k, total
    return best
