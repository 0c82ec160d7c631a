"""Diagnostics as text (`full`, `concise`) and for other programs (`json`, `github`, `sarif`)."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from dslc.diagnostics.registry import pages
from dslc.errors import Diagnostic, Span, shown_path
from dslc.outside import in_line, in_stream
from dslc.records import record

FORMATS = ("full", "concise", "json", "github", "sarif")
_COLORS = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "note": "\x1b[1;36m"}
_BOLD, _BLUE, _RESET = "\x1b[1m", "\x1b[1;34m", "\x1b[0m"


WIDTH = 160  #: characters of a source line; a longer one is shown around its label only


@record
class _Mark:
    span: Span
    message: str
    mark: str
    color: str


def wants_color(stream: TextIO) -> bool:
    """Return whether colours are written: to terminals, unless NO_COLOR is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def _extent(span: Span) -> tuple[int, int, int, int]:
    """First line, column, last line, column after the end; all from 1."""
    line, column = span.source.position(span.start)
    end_line, end_column = span.source.position(max(span.end, span.start))
    return line, column, end_line, end_column


def _snippets(labels: Sequence[_Mark], gutter: int, paint: Callable[[str, str], str]) -> list[str]:
    """Source lines with their numbers, each once, and below them a line of marks for each label."""
    out: list[str] = []
    shown = 0
    for label in sorted(labels, key=lambda entry: _extent(entry.span)[:2]):
        line, column, end_line, end_column = _extent(label.span)
        text = label.span.source.line(line).rstrip("\r")
        last = end_column if end_line == line else len(text) + 1
        start, stop = column - 1, max(last - 1, column)
        if len(text) > WIDTH:
            shift = max(0, start - 40)
            before = "..." if shift else ""
            text = before + text[shift : shift + WIDTH] + "..."
            start, stop = start - shift + len(before), min(stop - shift + len(before), len(text))
        # Tabs keep their width in the line of marks; what a terminal would act on is shown as a replacement character.
        pad = "".join("\t" if c == "\t" else " " for c in text[:start])
        text = "\t".join(map(in_line, text.split("\t")))
        bar = paint(_BLUE, "|")
        if line != shown:
            out.append(f"{paint(_BLUE, f'{line:>{gutter}}')} {bar} {text}".rstrip())
            shown = line
        message = f" {label.message}" if label.message else ""
        marks = label.mark * max(1, stop - start) + message
        out.append(f"{'':{gutter}} {bar} {pad}{paint(label.color, marks)}")
    return out


def _one_full(diagnostic: Diagnostic, paint: Callable[[str, str], str]) -> list[str]:
    color = _COLORS[diagnostic.severity]
    lines = [
        paint(color, f"{diagnostic.severity}[{diagnostic.code}]") + paint(_BOLD, f": {in_line(diagnostic.message)}")
    ]
    labels = [_Mark(label.span, in_line(label.message), "-", _BLUE) for label in diagnostic.secondary]
    if diagnostic.span:
        labels.append(_Mark(diagnostic.span, in_line(diagnostic.label), "^", color))
    gutter = max((len(str(_extent(label.span)[0])) for label in labels), default=1)
    if diagnostic.span:
        lines.append(f"{'':{gutter}}{paint(_BLUE, '-->')} {in_line(str(diagnostic.span))}")
        lines.append(f"{'':{gutter}} {paint(_BLUE, '|')}")
        own = diagnostic.span.source.path
        lines += _snippets([label for label in labels if label.span.source.path == own], gutter, paint)
        for label in labels:
            if label.span.source.path != own:
                lines.append(f"{'':{gutter}}{paint(_BLUE, ':::')} {in_line(str(label.span))}")
                lines += _snippets([label], gutter, paint)
    elif diagnostic.path and diagnostic.path not in {word.strip("`:,") for word in diagnostic.message.split()}:
        lines.append(f"{'':{gutter}}{paint(_BLUE, '-->')} {in_line(shown_path(diagnostic.path))}")
    for name, text in (("counterexample", diagnostic.counterexample), ("help", diagnostic.hint)):
        if text:
            first, *rest = in_stream(text).splitlines() or [""]
            lines.append(f"{'':{gutter}} {paint(_BLUE, '=')} {paint(_BOLD, name)}: {first}")
            lines += [f"{'':{gutter}}   {line}" for line in rest]
    fix = diagnostic.fix
    # a word in the place of another is what the hint says
    if fix and fix.text.strip() and fix.span.start == fix.span.end:
        text = f"insert at {in_line(str(fix.span))}: {in_line(fix.text.strip())}"
        lines.append(f"{'':{gutter}} {paint(_BLUE, '=')} {paint(_BOLD, 'fix')}: {text}")
    return lines


