"""Searching at measured prices, and checking what is found, until models are known to compute the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import inf
from types import TracebackType
from typing import Any

from dslc.codegen.host.ahead import Ahead
from dslc.cost.cache import CostCache
from dslc.cost.clock import TimeUp
from dslc.cost.compare import Comparison
from dslc.cost.measure import Measurer
from dslc.cost.model import CostModel
from dslc.cost.process import WorkerFailed
from dslc.cost.timing import MemoryShort
from dslc.errors import DslcError
from dslc.fuse.kernels import kernels
from dslc.onnx.exporter import node_model
from dslc.search.candidate import Candidate, Front
from dslc.search.contenders import Blamed, Contender, folder_of, serialized
from dslc.search.fusions import wanted, with_kernels
from dslc.search.ground import Ground, Reached, Shares
from dslc.search.judge import judge_of
from dslc.search.offers import BUILDERS, FIRST_OFFERS, OFFERS, Offer, nothing_yet, onward
from dslc.search.originals import Unusable
from dslc.search.planning import planned_seconds
from dslc.search.run import CHECKED, Run
from dslc.search.searches import BRIEF, searched
from dslc.search.sizes import sizes_of
from dslc.search.stages import Explored, Finished, Predicted, Referenced
from dslc.search.steps import status_of
from dslc.search.validate import Claim, Rewrite, Validated, claims_of, validate
from dslc.search.written import as_kernels, ready, texts_of

#: above so many bytes of weights a model is heavy
HEAVY = 1 << 28
#: kernels that are predicted to be so many times as fast as the search's best need no other contenders beside it
CLEARLY = 1.5
#: rules that may be found guilty before the search gives up
GUILTY = 5
#: seconds for proving the rewrites of one candidate again; what is left then rests on the proofs of its rules
VALIDATION = 30.0
#: measuring again takes such a part of the budget
AGAIN = 0.05
#: of what is left for finding anything, what is kept while rules are searched
SEARCHED = 0.5
#: timing what is there before anything is searched takes such a part of the budget at most
EARLY = 0.15
#: and only where they are predicted to be so many times as fast
CLEARLY_FIRST = 1.25
#: phases that go on where timing left time, how often they do, and seconds that are worth it
RESUMED = frozenset(("building kernels", "mutating programs", "deriving programs", "searching"))
ROUNDS, ENOUGH = 3, 2.0


class Exploration:
    """Searching at measured prices, and checking what is found; it goes on as long as timing leaves time.

    A context manager, which ends the process that measures.
    """

    def __init__(self, referenced: Referenced, cache: CostCache, run: Run) -> None:
        task, settings = referenced.task, referenced.task.settings
        self.referenced, self.cache, self.run = referenced, cache, run
        heavy = task.size.bytes > HEAVY
        later = (wanted(settings) or not task.target.measured) and not heavy
        self.shares = Shares.of(settings.budget, referenced.originals[0].load, settings.timing, later, heavy)
        run.shares = self.shares
        #: the share of the budget that is kept while costs are measured
        self._keep = 0.0
        self.ahead = Ahead(processor=task.machine.processor)
        self._measurer = task.target.measurer(cache, self._measuring, self._undisturbed)
        self._more: Offered | None = None
        self._rounds = 0

    def __enter__(self) -> Exploration:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.ahead.close()
        self._measurer.close()

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        with self.run.clock.within("measuring"), self.ahead.halted(), self.run.spares.halted():
            yield

    def _measuring(self) -> float:
        return 0.0 if self._keep == inf else self.run.clock.left(self._keep)

    def _keeping(self, share: float) -> None:
        self._keep = share

    def first(self) -> Explored:
        """What is found in the part of the budget that is not kept for checking and timing.

        Raises:
            Unusable: import and export alone change what the model computes.
            TimeUp: there was no time to check anything.
        """
        referenced, run, journal = self.referenced, self.run, self.run.journal
        graph, settings = referenced.task.imported.graph, referenced.task.settings
        self.costs = _prices(referenced, self._measurer, run)
        run.start = Candidate(graph, self.costs.graph_cost(graph))
        self._keep = self.shares.others
        begun = run.start if run.applied is None else priced(run.applied.candidate, run.start, self.costs)
        ground = Ground(referenced, begun, self.costs, self.shares, self._keeping, ahead=self.ahead)
        self._more = Offered(ground, run, self.cache)
        guilty = contenders(self._more)
        if journal.late:
            run.cut("searching")
        # a search that time cut short before it found anything is no example
        found = bool(run.checked)
        if settings.steps is None and not journal.repeats and (found or not journal.late) and journal.steps[0] >= journal.reached:
            self.cache.put_verdict(referenced.key, {"steps": journal.steps, "late": journal.late, "onward": journal.onward})
        reason = "no rewritten model gives the same outputs" if guilty else "no rule predicts a gain"
        if journal.late and not guilty:
            reason = "the search found no gain in its time"
        return self._explored("" if found else reason)

    def further(self) -> Explored | None:
        """What those find whom the budget had cut short, in the time that is left when timing has decided; None where nobody was, or
        nothing new is found."""
        run, count = self.run, len(self.run.checked)
        heavy = self.referenced.task.size.bytes > HEAVY
        if self._more is None or run.explored is None or heavy or run.journal.repeats:
            return None
        while self._rounds < ROUNDS and RESUMED & {*run.clock.cuts} and run.clock.left(self.shares.least) > ENOUGH:
            self._rounds += 1
            run.clock.resume(RESUMED)
            self._more.further()
            if len(run.checked) > count:
                return self._explored(run.explored.reason)
        return None

    def confirmed(self, finished: Finished) -> Finished:
        """What was decided, with a prediction from prices that were measured again in the same rounds."""
        run, explored = self.run, self.run.explored
        if explored is None or finished.predicted is None or run.clock.left() <= AGAIN * finished.task.settings.budget:
            return finished
        contender = finished.contender or explored.contenders[0]
        # only the report rests on it
        self._keep = inf if run.journal.repeats else max(0.0, run.clock.left() / finished.task.settings.budget - AGAIN)
        found = _predicted(explored.predicted.start, self.costs, [contender], run)
        return replace(finished, predicted=found.ratio(contender.candidate))

    def _explored(self, reason: str) -> Explored:
        run = self.run
        assert run.start is not None
        run.explored = Explored(
            self.referenced, tuple(run.checked), Predicted(run.start), run.journal.steps[0], self._measurer.count, reason
        )
        return run.explored


def _prices(referenced: Referenced, measurer: Measurer, run: Run) -> CostModel:
    task = referenced.task
    context, graph = task.imported.context, task.imported.graph
    feeds = referenced.inputs[0].feeds[0]
    seen = sizes_of(graph, context, task.model, folder_of(task.folder), feeds, task.machine.threads, run.clock.left)

    kernels = with_kernels(task.settings)

    def build(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> bytes | None:
        if kernels:
            outputs = as_kernels(task.rules, outputs, context.opset)
        try:
            model, _ = node_model(outputs, task.rules, context.opset, context.ir_version, inputs=inputs)
        except DslcError:
            return None
        if kernels and model.functions:
            ready(model, texts_of(task.rules, outputs, context.opset))
        return serialized(model)

    sizes = {**task.sizes, **seen}
    costs = CostModel(task.rules, measurer, build, context.opset, sizes, target=task.target)
    costs.begin(graph, referenced.seconds if task.target.measured else planned_seconds(task, sizes, feeds))
    return costs


def priced(found: Candidate, start: Candidate, costs: CostModel) -> Candidate:
    """The same steps, from a start that has its price, with that of the last graph."""
    cost = costs.graph_cost(found.graph)
    at = start
    for step in found.path()[1:]:
        at = Candidate(step.made, cost, at, step.rule, step.count, step.facts, step.kernels)
    return at


def _predicted(start: Candidate, costs: CostModel, found: Sequence[Contender], run: Run) -> Predicted:
    """What the original and the contenders cost, measured again in the same rounds."""
    every = (start, *(one.candidate for one in found))
    seconds = {one: one.cost for one in every}
    if not found:
        return Predicted(start, seconds)
    run.phase("measuring", "measuring again")
    # kernels are measured by those who build them: as nodes they take something else
    plain = [one for one in every if not one.kernels and not kernels(one.graph)]
    try:
        if costs.confirm(*(one.graph for one in plain)):
            run.cut("measuring")
        seconds |= {one: costs.graph_cost(one.graph) for one in plain}
        seconds |= {one: one.cost * seconds[start] / max(start.cost, 1e-12) for one in every if one not in plain}
    except TimeUp:
        run.cut("measuring")
    return Predicted(start, seconds)


# ---- searching and checking, until nothing is found guilty ----------------------------------------------------------------


def contenders(more: Offered) -> bool:
    """Fills `run.checked` with models with the outputs of the original, none where nothing should be faster; whether some rule was
    found guilty.

    A rule that changes the outputs is named, left out, and the search goes on. Of a heavy model the best candidate stands alone, since
    each contender holds a copy of the weights.

    Raises:
        Unusable: import and export alone change what the model computes.
        TimeUp: there was no time to check anything.
    """
    ground, run = more.ground, more.run
    task = ground.referenced.task
    rules, best, front = ground.referenced.proven.rules, ground.start, Front()
    heavy = task.size.bytes > HEAVY
    if not heavy:
        more.first(Reached(best, rules, front))
        more.decide()
        run.spares.fill()
        if run.fusions is not None and ground.ahead is not None:
            run.fusions.prepare(ground.ahead)
    # whatever first kernels took, half of what is left is for searching
    searching = min(ground.shares.search, ground.shares.others + SEARCHED * run.clock.left(ground.shares.others) / task.settings.budget)
    for turn in range(GUILTY):
        # as many steps again, so that the number of steps alone decides what is found
        most = run.journal.steps[0] if turn else task.settings.steps
        keep = ground.shares.check if turn else searching
        gives_way = task.settings.patience is None and wanted(task.settings) and not heavy
        # what is repeated measures nothing new: it ends where it ended before
        ground.keeping(inf if run.journal.repeats else keep)
        with run.turn("searching rules") as tally:
            best = searched(ground, run, Reached(best, rules, front), most, keep, BRIEF if gives_way else inf)
            tally.proposed += [best] * (best is not ground.start)
        if best is ground.start:
            found: Contender | list[Blamed] | None = _canonical(ground, run)
        else:
            found = passed(ground.referenced, run, ground.start, best, ground.shares.check)
        if not isinstance(found, list):
            if found is not None:
                run.passed(found)
                if best is not ground.start:
                    run.clock.reached(CHECKED)
            if not heavy:
                more.others(Reached(best, rules, front))
            return turn > 0
        run.notes.extend(f"{one.rule} was left out: {one.problem}" for one in found)
        names = {one.rule for one in found}
        rules = tuple(rule for rule in rules if rule.name not in names)
        best = found[0].before
        while any(step.rule in names for step in best.path()):
            assert best.parent is not None
            best = best.parent
        run.best = best
    run.checked.clear()
    return True


def proved_again(referenced: Referenced, run: Run, candidate: Candidate, keep: float = 0.0) -> Validated:
    """Proves the candidate's rewrites again, once; what that leaves no time for (the share `keep` of the budget is kept) rests on
    the proofs of the rules, and so do rewrites by rules that are proved for every shape where there is no budget."""
    found = run.proofs.get(candidate)
    if found is None:
        run.phase("proving rewrites")
        end, verdicts = run.clock.end(keep), referenced.proven.verdicts
        claims: Iterable[Claim] = claims_of(candidate)
        if referenced.task.settings.budget == 0:
            claims = (one.rule if isinstance(one, Rewrite) and status_of(one.rule, verdicts) == "proved" else one for one in claims)
        found = validate(
            referenced.task.rules, claims, min(run.clock.now() + VALIDATION, end), run.decided,
            needed=lambda name: status_of(name, verdicts) == "bounded",
        )  # fmt: skip
        if run.clock.now() > end:
            run.cut("proving rewrites")
        run.proofs[candidate] = found
    return found


# ---- checking -----------------------------------------------------------------------------------------------------------


def _canonical(ground: Ground, run: Run) -> Contender | None:
    """The model as import and export leave it, where that makes it smaller."""
    run.phase("comparing outputs")
    checker = ground.referenced.checker
    if checker.operators(ground.start) < ground.referenced.task.size.operators:
        found = checker.check(ground.start)
        return found if isinstance(found, Contender) else None
    return None


def passed(referenced: Referenced, run: Run, start: Candidate, best: Candidate, keep: float) -> Contender | list[Blamed]:
    """The candidate as a model with the outputs of the original, or the rules that it must do without.

    It came of `start`, and proofs leave the share `keep` of the budget.

    Raises:
        Unusable: it is none of them; import and export alone change what the model computes.
    """
    run.phase("comparing outputs")
    checker = referenced.checker
    checked, proofs = checker.check(best), None
    if isinstance(checked, Contender):
        proofs = proved_again(referenced, run, best, keep)
        if proofs.usable:
            return checked
    alone = checker.check(start)
    if not isinstance(alone, Contender):
        raise Unusable(f"import and export alone change it: {alone.problem}")
    if isinstance(checked, Comparison):
        return [checker.blame(best, checked.problem)]
    assert proofs is not None
    return [_refuted(best, proofs)] if proofs.failed else _unproved(best, proofs)


def _refuted(best: Candidate, found: Validated) -> Blamed:
    """The rule whose rewrite is wrong at the shapes of this model, and the last candidate before its first step."""
    before = _before(best, found.failed)
    problem = found.problem.strip().splitlines()[-1] if found.problem.strip() else "its sides differ"
    return Blamed(found.failed, f"with it, a rewrite is wrong at this model's shapes: {problem}", before)


def _unproved(best: Candidate, found: Validated) -> list[Blamed]:
    """The bounded rules of which some rewrite has no proof at this model's shapes, each with the last candidate before it."""
    problem = "it is bounded, and a rewrite is not proved at this model's shapes"
    return [Blamed(name, problem, _before(best, name)) for name in found.unproved]


