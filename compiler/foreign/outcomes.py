"""Outcomes of an import: as a library's text and as a report."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from dslc.errors import SourceText
from dslc.foreign.translation import Translation
from dslc.prove.counterexample import text_of
from dslc.prove.verdict import RuleVerdict
from dslc.syntax.printer import format_source

#: proved: in the library; guarded: so under a condition that the file does not state; merged: so as the reverse of another rule of the
#: file, which holds both ways there; undecided: no prover decides it; rejected:
#: it is wrong, a counterexample is known; duplicate: of another rule of the file; same: both sides are one graph here;
#: distribution: it moves data and computes nothing; unknown: an operator has no counterpart; unbound: the target reads a tensor that
#: the source does not have; impossible: no sizes fit its source; open: the import was stopped before it was decided
Outcome = Literal[
    "proved",
    "guarded",
    "merged",
    "undecided",
    "rejected",
    "duplicate",
    "same",
    "distribution",
    "unknown",
    "unbound",
    "impossible",
    "open",
]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
#: what is in the library under its own name
LIVE: frozenset[Outcome] = frozenset({"proved", "guarded"})

#: in words, after a number of rules
MEANING: dict[Outcome, str] = {
    "proved": "proved",
    "guarded": "proved under a guard that was found, as they are wrong without it",
    "merged": "proved as reverses of other rules, which have `<=>`",
    "undecided": "not decided by any prover: comments below",
    "rejected": "wrong, with a counterexample: comments below",
    "duplicate": "equal to another rule up to names and the order of operands that commute",
    "same": "with the same graph on both sides",
    "distribution": "that distribute tensors and compute nothing",
    "unknown": "with an operator that has no counterpart",
    "unbound": "whose target reads a tensor that the source does not have",
    "impossible": "whose source fits no sizes: comments below",
    "open": "open, as the import was stopped: the same command goes on with them",
}


@dataclass(frozen=True, slots=True)
class ImportedRule:
    """The outcome of one rule. `number` is its place in the file; `translation` the reading that was proved, or the first one.

    `wider`: why the most general reading, which the other project's types allow, was refuted before a narrower one was proved.
    """

    number: int
    name: str
    outcome: Outcome
    reason: str = ""
    translation: Translation | None = None
    verdict: RuleVerdict | None = None
    left_out: int = 0
    wider: RuleVerdict | None = None

    @property
    def note(self) -> str:
        """A note on how the proved reading is narrower than the file's."""
        mode = self.translation.mode if self.translation is not None else None
        if mode is None or self.outcome not in {"proved", "merged"}:
            return ""
        kernels = ["for the kernel sizes of the file only"] if mode.kernels else []
        wrong = ["wrong for kernels or groups that its types leave out"] if self.wider is not None else []
        return "; ".join([*kernels, *wrong])


@dataclass
class Import:
    """All rules of a file. `unknown` counts the operators without counterpart by name."""

    rules: list[ImportedRule] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)

    def counts(self) -> dict[Outcome, int]:
        found = Counter(rule.outcome for rule in self.rules)
        return {outcome: found[outcome] for outcome in OUTCOMES}


@dataclass(frozen=True, slots=True)
class Pending:
    """A rule that needs a proof: its readings, most general first."""

    number: int
    name: str
    readings: tuple[Translation, ...]
    left_out: int


_STAMP = "# Written by `dslc import-rules`, which replaces this file only as long as it has the checksum "


def library_text(readings: Sequence[Translation], header: str = "", footer: str = "") -> str:
    """A rule file with the imports that its rules need, as `dslc fmt` writes it."""
    used = sorted({pair for reading in readings for pair in reading.operators})
    imports = []
    for place in sorted({place for place, _ in used}, key=lambda place: (place.startswith("std."), place)):
        names = ", ".join(name for module, name in used if module == place)
        short = place.removeprefix("std.")
        imports.append(f"import {place} ({names})" if short == place else f"import {place} as {short}")
    parts = ["dslc 1", *([header] if header else []), "", *imports, ""]
    # equal over the reals: what becomes of other numbers was not asked
    parts += [f"{reading.text.removesuffix('}')}  verify numerics = nonfinite\n}}\n" for reading in readings]
    return format_source(SourceText("imported.rules", "\n".join(parts) + "\n" + footer))


def imported_text(result: Import, form: str, origin: str, library: str = "") -> str:
    """The library: proved rules, then the others as comments, each with its reason; the header counts them.

    `library`: its name, where that is not the file's.
    """
    proved = [rule for rule in result.rules if rule.outcome in LIVE]
    counts = result.counts()
    header = [f"Imported from {origin} ({form}), {len(result.rules)} rules:"]
    header += [f"  {count} {MEANING[outcome]}" for outcome, count in counts.items() if count]
    narrowed = sum(rule.wider is not None for rule in result.rules)
    if narrowed:
        header += [
            f"  of those proved, {narrowed} are wrong for kernels or groups that their types leave out: comments below"
        ]
    if result.unknown:
        header += [
            "  operators without a counterpart: " + ", ".join(f"{k} ({n})" for k, n in result.unknown.most_common())
        ]
    footer: list[str] = []
    for rule in result.rules:
        if rule.outcome in {"rejected", "undecided", "impossible"} or rule.wider is not None:
            footer += ["", *(f"# {line}".rstrip() for line in _explained(rule).splitlines())]
    readings = [rule.translation for rule in proved if rule.translation is not None]
    head = [*(f"# {line}" for line in header), *([f"library {library} 1.0.0"] if library else [])]
    return library_text(readings, "\n".join(head), "\n".join(footer) + "\n" if footer else "")


def stamped(text: str) -> str:
    """The text with a last line by which a later import tells whether it was changed."""
    return f"{text}\n{_STAMP}{_sum_of(text)}\n"


def is_stamped(text: str) -> bool:
    """Return whether it is the text of an import, as it was written."""
    before, mark, stamp = text.rpartition(f"\n{_STAMP}")
    return bool(mark) and stamp.strip() == _sum_of(before)


def _sum_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _explained(rule: ImportedRule) -> str:
    lines = [f"{rule.name}, rule {rule.number}, {rule.outcome}" + (f": {rule.reason}" if rule.reason else "")]
    if rule.wider is not None:
        lines = [f"{rule.name}, rule {rule.number}, holds for the types above; it is wrong for others that it fits"]
    elif rule.translation is not None:
        lines.append(rule.translation.text)
    found = _counterexample(rule)
    if found is not None and found != rule.reason:
        lines += ["counterexample:", *(f"  {line}" for line in found.splitlines())]
    return "\n".join(lines)


def _counterexample(rule: ImportedRule) -> str | None:
    """Values on which the sides differ, or sizes at which the target does not fit."""
    if rule.wider is not None and rule.wider.counterexample is not None:
        return text_of(rule.wider.counterexample)
    if rule.verdict is not None and rule.verdict.counterexample is not None:
        return text_of(rule.verdict.counterexample)
    return rule.reason if rule.outcome == "rejected" else None


def as_json(result: Import) -> dict[str, object]:
    """The report for programs."""
    return {
        "counts": dict(result.counts()),
        "unknown_operators": dict(result.unknown.most_common()),
        "rules": [
            {
                "number": rule.number,
                "rule": rule.name,
                "outcome": rule.outcome,
                "reason": rule.reason,
                "status": rule.verdict.status if rule.verdict is not None else None,
                "note": rule.note,
                "distributing_operators_left_out": rule.left_out,
                "counterexample": _counterexample(rule),
            }
            for rule in result.rules
        ],
    }
