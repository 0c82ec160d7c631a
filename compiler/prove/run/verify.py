"""Verification of rules: all provers on each of them, their agreement, and the status that follows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from dslc.errors import Diagnostic
from dslc.folders import cache_folder
from dslc.prove.evidence.dependencies import known_verdict
from dslc.prove.evidence.digest import rule_digest, used_by
from dslc.prove.evidence.lock import Lock, installed, lock_path, own_evidence, read_lock, stamp, write_lock
from dslc.prove.run.conclusion import conclude, diagnostic_of
from dslc.prove.run.provers import Definition, prover_verdict
from dslc.prove.run.worker import Task, answered, definition_of
from dslc.prove.run.workers import Workers
from dslc.prove.verdict import PROVERS, ProverName, RuleVerdict
from dslc.semantics.definitions import Module, PropertyDef, SubstitutionDef
from dslc.semantics.library import Rules
from dslc.store import Store

SECONDS = 30.0  #: seconds that one prover may take for one rule
KEEP = 10.0  #: seconds after which what was proved is written, so that a run that is killed loses little

#: told of every verdict: how many are done, how many there are, and the verdict
Progress = Callable[[int, int, RuleVerdict], None]


def verify_rule(
    rules: Rules,
    definition: Definition,
    provers: Sequence[ProverName] = PROVERS,
    *,
    seed: int = 0,
) -> RuleVerdict:
    """The verdict of one rule or law, in this process and without a hard limit of time.

    Raises:
        DslcError: E0510 where the provers disagree.
    """
    task = Task(definition.name, tuple(provers), seed)
    if definition.name not in rules.substitutions and definition.name not in rules.laws:
        rules = with_rule(rules, definition)
    return conclude(rules, definition, list(answered(rules, task)))


def with_rule(rules: Rules, definition: Definition) -> Rules:
    """The rules with one more."""
    if isinstance(definition, SubstitutionDef):
        return replace(rules, substitutions={**rules.substitutions, definition.name: definition})
    return replace(rules, laws={**rules.laws, definition.name: definition})


def verify(
    rules: Rules,
    names: Sequence[str] | None = None,
    workers: int = 2,
    lock: Path | Literal["beside"] | None = None,
    progress: Progress | None = None,
    *,
    provers: Sequence[ProverName] = PROVERS,
    limit: float = SECONDS,
    seed: int = 0,
    notes: list[str] | None = None,
    trust: bool = False,
    into: dict[str, RuleVerdict] | None = None,
) -> tuple[RuleVerdict, ...]:
    """The verdicts of substitutions and laws, in their order.

    Args:
        names: qualified; all by default.
        workers: processes; 0 proves in this one, without limits of time.
        lock: a `dslc.lock` to write, or "beside" each library (but for installed ones). With it, what this user's runs have proved
            of unchanged rules is not proved again.
        trust: believe what the lock says of unchanged rules, whoever wrote it.
        limit: seconds for one prover and one rule.
        notes: collects what is to be said of the locks.
        into: gets each verdict as soon as it is known, for whoever ends the run early.

    Raises:
        DslcError: E0510 where the provers disagree, E0519 where files change in the meantime.
    """
    definitions: list[Definition] = [*rules.substitutions.values(), *rules.laws.values()]
    if names is not None:
        wanted = set(names)
        definitions = [one for one in definitions if one.name in wanted]
    digests = {one.name: rule_digest(rules, one) for one in definitions}
    # an answer of some provers only is not what a lock promises
    where = lock if set(provers) == set(PROVERS) else None
    locks = _Locks(rules, where, limit, [] if notes is None else notes, trust)
    found: dict[str, RuleVerdict] = {} if into is None else into
    old = ((one.name, locks.of(one, digests[one.name])) for one in definitions)
    found.update((name, verdict) for name, verdict in old if verdict)
    tasks = [Task(one.name, tuple(provers), seed) for one in definitions if one.name not in found]
    done, written = len(found), time.monotonic()
    try:
        with Workers(rules, workers if tasks else 0, limit) as pool:
            for task, verdicts in pool.run(tasks):
                verdict = conclude(rules, definition_of(rules, task.rule), verdicts, digests[task.rule])
                found[task.rule] = verdict
                locks.keep(verdict)
                done += 1
                if time.monotonic() > written + KEEP:
                    locks.write(found)
                    written = time.monotonic()
                if progress is not None:
                    progress(done, len(definitions), verdict)
    finally:
        locks.write(found)
    return tuple(found[one.name] for one in definitions)


@dataclass(slots=True)
class _Locks:
    """The locks of a run, read when first asked for."""

    rules: Rules
    where: Path | Literal["beside"] | None
    limit: float
    notes: list[str]
    trust: bool
    read: dict[Path, Lock] = field(default_factory=dict)

    def of(self, definition: Definition, digest: str) -> RuleVerdict | None:
        if self.where is None:
            return None
        path = self._path(definition)
        if path not in self.read:
            self.read[path] = read_lock(path)
            if self.read[path].problem:
                self.notes.append(f"{self.read[path].problem}; its rules are proved again")
        # anyone may have written the lock: it is believed where it is trusted; what was proved here is in the user's own cache
        own = own_evidence().get(definition.name, digest)
        known = own and Lock({definition.name: own}).of(definition.name, digest, self.limit)
        if not known and self.trust:
            known = self.read[path].of(definition.name, digest, self.limit)
        return known

    def _path(self, definition: Definition) -> Path:
        return self.where if isinstance(self.where, Path) else lock_path(definition)

    def keep(self, verdict: RuleVerdict) -> None:
        """Notes what was proved just now as the user's own evidence."""
        if self.where is not None:
            own_evidence().put([verdict])

    def write(self, found: dict[str, RuleVerdict]) -> None:
        """Verdicts of this run beside those of rules that it did not concern; none of rules that are gone."""
        if self.where is None:
            return
        present = {*self.rules.substitutions, *self.rules.laws}
        libraries = {module.library for module in self.rules.modules}
        for path, lock in self.read.items():
            if installed(path):
                continue
            kept = {k: v for k, v in lock.verdicts.items() if k in present or k.rpartition(".")[0] not in libraries}
            kept |= {k: v for k, v in found.items() if self._path(definition_of(self.rules, k)) == path}
            note = write_lock(path, kept)
            if note:
                self.notes.append(note)


