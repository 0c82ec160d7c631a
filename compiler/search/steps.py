"""What the report says of each rule that a result was made by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dslc.prove.verdict import STATUSES, RuleVerdict
from dslc.report import Step, Turn
from dslc.search.candidate import KERNELS, Candidate
from dslc.search.validate import Validated


def steps_of(
    candidate: Candidate, verdicts: Mapping[str, RuleVerdict], validated: Validated, places: Iterable[tuple[str, str]] = ()
) -> tuple[Step, ...]:
    """For every rule of a candidate's path how often it was applied, what that was predicted to save, how it is proved, and where."""
    where: dict[str, dict[str, None]] = {}
    for rule, place in places:
        where.setdefault(rule, {})[place] = None
    total: dict[str, tuple[int, float]] = {}
    for step in candidate.path():
        if step.rule:
            count, gain = total.get(step.rule, (0, 0.0))
            total[step.rule] = (count + step.count, gain + step.gain)
    out = [
        Step(name, count, gain * 1e3, _status(name, verdicts, validated), validated.how.get(name, ""), tuple(where.get(name, ())))
        for name, (count, gain) in total.items()
    ]
    return tuple(sorted(out, key=lambda step: -step.gain_ms))


def story_of(candidate: Candidate) -> tuple[Turn, ...]:
    """The steps of a candidate's path in their order."""
    return tuple([Turn(step.rule, step.count, step.cost * 1e3, step.gain * 1e3) for step in candidate.path() if step.rule])


def _status(name: str, verdicts: Mapping[str, RuleVerdict], validated: Validated) -> str:
    """That of its rules; a step of derivations has no rules, and was proved as it is."""
    status = status_of(name, verdicts)
    return "proved" if status == "undecided" and validated.how.get(name) == "exact" else status


def status_of(name: str, verdicts: Mapping[str, RuleVerdict]) -> str:
    """The weakest status of the rules that a step names."""
    if name == KERNELS:
        return "proved"
    known = [verdicts[one] for part in name.split(" + ") if (one := part.strip().removesuffix("^-1")) in verdicts]
    order = {status: k for k, status in enumerate(STATUSES)}
    return max((verdict.status for verdict in known), key=order.__getitem__, default="undecided")
