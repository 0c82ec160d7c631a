"""Reading a text again after an edit: each item has a source of its own, so that items that did not change stay the same objects.

The spans of such a tree are places in pieces; `Pieces.placed` turns them into places of the whole text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dslc.errors import Diagnostic, Fix, Label, SourceText, Span
from dslc.records import record
from dslc.syntax import scan
from dslc.syntax import tree as t
from dslc.syntax.parser import MAX_BYTES, parse_with_errors, place_of, read_header, read_items, whole


@record
class Key:
    """Identity of a piece: its first word and text, its parsing, and the number of equal pieces before it."""

    word: str
    text: str
    broken: bool
    before: int


@dataclass(frozen=True, eq=False)
class Piece:
    """One chunk of a text that was parsed by itself: a header, or items."""

    source: SourceText
    nodes: tuple[t.Node, ...]
    findings: tuple[Diagnostic, ...]


@dataclass(frozen=True, eq=False)
class Pieces:
    """A text in pieces: its tree, what is wrong with its syntax (in places of the whole text), and where each piece begins."""

    file: t.File
    findings: tuple[Diagnostic, ...]
    known: Mapping[Key, Piece] = field(default_factory=dict, repr=False)
    starts: Mapping[SourceText, int] = field(default_factory=dict, repr=False)

    def span(self, span: Span) -> Span:
        """A place in the whole text; one in another file stays as it is."""
        start = self.starts.get(span.source)
        return span if start is None else Span(self.file.source, start + span.start, start + span.end)

    def placed(self, finding: Diagnostic) -> Diagnostic:
        """A finding with all its places in the whole text."""
        labels = tuple(Label(self.span(label.span), label.message) for label in finding.secondary)
        fix = finding.fix and Fix(self.span(finding.fix.span), finding.fix.text)
        return replace(finding, span=finding.span and self.span(finding.span), secondary=labels, fix=fix)


def read_pieces(source: SourceText, before: Pieces | None = None) -> Pieces:
    """Parses a text; chunks that `before` has are not parsed again. The findings are those of `parse_with_errors`."""
    if len(source.text) > MAX_BYTES:
        file, wrong = parse_with_errors(source)
        return Pieces(file, tuple(wrong))
    seen = scan.scan(source)
    old = before.known if before and before.file.source.path == source.path else {}
    known: dict[Key, Piece] = {}
    starts: dict[SourceText, int] = {}
    first, *rest = seen.chunks
    tokens = [token for token in seen.tokens if token.start < first.end]
    if tokens:
        head = Key("header", source.text[: first.end], first.broken, 0)
        piece = old.get(head) or _header(SourceText(source.path, head.text), first, tokens)
        known[head], starts[piece.source] = piece, 0
        header, found = piece.nodes[0], list(piece.findings)
    else:
        # a file that begins with an item: what is missing is said at its first word
        header, found = read_header(source, first, seen.tokens)
    assert isinstance(header, t.Header)
    items: list[t.Item] = []
    for chunk in rest:
        if len(found) >= scan.MAX_FINDINGS:
            break
        key = Key(chunk.word, source.text[chunk.start : chunk.end], chunk.broken, 0)
        while key in known:
            key = replace(key, before=key.before + 1)
        piece = old.get(key) or _items(SourceText(source.path, key.text), chunk)
        known[key], starts[piece.source] = piece, chunk.start
        items += piece.nodes  # type: ignore[arg-type]
        found += piece.findings
    made = Pieces(whole(source, header, items, seen), (), known, starts)
    placed = [*seen.findings, *(made.placed(finding) for finding in found)]
    return replace(made, findings=tuple(sorted(placed, key=place_of)))


def _header(source: SourceText, chunk: scan.Chunk, tokens: list[scan.Token]) -> Piece:
    header, findings = read_header(source, chunk, tokens)
    return Piece(source, (header,), tuple(findings))


def _items(source: SourceText, chunk: scan.Chunk) -> Piece:
    items, findings = read_items(source, scan.Chunk(0, len(source.text), chunk.word, chunk.broken))
    return Piece(source, items, tuple(findings))