def chosen(rules: Rules, modules: Sequence[Module]) -> list[str]:
    """The names of all substitutions and laws of some modules."""
    inside = set(modules)
    found: list[Definition] = [*rules.substitutions.values(), *rules.laws.values()]
    return [one.name for one in found if one.module in inside]


def mistake_in(rules: Rules, definition: Definition, mistakes: Sequence[Diagnostic]) -> Diagnostic | None:
    """The first error in a rule or law, or in an operator or function that it uses."""
    errors = [mistake for mistake in mistakes if mistake.severity == "error" and mistake.span]
    spans = [definition.span, *(one.span for one in used_by(rules, definition))] if errors else []
    return next((m for m in errors if m.span and any(m.span.starts_in(span) for span in spans)), None)


def wrong_laws(rules: Rules, law: PropertyDef, seed: int = 0) -> list[Diagnostic]:
    """E0502 with a counterexample where the field prover refutes a law; what it found equal is kept.

    A law with mistakes, or about operators with some (`mistake_in`), is no matter of this.
    """
    known = known_verdict(rules, law)
    if known and known.status != "refuted":
        return []
    digest = rule_digest(rules, law)
    store, key = Store(cache_folder() / "checked"), f"{stamp()}-{digest}"
    if known is None and store.get(key) is not None:
        return []
    verdict = prover_verdict(rules, law, "field", seed=seed)
    if verdict.answer != "differs":
        store.put(key, law.name.encode())
        return []
    found = diagnostic_of(law, RuleVerdict(law.name, "refuted", (verdict,), digest))
    return [found] if found else []
