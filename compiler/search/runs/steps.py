"""Steps of a result, as the report has them: one for each rule that it was made by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from dslc.prove.verdict import STATUSES, RuleVerdict
from dslc.report import Step, Turn
from dslc.search.region_rewrites.validate import Validated
from dslc.search.rewrites.candidate import KERNELS, Candidate
from dslc.semantics.library import Rules
from dslc.semantics.numerics import keeps_nonfinite


def steps_of(
    candidate: Candidate, verdicts: Mapping[str, RuleVerdict], validated: Validated, places: Iterable[tuple[str, str]] = (),
    rules: Rules | None = None,
) -> tuple[Step, ...]:  # fmt: skip
    """For every rule of a candidate's path how often it was applied, what that was predicted to save, how it is proved, where, and
    what `rules` say it is."""
    where: dict[str, dict[str, None]] = {}
    for rule, place in places:
        where.setdefault(rule, {})[place] = None
    total: dict[str, tuple[int, float]] = {}
    for step in candidate.path():
        if step.rule:
            count, gain = total.get(step.rule, (0, 0.0))
            total[step.rule] = (count + step.count, gain + step.gain)
    out = [
        Step(
            name,
            count,
            gain * 1e3,
            _status(name, verdicts, validated),
            validated.how.get(name, ""),
            tuple(where.get(name, ())),
            "" if rules is None else _text(rules, name),
        )
        for name, (count, gain) in total.items()
    ]
    return tuple(sorted(out, key=lambda step: -step.gain_ms))


def nonfinite(steps: Iterable[Step], rules: Rules) -> tuple[str, ...]:
    """Names of those rules of the steps that say that they change infinities, NaN and overflows."""
    found = (one for step in steps for one in _named(step.rule))
    definitions = {one: rules.substitutions.get(one) or rules.derivations.get(one) for one in found}
    return tuple(one for one, rule in definitions.items() if rule is not None and not keeps_nonfinite(rule.syntax))


def _named(step: str) -> list[str]:
    """The rules that a step names, in whichever direction."""
    return [part.strip().removesuffix("^-1") for part in step.split(" + ")]


def story_of(candidate: Candidate, measured: Mapping[Candidate, float] = MappingProxyType({})) -> tuple[Turn, ...]:
    """The steps of a candidate's path in their order; `measured` has the seconds of the candidates that were timed."""
    steps = [step for step in candidate.path() if step.rule]
    timed = [measured[step] * 1e3 if step in measured else None for step in steps]
    return tuple(
        [Turn(one.rule, one.count, one.cost * 1e3, one.gain * 1e3, ms) for one, ms in zip(steps, timed, strict=True)]
    )


def _text(rules: Rules, name: str) -> str:
    """The rules that a step names, as their libraries have them."""
    found = []
    for one in _named(name):
        definition = rules.substitutions.get(one) or rules.derivations.get(one)
        if definition is not None:
            found.append(definition.syntax.span.text)
    return "\n\n".join(dict.fromkeys(found))


def _status(name: str, verdicts: Mapping[str, RuleVerdict], validated: Validated) -> str:
    """That of its rules; a step of derivations has no rules, and was proved as it is."""
    status = status_of(name, verdicts)
    return "proved" if status == "undecided" and validated.how.get(name) == "exact" else status


def status_of(name: str, verdicts: Mapping[str, RuleVerdict]) -> str:
    """The weakest status of the rules that a step names."""
    if name == KERNELS:
        return "proved"
    known = [verdicts[one] for one in _named(name) if one in verdicts]
    order = {status: k for k, status in enumerate(STATUSES)}
    return max((verdict.status for verdict in known), key=order.__getitem__, default="undecided")
