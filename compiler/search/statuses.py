"""How far the rules of a run are proved: from the libraries' locks, from the cache, or by proving them now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dslc.match import CompiledRule
from dslc.prove.digest import rule_digest
from dslc.prove.lock import Lock, ProofCache, lock_path, read_lock
from dslc.prove.resting import current
from dslc.prove.verdict import RELIABLE, RuleVerdict, Status
from dslc.prove.verify import verify
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.library import Rules

#: seconds for one prover and one rule before a search: `dslc verify` takes more, and writes a lock
LIMIT = 10.0
#: with these nothing has to be known of a rule
ANY: frozenset[Status] = frozenset({"tested", "trusted", "undecided"})

Told = Callable[[int, int], None]


def statuses(
    rules: Rules,
    definitions: Sequence[SubstitutionDef],
    cache: Path,
    allow: Sequence[str] = (),
    told: Told = lambda _done, _total: None,
) -> dict[str, RuleVerdict]:
    """The verdict of every definition by name; what neither a lock nor the cache knows is proved, and goes into the cache.

    A rule with one of its modes chosen (a padding, an activation) is a case of the rule of its name, which is what is proved.

    Where rules of every status are allowed nothing is proved: a refutation is worth as much as the check of the outputs.
    """
    locks: dict[Path, Lock] = {}
    kept = ProofCache(cache)
    found: dict[str, RuleVerdict] = {}
    unknown: list[str] = []
    for one in dict.fromkeys(rules.substitutions.get(each.name, each) for each in definitions):
        digest = rule_digest(rules, one)
        path = lock_path(one)
        if path not in locks:
            locks[path] = read_lock(path)
        verdict = locks[path].of(one.name, digest) or kept.get(one.name, digest)
        if verdict is None or not current(rules, verdict, loaded=False):
            unknown.append(one.name)
        else:
            found[one.name] = verdict
    if set(allow) >= ANY:
        found.update((name, RuleVerdict(name, "undecided", (), "", "not asked")) for name in unknown)
    elif unknown:
        new = verify(rules, unknown, 2, None, lambda done, total, _: told(done, total), limit=LIMIT)
        kept.put(new)
        found.update((verdict.rule, verdict) for verdict in new)
    return found


def usable(
    compiled: Sequence[CompiledRule], verdicts: Mapping[str, RuleVerdict], allow: Sequence[str]
) -> tuple[list[CompiledRule], dict[str, RuleVerdict]]:
    """The rules whose status is reliable or allowed, and the verdicts of the others by name. Refuted rules are never used."""
    allowed = (RELIABLE | set(allow)) - {"refuted"}
    used, left = [], {}
    for rule in compiled:
        verdict = verdicts[rule.definition.name]
        if verdict.status in allowed:
            used.append(rule)
        else:
            left[rule.definition.name] = verdict
    return used, left
