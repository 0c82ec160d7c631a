"""Hostile input ends in one clear error: no crash, no recursion error, no waiting."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dslc.errors import DslcError, SourceText
from dslc.syntax.parser import MAX_BYTES as PARSER_MAX_BYTES
from dslc.syntax.parser import decode, parse, parse_with_errors, read_source


def codes(text: str) -> list[str]:
    return [finding.code for finding in parse_with_errors(SourceText("x.rules", text))[1]]


@pytest.mark.parametrize(
    "value",
    [
        "(" * 3_000 + "x" + ")" * 3_000,
        "[" * 10_000,
        "{[i: 2] " * 3_000 + "x" + "}" * 3_000,
        "-" * 3_000 + "x",
        "not " * 3_000 + "x",
        "x^" * 3_000 + "x",
        "x + " * 3_000 + "x",
        "x and " * 3_000 + "x",
        "sum[i: 2] " * 3_000 + "x",
        "x if x else " * 3_000 + "x",
        "forall x in X: " * 3_000 + "x",
        "f(" * 3_000 + "x" + ")" * 3_000,
    ],
    ids=lambda value: value[:9].strip(),
)
def test_nesting_is_limited(value: str) -> None:
    assert codes(f"dslc 1\nlet f(x) = {value}\n") == ["E0109"]


def test_nesting_is_limited_before_the_first_item_too() -> None:
    assert codes("dslc 1\n" + "(" * 10_000) == ["E0109"]


def test_what_is_within_the_limits_is_read() -> None:
    deep = "(" * 99 + "x" + ")" * 99
    long = " + ".join(["x"] * 150)
    assert codes(f"dslc 1\nlet f(x) = {deep}\nlet g(x) = {long}\nlet h(x) = [{', '.join(['x'] * 5000)}]\n") == []


def test_a_long_line_and_a_large_file_are_refused_fast(tmp_path: Path) -> None:
    path = tmp_path / "long.rules"
    path.write_bytes(b"dslc 1\nlet f(x) = " + b"x" * 100_000_000)
    begin = time.process_time()
    with pytest.raises(DslcError, match="E0108"):
        read_source(path)
    assert time.process_time() - begin < 1
    assert codes("dslc 1\n" + "#" * PARSER_MAX_BYTES) == ["E0108"]


def test_a_name_of_a_megabyte_is_only_a_name() -> None:
    assert codes(f"dslc 1\nlet {'f' * 1_000_000}(x) = x\n") == []


@pytest.mark.parametrize("character", ["\0", "\x1b", "\u2028", "é", "“", ";", "$"])
def test_foreign_characters(character: str) -> None:
    _, findings = parse_with_errors(SourceText("x.rules", f"dslc 1\nlet f(x) = x{character}\nlet g(x) = x\n"))
    assert [finding.code for finding in findings] == ["E0102"]
    assert f"U+{ord(character):04X}" in findings[0].message
    assert findings[0].span is not None
    assert str(findings[0].span) == "x.rules:2:13"


def test_foreign_characters_are_free_in_comments_strings_and_documentation() -> None:
    assert codes('dslc 1\n# é “ ;\nproperty p(X: T[]) {\n  """é"""\n  holds X == X\n  trusted "é"\n}\n') == []


def test_wrong_encodings() -> None:
    with pytest.raises(DslcError, match=r"0xe9 at offset 9 \(line 2\)"):
        decode("dslc 1\n# é".encode("latin-1"), "x.rules")
    with pytest.raises(DslcError) as caught:
        decode("dslc 1\n".encode("utf-16"), "x.rules")
    assert "UTF-16" in caught.value.diagnostics[0].hint


def test_line_ends_and_byte_order_mark() -> None:
    unix = parse(decode(b"dslc 1\nlet f(x) =\n  x # one\n", "x.rules"))
    assert parse(decode(b"\xef\xbb\xbfdslc 1\r\nlet f(x) =\r\n  x # one\r\n", "x.rules")) == unix
    assert parse(decode(b"dslc 1\rlet f(x) = x\r", "x.rules")) == unix


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "no.rules", tmp_path):
        with pytest.raises(DslcError, match="E0902"):
            read_source(path)


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", '"""', '"', "}", "{", "dslc", "\0" * 1000, "dslc 1 dslc 1"])
def test_fragments_are_reported(text: str) -> None:
    assert codes(text)


@pytest.mark.parametrize("number", ["9" * 5000, "1e999999999", "0.5e-999999999", "1." + "0" * 200])
def test_numbers_that_would_fill_the_memory(number: str) -> None:
    assert codes(f"dslc 1\nlet f(x) = x + {number}\n") == ["E0118"]
    assert codes(f"dslc {number}\n") == ["E0118"]
