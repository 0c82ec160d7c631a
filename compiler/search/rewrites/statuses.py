"""How far the rules of a run are proved: from dslc's own locks, from what this user proved, or by proving them now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dslc.deadline import FOREVER, Deadline
from dslc.match import CompiledRule
from dslc.prove.evidence.dependencies import believed_lock, current
from dslc.prove.evidence.digest import rule_digest
from dslc.prove.evidence.lock import own_evidence
from dslc.prove.run.verify import verify
from dslc.prove.verdict import RELIABLE, RuleVerdict, Status
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.library import Rules

LIMIT = 10.0  #: seconds for one prover and one rule
SHARES = 8  #: times that long must fit into the time that is left
SHORTEST = 0.5  #: seconds that it is no shorter than, where little is left


#: what more time would not change
DECIDED: frozenset[Status] = frozenset({"proved", "refuted"})
#: the reason of a rule that there was no time for
LATE = "the budget left no time to prove it"
#: with these nothing has to be known of a rule
ANY: frozenset[Status] = frozenset({"tested", "trusted", "undecided"})

Told = Callable[[int, int], None]


def statuses(
    rules: Rules,
    definitions: Sequence[SubstitutionDef],
    cache: Path,
    allow: Sequence[str] = (),
    told: Told = lambda _done, _total: None,
    until: Deadline = FOREVER,
) -> dict[str, RuleVerdict]:
    """The verdict of every definition by name; what neither a lock that is believed, this user's own evidence nor the cache knows is
    proved, and goes into the cache.

    A rule with one of its modes chosen (a padding, an activation) is a case of the rule of its name, which is what is proved.

    Where rules of every status are allowed nothing is proved: a refutation is worth as much as the check of the outputs.
    Rules that proving did not come to `until` then have the reason `LATE`, and are not remembered.
    """
    kept, own = own_evidence(cache), own_evidence()
    found: dict[str, RuleVerdict] = {}
    unknown: list[str] = []
    for one in dict.fromkeys(rules.substitutions.get(each.name, each) for each in definitions):
        digest = rule_digest(rules, one)
        verdict = (
            believed_lock(rules, one).of(one.name, digest) or own.get(one.name, digest) or kept.get(one.name, digest)
        )
        if verdict is None or not current(rules, verdict, loaded=False):
            unknown.append(one.name)
        else:
            found[one.name] = verdict
    if set(allow) >= ANY:
        found.update((name, RuleVerdict(name, "undecided", (), "", "not asked")) for name in unknown)
    elif unknown:
        # a rule has several provers: none may take so long that a few rules take all of the time
        limit = min(LIMIT, max(SHORTEST, until.left() / SHARES))
        for verdict in _proved(rules, unknown, limit, told, until):
            found[verdict.rule] = verdict
            if limit == LIMIT or verdict.status in DECIDED:
                kept.put([verdict])
        found.update((name, RuleVerdict(name, "undecided", (), "", LATE)) for name in unknown if name not in found)
    return found


class _Enough(Exception):
    """There is no more time for proofs."""


def _proved(rules: Rules, names: Sequence[str], limit: float, told: Told, until: Deadline) -> list[RuleVerdict]:
    """The verdicts that time suffices for."""
    found: list[RuleVerdict] = []

    def progress(done: int, total: int, verdict: RuleVerdict) -> None:
        found.append(verdict)
        told(done, total)
        if until.over and done < total:
            raise _Enough

    if not until.over:
        with suppress(_Enough):
            verify(rules, names, 2, None, progress, limit=limit)
    return found


def usable(
    compiled: Sequence[CompiledRule], verdicts: Mapping[str, RuleVerdict], allow: Sequence[str]
) -> tuple[list[CompiledRule], dict[str, RuleVerdict]]:
    """The rules whose status is reliable or allowed, and the verdicts of the others by name. Refuted rules are never used.

    A rule of which that is so for some element types only is restricted to these.
    """
    allowed = (RELIABLE | set(allow)) - {"refuted"}
    used, left = [], {}
    for rule in compiled:
        verdict = verdicts[rule.definition.name]
        types = verdict.usable(allowed)
        if types is None:
            used.append(rule)
        elif types:
            used.append(replace(rule, admitted=types))
        else:
            left[rule.definition.name] = verdict
    return used, left
