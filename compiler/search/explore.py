"""Searching at measured prices, and checking what is found, until models are known to compute the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from dslc.cost.cache import CostCache
from dslc.cost.clock import TimeUp
from dslc.cost.compare import Comparison
from dslc.cost.measure import Measurer
from dslc.cost.model import CostModel
from dslc.errors import DslcError
from dslc.fuse.kernels import kernels
from dslc.fuse.templates import Templates
from dslc.ir.graph import Node
from dslc.match import CompiledRule
from dslc.mutate.mutant import Options as MutantOptions
from dslc.onnx.exporter import node_model
from dslc.search.branches import Branches
from dslc.search.candidate import Candidate, Front, Limits
from dslc.search.contenders import Blamed, Contender, distinct, folder_of, serialized
from dslc.search.derivations import Derivations, derivations_of
from dslc.search.dumping import dumped
from dslc.search.fusions import Fusions, no_compiler, told, unbuilt, wanted, with_kernels
from dslc.search.moves import moves_of
from dslc.search.mutants import SECONDS as MUTANT_SECONDS
from dslc.search.mutants import Mutants
from dslc.search.originals import Unusable
from dslc.search.planning import begun
from dslc.search.rulesets import chosen_partial
from dslc.search.run import Run
from dslc.search.siblings import Siblings
from dslc.search.sizes import sizes_of
from dslc.search.sources import Source, Substitutions
from dslc.search.stages import Explored, Predicted, Referenced
from dslc.search.steps import status_of
from dslc.search.strategy import Grown, Space
from dslc.search.sweep import sweep
from dslc.search.treesearch import Mcts
from dslc.search.validate import Validated, claims_of, validate
from dslc.search.written import as_kernels, ready, texts_of

#: contenders on the way to the best candidate, and contenders that do without one of its rules
MOST, VARIANTS = 3, 3
VARIANT_STEPS = 3000
#: above so many bytes of weights a model is heavy
HEAVY = 1 << 28
#: for what follows the search so many times what loading takes is kept, and such a part of the budget at least and at most
LOADS, LEAST_KEPT, MOST_KEPT = 20, 0.25, 0.5
#: of what is left beside that, the share of kernels, and of this what mutants and derivations may take at most; and where there are
#: some, which gain more than rules do and have fewer contenders beside them, what is kept after them; derived programs that promise to
#: be faster are built until so much of the time of kernels is over
KERNELS, MUTATING, DERIVING, BUILDING, KERNEL_LOADS, MOST_KEPT_AFTER = 0.5, 0.15, 0.4, 0.7, 12, 0.4
#: kernels that are predicted to be so many times as fast as the search's best need no other contenders beside it
CLEARLY = 1.5
#: of the time for kernels, what those of the first graph may take: those of the next one are mostly the same
FIRST = 0.7
#: rules that may be found guilty before the search gives up
GUILTY = 5
#: seconds for proving the rewrites of one candidate again; what is left then rests on the proofs of its rules
VALIDATION = 30.0
#: measuring again takes such a part of the budget
AGAIN = 0.05


@dataclass(frozen=True, slots=True)
class Shares:
    """Of the budget what is kept when a phase ends: for searching, for checking the best, for others beside it, for measuring again."""

    search: float
    check: float
    others: float
    again: float

    @classmethod
    def of(cls, budget: float, load: float, timing: bool, kernels: bool = False) -> Shares:
        """Where loading a model takes so many seconds; comparing and timing load it again and again. `kernels` are built after the
        search, and have a share of their own."""
        loads, most = (KERNEL_LOADS, MOST_KEPT_AFTER) if kernels else (LOADS, MOST_KEPT)
        kept = min(most, max(LEAST_KEPT, (loads if timing else loads / 3) * load / budget))
        return cls(kept + (KERNELS * (1 - kept) if kernels else 0.0), 0.8 * kept, 0.7 * kept, 0.6 * kept)


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """What is explored from: the original as a graph with its price, prices, and what of the budget is kept for later."""

    referenced: Referenced
    start: Candidate
    costs: CostModel
    shares: Shares
    #: what of the budget is kept from now on while something is measured
    keeping: Callable[[float], None] = lambda _: None


@dataclass(frozen=True, slots=True, eq=False)
class Reached:
    """How far a search came: its best candidate, the rules that it had, and what else it built."""

    best: Candidate
    rules: tuple[CompiledRule, ...]
    front: Front
    #: what was offered beside it so far
    offered: tuple[Candidate, ...] = ()


def explore(referenced: Referenced, cache: CostCache, run: Run) -> Explored:
    """Searches at measured prices, and checks what is found.

    Raises:
        Unusable: import and export alone change what the model computes.
        TimeUp: there was no time to check anything.
    """
    task, settings, clock, journal = referenced.task, referenced.task.settings, run.clock, run.journal
    later = wanted(settings) or task.target.pricing is not None
    shares = Shares.of(settings.budget, referenced.originals[0].load, settings.timing, later)
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
        # only the prediction of the report rests on it
        keep = inf if journal.repeats else max(shares.again, clock.left() / settings.budget - AGAIN)
        predicted = _predicted(run.start, costs, found, run)
    finally:
        measurer.close()
    # a search that time cut short before it found anything is no example
    if settings.steps is None and not journal.repeats and (found or not journal.late) and journal.steps[0] >= journal.reached:
        cache.put_verdict(referenced.key, {"steps": journal.steps, "late": journal.late})
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
        best = _searched(ground, run, Reached(best, rules, front), most, again=turn > 0)
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


# ---- searching ----------------------------------------------------------------------------------------------------------


def _limits(ground: Ground, run: Run, most: int | None, keep: float, front: Front | None = None) -> Limits:
    settings, journal = ground.referenced.task.settings, run.journal
    limits = Limits(
        journal.next(most),
        # what is repeated is in the cache, also what it was timed with
        run.clock.end(keep / 3 if journal.repeats else keep),
        now=run.clock.now,
        on_step=run.progress.step,
        on_tried=run.ran,
    )
    if front is not None:
        limits.on_built = front.add
    if not journal.repeats and settings.steps is None:
        limits.patience = settings.budget / 4 if settings.patience is None else settings.patience
    journal.begun.append(limits)
    return limits


def _moves(ground: Ground, run: Run) -> tuple[tuple[Source, ...], Callable[[Node], float | None] | None]:
    """Kernels and derivations, and what they price, for a strategy that takes them for moves."""
    task = ground.referenced.task
    strategy = task.settings.strategy
    if not isinstance(strategy, Mcts) or not strategy.mixed:
        return (), None
    if not with_kernels(task.settings):
        run.note(no_compiler() or "no kernels: the model is to run with ONNX Runtime's own operators alone")
        return (), None
    left = run.clock.left
    return moves_of(task.rules, ground.costs, task.imported.context.opset, task.sizes, lambda: left(ground.shares.search))


def _searched(ground: Ground, run: Run, start: Reached, most: int | None, again: bool) -> Candidate:
    """The best that the strategy yields; where it was interrupted, `run.best` is what it had."""
    run.phase("searching")
    limits = _limits(ground, run, most, ground.shares.check if again else ground.shares.search, start.front)
    best = start.best

    def told(found: Candidate) -> None:
        nonlocal best
        if found.cost < best.cost:
            run.best = best = found
            run.progress.best(ground.start.cost / max(found.cost, 1e-12), limits.done)

    settings = ground.referenced.task.settings
    grown: list[Grown] = []
    others, price = _moves(ground, run)
    space = Space(
        start.best, (Substitutions(start.rules), *others), ground.costs, limits, settings.seed, settings.alpha, settings.layouts, told,
        settings.budget or None, settings.steps, price, run.note, grown.extend if settings.dump_egraph is not None else None,
    )  # fmt: skip
    for found in settings.strategy.explore(space):
        told(found)
    if settings.dump_egraph is not None and not dumped(settings.dump_egraph, grown):
        run.note(f"{settings.dump_egraph} was not written: the search made no e-graph")
    if limits.late:
        run.cut("searching")
    if limits.interrupted:
        raise KeyboardInterrupt
    return best


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
    """More contenders beside the checked one, as far as there is time: predictions do not decide."""
    seen = {hash(reached.best.graph.outputs)}
    # without timing, predictions alone say what is better than the original
    most = inf if ground.referenced.task.settings.timing or reached.best is not ground.start else ground.start.cost
    try:
        offered: list[Candidate] = []
        for offer in OFFERS:
            clear = min((one.cost for one in offered), default=inf) * CLEARLY < reached.best.cost
            if clear and offer not in (mutants, derivations, fusions):
                break
            offered += [one for one in offer(ground, run, replace(reached, offered=tuple(offered))) if one.cost < most]
        for one in sorted(offered, key=lambda each: each.cost):
            # what building kernels took too long is not lost
            keep = ground.shares.again if one.kernels else ground.shares.others
            if run.clock.left(keep) <= 0:
                raise TimeUp
            if hash(one.graph.outputs) not in seen:
                seen.add(hash(one.graph.outputs))
                run.phase("comparing outputs")
                found = ground.referenced.checker.check(one)
                if isinstance(found, Contender) and proved_again(ground.referenced, run, one, keep).usable:
                    run.checked.append(found)
    except TimeUp:
        run.cut("comparing outputs")


def path_ends(ground: Ground, run: Run, reached: Reached) -> Iterator[Candidate]:
    """What was found on the way to the best."""
    yield from (one for one in distinct(reached.best, MOST)[1:] if one.parent is not None)


def smallest(ground: Ground, run: Run, reached: Reached) -> Iterator[Candidate]:
    """Of what predictions cannot tell apart the graph with the fewest nodes: each has a part in the time that it has not alone."""
    alpha = ground.referenced.task.settings.alpha
    small = reached.front.smallest(alpha * reached.best.cost) if reached.best is not ground.start else None
    if small is not None:
        yield small


def variants(ground: Ground, run: Run, reached: Reached) -> Iterator[Candidate]:
    """What a sweep finds without one rule of the best candidate: a prediction may be wrong for one rule alone."""
    gains: dict[str, float] = {}
    for step in reached.best.path():
        if step.rule:
            gains[step.rule] = gains.get(step.rule, 0.0) + step.gain
    if gains:
        run.phase("searching")
    for name in sorted(gains, key=lambda rule: -gains[rule])[:VARIANTS]:
        others = [rule for rule in reached.rules if rule.name != name]
        limits = _limits(ground, run, VARIANT_STEPS, ground.shares.others)
        try:
            found = sweep(ground.start, others, ground.costs, limits, lambda _: None)
        except TimeUp:
            break
        if found is not ground.start:
            yield found


def mutants(ground: Ground, run: Run, reached: Reached) -> Iterator[Candidate]:
    """The best candidate, and the original, with dear linear operators as programs that are almost equal, corrected and measured."""
    task = ground.referenced.task
    if not task.settings.mutate or not with_kernels(task.settings):
        return
    left = _share(ground, run, "mutating programs", MUTATING)
    # what promises to be faster may take longer to build, as a derived program may
    longer = _share(ground, run, "mutating programs", DERIVING)
    common = (task.rules, (), ground.costs, task.imported.context.opset, left, run.decided)
    settings = task.settings
    partial = chosen_partial(task.rules, settings.only, settings.disable, settings.strict_floats)
    how = MutantOptions(settings.mutant_depth, settings.mutants_kept, seconds=MUTANT_SECONDS, seed=settings.seed)
    looked = Mutants(
        *common, limit=settings.mutant_limit, partial=partial, options=how, operators=settings.mutant_operators,
        rounds=settings.mutant_rounds, strict=settings.strict_floats, longer=longer,
    )  # fmt: skip
    for finds in (looked, Branches(*common)):
        yield from _found(finds, run, "mutating programs", (reached.best, ground.start), "")
    for note in looked.notes:
        run.note(note)


def derivations(ground: Ground, run: Run, reached: Reached) -> Iterator[Candidate]:
    """The best candidate, and the original, with dear sums of products as programs that were derived, built and measured."""
    task = ground.referenced.task
    computed = task.target.pricing is not None and task.settings.portable == "functions"
    if not task.settings.derive or not (with_kernels(task.settings) or computed):
        return
    left = _share(ground, run, "deriving programs", DERIVING)
    # what promises to be faster may take longer to build than kernels that need not be
    longer = _share(ground, run, "deriving programs", BUILDING)
    common = (task.rules, derivations_of(task.rules), ground.costs, task.imported.context.opset, left, run.decided)
    bases = (*reached.offered[:1], reached.best, ground.start)
    siblings = Siblings(*common, longer=longer)
    pairs = [*_found(siblings, run, "deriving programs", bases[-2:])]
    yield from pairs
    # what was mutated, or derived in pairs, is derived further
    yield from _found(Derivations(*common, found=siblings.found, longer=longer), run, "deriving programs", (*pairs[:1], *bases))


def _share(ground: Ground, run: Run, phase: str, share: float) -> Callable[[], float]:
    """Begins a phase that may take a share of what is left of the time of kernels; gives the seconds that are left of it."""
    run.phase(phase)
    ground.keeping(ground.shares.others)
    end = run.clock.left(ground.shares.others) * (1 - share)
    return lambda: run.clock.left(ground.shares.others) - end


def _found(looked: Derivations, run: Run, phase: str, bases: Iterable[Candidate], how: str = "derived by ") -> Iterator[Candidate]:
    """What is found in some candidates, each looked at once; and its story."""
    for base in dict.fromkeys(bases):
        made, tale = looked.of(base)
        if tale.late:
            run.cut(phase)
        run.kernels.update((one, tale.told(how)) for one in made[:1])
        if how:
            for line in tale.left(how):
                run.note(line)
        yield from made


def fusions(ground: Ground, run: Run, reached: Reached) -> Iterator[Candidate]:
    """The best candidate, and the original, with groups of their nodes as kernels that were built and measured."""
    task = ground.referenced.task
    if not wanted(task.settings):
        return
    why = no_compiler()
    if why:
        run.note(why)
        return
    run.phase("building kernels")
    ground.keeping(ground.shares.others)
    templates = Templates(task.rules, task.settings.trust)
    for note in templates.notes:
        run.note(note)
    looked = Fusions(
        task.rules, ground.costs, task.imported.context.opset, task.sizes, run.clock, templates, task.settings.strict_floats
    )
    # what was derived from them is fused as they are
    bases = list(dict.fromkeys((*reached.offered[:1], reached.best, ground.start)))
    for k, base in enumerate(bases):
        left = run.clock.left(ground.shares.others)
        if left <= 0:
            run.cut("building kernels")
            return
        try:
            made, found = looked.of(base, left if k == len(bases) - 1 else FIRST * left)
        except TimeUp:
            run.cut("building kernels")
            return
        if found.story.late:
            run.cut("building kernels")
        for note in (*templates.notes, *filter(None, [unbuilt(found)])):
            run.note(note)
        run.kernels.update((one, told(task.rules, found)) for one in made)
        yield from made


#: offers candidates beside the strategy's best, which may be the original itself where the search found nothing
Offer = Callable[[Ground, Run, Reached], Iterator[Candidate]]
#: in the order in which their candidates are checked; whoever builds whole graphs, as fusions do, is one of these
OFFERS: tuple[Offer, ...] = (mutants, derivations, fusions, path_ends, smallest, variants)
