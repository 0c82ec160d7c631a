"""Texts as editors have them: edits and positions in code units, with any ends of lines."""

from __future__ import annotations

import random

from lsprotocol import types as lsp

from dslc.errors import SourceText
from dslc.lsp.session import path_of
from dslc.lsp.texts import EditorPlaces, EditorText, normal, prefix, width


def change(text: str, start: tuple[int, int], end: tuple[int, int], typed: str, encoding: str = "utf-16") -> str:
    span = lsp.Range(lsp.Position(*start), lsp.Position(*end))
    return EditorText(text, encoding).changed([lsp.TextDocumentContentChangePartial(span, typed)]).raw


def test_columns_count_code_units() -> None:
    line = "# a🙂é b"
    assert [width(line, encoding) for encoding in ("utf-8", "utf-16", "utf-32")] == [len(line.encode()), 8, 7]
    assert [line[prefix(line, units) :] for units in (0, 3, 5, 6)] == [line, "🙂é b", "é b", " b"]
    # in the middle of a character its end is meant, and behind the end of the line its end
    assert prefix(line, 4) == prefix(line, 5)
    assert prefix(line, 99) == len(line)


def test_edits_of_texts_with_every_end_of_line() -> None:
    assert change("a\r\nb\rc\nd", (1, 0), (2, 1), "x") == "a\r\nx\nd"
    assert change("🙂b", (0, 2), (0, 3), "c") == "🙂c"
    assert change("🙂b", (0, 4), (0, 5), "c", "utf-8") == "🙂c"
    # U+2028 and U+0085 end no line for editors
    assert change("a\u2028b\x85c\nd", (1, 0), (1, 1), "e") == "a\u2028b\x85c\ne"


def test_edits_outside_of_a_text_are_at_its_ends() -> None:
    assert change("ab", (7, 3), (9, 9), "c") == "abc"
    assert change("ab", (0, 1), (0, 0), "c") == "cb"


def test_a_text_is_read_as_a_file_is() -> None:
    assert normal("\ufeffdslc 1\r\n# \ud800\r") == "dslc 1\n# \ufffd\n"
    assert (EditorText("a\r\nb\r\n").newline, EditorText("a\nb\r\n").newline) == ("\r\n", "\n")


def test_positions_and_offsets_are_inverse() -> None:
    random_ = random.Random(0)
    for _ in range(50):
        text = "".join(random_.choice("ab🙂é\n ") for _ in range(40))
        for encoding in ("utf-8", "utf-16", "utf-32"):
            places = EditorPlaces(SourceText("x", text), encoding)
            assert all(places.offset(places.position(k)) == k for k in range(len(text) + 1))


def test_a_document_that_is_in_no_file_has_a_name() -> None:
    assert path_of("untitled:Untitled-1").name == "Untitled-1.rules"
    assert path_of("file:///a%20b/c.rules").as_posix() == "/a b/c.rules"
