"""The stage of `--apply`: rules are applied until none matches any more, and what that makes is checked like everything else."""

from __future__ import annotations

from contextlib import suppress

from dslc.cost.cache import CostCache
from dslc.search.phases.reference import reference
from dslc.search.rewrites.applied import applied
from dslc.search.rewrites.candidate import Candidate
from dslc.search.rewrites.rulesets import not_standard
from dslc.search.runs.contenders import Contender
from dslc.search.runs.originals import Unusable
from dslc.search.runs.progress import Run
from dslc.search.runs.proving import passed
from dslc.search.runs.stages import Proven, Referenced
from dslc.search.runs.tuning import CULPRITS

#: why nothing is rewritten
UNCHANGED = "no rule of --apply matches, and its nodes are as few as can be"
#: why a rule is not applied
LARGER = "the graph would get no smaller there; `always` in a rule set, or --apply with its own name, applies it"


def applied_alone(proven: Proven, cache: CostCache, run: Run) -> Contender | None:
    """As `apply`, on one input; on several where something seems to be wrong, as the input may be what is.

    Raises:
        as `apply`, and Unusable where the model does not run.
    """
    noted = list(run.notes)
    with suppress(Unusable):
        found, blamed = _applied(reference(proven, cache, run, once=True), run)
        if not blamed:
            return found
    run.notes[:] = noted
    return apply(reference(proven, cache, run), run)


def apply(referenced: Referenced, run: Run) -> Contender | None:
    """The model without what the rules of `--apply` take away; None where that is nothing.

    A rule that changes the outputs, or a rewrite of which is not proved here where it must be, is named and left out.

    Raises:
        DslcError: E0915 where rules go on for ever.
        Unusable: import and export alone change what the model computes.
        TimeUp: there was no time to check anything.
    """
    return _applied(referenced, run)[0]


def _applied(referenced: Referenced, run: Run) -> tuple[Contender | None, bool]:
    """As `apply`, and whether some rule was blamed."""
    task, chosen = referenced.task, referenced.proven.applied
    start = run.start = Candidate(task.imported.graph, 0.0)
    for turn in range(CULPRITS):
        run.phase("applying rules")
        fixed = applied(start, chosen, task.rules, task.imported.context)
        if fixed.candidate is start:
            break
        found = passed(referenced, run, start, fixed.candidate)
        if not isinstance(found, list):
            run.notes += [
                f"{name} matches at {fixed.larger[name]} more places: {LARGER}" for name in not_standard(fixed.larger)
            ]
            return found, turn > 0
        run.notes.extend(f"{one.rule} was left out: {one.problem}" for one in found)
        names = {one.rule for one in found}
        chosen = tuple([one for one in chosen if one.rule.name not in names])
    run.phase("comparing outputs")
    run.notes += [
        f"{name} matches at {count} places: {LARGER}" for name, count in fixed.larger.items() if not_standard([name])
    ]
    if referenced.checker.operators(start) >= task.size.operators:
        return None, turn > 0
    alone = referenced.checker.check(start)
    return (alone if isinstance(alone, Contender) else None), turn > 0
