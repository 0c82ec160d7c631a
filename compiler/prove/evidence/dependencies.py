"""Dependencies of a proof: laws and traits count for as much as is known of them, and one that is unproved carries nothing."""

from __future__ import annotations

from dataclasses import replace

from dslc.deadline import FOREVER, Deadline
from dslc.prove.evidence.digest import rule_digest
from dslc.prove.evidence.lock import EMPTY, Lock, lock_path, own_evidence, read_lock, shipped
from dslc.prove.run.conclusion import conclude
from dslc.prove.run.worker import Task, answered
from dslc.prove.verdict import PROVERS, RuleVerdict, Status
from dslc.semantics.definitions import NO_TRAITS, PropertyDef, SubstitutionDef, Traits
from dslc.semantics.library import Rules, rules_cache

#: statuses of laws from which others may follow, the strongest first
CARRYING: tuple[Status, ...] = ("proved", "bounded", "trusted")


_TRAITS = ("associative", "commutative", "idempotent", "involution", "identity", "inverse")

SECONDS = 10.0  #: seconds for one law that is looked at on the way


def _proved(rules: Rules, law: PropertyDef) -> None:
    """Proves a law now, as far as a short time is enough."""
    verdict = conclude(rules, law, list(answered(rules, Task(law.name, PROVERS, seconds=SECONDS))))
    if verdict.status in {"proved", "refuted"}:
        # with more time the others may become more
        own_evidence().put([verdict])
    rules_cache(rules, "basis")[law.name] = verdict.status


def _known_status(rules: Rules, law: PropertyDef) -> Status | None:
    """The status of a law: from this run, from the user's own proofs, or a lock beside it that is believed."""
    known: dict[str, Status] = rules_cache(rules, "basis")
    if law.name not in known and (verdict := known_verdict(rules, law)):
        known[law.name] = verdict.status
    return known.get(law.name)


def known_verdict(rules: Rules, law: PropertyDef) -> RuleVerdict | None:
    """The verdict on a law from before: by this user, or in a lock beside it that is believed; None where nothing was."""
    digest = rule_digest(rules, law)
    return own_evidence().get(law.name, digest) or believed_lock(rules, law).of(law.name, digest)


def trust_locks(rules: Rules, trusted: bool) -> None:
    """Says for a run whether locks are believed whoever wrote them."""
    known = rules_cache(rules, "trust in locks")
    if known.get("trusted", False) != trusted:
        for name in ("basis", "held traits", "kernel forms"):
            rules_cache(rules, name).clear()
    known["trusted"] = trusted


def believed_lock(rules: Rules, definition: SubstitutionDef | PropertyDef) -> Lock:
    """The lock beside a rule where its word counts: it is a part of dslc, or locks are trusted. Anyone may have written another one."""
    path = lock_path(definition)
    if not shipped(path) and not rules_cache(rules, "trust in locks").get("trusted", False):
        return EMPTY
    cache = rules_cache(rules, "locks")
    if path not in cache:
        cache[path] = read_lock(path)
    found: Lock = cache[path]
    return found


def recorded(rules: Rules, definition: SubstitutionDef | PropertyDef) -> tuple[RuleVerdict | None, bool]:
    """The written verdict on a rule or law as it stands, and whether it counts: as dslc's word or this user's proof."""
    digest = rule_digest(rules, definition)
    counts = believed_lock(rules, definition).of(definition.name, digest) or own_evidence().get(definition.name, digest)
    return counts or read_lock(lock_path(definition)).of(definition.name, digest), counts is not None


def settle_traits(rules: Rules, operator: str = "", until: Deadline = FOREVER) -> None:
    """Proves the laws behind traits of which nothing is known yet, of one operator or of all: before something is matched."""
    for law in rules.laws.values():
        about = law.trait is not None and operator in ("", law.trait[0])
        if law.trait and about and not until.over and _known_status(rules, law) is None:
            _proved(rules, law)
            rules_cache(rules, "held traits").pop(law.trait[0], None)


def proved_traits(rules: Rules, operator: str) -> Traits:
    """The traits of an operator whose laws are known to be proved, bounded or trusted; the others count for nothing.

    This is a look-up: `settle_traits` proves. A lock that is believed counts here: what follows from a trait in a model is proved
    again there.
    """
    stated = rules.traits_of(operator)
    if stated is NO_TRAITS:
        return stated
    cache = rules_cache(rules, "held traits")
    found: Traits | None = cache.get(operator)
    if not found:
        known: set[str] = set()
        for law in rules.laws.values():
            if law.trait is not None and law.trait[0] == operator:
                known |= {law.trait[1]} if _known_status(rules, law) in CARRYING else set()
        kept = {name: getattr(stated if name in known else NO_TRAITS, name) for name in _TRAITS}
        found = cache[operator] = replace(stated, **kept, absorbing=None)
    return found
