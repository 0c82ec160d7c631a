"""Candidates as models whose outputs and whose rewrites are right, or the rules that they must do without."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from dslc.cost.compare import Comparison
from dslc.deadline import FOREVER, Deadline
from dslc.prove.verdict import STATUSES, RuleVerdict
from dslc.report import KERNELS
from dslc.search.candidates.candidate import Candidate
from dslc.search.region_rewrites.validate import Claim, Rewrite, Validated, claims_of, validate
from dslc.search.runs.contenders import Contender, Culprit, Unusable
from dslc.search.runs.endings import Ending
from dslc.search.runs.stages import Referenced
from dslc.search.runs.state import RunState

CULPRITS = 5  #: times that rules may be blamed before nothing of a search, or of `--apply`, is taken
#: seconds for proving the rewrites of one candidate again; what is left then rests on the proofs of its rules
VALIDATION = 30.0


def proved_again(referenced: Referenced, run: RunState, candidate: Candidate, until: Deadline = FOREVER) -> Validated:
    """Prove the candidate's rewrites again, once.

    What there is no time for rests on the proofs of the rules, and so do rewrites by rules that are proved for every shape where
    there is no budget.
    """
    found = run.proofs.get(candidate)
    if not found:
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


def checked(referenced: Referenced, run: RunState, candidate: Candidate, until: Deadline = FOREVER) -> Contender | None:
    """Return the candidate as a model, where its outputs and its rewrites are right."""
    found = referenced.checker.check(candidate)
    return found if isinstance(found, Contender) and proved_again(referenced, run, candidate, until).usable else None


def passed(referenced: Referenced, run: RunState, start: Candidate, best: Candidate) -> Contender | list[Culprit]:
    """Return the candidate, which came of `start`, as a model with the outputs of the original, or the rules it must do without.

    Raises:
        Unusable: it is none of them; import and export alone change what the model computes.
    """
    run.phase("comparing outputs")
    checker = referenced.checker
    checked, proofs = checker.check(best), None
    if isinstance(checked, Contender):
        proofs = proved_again(referenced, run, best)
        if proofs.usable:
            return checked
    alone = checker.check(start)
    if not isinstance(alone, Contender):
        raise Unusable(Ending.NO_IMPORT, alone.problem)
    if isinstance(checked, Comparison):
        return [checker.blame(best, checked.problem)]
    assert proofs
    if not proofs.failed:
        problem = "it is bounded, and a rewrite is not proved at this model's shapes"
        return [Culprit(name, problem, last_before(best, {name})) for name in proofs.unproved]
    lines = proofs.problem.strip().splitlines()
    problem = f"with it, a rewrite is wrong at this model's shapes: {lines[-1] if lines else 'its sides differ'}"
    return [Culprit(proofs.failed, problem, last_before(best, {proofs.failed}))]


def smaller(referenced: Referenced, run: RunState, start: Candidate) -> Contender | None:
    """Return the model as import and export leave it, where that makes it smaller."""
    run.phase("comparing outputs")
    if referenced.checker.operators(start) >= referenced.task.size.operators:
        return None
    found = referenced.checker.check(start)
    return found if isinstance(found, Contender) else None


def last_before(best: Candidate, rules: Collection[str]) -> Candidate:
    """Return the last candidate of a path before the first step that one of some rules had a part in."""
    for step in best.path():
        if step.parent and (step.rule in rules or any(fact.rule in rules for fact in step.facts)):
            return step.parent
    raise ValueError(f"no step of the path was made by {', '.join(rules)}")


def named_rules(step: str) -> list[str]:
    """Return the rules that a step names, in whichever direction."""
    return [part.strip().removesuffix("^-1") for part in step.split(" + ")]


def status_of(name: str, verdicts: Mapping[str, RuleVerdict]) -> str:
    """The weakest status of the rules that a step names."""
    if name == KERNELS:
        return "proved"
    known = [verdicts[one] for one in named_rules(name) if one in verdicts]
    order = {status: k for k, status in enumerate(STATUSES)}
    return max((verdict.status for verdict in known), key=order.__getitem__, default="undecided")
