"""What an import has decided, kept: in the cache for the next run, and in the lock beside the library that it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dslc.foreign.define import definition, operators
from dslc.foreign.outcome import LIVE, ImportedRule
from dslc.foreign.translate import Translation
from dslc.prove.evidence.dependencies import current
from dslc.prove.evidence.digest import rule_digest
from dslc.prove.evidence.lock import LOCK, Lock, own_evidence, read_lock, stamp, write_lock
from dslc.prove.verdict import RuleVerdict
from dslc.semantics.library import load_many
from dslc.store import Store

_NAME = "rule"


def digest_of(reading: Translation) -> str:
    """Of a reading's text and all that it rests on, whatever the rule is called and wherever it stands."""
    text = reading.text.replace(f"substitution {reading.name}(", f"substitution {_NAME}(", 1)
    rules = operators()
    return rule_digest(rules, definition(rules, replace(reading, name=_NAME, text=text)))


class KeptVerdicts:
    """Verdicts and guards by digest. Without a folder nothing is kept.

    Args:
        limit: what a prover did not decide within fewer seconds than these is asked again.
    """

    def __init__(self, folder: Path | None, limit: float) -> None:
        self._folder, self._limit = folder, limit
        self._proofs = None if folder is None else own_evidence(folder)

    def verdict(self, digest: str) -> RuleVerdict | None:
        found = None if self._proofs is None else self._proofs.get(_NAME, digest)
        return (
            None
            if found is None or not current(operators(), found)
            else Lock({_NAME: found}).of(_NAME, digest, self._limit)
        )

    def keep(self, verdict: RuleVerdict) -> None:
        # a process that ran out of memory says nothing of the next run
        if self._proofs is not None and not any("process died" in one.reason for one in verdict.verdicts):
            self._proofs.put([verdict])

    def guards(self, digest: str) -> tuple[str, ...] | None:
        """The guards that were found for a wrong rule."""
        if self._folder is None:
            return None
        found = Store(self._folder / "guards").get_json(f"{stamp()}-{digest}")
        return tuple(found) if isinstance(found, list) and all(isinstance(each, str) for each in found) else None

    def keep_guards(self, digest: str, guards: Sequence[str]) -> None:
        if self._folder is not None:
            Store(self._folder / "guards").put_json(f"{stamp()}-{digest}", list(guards))


def write_proofs(path: Path, imported: Sequence[ImportedRule]) -> str:
    """Puts the verdicts of a written library into the `dslc.lock` beside it: nothing is proved again. A note where it cannot."""
    verdicts = {rule.name: rule.verdict for rule in imported if rule.outcome in LIVE}
    place = path.resolve()
    rules = load_many([path])
    own = [sub for sub in rules.substitutions.values() if Path(sub.module.file.source.path).resolve() == place]
    new = {}
    for sub in own:
        verdict = verdicts.get(sub.syntax.name)
        if verdict is not None:
            new[sub.name] = replace(verdict, rule=sub.name, digest=rule_digest(rules, sub))
    beside = place.parent / LOCK
    if not new and not beside.exists():
        return ""
    libraries = {module.library for module in rules.modules if Path(module.file.source.path).resolve() == place}
    others = {name: one for name, one in read_lock(beside).verdicts.items() if name.rpartition(".")[0] not in libraries}
    return write_lock(beside, {**others, **new})
