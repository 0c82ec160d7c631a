"""Candidates as models whose outputs and whose rewrites are right, or the rules that they must do without."""

from __future__ import annotations

from collections.abc import Iterable

from dslc.cost.compare import Comparison
from dslc.deadline import FOREVER, Deadline
from dslc.search.region_rewrites.validate import Claim, Rewrite, Validated, claims_of, validate
from dslc.search.rewrites.candidate import Candidate
from dslc.search.runs.contenders import Blamed, Contender
from dslc.search.runs.originals import Unusable
from dslc.search.runs.progress import Run
from dslc.search.runs.stages import Referenced
from dslc.search.runs.steps import status_of
from dslc.search.runs.tuning import VALIDATION


def proved_again(referenced: Referenced, run: Run, candidate: Candidate, until: Deadline = FOREVER) -> Validated:
    """Proves the candidate's rewrites again, once; what there is no time for rests on the proofs of the rules, and so do rewrites by
    rules that are proved for every shape where there is no budget."""
    found = run.proofs.get(candidate)
    if found is None:
        run.phase("proving rewrites")
        verdicts = referenced.proven.verdicts
        claims: Iterable[Claim] = claims_of(candidate)
        if referenced.task.settings.budget == 0:
            claims = (
                one.rule if isinstance(one, Rewrite) and status_of(one.rule, verdicts) == "proved" else one
                for one in claims
            )
        found = validate(
            referenced.task.rules, claims, until.part(most=VALIDATION), run.decided,
            needed=lambda name: status_of(name, verdicts) == "bounded",
        )  # fmt: skip
        if until.over:
            run.cut("proving rewrites")
        run.proofs[candidate] = found
    return found


def passed(
    referenced: Referenced, run: Run, start: Candidate, best: Candidate, until: Deadline = FOREVER
) -> Contender | list[Blamed]:
    """The candidate as a model with the outputs of the original, or the rules that it must do without.

    It came of `start`, and proofs end at a time.

    Raises:
        Unusable: it is none of them; import and export alone change what the model computes.
    """
    run.phase("comparing outputs")
    checker = referenced.checker
    checked, proofs = checker.check(best), None
    if isinstance(checked, Contender):
        proofs = proved_again(referenced, run, best, until)
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
