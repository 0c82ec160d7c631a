"""Edits that diagnostics come with, made: all that help, until none is left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dslc.checking.incremental import Edited
from dslc.errors import Diagnostic, Fix

ROUNDS = 20  #: rounds after which mending ends: one edit may make room for another


@dataclass(frozen=True, slots=True)
class Mended:
    """A file with the edits of its diagnostics: its text, what was mended in the order of the edits, and what is left."""

    path: Path
    text: str
    mended: tuple[Diagnostic, ...]
    left: tuple[Diagnostic, ...]


def mend(files: Edited, path: Path) -> Mended:
    """Makes the edits that the diagnostics of an edited file come with; one after which there are more errors is not kept."""
    text = files.texts[path].file.source.text
    left = files.findings(path)
    done: list[Diagnostic] = []
    refused: set[tuple[str, str]] = set()
    seen = {text}
    for _ in range(ROUNDS):
        wanted = [one for one in left if _own(one, path) and (one.code, one.message) not in refused]
        if not wanted:
            break
        for tried in (apart(wanted), *([one] for one in wanted)):
            fixed = applied(text, [one.fix for one in tried if one.fix is not None])
            files.edit(path, fixed)
            found = files.findings(path)
            if fixed not in seen and _better(left, found, tried):
                seen.add(fixed)
                text, left = fixed, found
                done += tried
                break
            if len(tried) == 1:
                refused.add((tried[0].code, tried[0].message))
            files.edit(path, text)
    files.edit(path, text)
    return Mended(path, text, tuple(done), left)


def _own(finding: Diagnostic, path: Path) -> bool:
    return finding.fix is not None and finding.fix.span.source.path == str(path)


def _better(before: Sequence[Diagnostic], after: Sequence[Diagnostic], tried: Sequence[Diagnostic]) -> bool:
    """Whether less is found; or as much, and instead of what was mended only what comes with an edit of its own, or wrong syntax."""
    if _weight(after) != _weight(before):
        return _weight(after) < _weight(before)
    known = {(one.code, one.message) for one in before}
    new = [one for one in after if (one.code, one.message) not in known]
    gone = {(one.code, one.message) for one in tried} - {(one.code, one.message) for one in after}
    return bool(gone) and all(one.fix is not None or _stage(one) == 0 for one in new)


def _weight(findings: Iterable[Diagnostic]) -> tuple[int, int]:
    """What an edit must make less: how early it ends the check of a file, and then how much is found."""
    stages = [_stage(one) for one in findings]
    return -min(stages, default=4), len(stages)


def _stage(finding: Diagnostic) -> int:
    """How much of a file is checked where there is such a finding: with wrong syntax no names, with wrong imports no meaning."""
    if finding.severity != "error":
        return 3
    return (
        0 if finding.code.startswith("E01") else 1 if finding.code.startswith("E02") and finding.code != "E0201" else 2
    )


def apart(findings: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Findings whose edits touch nothing that one before edits."""
    out: list[Diagnostic] = []
    end = -1
    for one in sorted(findings, key=lambda each: each.fix.span.start if each.fix is not None else 0):
        if one.fix is not None and one.fix.span.start > end:
            out.append(one)
            end = one.fix.span.end
    return out


def applied(text: str, fixes: Iterable[Fix]) -> str:
    """A text after edits that are apart."""
    for fix in sorted(fixes, key=lambda each: each.span.start, reverse=True):
        text = text[: fix.span.start] + fix.text + text[fix.span.end :]
    return text