def _before(best: Candidate, rule: str) -> Candidate:
    """The last candidate of a path before the first step that a rule had a part in."""
    for step in best.path():
        if step.parent is not None and (step.rule == rule or any(fact.rule == rule for fact in step.facts)):
            return step.parent
    raise ValueError(f"no step of the path was made by {rule}")


# ---- more contenders ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Offered:
    """More contenders beside the best of the search, as far as there is time: predictions do not decide."""

    ground: Ground
    run: Run
    cache: CostCache
    #: what was offered, and the graphs that were checked or need not be
    candidates: list[Candidate] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    #: how far the search came
    reached: Reached | None = None

    def first(self, reached: Reached) -> None:
        """What is there before anything is searched: the best of it is checked at once."""
        with suppress(TimeUp):
            for offer in FIRST_OFFERS:
                self._offer(offer, reached, inf)

    def decide(self) -> None:
        """Times what is there before anything is searched: what is clear is decided in a second, and is not lost."""
        referenced, settings = self.ground.referenced, self.ground.referenced.task.settings
        least = min((one.candidate.cost for one in self.run.checked), default=inf)
        if settings.timing and CLEARLY_FIRST * least < self.ground.start.cost and referenced.task.target.measured:
            self.run.phase("timing")
            with suppress(TimeUp, WorkerFailed, MemoryShort):
                judge_of(referenced, self.cache, self.run).decide(self.run.checked, EARLY * settings.budget)

    def others(self, reached: Reached) -> None:
        """The best that somebody built is checked before anybody else builds something: it is there, whatever they leave of
        the time."""
        run, self.reached = self.run, reached
        self.seen.add(hash(reached.best.graph.outputs))
        try:
            for offer in OFFERS:
                clear = min((one.cost for one in self.candidates), default=inf) * CLEARLY < reached.best.cost
                if clear and offer not in BUILDERS:
                    break
                self._offer(offer, reached, self._most(reached))
            if nothing_yet(self.ground, run, self.candidates) and {"building kernels", "deriving programs"} & {*run.clock.cuts}:
                # what is kept for checking and timing is too much for one thing, which may be had with it
                self._builders(reached)
            for one in sorted(self.candidates, key=lambda each: each.cost):
                self._check(one)
        except TimeUp:
            run.cut("comparing outputs")

    def further(self) -> None:
        """What those find that build something, with less kept for checking and timing."""
        if self.reached is None:
            return
        self.ground = replace(self.ground, spare=True)
        try:
            self._builders(self.reached, *(offer for offer in OFFERS if offer is onward))
            for one in sorted(self.candidates, key=lambda each: each.cost):
                self._check(one)
        except TimeUp:
            self.run.cut("comparing outputs")

    def _builders(self, reached: Reached, *others: Offer) -> None:
        """Asks all that build something once more."""
        self.ground = replace(self.ground, shares=replace(self.ground.shares, others=self.ground.shares.least))
        for offer in OFFERS:
            if (offer in BUILDERS and offer is not onward) or offer in others:
                self._offer(offer, reached, self._most(reached))

    def _most(self, reached: Reached) -> float:
        """What a candidate may cost: without timing, predictions alone say what is better than the original."""
        start = self.ground.start
        return inf if self.ground.referenced.task.settings.timing or reached.best is not start else start.cost

    def _offer(self, offer: Offer, reached: Reached, most: float) -> None:
        """Adds what is offered, and checks the best of what was built. Raises TimeUp."""
        new: list[Candidate] = []
        try:
            with self.run.turn(offer.__name__.replace("_", " ")) as tally:
                for one in offer(self.ground, self.run, replace(reached, offered=tuple(self.candidates))):
                    tally.proposed.append(one)
                    new += [one] * (one.cost < most)
        except TimeUp:
            self.run.cut("searching")
        least = min((one.cost for one in self.candidates), default=reached.best.cost)
        self.candidates += new
        best = min(new, key=lambda one: one.cost, default=None)
        if offer in (*FIRST_OFFERS, *BUILDERS) and best is not None and best.cost < least:
            self._check(best)

    def _check(self, one: Candidate) -> None:
        """Makes a candidate, once, one more contender, where its outputs and its rewrites are right. Raises TimeUp."""
        run, shares = self.run, self.ground.shares
        # what building kernels took too long is not lost, and least of all the only thing that there is
        keep = shares.again if one.kernels else shares.others
        keep = keep if any(found.candidate is not self.ground.start for found in run.checked) else shares.least / 2
        if hash(one.graph.outputs) in self.seen:
            return
        if run.clock.left(keep) <= 0:
            raise TimeUp
        self.seen.add(hash(one.graph.outputs))
        run.phase("comparing outputs")
        found = self.ground.referenced.checker.check(one)
        run.spares.fill()
        if isinstance(found, Contender) and proved_again(self.ground.referenced, run, one, keep).usable:
            run.passed(found)
            run.clock.reached(CHECKED)
