"""Parsed files are kept between runs, and a damaged cache is no more than a slower start."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from dslc.errors import DslcError, SourceText
from dslc.syntax import kept
from dslc.syntax.parser import grammar, parse

TEXT = "dslc 1\noperator twice(X: T[*S]) -> Y: T[*S] {\n  Y[*i] = 2 * X[*i]\n}\n"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DSLC_CACHE", str(tmp_path))
    return tmp_path / "parsed"


def test_a_kept_tree_equals_the_parsed_one(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = SourceText("a.rules", TEXT)
    assert kept.parse_kept(source) == parse(source)
    monkeypatch.setattr(kept, "parse", lambda _: pytest.fail("parsed again"))
    again = kept.parse_kept(SourceText("a.rules", TEXT))
    assert again == parse(source)
    assert again.items[0].span.text.startswith("operator twice")


@pytest.mark.parametrize("damage", [b"", b"garbage", b"\x80\x05N."])
def test_a_damaged_cache_is_read_past(cache: Path, damage: bytes) -> None:
    source = SourceText("a.rules", TEXT)
    kept.parse_kept(source)
    (place,) = cache.glob("*.pickle")
    place.write_bytes(damage)
    assert kept.parse_kept(source) == parse(source)


def test_a_folder_that_others_may_write_to_is_not_read(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = SourceText("a.rules", TEXT)
    kept.parse_kept(source)
    cache.chmod(0o777)
    parsed: list[SourceText] = []
    monkeypatch.setattr(kept, "parse", lambda one: parsed.append(one) or parse(one))
    kept.parse_kept(source)
    assert parsed


def test_wrong_files_are_not_kept(cache: Path) -> None:
    with pytest.raises(DslcError):
        kept.parse_kept(SourceText("a.rules", "dslc 1\noperator {"))
    assert not list(cache.glob("*.pickle"))


def test_kept_tables_of_the_grammar_parse_and_explain_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSLC_CACHE", str(tmp_path))
    try:
        answers = []
        for damage in (None, None, b"garbage", pickle.dumps(b"garbage")):
            for place in tmp_path.glob("grammar/*.pickle") if damage else ():
                place.write_bytes(damage or b"")
            grammar.cache_clear()
            with pytest.raises(DslcError) as broken:
                parse(SourceText("b.rules", f"dslc 1\noperator {{{' ' * len(answers)}"))
            findings = [(each.code, each.message, each.hint) for each in broken.value.diagnostics]
            answers.append((parse(SourceText(f"{len(answers)}.rules", TEXT)).items[0].span.text, findings))
            assert len(list(tmp_path.glob("grammar/*.pickle"))) == 1
        assert answers == answers[:1] * 4
    finally:
        grammar.cache_clear()
