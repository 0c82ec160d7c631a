"""The search for models that compute the same and should be faster, each of them checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dslc.cost.clock import Clock, TimeUp
from dslc.cost.compare import Comparison
from dslc.cost.model import CostModel
from dslc.match import CompiledRule
from dslc.prove.verdict import RuleVerdict
from dslc.report import Counts
from dslc.search.backtrack import backtrack
from dslc.search.candidate import Candidate, Front, Limits
from dslc.search.contenders import Blamed, Checker, Contender, distinct
from dslc.search.layouts import layouts_of, without_layouts
from dslc.search.originals import Unusable
from dslc.search.settings import Settings
from dslc.search.steps import status_of
from dslc.search.sweep import sweep
from dslc.search.validate import Known, Validated, validate
from dslc.semantics.library import Rules

#: contenders on the way to the best candidate, and contenders that do without one of its rules
MOST, VARIANTS = 3, 3
VARIANT_STEPS = 3000
#: above so many bytes of weights a model is heavy
HEAVY = 1 << 28
#: for what follows the search so many times what loading takes is kept, and such a part of the budget at least and at most
LOADS, LEAST_KEPT, MOST_KEPT = 20, 0.25, 0.5
#: rules that may be found guilty before the search gives up
GUILTY = 5
#: seconds for proving the rewrites of one candidate again; what is left then rests on the proofs of its rules
VALIDATION = 30.0


@dataclass(frozen=True, slots=True)
class Shares:
    """Of the budget what is kept when a phase ends: for searching, for checking the best, for others beside it, for measuring again."""

    search: float
    check: float
    others: float
    again: float

    @classmethod
    def of(cls, budget: float, load: float, timing: bool) -> Shares:
        """Where loading a model takes so many seconds; comparing and timing load it again and again."""
        kept = min(MOST_KEPT, max(LEAST_KEPT, (LOADS if timing else LOADS / 3) * load / budget))
        return cls(kept, 0.8 * kept, 0.7 * kept, 0.6 * kept)


@dataclass(slots=True)
class Journal:
    """How many steps each search of a run took, in order; a run that is repeated takes as many."""

    earlier: list[int] | None = None
    begun: list[Limits] = field(default_factory=list)

    @property
    def steps(self) -> list[int]:
        return [limits.done for limits in self.begun]

    def next(self, most: int | None) -> int | None:
        """How many steps the next search may take."""
        if self.earlier is None:
            return most
        return self.earlier[len(self.begun)] if len(self.begun) < len(self.earlier) else 0


class Hunt:
    """Searches, and checks what it finds. `best`, `checked` and `guilty` are there at any moment, also when it is interrupted."""

    def __init__(
        self,
        rules: Rules,
        chosen: Sequence[CompiledRule],
        verdicts: Mapping[str, RuleVerdict],
        settings: Settings,
        clock: Clock,
        journal: Journal,
        shares: Shares,
        phase: Callable[[str], None],
        notes: list[str],
    ) -> None:
        self.shares = shares
        self._verdicts = verdicts
        self._rules, self._settings, self._clock, self._journal = rules, settings, clock, journal
        self._phase, self._notes = phase, notes
        self._chosen = list(chosen)
        self._known: Known = {}
        self._validated: dict[Candidate, Validated] = {}
        self._tried: dict[str, bool] = {}
        #: what was found and not found guilty, checked or not
        self.best: Candidate | None = None
        self.checked: list[Contender] = []
        #: whether some rule was found guilty
        self.guilty = False

    @property
    def unrunnable(self) -> list[str]:
        """Rules whose rewrites could nowhere be run."""
        return [name for name, runs in self._tried.items() if not runs]

    def contenders(self, start: Candidate, costs: CostModel, checker: Checker, counted: Counts) -> list[Contender]:
        """Models with the outputs of the original; none where nothing should be faster.

        A rule that changes the outputs is named, left out, and the search goes on. `counted` is the original's size: of a heavy one
        the best candidate stands alone, since each contender holds a copy of the weights.

        Raises:
            Unusable: import and export alone change what the model computes.
            TimeUp: there was no time to check anything.
        """
        rules, best = self._chosen, start
        front = Front()
        for turn in range(GUILTY):
            # as many steps again, so that the number of steps alone decides what is found
            best = self._search(best, start, rules, costs, front, self._journal.steps[0] if turn else self._settings.steps)
            if best is start:
                return self._unsearched(checker, start, counted)
            self._phase("comparing outputs")
            checked = checker.check(best)
            refuted = self.validated(best, self.shares.check) if isinstance(checked, Contender) else None
            if isinstance(checked, Contender) and (refuted is None or refuted.usable):
                self.checked = [checked]
                if counted.bytes <= HEAVY:
                    self._others(best, start, rules, costs, checker, front)
                return self.checked
            alone = checker.check(start)
            if not isinstance(alone, Contender):
                raise Unusable(f"import and export alone change it: {alone.problem}")
            if isinstance(checked, Comparison):
                blamed = [checker.blame(best, checked.problem)]
            else:
                assert refuted is not None
                blamed = [_refuted(best, refuted)] if refuted.failed else _unproved(best, refuted)
            self.guilty = True
            self._notes.extend(f"{one.rule} was left out: {one.problem}" for one in blamed)
            names = {one.rule for one in blamed}
            rules = [rule for rule in rules if rule.name not in names]
            best = blamed[0].before
            while any(step.rule in names for step in best.path()):
                assert best.parent is not None
                best = best.parent
            self.best = best
        return []

    def validated(self, candidate: Candidate, keep: float = 0.0) -> Validated:
        """Proves the candidate's rewrites again, once; what that leaves no time for (the share `keep` of the budget is kept) rests on
        the proofs of the rules."""
        found = self._validated.get(candidate)
        if found is None:
            self._phase("proving rewrites")
            end = self._clock.end(keep)
            found = validate(
                self._rules, candidate, min(self._clock.now() + VALIDATION, end), self._known,
                needed=lambda name: status_of(name, self._verdicts) == "bounded",
            )  # fmt: skip
            if self._clock.now() > end:
                self._clock.cut("proving rewrites")
            self._validated[candidate] = found
        return found

    # ---- searching -------------------------------------------------------------------------------------------------

    def _limits(self, most: int | None, keep: float, front: Front | None = None) -> Limits:
        repeated = self._journal.earlier is not None
        patience = self._settings.budget / 4 if self._settings.patience is None else self._settings.patience
        limits = Limits(
            self._journal.next(most),
            # what is repeated is in the cache, also what it was timed with
            self._clock.end(keep / 3 if repeated else keep),
            now=self._clock.now,
            on_step=self._settings.progress.step,
            on_tried=self._ran,
        )
        if front is not None:
            limits.on_built = front.add
        if not repeated and self._settings.steps is None:
            limits.patience = patience
        self._journal.begun.append(limits)
        return limits

    def _ran(self, rule: str, runs: bool) -> None:
        self._tried[rule] = runs or self._tried.get(rule, False)

    def _search(
        self,
        best: Candidate,
        start: Candidate,
        rules: list[CompiledRule],
        costs: CostModel,
        front: Front,
        most: int | None,
    ) -> Candidate:
        self._phase("searching")
        limits = self._limits(most, self.shares.search if not self.guilty else self.shares.check, front)
        progress = self._settings.progress

        def improved(found: Candidate) -> None:
            self.best = found
            progress.best(start.cost / max(found.cost, 1e-12), limits.done)

        alpha, seed, mode = self._settings.alpha, self._settings.seed, self._settings.layouts
        layouts = None if mode == "none" else layouts_of(rules)
        others = without_layouts(rules)
        found = best
        if mode != "only" and not limits.over:
            jointly = layouts if mode == "joint" else None
            found = backtrack(best, others, costs, limits, alpha=alpha, seed=seed, layouts=jointly, on_best=improved)
        if mode != "joint" and layouts is not None and not limits.over:
            found = backtrack(found, [], costs, limits, alpha=alpha, seed=seed, layouts=layouts, on_best=improved)
        if limits.late:
            self._clock.cut("searching")
        if limits.interrupted:
            raise KeyboardInterrupt
        return found

    def _unsearched(self, checker: Checker, start: Candidate, counted: Counts) -> list[Contender]:
        """The model as import and export leave it, where that makes it smaller."""
        self._phase("comparing outputs")
        if checker.operators(start) < counted.operators:
            found = checker.check(start)
            self.checked = [found] if isinstance(found, Contender) else []
        return self.checked

    def _others(
        self,
        best: Candidate,
        start: Candidate,
        rules: Sequence[CompiledRule],
        costs: CostModel,
        checker: Checker,
        front: Front,
    ) -> None:
        """More contenders beside the checked one, as far as there is time: predictions do not decide."""
        more = [one for one in distinct(best, MOST)[1:] if one.parent is not None]
        # what predictions cannot tell apart: every node has a part in the time that it has not on its own
        small = front.smallest(self._settings.alpha * best.cost)
        more += [small] if small is not None else []
        try:
            more += self._variants(best, start, rules, costs)
            seen = {hash(best.graph.outputs)}
            for one in more:
                if self._clock.left(self.shares.others) <= 0:
                    raise TimeUp
                if hash(one.graph.outputs) not in seen:
                    seen.add(hash(one.graph.outputs))
                    self._phase("comparing outputs")
                    found = checker.check(one)
                    if isinstance(found, Contender) and self.validated(one, self.shares.others).usable:
                        self.checked.append(found)
        except TimeUp:
            self._clock.cut("comparing outputs")

    def _variants(
        self, best: Candidate, start: Candidate, rules: Sequence[CompiledRule], costs: CostModel
    ) -> list[Candidate]:
        """What a sweep finds without one rule of the best candidate: a prediction may be wrong for one rule alone."""
        gains: dict[str, float] = {}
        for step in best.path():
            if step.rule:
                gains[step.rule] = gains.get(step.rule, 0.0) + step.gain
        out = []
        self._phase("searching")
        for name in sorted(gains, key=lambda rule: -gains[rule])[:VARIANTS]:
            others = [rule for rule in rules if rule.name != name]
            limits = self._limits(VARIANT_STEPS, self.shares.others)
            try:
                found = sweep(start, others, costs, limits, lambda _: None)
            except TimeUp:
                break
            if found is not start:
                out.append(found)
        return out


def _refuted(best: Candidate, found: Validated) -> Blamed:
    """The rule whose rewrite is wrong at the shapes of this model, and the last candidate before its first step."""
    before = next(step.parent for step in best.path() if step.rule == found.failed)
    assert before is not None
    problem = found.problem.strip().splitlines()[-1] if found.problem.strip() else "its sides differ"
    return Blamed(found.failed, f"with it, a rewrite is wrong at this model's shapes: {problem}", before)


def _unproved(best: Candidate, found: Validated) -> list[Blamed]:
    """The bounded rules of which some rewrite has no proof at this model's shapes, each with the last candidate before it."""
    path = best.path()
    first = {name: next(step.parent for step in path if step.rule == name) for name in found.unproved}
    problem = "it is bounded, and a rewrite is not proved at this model's shapes"
    return [Blamed(name, problem, before) for name, before in first.items() if before is not None]
