"""Warnings that a comment says are meant: `# dslc: ignore W0008` behind the line of the warning, or alone on the line before it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from dslc.diagnostics.registry import pages
from dslc.errors import Diagnostic, Fix, Span
from dslc.records import record
from dslc.syntax import tree as t

_COMMENT = re.compile(r"#\s*dslc:\s*ignore\b(?P<codes>[\s,]*(?:[A-Za-z]\d{4}\b[\s,]*)*)")
_CODE = re.compile(r"[A-Za-z]\d{4}")
#: what `dslc check` looks for with `--overlaps` only
_ASKED_FOR = frozenset({"W0010"})


@record
class _Ignored:
    """One code of a comment; `line` is the one whose warnings are meant, counted from 1. `span` is None where none is named."""

    code: str
    line: int
    span: Span
    comment: t.Comment


def suppress(findings: Iterable[Diagnostic], files: Sequence[t.File], overlapping: bool = False) -> list[Diagnostic]:
    """Findings without the warnings that comments of their files ignore, and W0016 for comments that ignore nothing, by place.

    A file with errors has warnings that are not looked for, so that none of its comments is said to be without effect.
    """
    kept = list(findings)
    for file in files:
        ignored = list(_ignored(file))
        if not ignored:
            continue
        path = file.source.path
        own = [one for one in kept if one.span and one.span.source.path == path]
        at = {(mark.line, mark.code): mark for mark in reversed(ignored)}
        gone = {
            id(one): at[key] for one in own
            if one.severity != "error" and one.span
            and (key := (one.span.source.position(one.span.start)[0], one.code)) in at
        }  # fmt: skip
        kept = [one for one in kept if id(one) not in gone]
        if any(one.severity == "error" for one in own):
            continue
        used = {id(mark) for mark in gone.values()}
        idle = [mark for mark in ignored if id(mark) not in used and (overlapping or mark.code not in _ASKED_FOR)]
        kept += [_idle(file, mark) for mark in idle]
        kept.sort(key=lambda one: (one.span.source.path, one.span.start) if one.span else (one.path, 0))
    return kept


def comment_for(code: str) -> str:
    """The comment that ignores a warning, as it stands behind a line."""
    return f"  # dslc: ignore {code}"


def _ignored(file: t.File) -> Iterator[_Ignored]:
    for comment in file.comments:
        found = _COMMENT.match(comment.text)
        if not found:
            continue
        line, _ = file.source.position(comment.span.start)
        start = comment.span.start + found.start("codes")
        codes = list(_CODE.finditer(found["codes"]))
        for code in codes:
            span = Span(file.source, start + code.start(), start + code.end())
            yield _Ignored(code[0].upper(), line + comment.own_line, span, comment)
        if not codes:
            yield _Ignored("", line, comment.span, comment)


def _idle(file: t.File, mark: _Ignored) -> Diagnostic:
    if not mark.code:
        message, hint = "this comment names no warning to ignore", "write the codes behind it: `# dslc: ignore W0008`"
    elif mark.code not in pages():
        message, hint = f"there is no warning {mark.code} to ignore", "`dslc explain --list` has all codes"
    elif mark.code.startswith("E"):
        message, hint = f"{mark.code} is an error, which no comment ignores", ""
    else:
        message, hint = f"there is no {mark.code} on this line to ignore", ""
    return Diagnostic("W0016", message, mark.span, severity="warning", hint=hint, fix=_without(file, mark))


def _without(file: t.File, mark: _Ignored) -> Fix:
    """The edit that takes a code out of its comment, or the whole comment where it names no other."""
    text, comment = file.source.text, mark.comment.span
    if len(_CODE.findall(comment.text)) > 1 and mark.code:
        start, end = mark.span.start, mark.span.end
        if _CODE.search(comment.text, end - comment.start):
            while text[end] in " ,":
                end += 1
        else:
            while text[start - 1] in " ,":
                start -= 1
        return Fix(Span(file.source, start, end), "")
    start, end = comment.start, comment.end
    while start > 0 and text[start - 1] in " \t":
        start -= 1
    if mark.comment.own_line and text[end : end + 1] == "\n":
        end += 1
    return Fix(Span(file.source, start, end), "")
