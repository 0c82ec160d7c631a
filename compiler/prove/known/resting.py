"""What a proof rests on: laws and traits count for as much as is known of them, and one that is unproved carries nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dslc.prove.known.digest import rule_digest
from dslc.prove.known.evidence import own_evidence
from dslc.prove.known.lock import lock_path, read_lock
from dslc.prove.verdict import RuleVerdict, Status
from dslc.semantics.apply import rules_cache
from dslc.semantics.definitions import NO_TRAITS, PropertyDef, Traits
from dslc.semantics.library import Rules

#: statuses of laws from which others may follow, the strongest first
CARRYING: tuple[Status, ...] = ("proved", "bounded", "trusted")
#: seconds for one law that is looked at on the way
_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Basis:
    """What is known of a law: `reason` is its bound or why it is trusted."""

    status: Status
    reason: str = ""

    @property
    def carries(self) -> bool:
        return self.status in CARRYING


def basis(rules: Rules, law: PropertyDef, locks: bool = False) -> Basis:
    """What is known of a law: from this run, from the user's own proofs, else by proving it now.

    Args:
        locks: whether what a `dslc.lock` beside the law says is believed too.
    """
    known = rules_cache(rules, "basis")
    found: Basis | None = known.get((law.name, False)) or (known.get((law.name, True)) if locks else None)
    if found is None:
        verdict = known_verdict(rules, law, locks) or _proved(rules, law)
        found = known[law.name, locks] = Basis(verdict.status, verdict.reason)
    return found


def note(rules: Rules, known: Iterable[tuple[str, Status, str]]) -> None:
    """Keeps for the run what was found of laws, by name: status and reason."""
    cache = rules_cache(rules, "basis")
    for name, status, reason in known:
        cache[name, False] = Basis(status, reason)


def known_verdict(rules: Rules, law: PropertyDef, locks: bool = False) -> RuleVerdict | None:
    """What was proved of a law before: by this user, or (`locks`) by whoever wrote the lock beside it; None where nothing was."""
    digest = rule_digest(rules, law)
    own = own_evidence().get(law.name, digest)
    if own is None and locks:
        own = _lock(rules, law).get(law.name)
        own = own if own is not None and own.digest == digest else None
    return own if own is not None and current(rules, own) else None


def _lock(rules: Rules, law: PropertyDef) -> dict[str, RuleVerdict]:
    cache = rules_cache(rules, "locks of laws")
    path = lock_path(law)
    if path not in cache:
        cache[path] = dict(read_lock(path).verdicts)
    found: dict[str, RuleVerdict] = cache[path]
    return found


def _proved(rules: Rules, law: PropertyDef) -> RuleVerdict:
    """The verdict of the provers that need no other law."""
    from dslc.prove.run.verify import conclude
    from dslc.prove.run.worker import Task, answers

    task = Task(law.name, ("field", "exact"), seconds=_SECONDS)
    verdict = conclude(rules, law, answers(rules, task))
    if verdict.status in {"proved", "refuted"}:
        # nothing that another prover says changes these
        own_evidence().put([verdict])
    return verdict


def current(rules: Rules, verdict: RuleVerdict, loaded: bool = True) -> bool:
    """Whether the laws from which a verdict follows are as they were. `loaded`: all of them have to be among the rules."""
    for name, digest in verdict.rests:
        law = rules.laws.get(name)
        if law is None:
            if loaded:
                return False
        elif rule_digest(rules, law) != digest:
            return False
    return True


def held_traits(rules: Rules, operator: str) -> Traits:
    """The traits of an operator whose laws are proved, bounded or trusted; the others count for nothing.

    A lock is believed here: what follows from a trait in a model is proved again there.
    """
    stated = rules.traits_of(operator)
    if stated is NO_TRAITS:
        return stated
    cache = rules_cache(rules, "held traits")
    found: Traits | None = cache.get(operator)
    if found is None:
        found = cache[operator] = _held(rules, operator, stated)
    return found


def _held(rules: Rules, operator: str, stated: Traits) -> Traits:
    laws: dict[str, list[PropertyDef]] = {}
    for law in rules.laws.values():
        if law.trait is not None and law.trait[0] == operator:
            laws.setdefault(law.trait[1], []).append(law)

    def holds(trait: str) -> bool:
        return any(basis(rules, law, locks=True).carries for law in laws.get(trait, ()))

    identity = stated.identity if stated.identity is not None and holds("identity") else None
    inverse = stated.inverse if stated.inverse is not None and holds("inverse") else None
    return replace(
        stated,
        associative=stated.associative and holds("associative"),
        commutative=stated.commutative and holds("commutative"),
        idempotent=stated.idempotent and holds("idempotent"),
        involution=stated.involution and holds("involution"),
        identity=identity,
        absorbing=None,
        inverse=inverse,
    )
