"""An import as a library's text and as a report."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from dslc.errors import SourceText
from dslc.foreign.outcome import LIVE, MEANING, Import, ImportedRule
from dslc.foreign.translate import Translation
from dslc.prove.counterexample import text_of
from dslc.syntax.printer import format_source

_STAMP = "# Written by `dslc import-rules`, which replaces this file only as long as it has the checksum "


def library_text(readings: Sequence[Translation], header: str = "", footer: str = "") -> str:
    """A rule file with the imports that its rules need, as `dslc fmt` writes it."""
    return format_source(SourceText("imported.rules", _plain_text(readings, header, footer)))


def _plain_text(readings: Sequence[Translation], header: str = "", footer: str = "") -> str:
    used = sorted({pair for reading in readings for pair in reading.operators})
    imports = []
    for place in sorted({place for place, _ in used}, key=lambda place: (place.startswith("std."), place)):
        names = ", ".join(name for module, name in used if module == place)
        short = place.removeprefix("std.")
        imports.append(f"import {place} ({names})" if short == place else f"import {place} as {short}")
    parts = ["dslc 1", *([header] if header else []), "", *imports, ""]
    # equal over the reals: what becomes of other numbers was not asked
    parts += [f"{reading.text.removesuffix('}')}  verify numerics = nonfinite\n}}\n" for reading in readings]
    return "\n".join(parts) + "\n" + footer


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
    """The text with a last line by which a later import tells whether somebody has changed it."""
    return f"{text}\n{_STAMP}{_sum_of(text)}\n"


def is_stamped(text: str) -> bool:
    """Whether it is the text of an import, as it was written."""
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
