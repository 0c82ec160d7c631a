"""The loop of a run: schedules generators by expected gain per second, checks what they propose, and divides the time.

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

from dslc.cost.process import WorkerFailed
from dslc.cost.timing import MemoryShort
from dslc.deadline import OVER, TimeUp
from dslc.ir.graph import Call
from dslc.report import Asked
from dslc.search.candidates.candidate import Candidate
from dslc.search.generators.combine_findings import CombineFindings
from dslc.search.generators.kernels import Kernels, has_kernels
from dslc.search.generators.neighbourhood import Neighbourhood
from dslc.search.generators.protocol import Generator, Proposal, Proposer, SearchContext
from dslc.search.generators.region_rewrites import FURTHER, REGION_REWRITES
from dslc.search.generators.rules import Rules
from dslc.search.generators.standard_nodes import StandardNodes
from dslc.search.runs.contenders import Contender
from dslc.search.runs.endings import Ending
from dslc.search.runs.proving import CULPRITS, checked, passed, smaller
from dslc.search.runs.stages import deciding
from dslc.search.runs.state import CHECKED, Tally
from dslc.search.runs.without_library import PART, regresses_without_library

# numbers of the scheduler; `benchmarks/anytime.py` shows them
KEPT = 0.175  #: share of the budget that checking and timing have, where nothing says that they need more or less
HEAVY = 0.28  #: the same for many weights: what writes, loads and compares them copies them each time
LOADS = 8.0  #: they have so many times what loading the model takes
MOST = 0.28  #: and no larger a share than this
LEAST = 0.08  #: share that they have where nothing is found yet, or what was found is clearly faster
SECONDS = 4.0  #: and no less than so many seconds
STARTS = 12.0  #: and no less than so many times what loading the model takes
RUNS = 200.0  #: and no less than so many of its runs
CLEAR = 1.25  #: a prediction of so many times as fast needs few pairs of runs
EARLY = 0.15  #: share of the budget that timing may take between turns
ONCE = 0.075  #: share of the budget that timing may take after one turn
ALONE = 0.06  #: share of the budget that a winner may take without its library
TURN = 2.0  #: seconds that are worth a turn
IDLE = 0.25  #: seconds of a turn without a new find, after which there is no time for what comes next
OFTEN = 2  #: such turns in a row
SURE = 2.0  #: observations that a prior counts for
NEAR = 1.1  #: a candidate that costs so many times the best is asked about
BASES = 2  #: candidates without kernels that are asked about beside the original and the best of the rules

#: proposers of candidates; where two promise as much the first one is asked
GENERATORS: tuple[Generator, ...] = (
    Kernels(), Rules(), StandardNodes(), *REGION_REWRITES, CombineFindings(), Neighbourhood(), FURTHER,
)  # fmt: skip
#: of a model of heavy weights the best candidate stands alone, since each contender holds a copy of them
HEAVY_GENERATORS: tuple[Generator, ...] = (Rules(),)


@dataclass(slots=True, eq=False)
class Arm:
    """A generator, and a candidate that it is asked about."""

    generator: Generator
    base: Candidate
    #: the share of the candidate's time that it might save at most; None before it was looked at
    promise: float | None = None
    work: Iterator[Proposal] | None = None
    seconds: float = 0.0
    turns: int = 0
    #: the share of the original's time that it saved beyond what was there before it
    gained: float = 0.0
    done: bool = False
    #: turns without a new find, the last ones, that took no time: what is left is too short for what it would do next
    idle: int = 0


@dataclass(slots=True)
class Scheduler:
    """The turns of all generators of one run: the one place that divides its time, and that writes its state while it is explored."""

    context: SearchContext
    generators: Sequence[Generator] = field(default_factory=lambda: GENERATORS)
    arms: list[Arm] = field(default_factory=list)
    #: what was proposed, and the graphs that were checked or need not be
    candidates: list[Candidate] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    #: seconds of timing between turns
    timed: float = 0.0
    #: True where there was no time to check something
    unchecked: bool = False
    #: True once timing has decided: the rest of the time is not needed
    spare: bool = False
    #: times in a row that rules were blamed
    _blames: int = 0
    #: graphs that were proposed
    _graphs: set[int] = field(default_factory=set)
    _proposers: dict[Generator, Proposer] = field(default_factory=dict)
    _proposed_by: dict[Candidate, Generator] = field(default_factory=dict)
    #: what pairs of candidates have in common
    _shares: dict[tuple[Candidate, Candidate], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.context.task.heavy:
            self.generators = HEAVY_GENERATORS
        self._grow(self.context.start)

    # ---- the clock ---------------------------------------------------------------------------------------------

    def reserve(self) -> float:
        """Return the seconds that checking, timing and writing the best so far need."""
        context = self.context
        budget, load = context.run.clock.budget, context.referenced.load
        if budget == inf:
            return 0.0
        runs = RUNS * context.referenced.seconds
        least = min(MOST * budget, max(LEAST * budget, SECONDS, STARTS * load, runs))
        if context.task.heavy:
            return max(HEAVY * budget, least)
        faster = context.start.cost / self._best_cost()
        if self.spare or faster > CLEAR or not self._anything():
            return least
        told = context.task.writing + deciding(context.referenced, 1, faster) / (1 - PART)
        return max(least, min(MOST * budget, max(KEPT * budget, LOADS * load, told)))

    def _anything(self) -> bool:
        """Return whether there is something to check and time beside the original in canonical form."""
        return any(one.candidate is not self.context.start for one in self.context.run.checked)

    def _best_cost(self) -> float:
        """Return the seconds of the best that was checked, and stands without its library as far as is known."""
        run = self.context.run
        return min(
            (run.expected(one) for one in run.checked if one not in run.library_only), default=self.context.start.cost
        )

    # ---- whose turn it is ---------------------------------------------------------------------------------------

    def run(self) -> None:
        """Give turns until the time for exploring is over, or no arm is left.

        Raises:
            Unusable: import and export alone change what the model computes.
            TimeUp: there was no time to check anything.
        """
        run = self.context.run
        try:
            while True:
                self.context.exploring = self.context.measuring = run.clock.until(self.reserve())
                arm = self._next()
                if not arm or self.context.exploring.left() < TURN:
                    break
                self._turn(arm)
            self._finish()
        finally:
            self._log()

    def _finish(self) -> None:
        """Check what was proposed, the cheapest first."""
        run = self.context.run
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
        """Return the arm that promises most for a second; none is looked at before all that it might promise is most."""
        while True:
            arm = max((one for one in self.arms if not one.done and one.idle < OFTEN), key=self.rate, default=None)
            if arm is None or arm.promise is not None:
                return arm
            try:
                arm.promise = arm.generator.promise(self.context, arm.base)
            except TimeUp:
                arm.promise = 1.0
            arm.done = arm.promise <= 0

    def rate(self, arm: Arm) -> float:
        """Return the share of the model's time that a second of an arm is expected to save."""
        own = [one for one in self.arms if one.generator is arm.generator and one.turns]
        promised = SURE + sum(one.promise or 0.0 for one in own)
        gain = (SURE * arm.generator.gain + sum(one.gained for one in own)) / promised
        ahead = self._cheapest() / max(arm.base.cost, 1e-12)
        promise = 1.0 if arm.promise is None else arm.promise
        spent = arm.seconds
        if not arm.generator.uses_findings:
            # what was sought in a candidate is not there in one that is hardly another
            spent += sum(self._alike(one.base, arm.base) * one.seconds for one in own if one is not arm)
        return gain * max(0.0, promise - arm.gained) * ahead**2 / (arm.generator.seconds + spent)

    def _alike(self, a: Candidate, b: Candidate) -> float:
        """Return the share of two candidates' working operators that they have in common, whatever these stand upon."""
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
        """Return the seconds of the cheapest candidate without kernels that may be asked about."""
        return min(arm.base.cost for arm in self.arms)

    # ---- a turn --------------------------------------------------------------------------------------------------

    def _turn(self, arm: Arm) -> None:
        context, run, generator = self.context, self.context.run, arm.generator
        began, before, known = run.clock.now(), self._best_cost(), run.found.count
        context.turn = context.exploring.part(generator.share, generator.most)
        if generator.phase == "searching":
            # a search leaves to the next turn what it did not measure in this one; what is repeated measures nothing new
            context.measuring = OVER if run.journal.repeats and isinstance(generator, Rules) else context.turn
        ends = run.clock.now() + max(TURN, min(generator.seconds, generator.most))
        run.phase(generator.phase)
        new: list[Candidate] = []
        with run.turn(generator.name) as tally:
            try:
                if arm.work is None:
                    if generator not in self._proposers:
                        self._proposers[generator] = generator.begin(context)
                    arm.work = self._proposers[generator](arm.base)
                for found in arm.work:
                    if found.best is not None and not self._adopt(found.best):
                        if self._blames < CULPRITS:
                            run.phase(generator.phase)
                            continue
                        run.checked.clear()
                        arm.done = True
                        break
                    self._record(found, arm)
                    for one in found.candidates:
                        self._add(one, generator, tally)
                    new += found.candidates
                    # a share of the time is used by now
                    if new or generator.share < 1 or run.clock.now() >= ends or context.exploring.over:
                        break
                else:
                    arm.done = True
            except TimeUp:
                arm.done = self.unchecked = True
        graphs = {hash(one.graph.outputs) for one in new}
        idle = graphs <= self._graphs and run.clock.now() - began < IDLE
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
        if context.best and context.best is not context.start:
            self._grow(context.best)
            # what rules have made better since is not asked about
            before_it = context.best.path()[1:-1]
            for other in self.arms:
                other.done = other.done or (not other.turns and other.base in before_it)

    def _record(self, found: Proposal, arm: Arm) -> None:
        """Write what else was found into the state of the run."""
        run = self.context.run
        run.costly.update(found.costly)
        run.kernels.update(found.kernels)
        for finding in found.findings:
            run.found.add(finding)
        for node, seconds in found.kernel_seconds.items():
            run.kernel_seconds[node] = min(seconds, run.kernel_seconds.get(node, inf))
        run.untaken.update(((origin, arm.base), lines) for origin, lines in found.untaken.items())

    def _adopt(self, found: Candidate) -> bool:
        """Take the best by rules, once it is checked; False where rules are to blame, which are left out from then on.

        Raises:
            Unusable: import and export alone change what the model computes.
            TimeUp: there was no time to check anything.
        """
        context, run = self.context, self.context.run
        context.best, one = found, None
        if not any(each.candidate is found for each in run.checked):
            new = found is not context.start
            one = (
                passed(context.referenced, run, context.start, found)
                if new
                else smaller(context.referenced, run, found)
            )
            if isinstance(one, Contender):
                run.passed(one)
                if new:
                    run.clock.reached(CHECKED)
        if not isinstance(one, list):
            self._blames = 0
            return True
        run.warn(*(f"{each.rule} was left out: {each.problem}" for each in one))
        run.reason = Ending.LEFT_OUT, run.warnings[-1]
        names = {each.rule for each in one}
        context.rules = tuple(rule for rule in context.rules if rule.name not in names)
        # the last candidate on the way that no such rule had a part in
        path = one[0].before.path()
        context.best = run.best = next((at.parent for at in path if at.parent and at.rule in names), path[-1])
        self._blames += 1
        return False

    def _ask_again(self) -> None:
        """Give generators that go by findings another look, since there are more."""
        for arm in self.arms:
            if arm.generator.uses_findings:
                arm.promise, arm.work, arm.done, arm.idle = None, None, False, 0

    def _add(self, one: Candidate, generator: Generator, tally: Tally) -> None:
        """Keep a proposal; without timing, predictions alone say what is better than the original."""
        tally.proposed.append(one)
        run = self.context.run
        run.progress.best(self.context.start.cost / max(one.cost, 1e-12), run.journal.first)
        self._proposed_by.setdefault(one, generator)
        if self.context.task.settings.timing or one.cost < self.context.start.cost:
            self.candidates.append(one)
        if one.cost < NEAR * self._cheapest() and not has_kernels(one):
            own = [arm.base for arm in self.arms if arm.base not in (self.context.start, self.context.best)]
            if len({*own}) < BASES or one.cost < min(base.cost for base in own):
                self._grow(one)

    def _grow(self, base: Candidate) -> None:
        """Have all generators asked about one more candidate, but for the one that proposed it."""
        if any(arm.base is base for arm in self.arms):
            return
        by = self._proposed_by.get(base)
        self.arms += [Arm(one, base) for one in self.generators if one is not by or one.asks_own_results]

    # ---- what was found ------------------------------------------------------------------------------------------

    def _check(self, one: Candidate) -> None:
        """Make a candidate, once, one more contender, where its outputs and its rewrites are right. Raises TimeUp."""
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
        found = checked(context.referenced, run, one, until)
        run.spares.fill()
        if found:
            run.passed(found)
            run.clock.reached(CHECKED)
        elif run.reason[0] is Ending.NO_GAIN:
            run.reason = Ending.NOT_EQUAL, ""

    def _decide(self) -> None:
        """Time the contenders, where they are clear and that takes little time: it is not lost then, and says what they are worth."""
        context, run = self.context, self.context.run
        task = context.task
        sure = [one for one in run.checked if run.timing(one)]
        known = min((run.expected(one) for one in sure if one not in run.library_only), default=context.start.cost)
        new = [one for one in run.checked if one not in sure and run.expected(one) * CLEAR < known]
        # what decides at the end has its own time, and what is timed now is known then
        left = run.clock.left() - self.reserve() / 2
        budget = task.settings.budget
        seconds = min(left, EARLY * budget - self.timed, ONCE * budget)
        if not new or not task.settings.timing or not task.target.measured or seconds <= 0 or run.journal.repeats:
            return
        run.phase("timing")
        began = run.clock.now()
        with suppress(TimeUp, WorkerFailed, MemoryShort), context.halted():
            winner = context.referenced.benchmark.decide(new, seconds).winner
            if winner is not None:
                left = min(left - (run.clock.now() - began), ALONE * budget)
                slow = regresses_without_library(context.referenced, new[winner], left, run)
                if slow:
                    run.library_only[new[winner]] = slow
        self.timed += run.clock.now() - began
        run.spares.fill()

    # ---- what is told --------------------------------------------------------------------------------------------

    def _cuts(self) -> None:
        """Say for which phases there was no time."""
        clock = self.context.run.clock
        phases = {arm.generator.phase for arm in self.arms}
        unfinished = {arm.generator.phase for arm in self.arms if not arm.done and arm.generator.reported_if_skipped}
        clock.resume(phases - unfinished)
        for phase in unfinished:
            clock.cut(phase)

    def _log(self) -> None:
        """Keep the plan of the budget for the report, and every arm: what it promised, took and gained."""
        run = self.context.run
        budget = run.clock.budget
        if 0 < budget < inf:
            run.plan = {"exploring": round(budget - self.reserve(), 3), "timing": budget}
        bases = dict.fromkeys(arm.base for arm in self.arms)
        names: dict[Candidate | None, str] = {one: f"candidate {k}: {one.rule}" for k, one in enumerate(bases)}
        names |= {self.context.best: "the best rule-only model", self.context.start: "the original"}
        run.asked = tuple(
            Asked(
                arm.generator.name, names[arm.base], round(arm.promise or 0.0, 4), arm.generator.seconds, arm.turns,
                round(arm.seconds, 3), round(arm.gained, 4), arm.done,
            )
            for arm in sorted(self.arms, key=lambda one: -one.seconds) if arm.promise and (arm.turns or not arm.done)
        )  # fmt: skip
