"""`[tool.dslc]` of the nearest `pyproject.toml`: which warnings a project ignores, and what its commands do without being told."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dslc.diagnostics.registry import pages
from dslc.errors import Diagnostic, DslcError, SourceText, Span, did_you_mean
from dslc.records import record

NAME = "pyproject.toml"
#: what the table may have, and what each is
KEYS: Mapping[str, str] = {
    "ignore": "a list of codes of warnings",
    "rules": "a list of libraries and `.rules` files",
    "budget": 'a time, such as `"60s"`',
    "target": 'a device, such as `"cpu"`',
}
_LISTS = frozenset({"ignore", "rules"})
_TABLE = re.compile(r"^[ \t]*\[[ \t]*tool[ \t]*\.[ \t]*dslc[ \t]*\][^\n]*$", re.M)
_NEXT = re.compile(r"^[ \t]*\[", re.M)
_AT = re.compile(r"\(at line (\d+), column (\d+)\)")


@record
class Project:
    """Settings of a `pyproject.toml`; `path` is None where none has the table. Files among `rules` are meant from its folder."""

    path: Path | None = None
    ignore: frozenset[str] = frozenset()
    rules: tuple[str, ...] = ()
    budget: str | None = None
    target: str | None = None


def project_of(folder: Path) -> Project:
    """The settings for files in a folder: those of the nearest `pyproject.toml` above that has `[tool.dslc]`.

    Raises:
        DslcError: E0916 for each key or value that makes no sense, and for text that is not TOML.
    """
    for place in (folder.resolve(), *folder.resolve().parents):
        path = place / NAME
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if "dslc" in text and (found := _read(path, text)):
            return found
    return Project()


def _read(path: Path, text: str) -> Project | None:
    source = SourceText(str(path), text)
    try:
        tool = tomllib.loads(text).get("tool", {})
    except tomllib.TOMLDecodeError as problem:
        message = str(problem)
        at = _AT.search(message)
        if not _TABLE.search(text):
            return None
        if not at:
            raise _wrong(f"{NAME} is not TOML: {message}", Span(source, 0, 0)) from None
        start = min(source.line_starts[min(int(at[1]), len(source.line_starts)) - 1] + int(at[2]) - 1, len(text))
        raise _wrong(f"{NAME} is not TOML: {message[: at.start()].strip()}", Span(source, start, start + 1)) from None
    table = tool.get("dslc") if isinstance(tool, dict) else None
    if not isinstance(table, dict):
        return None
    problems = [found for key, value in table.items() if (found := _problem(source, key, value))]
    if problems:
        raise DslcError(problems)
    # a library's name is as it is, a file or folder is found from anywhere
    rules = tuple(
        str(path.parent / one) if "/" in one or one.endswith(".rules") else one for one in table.get("rules", ())
    )
    return Project(path, frozenset(table.get("ignore", ())), rules, table.get("budget"), table.get("target"))


def _problem(source: SourceText, key: str, value: Any) -> Diagnostic | None:
    if key not in KEYS:
        hint = did_you_mean(key, KEYS, "one of " + ", ".join(KEYS))
        return _diagnostic(f"`[tool.dslc]` has no key `{key}`", place(source, key), hint)
    wanted = f"`{key}` is {KEYS[key]}"
    if key in _LISTS:
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            return _diagnostic(wanted, place(source, key))
        for code in value if key == "ignore" else ():
            if not (code.startswith("W") and code in pages()):
                why = "is an error, and only warnings are ignored" if code in pages() else "is the code of no warning"
                at, hint = place(source, key, f'"{code}"'), "`dslc explain --list` has all codes"
                return _diagnostic(f"`{code}` {why}", at, hint)
        return None
    if not isinstance(value, str) or not value.strip():
        return _diagnostic(wanted, place(source, key))
    return None


def place(source: SourceText, key: str, value: str | None = None) -> Span:
    """The place of a key of the table, or of a value of it; the table's own line where it is written in another way."""
    table = _TABLE.search(source.text)
    if not table:
        return Span(source, 0, 0)
    following = _NEXT.search(source.text, table.end())
    end = following.start() if following else len(source.text)
    found = re.compile(rf"^[ \t]*(?P<key>[\"']?{re.escape(key)}[\"']?)[ \t]*[=.]", re.M).search(
        source.text, table.end(), end
    )
    if not found:
        return Span(source, table.start(), table.end())
    at = source.text.find(value, found.end(), end) if value is not None else -1
    return Span(source, at, at + len(value)) if value is not None and at >= 0 else Span(source, *found.span("key"))


def _diagnostic(message: str, span: Span, hint: str = "") -> Diagnostic:
    return Diagnostic("E0916", message, span, hint=hint)


def _wrong(message: str, span: Span) -> DslcError:
    return DslcError([_diagnostic(message, span)])
