"""Sources, spans and diagnostics: what every stage uses to say where and why something is wrong."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from dslc.outside import in_line

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, eq=False)
class SourceText:
    """The text of one file, and where its lines begin."""

    path: str
    text: str = field(repr=False)

    @cached_property
    def line_starts(self) -> tuple[int, ...]:
        starts = [0]
        starts.extend(k + 1 for k, character in enumerate(self.text) if character == "\n")
        return tuple(starts)

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both counted from 1."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        start = self.line_starts[number - 1]
        end = self.line_starts[number] - 1 if number < len(self.line_starts) else len(self.text)
        return self.text[start:end]


def shown_path(path: str) -> str:
    """A path as it is written in the current folder: below that folder without the way to it."""
    try:
        below = Path(path).relative_to(Path.cwd())
    except (ValueError, OSError):  # elsewhere, relative already, or the folder is gone
        return path
    return str(below)


@dataclass(frozen=True, eq=False)
class Span:
    """The characters [start, end) of a source."""

    source: SourceText
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        line, column = self.source.position(self.start)
        return f"{shown_path(self.source.path)}:{line}:{column}"

    def starts_in(self, outer: Span) -> bool:
        """Return whether these characters begin within those of another span."""
        return self.source is outer.source and outer.start <= self.start < outer.end


@dataclass(frozen=True)
class Label:
    """A further place that helps to understand a diagnostic."""

    span: Span
    message: str


@dataclass(frozen=True)
class Fix:
    """An edit that removes what a diagnostic is about: the characters of `span` become `text`."""

    span: Span
    text: str


def instead(span: Span, word: str, text: str | None) -> Fix | None:
    """The edit that writes a text in the place of the word that a span begins with; None where it does not, or nothing is meant."""
    if text is None or not word or not span.text.startswith(word):
        return None
    return Fix(Span(span.source, span.start, span.start + len(word)), text)


@dataclass(frozen=True)
class Diagnostic:
    """One finding. `code` is registered in `dslc.diagnostics`; `span` is None for what has no place in a text file."""

    code: str
    message: str
    span: Span | None = None
    label: str = ""
    severity: Severity = "error"
    secondary: tuple[Label, ...] = ()
    counterexample: str = ""
    hint: str = ""
    path: str = ""
    fix: Fix | None = None

    def __str__(self) -> str:
        where = str(self.span) if self.span else shown_path(self.path)
        return in_line(f"{where}: {self.code} {self.message}" if where else f"{self.code} {self.message}")


#: codes of wrong use: what a command line names is not there, or cannot be read, written or understood
WRONG_USE = frozenset("E0201 E0203 E0902 E0903 E0906 E0908 E0909 E0910 E0911".split())


@dataclass(eq=False)
class DslcError(Exception):
    """Wrong input, or wrong use. Carries one or more diagnostics, which the command line prints."""

    diagnostics: Sequence[Diagnostic]

    @property
    def exit_code(self) -> int:
        """2 for wrong use, 1 for what has a place in a text, and for everything else."""
        return 2 if all(one.code in WRONG_USE and not one.span for one in self.diagnostics) else 1

    def __str__(self) -> str:
        return "\n".join(f"{one} ({in_line(one.hint)})" if one.hint else str(one) for one in self.diagnostics)


def error(code: str, message: str, span: Span | None = None, **more: str) -> DslcError:
    """A DslcError with a single diagnostic."""
    return DslcError([Diagnostic(code, message, span, **more)])  # type: ignore[arg-type]


def closest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that is closest to another one; None where none is close."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint at the known name that is closest to another one; `otherwise` where none is close."""
    return suggested(closest(name, known), otherwise)


def suggested(word: str | None, otherwise: str = "") -> str:
    """A hint at a word; `otherwise` where none is meant."""
    return otherwise if word is None else f"did you mean `{word}`?"
