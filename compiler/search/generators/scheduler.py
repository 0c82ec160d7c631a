"""Who is asked next, and until when: the one place where the time of a run is divided.

A generator and a candidate are an arm. Whichever promises the most seconds of the model's time for a second of its own has its turn;
what it finds is checked at once, and timed where that takes no time; what it was worth counts when it is asked again. What checking,
timing and writing the best so far need is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

from dslc.cost.cache import CostCache
from dslc.cost.process import WorkerFailed
from dslc.cost.timing import MemoryShort
from dslc.deadline import TimeUp
from dslc.ir.graph import Call
from dslc.report import Asked
from dslc.search.generators.kernels import has_kernels
from dslc.search.generators.protocol import Generator, Proposer
from dslc.search.generators.table import GENERATORS, HEAVY
from dslc.search.rewrites.candidate import Candidate
from dslc.search.runs.alone import PART as ALONE_PART
from dslc.search.runs.alone import leans
from dslc.search.runs.contenders import Contender
from dslc.search.runs.context import SearchContext
from dslc.search.runs.judge import judge_of
from dslc.search.runs.progress import CHECKED, Tally
from dslc.search.runs.proving import proved_again
from dslc.search.runs.worth import deciding, expected


@dataclass(frozen=True, slots=True)
class SchedulerTuning:
    """Numbers of the scheduler; `benchmarks/anytime.py` shows them.

    Attributes:
        kept: the share of the budget that checking and timing have, where nothing says that they need more or less.
        heavy: the same for many weights: what writes, loads and compares them copies them each time.
        loads, most: they have so many times what loading the model takes, and no larger a share than this.
        least: the share that they have where nothing is found yet, or what was found is clearly faster.
        seconds, starts, runs: and no less than so many seconds, so many times what loading the model takes, and so many of its runs.
        clear: what is predicted to be so many times as fast needs few pairs of runs.
        early, once, alone: the shares of the budget that timing may take between turns, at all and after one of them, and that a winner
            may take without its library.
        turn: seconds that are worth a turn.
        idle, often: seconds; who found nothing new in fewer so often in a row has no time for what it would do next.
        sure: how many observations a prior counts for.
        near: a candidate that costs so many times the best is asked about.
        bases: so many candidates without kernels are asked about beside the original and the best of the rules.
    """

    kept: float = 0.175
    heavy: float = 0.28
    loads: float = 8.0
    most: float = 0.28
    least: float = 0.08
    seconds: float = 4.0
    starts: float = 12.0
    runs: float = 200.0
    clear: float = 1.25
    early: float = 0.15
    once: float = 0.075
    alone: float = 0.06
    turn: float = 2.0
    idle: float = 0.25
    often: int = 2
    sure: float = 2.0
    near: float = 1.1
    bases: int = 2


TUNING = SchedulerTuning()


@dataclass(slots=True, eq=False)
class Arm:
    """A generator, and a candidate that it is asked about."""

    generator: Generator
    base: Candidate
    #: the share of the candidate's time that it might save at most; None: nobody looked yet
    promise: float | None = None
    work: Iterator[Sequence[Candidate]] | None = None
    seconds: float = 0.0
    turns: int = 0
    #: the share of the original's time that it saved beyond what was there before it
    gained: float = 0.0
    done: bool = False
    #: turns without a new find, the last ones, that took no time: what is left is too short for what it would do next
    idle: int = 0


@dataclass(slots=True)
class Scheduler:
    """The turns of all generators of one run."""

    context: SearchContext
    cache: CostCache
    tuning: SchedulerTuning = TUNING
    generators: Sequence[Generator] = field(default_factory=lambda: GENERATORS)
    arms: list[Arm] = field(default_factory=list)
    #: what was proposed, and the graphs that were checked or need not be
    candidates: list[Candidate] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    #: seconds of timing between turns
    timed: float = 0.0
    #: whether there was no time to check something
    unchecked: bool = False
    #: whether timing has decided, and the rest of the time is nobody else's
    spare: bool = False
    #: graphs that were proposed
    _graphs: set[int] = field(default_factory=set)
    _proposers: dict[Generator, Proposer] = field(default_factory=dict)
    _proposed_by: dict[Candidate, Generator] = field(default_factory=dict)
    #: what pairs of candidates have in common
    _shares: dict[tuple[Candidate, Candidate], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.context.task.heavy:
            self.generators = HEAVY
        self._grow(self.context.start)

    # ---- the clock ---------------------------------------------------------------------------------------------

    def reserve(self) -> float:
        """Seconds that checking, timing and writing the best so far need."""
        context, tuning = self.context, self.tuning
        budget, load = context.run.clock.budget, context.referenced.load
        if budget == inf:
            return 0.0
        runs = tuning.runs * context.referenced.seconds
        least = min(tuning.most * budget, max(tuning.least * budget, tuning.seconds, tuning.starts * load, runs))
        if context.task.heavy:
            return max(tuning.heavy * budget, least)
        faster = context.start.cost / self._best_cost()
        if self.spare or faster > tuning.clear or not self._anything():
            return least
        told = context.task.writing + deciding(context.referenced, 1, faster) / (1 - ALONE_PART)
        return max(least, min(tuning.most * budget, max(tuning.kept * budget, tuning.loads * load, told)))

    def _anything(self) -> bool:
        """Whether there is something to check and time beside the original in canonical form."""
        return any(one.candidate is not self.context.start for one in self.context.run.checked)

    def _best_cost(self) -> float:
        """Seconds of the best that was checked, and stands without its library as far as is known."""
        run = self.context.run
        return min(
            (expected(run, one) for one in run.checked if one not in run.leaning), default=self.context.start.cost
        )

    # ---- whose turn it is ---------------------------------------------------------------------------------------

    def run(self) -> None:
        """Gives turns until the time for exploring is over, or nobody is left.

        Raises:
            Unusable: import and export alone change what the model computes.
            TimeUp: there was no time to check anything.
        """
        run = self.context.run
        while True:
            self.context.exploring = self.context.measuring = run.clock.until(self.reserve())
            arm = self._next()
            if arm is None or self.context.exploring.left() < self.tuning.turn:
                break
            self._turn(arm)
        for one in sorted(self.candidates, key=lambda each: each.cost):
            try:
                self._check(one)
            except TimeUp:
                run.cut("comparing outputs")
                self.unchecked = True
                break
        self._cuts()
        if self.unchecked and not run.checked:
            raise TimeUp

    def _next(self) -> Arm | None:
        """The arm that promises most for a second; nobody is looked at before all that he might promise is most."""
        while True:
            arm = max(
                (one for one in self.arms if not one.done and one.idle < self.tuning.often), key=self.rate, default=None
            )
            if arm is None or arm.promise is not None:
                return arm
            self._look(arm)

    def _look(self, arm: Arm) -> None:
        try:
            arm.promise = arm.generator.promise(self.context, arm.base)
        except TimeUp:
            arm.promise = 1.0
        arm.done = arm.promise <= 0

    def rate(self, arm: Arm) -> float:
        """The share of the model's time that a second of an arm is expected to save."""
        prior, tuning = arm.generator.prior, self.tuning
        own = [one for one in self.arms if one.generator is arm.generator and one.turns]
        promised = tuning.sure + sum(one.promise or 0.0 for one in own)
        gain = (tuning.sure * prior.gain + sum(one.gained for one in own)) / promised
        ahead = self._cheapest() / max(arm.base.cost, 1e-12)
        promise = 1.0 if arm.promise is None else arm.promise
        spent = arm.seconds
        if not arm.generator.gathers:
            # what was sought in a candidate is not there in one that is hardly another
            spent += sum(self._alike(one.base, arm.base) * one.seconds for one in own if one is not arm)
        return gain * max(0.0, promise - arm.gained) * ahead**2 / (prior.seconds + spent)

    def _alike(self, a: Candidate, b: Candidate) -> float:
        """The share of two candidates' working operators that they have in common, whatever these stand upon."""
        if (a, b) not in self._shares:
            own, other = (
                Counter(
                    (node.op, node.attrs, node.types)
                    for node in one.graph.nodes()
                    if isinstance(node, Call) and not node.constant
                )
                for one in (a, b)
            )
            self._shares[a, b] = (own & other).total() / max(own.total(), other.total(), 1)
        return self._shares[a, b]

    def _cheapest(self) -> float:
        """Seconds of the cheapest candidate without kernels that somebody may be asked about."""
        return min(arm.base.cost for arm in self.arms)

    # ---- a turn --------------------------------------------------------------------------------------------------

    def _turn(self, arm: Arm) -> None:
        context, run, generator = self.context, self.context.run, arm.generator
        began, before, known = run.clock.now(), self._best_cost(), run.found.count
        context.turn = context.exploring.part(generator.prior.share, generator.prior.most)
        ends = run.clock.now() + max(self.tuning.turn, min(generator.prior.seconds, generator.prior.most))
        run.phase(generator.phase)
        new: list[Candidate] = []
        with run.turn(generator.name) as tally:
            try:
                if arm.work is None:
                    if generator not in self._proposers:
                        self._proposers[generator] = generator.begin(context)
                    arm.work = self._proposers[generator](arm.base)
                for found in arm.work:
                    for one in found:
                        self._add(one, generator, tally)
                    new += found
                    # who has a share of the time has used it
                    if new or generator.prior.share < 1 or run.clock.now() >= ends or context.exploring.over:
                        break
                else:
                    arm.done = True
            except TimeUp:
                arm.done = self.unchecked = True
        graphs = {hash(one.graph.outputs) for one in new}
        idle = graphs <= self._graphs and run.clock.now() - began < self.tuning.idle
        arm.idle = arm.idle + 1 if idle else 0
        self._graphs |= graphs
        with suppress(TimeUp):
            for one in sorted(new, key=lambda one: one.cost):
                if one.cost < self._best_cost():
                    self._check(one)
                    self._decide()
        arm.turns, arm.seconds = arm.turns + 1, arm.seconds + run.clock.now() - began
        arm.gained += max(0.0, before - self._best_cost()) / context.start.cost
        if run.found.count > known:
            self._ask_again()
        if context.best is not None and context.best is not context.start:
            self._grow(context.best)
            # nobody is asked about what rules have made better since
            before_it = context.best.path()[1:-1]
            for other in self.arms:
                other.done = other.done or (not other.turns and other.base in before_it)

    def _ask_again(self) -> None:
        """More was found: whoever goes by that has something to look at."""
        for arm in self.arms:
            if arm.generator.gathers:
                arm.promise, arm.work, arm.done, arm.idle = None, None, False, 0

    def _add(self, one: Candidate, generator: Generator, tally: Tally) -> None:
        """Keeps what was proposed; without timing, predictions alone say what is better than the original."""
        tally.proposed.append(one)
        self._proposed_by.setdefault(one, generator)
        if self.context.task.settings.timing or one.cost < self.context.start.cost:
            self.candidates.append(one)
        if one.cost < self.tuning.near * self._cheapest() and not has_kernels(one):
            own = [arm.base for arm in self.arms if arm.base not in (self.context.start, self.context.best)]
            if len({*own}) < self.tuning.bases or one.cost < min(base.cost for base in own):
                self._grow(one)

    def _grow(self, base: Candidate) -> None:
        """Has everybody asked about one more candidate, but for who proposed it."""
        if any(arm.base is base for arm in self.arms):
            return
        by = self._proposed_by.get(base)
        self.arms += [Arm(one, base) for one in self.generators if one is not by or one.again]

    # ---- what was found ------------------------------------------------------------------------------------------

    def _check(self, one: Candidate) -> None:
        """Makes a candidate, once, one more contender, where its outputs and its rewrites are right. Raises TimeUp."""
        context, run = self.context, self.context.run
        key = hash(one.graph.outputs)
        if key in self.seen or any(each.candidate is one for each in run.checked):
            return
        # what building kernels took too long is not lost, and least of all the only thing that there is
        until = run.clock.until(self.reserve() / 2 if self._anything() else 0.0)
        if until.over:
            raise TimeUp
        self.seen.add(key)
        run.phase("comparing outputs")
        found = context.referenced.checker.check(one)
        run.spares.fill()
        if isinstance(found, Contender) and proved_again(context.referenced, run, one, until).usable:
            run.passed(found)
            run.clock.reached(CHECKED)

    def _decide(self) -> None:
        """Times what is there, where it is clear and that takes little time: it is not lost then, and says what it is worth."""
        context, run, tuning = self.context, self.context.run, self.tuning
        task, judge = context.task, run.judges.get(False)
        sure = [one for one in run.checked if judge is not None and judge.so_far(one) is not None]
        known = min((expected(run, one) for one in sure if one not in run.leaning), default=context.start.cost)
        new = [one for one in run.checked if one not in sure and expected(run, one) * tuning.clear < known]
        # what decides at the end has its own time, and what is timed now is known then
        left = run.clock.left() - self.reserve() / 2
        budget = task.settings.budget
        seconds = min(left, tuning.early * budget - self.timed, tuning.once * budget)
        if not new or not task.settings.timing or not task.target.measured or seconds <= 0 or run.journal.repeats:
            return
        run.phase("timing")
        began = run.clock.now()
        with suppress(TimeUp, WorkerFailed, MemoryShort), context.halted():
            winner = judge_of(context.referenced, self.cache, run).decide(new, seconds).winner
            left = min(left - (run.clock.now() - began), tuning.alone * budget)
            slow = None if winner is None else leans(context.referenced, new[winner], left, self.cache, run)
            if winner is not None and slow is not None:
                run.leaning[new[winner]] = slow
        self.timed += run.clock.now() - began
        run.spares.fill()

    # ---- what is told --------------------------------------------------------------------------------------------

    def _cuts(self) -> None:
        """Says whose work there was no time for."""
        clock = self.context.run.clock
        phases = {arm.generator.phase for arm in self.arms}
        unfinished = {arm.generator.phase for arm in self.arms if not arm.done and arm.generator.needed}
        clock.resume(phases - unfinished)
        for phase in unfinished:
            clock.cut(phase)

    def plan(self) -> dict[str, float]:
        """Seconds of the budget that may be gone when each part of the run ends."""
        budget = self.context.run.clock.budget
        return {"exploring": round(budget - self.reserve(), 3), "timing": budget} if 0 < budget < inf else {}

    def asked(self) -> list[Asked]:
        """Everybody who was asked, or was to be, for a report: what they promised, took and gained."""
        bases = list(dict.fromkeys(arm.base for arm in self.arms))
        return [
            Asked(
                arm.generator.name, self._name(bases, arm.base), round(arm.promise or 0.0, 4), arm.generator.prior.seconds, arm.turns,
                round(arm.seconds, 3), round(arm.gained, 4), arm.done,
            )
            for arm in sorted(self.arms, key=lambda one: -one.seconds) if arm.promise and (arm.turns or not arm.done)
        ]  # fmt: skip

    def _name(self, bases: Sequence[Candidate], base: Candidate) -> str:
        if base is self.context.start:
            return "the original"
        if base is self.context.best:
            return "the best of the rules"
        return f"candidate {bases.index(base)}: {base.rule}"
