"""Searching at measured prices, and checking what is found, until models are known to compute the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

from dslc.cost.cache import CostCache
from dslc.cost.clock import TimeUp
from dslc.cost.compare import Comparison
from dslc.cost.measure import Measurer
from dslc.cost.model import CostModel
from dslc.errors import DslcError
from dslc.fuse.kernels import kernels
from dslc.onnx.exporter import node_model
from dslc.search.candidate import Candidate, Front
from dslc.search.contenders import Blamed, Contender, folder_of, serialized
from dslc.search.fusions import wanted, with_kernels
from dslc.search.ground import Ground, Reached, Shares
from dslc.search.offers import BUILDERS, OFFERS, Offer, nothing_yet, onward
from dslc.search.originals import Unusable
from dslc.search.planning import begun
from dslc.search.run import Run
from dslc.search.searches import BRIEF, searched
from dslc.search.sizes import sizes_of
from dslc.search.stages import Explored, Predicted, Referenced
from dslc.search.steps import status_of
from dslc.search.validate import Validated, claims_of, validate
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


def explore(referenced: Referenced, cache: CostCache, run: Run) -> Explored:
    """Searches at measured prices, and checks what is found.

    Raises:
        Unusable: import and export alone change what the model computes.
        TimeUp: there was no time to check anything.
    """
    task, settings, clock, journal = referenced.task, referenced.task.settings, run.clock, run.journal
    heavy = task.size.bytes > HEAVY
    later = (wanted(settings) or task.target.pricing is not None) and not heavy
    shares = Shares.of(settings.budget, referenced.originals[0].load, settings.timing, later, heavy)
    #: the share of the budget that is kept while costs are measured
    keep = 0.0

    def measuring() -> float:
        return 0.0 if keep == inf else clock.left(keep)

    def keeping(share: float) -> None:
        nonlocal keep
        keep = share

    measurer = Measurer(task.machine, cache, measuring, lambda: clock.within("measuring"))
    try:
        costs = _prices(referenced, measurer, run)
        run.start = Candidate(task.imported.graph, costs.graph_cost(task.imported.graph))
        # what is repeated measures nothing new: it ends where it ended before
        keep = inf if journal.repeats else shares.search
        found, guilty = contenders(Ground(referenced, run.start, costs, shares, keeping), run)
        if journal.late:
            run.cut("searching")
        # only the prediction of the report rests on it
        keep = inf if journal.repeats else max(shares.again, clock.left() / settings.budget - AGAIN)
        predicted = _predicted(run.start, costs, found, run)
    finally:
        measurer.close()
    # a search that time cut short before it found anything is no example
    if settings.steps is None and not journal.repeats and (found or not journal.late) and journal.steps[0] >= journal.reached:
        cache.put_verdict(referenced.key, {"steps": journal.steps, "late": journal.late, "onward": journal.onward})
    reason = "no rewritten model gives the same outputs" if guilty else "no rule predicts a gain"
    if journal.late and not guilty:
        reason = "the search found no gain in its time"
    run.explored = Explored(referenced, found, predicted, journal.steps[0], measurer.count, "" if found else reason)
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

    if task.target.plans is not None:
        return begun(task, measurer, {**task.sizes, **seen}, feeds)
    costs = CostModel(task.rules, measurer, build, context.opset, {**task.sizes, **seen})
    costs.begin(graph, referenced.seconds)
    return costs


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


def contenders(ground: Ground, run: Run) -> tuple[tuple[Contender, ...], bool]:
    """Models with the outputs of the original, none where nothing should be faster; and whether some rule was found guilty.

    A rule that changes the outputs is named, left out, and the search goes on. Of a heavy model the best candidate stands alone, since
    each contender holds a copy of the weights.

    Raises:
        Unusable: import and export alone change what the model computes.
        TimeUp: there was no time to check anything.
    """
    task = ground.referenced.task
    rules, best, front = ground.referenced.proven.rules, ground.start, Front()
    for turn in range(GUILTY):
        # as many steps again, so that the number of steps alone decides what is found
        most = run.journal.steps[0] if turn else task.settings.steps
        keep = ground.shares.check if turn else ground.shares.search
        gives_way = task.settings.patience is None and wanted(task.settings) and task.size.bytes <= HEAVY
        best = searched(ground, run, Reached(best, rules, front), most, keep, BRIEF if gives_way else inf)
        found = _canonical(ground, run) if best is ground.start else _passed(ground, run, best)
        if not isinstance(found, list):
            run.checked = [found] if found is not None else []
            if task.size.bytes <= HEAVY:
                _add_others(ground, run, Reached(best, rules, front))
            return tuple(run.checked), turn > 0
        run.notes.extend(f"{one.rule} was left out: {one.problem}" for one in found)
        names = {one.rule for one in found}
        rules = tuple(rule for rule in rules if rule.name not in names)
        best = found[0].before
        while any(step.rule in names for step in best.path()):
            assert best.parent is not None
            best = best.parent
        run.best = best
    return (), True


def proved_again(referenced: Referenced, run: Run, candidate: Candidate, keep: float = 0.0) -> Validated:
    """Proves the candidate's rewrites again, once; what that leaves no time for (the share `keep` of the budget is kept) rests on
    the proofs of the rules."""
    found = run.proofs.get(candidate)
    if found is None:
        run.phase("proving rewrites")
        end, verdicts = run.clock.end(keep), referenced.proven.verdicts
        found = validate(
            referenced.task.rules, claims_of(candidate), min(run.clock.now() + VALIDATION, end), run.decided,
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


def _passed(ground: Ground, run: Run, best: Candidate) -> Contender | list[Blamed]:
    """The candidate as a model with the outputs of the original, or the rules that it must do without.

    Raises:
        Unusable: it is none of them; import and export alone change what the model computes.
    """
    run.phase("comparing outputs")
    checker = ground.referenced.checker
    checked, proofs = checker.check(best), None
    if isinstance(checked, Contender):
        proofs = proved_again(ground.referenced, run, best, ground.shares.check)
        if proofs.usable:
            return checked
    alone = checker.check(ground.start)
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


def _add_others(ground: Ground, run: Run, reached: Reached) -> None:
    """More contenders beside the checked one, as far as there is time: predictions do not decide.

    The best that somebody built is checked before anybody else builds something: it is there, whatever they leave of the time.
    """
    seen = {hash(reached.best.graph.outputs)}
    # without timing, predictions alone say what is better than the original
    most = inf if ground.referenced.task.settings.timing or reached.best is not ground.start else ground.start.cost
    offered: list[Candidate] = []
    try:
        for offer in OFFERS:
            clear = min((one.cost for one in offered), default=inf) * CLEARLY < reached.best.cost
            if clear and offer not in BUILDERS:
                break
            _offer(ground, run, reached, offer, offered, most, seen)
        if nothing_yet(ground, run, offered) and {"building kernels", "deriving programs"} & {*run.clock.cuts}:
            # what is kept for checking and timing is too much for one thing, which may be had with it
            more = replace(ground, shares=replace(ground.shares, others=ground.shares.least))
            for offer in OFFERS:
                if offer in BUILDERS and offer is not onward:
                    _offer(more, run, reached, offer, offered, most, seen)
        for one in sorted(offered, key=lambda each: each.cost):
            _check(ground, run, one, seen)
    except TimeUp:
        run.cut("comparing outputs")


def _offer(
    ground: Ground, run: Run, reached: Reached, offer: Offer, offered: list[Candidate], most: float, seen: set[int]
) -> None:
    """Adds what is offered to a list, and checks the best of what was built. Raises TimeUp."""
    new: list[Candidate] = []
    try:
        for one in offer(ground, run, replace(reached, offered=tuple(offered))):
            new += [one] * (one.cost < most)
    except TimeUp:
        run.cut("searching")
    least = min((one.cost for one in offered), default=reached.best.cost)
    offered += new
    best = min(new, key=lambda one: one.cost, default=None)
    if offer in BUILDERS and best is not None and best.cost < least:
        _check(ground, run, best, seen)


def _check(ground: Ground, run: Run, one: Candidate, seen: set[int]) -> None:
    """A candidate, once, as one more contender, where its outputs and its rewrites are right. Raises TimeUp."""
    # what building kernels took too long is not lost, and least of all the only thing that there is
    keep = ground.shares.again if one.kernels else ground.shares.others
    keep = keep if any(found.candidate is not ground.start for found in run.checked) else ground.shares.least / 2
    if hash(one.graph.outputs) in seen:
        return
    if run.clock.left(keep) <= 0:
        raise TimeUp
    seen.add(hash(one.graph.outputs))
    run.phase("comparing outputs")
    found = ground.referenced.checker.check(one)
    if isinstance(found, Contender) and proved_again(ground.referenced, run, one, keep).usable:
        run.checked.append(found)
