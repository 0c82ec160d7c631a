"""Texts as editors have them: any ends of lines, and columns that count code units of UTF-16 (or what was agreed on)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from lsprotocol import types as lsp

from dslc.errors import SourceText, Span

_END = re.compile(r"\r\n|\r|\n")


def width(text: str, encoding: str = "utf-16") -> int:
    """The code units of a text."""
    if encoding == "utf-32" or text.isascii():
        return len(text)
    if encoding == "utf-8":
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text) + sum(ord(each) > 0xFFFF for each in text)


def prefix(line: str, units: int, encoding: str = "utf-16") -> int:
    """The number of characters in so many code units of a line; one that begins in them counts, and none is behind its end."""
    if encoding == "utf-32" or line.isascii():
        return min(max(units, 0), len(line))
    at = 0
    for index, each in enumerate(line):
        if at >= units:
            return index
        at += width(each, encoding)
    return len(line)


def normal(text: str) -> str:
    """A text as files are read: without a byte order mark, lines end in a newline, and halves of characters are none."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if not text.isascii() else text


@dataclass(frozen=True)
class EditorText:
    """The text of a document as its editor has it."""

    raw: str
    encoding: str = "utf-16"

    @cached_property
    def source(self) -> str:
        return normal(self.raw)

    @property
    def newline(self) -> str:
        """The end of its lines."""
        return "\r\n" if self.raw.count("\r\n") * 2 > self.raw.count("\n") else "\n"

    @cached_property
    def _lines(self) -> tuple[tuple[int, int], ...]:
        """The begin of each line, and its end before the end-of-line characters."""
        out, at = [], 0
        for end in _END.finditer(self.raw):
            out.append((at, end.start()))
            at = end.end()
        return (*out, (at, len(self.raw)))

    def _offset(self, position: lsp.Position) -> int:
        if position.line >= len(self._lines):
            return len(self.raw)
        start, end = self._lines[max(position.line, 0)]
        return start + prefix(self.raw[start:end], position.character, self.encoding)

    def changed(self, changes: Sequence[lsp.TextDocumentContentChangeEvent]) -> EditorText:
        """The text after edits, each of which speaks of the text that those before it made."""
        text = self
        for change in changes:
            if isinstance(change, lsp.TextDocumentContentChangePartial):
                start, end = sorted((text._offset(change.range.start), text._offset(change.range.end)))
                text = EditorText(text.raw[:start] + change.text + text.raw[end:], text.encoding)
            else:
                text = EditorText(change.text, text.encoding)
        return text


@dataclass(frozen=True)
class EditorPlaces:
    """Positions in a source, as an editor counts them."""

    source: SourceText
    encoding: str = "utf-16"

    def position(self, offset: int) -> lsp.Position:
        starts = self.source.line_starts
        offset = min(max(offset, 0), len(self.source.text))
        line = bisect_right(starts, offset) - 1
        return lsp.Position(line, width(self.source.text[starts[line] : offset], self.encoding))

    def range(self, start: int, end: int) -> lsp.Range:
        return lsp.Range(self.position(start), self.position(max(start, end)))

    def of(self, span: Span) -> lsp.Range:
        return self.range(span.start, span.end)

    def offset(self, position: lsp.Position) -> int:
        starts = self.source.line_starts
        if position.line >= len(starts):
            return len(self.source.text)
        line = max(position.line, 0)
        return starts[line] + prefix(self.source.line(line + 1), position.character, self.encoding)
