"""Laws and traits that are false, as `dslc check` reports them: by the field prover alone, which takes milliseconds."""

from __future__ import annotations

from collections.abc import Sequence

from dslc.errors import Diagnostic
from dslc.folders import cache_folder
from dslc.prove.evidence.dependencies import known_verdict
from dslc.prove.evidence.digest import rule_digest, used_by
from dslc.prove.evidence.lock import stamp
from dslc.prove.run.conclusion import diagnostic_of
from dslc.prove.run.provers import Definition, prover_verdict
from dslc.prove.verdict import RuleVerdict
from dslc.semantics.definitions import PropertyDef
from dslc.semantics.library import Rules
from dslc.store import Store


def mistake_in(rules: Rules, definition: Definition, mistakes: Sequence[Diagnostic]) -> Diagnostic | None:
    """The first error in a rule or law, or in an operator or function that it uses."""
    errors = [mistake for mistake in mistakes if mistake.severity == "error" and mistake.span is not None]
    spans = [definition.syntax.span, *(one.syntax.span for one in used_by(rules, definition))] if errors else []
    return next((m for m in errors if m.span is not None and any(m.span.starts_in(span) for span in spans)), None)


def wrong_laws(rules: Rules, law: PropertyDef, seed: int = 0) -> list[Diagnostic]:
    """E0502 with a counterexample where the field prover refutes a law; what it found equal is kept.

    A law with mistakes, or about operators with some (`mistake_in`), is no matter of this.
    """
    known = known_verdict(rules, law, locks=True)
    if known is not None and known.status != "refuted":
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
    return [] if found is None else [found]
