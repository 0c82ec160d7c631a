"""What is offered beside the best of a search: kernels, mutants, derivations, and other graphs that were found on the way.

Each offer is given what those before it left of the time, and whatever is cheap and pays comes first: what costs more to find never
takes the seconds in which the best so far is built, compared and timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf

from dslc.cost.clock import TimeUp
from dslc.cost.targets import OwnKernels
from dslc.fuse.templates import Templates
from dslc.mutate.mutant import Options as MutantOptions
from dslc.search.branches import Branches
from dslc.search.candidate import KERNELS, Candidate
from dslc.search.contenders import distinct
from dslc.search.derivations import Derivations, derivations_of
from dslc.search.fusions import Fusions, no_compiler, told, unbuilt, wanted, with_kernels
from dslc.search.ground import Ground, Reached
from dslc.search.left_open import tell_left_open
from dslc.search.mutants import SECONDS as MUTANT_SECONDS
from dslc.search.mutants import Mutants
from dslc.search.rulesets import chosen_partial
from dslc.search.run import Run
from dslc.search.searches import limits_of, searched
from dslc.search.siblings import Siblings
from dslc.search.stages import Task
from dslc.search.sweep import sweep

#: contenders on the way to the best candidate, and contenders that do without one of its rules
MOST, VARIANTS = 3, 3
VARIANT_STEPS = 3000
#: of the time for kernels, what they may take before anybody else where there is something to gain by mutants and derivations; of what
#: they leave, what these may take, and until when what they promise is built; the rest is for kernels around what they found, and
#: for those that there was no time for
FUSING, MUTATING, DERIVING, BUILDING = 0.5, 0.2, 0.7, 0.85
#: so large a part of the time must be there to be saved by these: otherwise they have what is left
WORTH = 0.3
#: less than so many seconds is no time to look for anything
ENOUGH = 2.0
#: of the time for kernels, what those of the first graph may take: those of the next one are mostly the same
FIRST = 0.7
#: of the time that is left, what the first kernels of the original may take before anything is searched
#: and how many seconds: of a large model others follow when these are checked
AT_ONCE, FIRST_SECONDS = 0.4, 8.0
#: of the time that is left, what a search that goes on may take where kernels are looked for in what it finds
ONWARD = 0.6
#: of what was offered without kernels, so many get some
AGAIN = 2


def first_kernels(ground: Ground, run: Run, reached: Reached) -> Iterator[Candidate]:
    """The original with the kernels that promise most at guessed prices, before anything is searched: where kernels decide, most of
    what there is to gain is known after a few seconds."""
    yield from _fused(ground, run, (ground.start,), AT_ONCE, hurried=True)


def fusions(ground: Ground, run: Run, reached: Reached) -> Iterator[Candidate]:
    """The best candidate, and the original, with groups of their nodes as kernels that were built and measured."""
    yield from _fused(ground, run, (reached.best, ground.start), FUSING if _more_to_gain(ground, run, reached) > WORTH else 1.0)


def fused_again(ground: Ground, run: Run, reached: Reached) -> Iterator[Candidate]:
    """What was offered since kernels were looked for, with kernels, the best of it first; and what there was no time for before."""
    new = [one for one in reached.offered if not any(step.rule == KERNELS for step in one.path()) and one.cost < reached.best.cost]
    late = set() if run.fusions is None else run.fusions.unfinished
    before = [one for one in (reached.best, ground.start) if one in late]
    yield from _fused(ground, run, (*sorted(new, key=lambda one: one.cost)[:AGAIN], *before))


def _more_to_gain(ground: Ground, run: Run, reached: Reached) -> float:
    """The share of the time that mutants and derivations might save."""
    task = ground.referenced.task
    if not (task.settings.derive or task.settings.mutate) or not with_kernels(task.settings):
        return 0.0
    run.phase("building kernels")
    ground.keeping(ground.shares.others)
    left = run.clock.left
    looked = Derivations(task.rules, (), ground.costs, task.imported.context.opset, lambda: left(ground.shares.others))
    return looked.to_gain(reached.best)


def _fused(
    ground: Ground, run: Run, bases: Iterable[Candidate], share: float = 1.0, hurried: bool = False
) -> Iterator[Candidate]:
    """Some candidates with kernels, in such a share of the time that is left; `hurried`: as far as that goes without pricing nodes."""
    task, bases = ground.referenced.task, list(dict.fromkeys(bases))
    if not wanted(task.settings) or not bases:
        return
    why = no_compiler()
    if why:
        run.note(why)
        return
    run.phase("building kernels")
    ground.keeping(ground.shares.others)
    whole = run.clock.left(ground.shares.others)
    kept = 0.0 if whole == inf else max((1 - share) * whole, whole - FIRST_SECONDS if hurried else 0.0)
    if run.fusions is None:
        templates = Templates(task.rules, task.settings.trust)
        for note in templates.notes:
            run.note(note)
        run.fusions = Fusions(
            task.rules, ground.costs, task.imported.context.opset, task.sizes, run.clock, templates, task.settings.strict_floats
        )
    for k, base in enumerate(bases):
        left = run.clock.left(ground.shares.others) - kept
        if left <= 0:
            run.cut("building kernels")
            return
        try:
            made, found = run.fusions.of(base, left if k == len(bases) - 1 else FIRST * left, hurried)
        except TimeUp:
            run.cut("building kernels")
            return
        if found.story.late and not hurried:
            run.cut("building kernels")
        assert run.fusions.templates is not None
        for note in (*run.fusions.templates.notes, *filter(None, [unbuilt(found)])):
            run.note(note)
        for node, seconds in found.spent.items():
            run.spent[node] = min(seconds, run.spent.get(node, inf))
        run.kernels.update((one, told(task.rules, found)) for one in made)
        yield from made


def mutants(ground: Ground, run: Run, reached: Reached) -> Iterator[Candidate]:
    """The best candidate, and the original, with dear linear operators as programs that are almost equal, corrected and measured."""
    task = ground.referenced.task
    if not task.settings.mutate or not _has_kernels(task):
        return
    tell_left_open(ground, run)
    left = _share(ground, run, "mutating programs", MUTATING)
    # what promises to be faster may take longer to build, as a derived program may
    longer = _share(ground, run, "mutating programs", DERIVING)
    if left is None or longer is None:
        return
    common = (task.rules, (), ground.costs, task.imported.context.opset, left, run.decided)
    settings = task.settings
    partial = chosen_partial(task.rules, settings.only, settings.disable, settings.strict_floats)
    how = MutantOptions(settings.mutant_depth, settings.mutants_kept, seconds=MUTANT_SECONDS, seed=settings.seed)
    looked = Mutants(
        *common, spent=run.spent, limit=settings.mutant_limit, partial=partial, options=how, operators=settings.mutant_operators,
        rounds=settings.mutant_rounds, strict=settings.strict_floats, longer=longer,
    )  # fmt: skip
    for finds in (looked, Branches(*common, spent=run.spent)):
        yield from _found(finds, run, "mutating programs", (reached.best, ground.start), "")
    for note in looked.notes:
        run.note(note)


def derivations(ground: Ground, run: Run, reached: Reached, every: bool = False) -> Iterator[Candidate]:
    """The best candidate, and the original, with dear sums of products as programs that were derived, built and measured; `every`: also
    those that are at the runtime's best."""
    task = ground.referenced.task
    if not task.settings.derive or not _has_kernels(task):
        return
    tell_left_open(ground, run)
    left = _share(ground, run, "deriving programs", DERIVING)
    # what promises to be faster may take longer to build than kernels that need not be
    longer = _share(ground, run, "deriving programs", BUILDING)
    if left is None or longer is None:
        return
    common = (task.rules, derivations_of(task.rules), ground.costs, task.imported.context.opset, left, run.decided)
    # kernels are built for what is derived once more: they may take other groups then
    mutated = [one for one in reached.offered if not any(step.rule == KERNELS for step in one.path())]
    bases = (*mutated[:1], reached.best, ground.start)
    siblings = Siblings(*common, longer=longer, every=every, spent=run.spent, found=run.derived)
    # nothing is missing where there was no time for what nobody hopes for
    cut = "" if every else "deriving programs"
    pairs = [*_found(siblings, run, cut, bases[-2:])]
    yield from pairs
    # what was mutated, or derived in pairs, is derived further
    looked = Derivations(*common, longer=longer, every=every, spent=run.spent, found=run.derived)
    yield from _found(looked, run, cut, (*pairs[:1], *bases))


