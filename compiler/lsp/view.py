"""The words of documents and of other files, as they are asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from dslc.lsp.names import Occurrence, Symbol, Text, occurrences
from dslc.lsp.session import DocumentView, EditorSession
from dslc.semantics.definitions import Module
from dslc.semantics.library import Rules
from dslc.syntax import tree as t


def text_of(session: EditorSession, view: DocumentView) -> Text:
    """A document to look through."""
    return Text(view.source, _items(session, view.pieces.file), view.module, view.rules)


def _items(session: EditorSession, file: t.File) -> tuple[tuple[int, int, t.Item], ...]:
    spans = [(session.files.span(item.span), item) for item in file.items]
    return tuple(sorted(((span.start, span.end, item) for span, item in spans), key=lambda one: one[0]))


@lru_cache(1024)
def of_module(session: EditorSession, module: Module, rules: Rules) -> tuple[Occurrence, ...]:
    """The words of a file as it was loaded."""
    return occurrences(Text(module.file.source, _items(session, module.file), module, rules))


def words(session: EditorSession, view: DocumentView) -> tuple[Occurrence, ...]:
    """The words of a document."""
    return occurrences(text_of(session, view))


def word_at(found: tuple[Occurrence, ...], offset: int) -> Occurrence | None:
    """The word that an offset is in, or directly behind."""
    best = None
    for one in found:
        if one.start <= offset <= one.end:
            best = one
            if offset < one.end:
                return one
    return best


def everywhere(session: EditorSession, symbol: Symbol) -> Iterator[tuple[Module, Occurrence]]:
    """Occurrences of a symbol in all files that can be loaded, each place once."""
    seen: set[tuple[str, int]] = set()
    for rules in session.world():
        for module in rules.modules:
            path = module.file.source.path
            if symbol.name not in module.file.source.text:
                continue
            for one in of_module(session, module, rules):
                if one.symbol == symbol and (path, one.start) not in seen:
                    seen.add((path, one.start))
                    yield module, one


def item_at(view: DocumentView, offset: int) -> tuple[int, int, t.Item] | None:
    """The item that an offset is in, with its place in the text."""
    for item in view.pieces.file.items:
        span = view.pieces.span(item.span)
        if span.start <= offset <= span.end:
            return span.start, span.end, item
    return None


def named_at(text: str, start: int, end: int, name: str) -> tuple[int, int]:
    """The place of an item's name; the item's first character where it has none."""
    found = re.compile(rf"(?<![\w.]){re.escape(name)}(?!\w)").search(text, start, end)
    return found.span() if found is not None else (start, min(start + 1, end))