def full(findings: Sequence[Diagnostic], color: bool = False) -> str:
    """The form of rustc: message, place, source lines with carets, counterexample, help; ends with a count."""

    def paint(code: str, text: str) -> str:
        return f"{code}{text}{_RESET}" if color and text else text

    blocks = ["\n".join(_one_full(diagnostic, paint)) for diagnostic in findings]
    placed = [d for d in findings if d.span]
    if placed:
        counts = Counter(d.severity for d in findings)
        said = ", ".join(
            f"{counts[one]} {one}{'s' * (counts[one] != 1)}" for one in ("error", "warning") if counts[one]
        )
        first = min(placed, key=lambda d: d.severity != "error")
        blocks.append(f"{said}; `dslc explain {first.code}` says more")
    return "\n\n".join(blocks) + "\n" if blocks else ""


def concise(findings: Sequence[Diagnostic]) -> str:
    """One line per finding: `file:line:column: code message`."""
    return "".join(f"{diagnostic}\n" for diagnostic in findings)


def _path(diagnostic: Diagnostic) -> str:
    """The file that a finding is about, as it is shown; empty where it is about none."""
    return shown_path(diagnostic.span.source.path if diagnostic.span else diagnostic.path)


def _ends(span: Span) -> dict[str, Any]:
    line, column, end_line, end_column = _extent(span)
    return {"start": {"line": line, "column": column}, "end": {"line": end_line, "column": end_column}}


def _with_help(diagnostic: Diagnostic) -> str:
    return diagnostic.message + (f"\nhelp: {diagnostic.hint}" if diagnostic.hint else "")


def _as_dict(diagnostic: Diagnostic) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(diagnostic, name) for name in ("code", "severity", "message")}
    found["path"] = _path(diagnostic) or None
    if diagnostic.span:
        found |= _ends(diagnostic.span)
    for name in ("label", "counterexample", "hint"):
        if getattr(diagnostic, name):
            found[name] = getattr(diagnostic, name)
    if diagnostic.fix:
        found["fix"] = {**_ends(diagnostic.fix.span), "text": diagnostic.fix.text}
    if diagnostic.secondary:
        found["secondary"] = [
            {"path": shown_path(one.span.source.path), **_ends(one.span)["start"], "message": one.message}
            for one in diagnostic.secondary
        ]
    return found


def as_json(findings: Sequence[Diagnostic]) -> str:
    """A JSON list with one object per finding; lines and columns count from 1, `end` is exclusive."""
    return json.dumps([_as_dict(diagnostic) for diagnostic in findings], indent=2) + "\n"


def _escape(text: str, property_: bool = False) -> str:
    """GitHub's escapes of workflow commands."""
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if property_ else text


def github(findings: Sequence[Diagnostic]) -> str:
    """Workflow commands that GitHub shows as annotations."""
    lines = []
    for diagnostic in findings:
        kind = "notice" if diagnostic.severity == "note" else diagnostic.severity
        fields = [f"title={_escape(f'dslc {diagnostic.code}', True)}"]
        place = [f"file={_escape(_path(diagnostic), True)}"] if diagnostic.span or diagnostic.path else []
        if diagnostic.span:
            names = ("line", "col", "endLine", "endColumn")
            place += [f"{name}={at}" for name, at in zip(names, _extent(diagnostic.span), strict=True)]
        lines.append(in_stream(f"::{kind} {','.join([*place, *fields])}::{_escape(_with_help(diagnostic))}\n"))
    return "".join(lines)


def sarif(findings: Sequence[Diagnostic]) -> str:
    """A SARIF 2.1.0 log of one run."""
    from dslc.version import __version__

    known = pages()
    codes = sorted({diagnostic.code for diagnostic in findings})
    rules = [
        {
            "id": code,
            "shortDescription": {"text": known[code].title if code in known else code},
            "help": {"text": known[code].text if code in known else code},
        }
        for code in codes
    ]
    results = []
    for diagnostic in findings:
        result: dict[str, Any] = {
            "ruleId": diagnostic.code,
            "ruleIndex": codes.index(diagnostic.code),
            "level": diagnostic.severity,
            "message": {"text": _with_help(diagnostic)},
        }
        path = _path(diagnostic)
        if path:
            location: dict[str, Any] = {"artifactLocation": {"uri": path.replace(os.sep, "/")}}
            if diagnostic.span:
                names = ("startLine", "startColumn", "endLine", "endColumn")
                location["region"] = dict(zip(names, _extent(diagnostic.span), strict=True))
            result["locations"] = [{"physicalLocation": location}]
        results.append(result)
    tool = {"driver": {"name": "dslc", "version": __version__, "rules": rules}}
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": tool, "columnKind": "unicodeCodePoints", "results": results}],
    }
    return json.dumps(log, indent=2) + "\n"


def render(findings: Sequence[Diagnostic], form: str, color: bool = False) -> str:
    """Findings in one of `FORMATS`."""
    if form == "full":
        return full(findings, color)
    return {"concise": concise, "json": as_json, "github": github, "sarif": sarif}[form](findings)