def further_derivations(ground: Ground, run: Run, reached: Reached) -> Iterator[Candidate]:
    """With time that nobody else needs, what may be derived where nothing is hoped for: a report says what it would take."""
    if ground.referenced.task.target.measured and run.clock.left(ground.shares.others) > ENOUGH:
        yield from derivations(ground, run, reached, every=True)


def _has_kernels(task: Task) -> bool:
    """Whether what ONNX has no node for can be a kernel: one that is built here, or a function that a target plans."""
    return with_kernels(task.settings) or (task.target.kernels is OwnKernels.PLANNED and task.settings.portable == "functions")


def _share(ground: Ground, run: Run, phase: str, share: float) -> Callable[[], float] | None:
    """Begins a phase that may take a share of the time that is left; gives the seconds that are left of it, None where that is over
    as it begins."""
    run.phase(phase)
    ground.keeping(ground.shares.others)
    end = 0.0 if ground.spare else run.clock.left(ground.shares.others) * (1 - share)
    if run.clock.left(ground.shares.others) - end < ENOUGH:
        run.cut(phase)
        return None
    return lambda: run.clock.left(ground.shares.others) - end


def _found(looked: Derivations, run: Run, phase: str, bases: Iterable[Candidate], how: str = "derived by ") -> Iterator[Candidate]:
    """What is found in some candidates, each looked at once; and its story."""
    for base in dict.fromkeys(bases):
        made, tale = looked.of(base)
        run.much.update(made)
        if tale.late and phase:
            run.cut(phase)
        run.kernels.update((one, tale.told(how)) for one in made[:1])
        if how:
            for line in tale.left(how):
                run.note(line)
        yield from made


def nothing_yet(ground: Ground, run: Run, offered: Iterable[Candidate]) -> bool:
    """Whether there is nothing to check and time but the original in canonical form."""
    return not any(offered) and all(one.candidate is ground.start for one in run.checked)


def onward(ground: Ground, run: Run, reached: Reached) -> Iterator[Candidate]:
    """What a search finds that goes on in the time that is left, where its own part of it, or its patience, was over before it was
    done; with what is kept for checking and timing, where there is nothing to check and time."""
    settings, journal = ground.referenced.task.settings, run.journal
    first = journal.begun[-1]
    wants = journal.onward if journal.repeats else first.late or (first.idle and wanted(settings) and settings.patience is None)
    if not wants or (settings.steps is not None and not journal.repeats):
        return
    nothing = nothing_yet(ground, run, reached.offered)
    keep = ground.shares.least if nothing else ground.shares.others
    if with_kernels(settings) and run.clock.left(keep) < inf and (not nothing or "building kernels" in run.clock.cuts):
        keep += (1 - ONWARD) * run.clock.left(keep) / settings.budget
    if run.clock.left(keep) < ENOUGH and not journal.repeats:
        return
    journal.onward = True
    # what was cut short is not any more
    first.late = False
    ground.keeping(keep)
    found = searched(ground, run, reached, None, keep)
    if found is not reached.best:
        yield found


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
        limits = limits_of(ground, run, VARIANT_STEPS, ground.shares.others)
        try:
            found = sweep(ground.start, others, ground.costs, limits, lambda _: None)
        except TimeUp:
            break
        if found is not ground.start:
            yield found


#: offers candidates beside the strategy's best, which may be the original itself where the search found nothing
Offer = Callable[[Ground, Run, Reached], Iterator[Candidate]]
#: who builds something before anything is searched
FIRST_OFFERS: tuple[Offer, ...] = (first_kernels,)
#: who builds something new, in the order in which they are given time: what they promise is checked before the next one begins
BUILDERS: tuple[Offer, ...] = (fusions, mutants, derivations, onward, fused_again, further_derivations)
#: whoever builds whole graphs, as fusions do, is one of these
OFFERS: tuple[Offer, ...] = (*BUILDERS, path_ends, smallest, variants)


__all__ = [
    "BUILDERS", "FIRST_OFFERS", "OFFERS", "Offer", "derivations", "first_kernels", "further_derivations", "fused_again", "fusions",
    "mutants", "nothing_yet", "onward", "path_ends", "smallest", "variants",
]  # fmt: skip
