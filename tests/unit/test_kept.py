"""Parsed files are kept between runs, and a damaged cache is no more than a slower start."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from dslc import rules
from dslc.errors import DslcError, SourceText
from dslc.store import sealed
from dslc.syntax import kept, packed, parser, shipped, shipping
from dslc.syntax.parser import grammar, parse, read_source
from dslc.syntax.shipped import Shipped

shipped_at = shipped.shipped
TEXT = "dslc 1\noperator twice(X: T[*S]) -> Y: T[*S] {\n  Y[*i] = 2 * X[*i]\n}\n"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DSLC_CACHE", str(tmp_path))
    monkeypatch.setattr(parser, "shipped", lambda: Shipped(tmp_path, {}))
    return tmp_path / "parsed"


def test_a_kept_tree_equals_the_parsed_one(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = SourceText("a.rules", TEXT)
    assert kept.parse_kept(source) == parse(source)
    monkeypatch.setattr(kept, "parse", lambda _: pytest.fail("parsed again"))
    again = kept.parse_kept(SourceText("a.rules", TEXT))
    assert again == parse(source)
    assert again.items[0].span.text.startswith("operator twice")


@pytest.mark.parametrize("damage", [b"", b"garbage", sealed(b"\x80\x05N.")])
def test_a_damaged_cache_is_read_past(cache: Path, damage: bytes) -> None:
    source = SourceText("a.rules", TEXT)
    kept.parse_kept(source)
    (place,) = cache.iterdir()
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
    assert not cache.exists()


def test_kept_tables_of_the_grammar_parse_and_explain_alike(cache: Path, tmp_path: Path) -> None:
    try:
        answers = []
        for damage in (None, None, b"garbage", sealed(pickle.dumps(b"garbage"))):
            for place in (tmp_path / "grammar").iterdir() if damage else ():
                place.write_bytes(damage or b"")
            grammar.cache_clear()
            with pytest.raises(DslcError) as broken:
                parse(SourceText("b.rules", f"dslc 1\noperator {{{' ' * len(answers)}"))
            findings = [(each.code, each.message, each.hint) for each in broken.value.diagnostics]
            answers.append((parse(SourceText(f"{len(answers)}.rules", TEXT)).items[0].span.text, findings))
            assert len(list((tmp_path / "grammar").iterdir())) == 1
        assert answers == answers[:1] * 4
    finally:
        grammar.cache_clear()


class Loud:
    """A class that no syntax tree has."""

    def __reduce__(self) -> tuple[object, ...]:
        return print, ("this ran",)


def test_of_bytes_only_trees_are_made(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever could write them could otherwise have any function called."""
    source = SourceText("a.rules", TEXT)
    file = parse(source)
    assert packed.unpack(packed.pack(file), source) == file
    for data in (
        pickle.dumps(Loud()),
        pickle.dumps(grammar),
        b"",
        packed.pack(file)[:-9],
        pickle.dumps(source.position),
    ):
        assert packed.unpack(data, source) is None
    assert capsys.readouterr().out == ""


def test_a_tree_has_the_place_of_the_file_that_is_read() -> None:
    data = packed.pack(parse(SourceText("where/it/was/built.rules", TEXT)))
    assert b"where" not in data and b"2 * X" not in data
    found = packed.unpack(data, SourceText("here.rules", TEXT))
    assert found is not None and str(found.items[0].span).startswith("here.rules:2:1")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What dslc is installed with."""
    place = tmp_path_factory.mktemp("shipped") / "shipped.bin"
    with pytest.MonkeyPatch.context() as patch:
        # trees that are kept are those that are parsed, as is seen above
        patch.setattr(shipping, "parse", kept.parse_kept)
        assert shipping.make(place) >= 30
    return place


def test_an_installation_reads_its_own_libraries_without_parsing(
    cache: Path, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipped, "shipped", lambda: shipped_at(made))
    std = read_source(Path(rules.__file__).parent / "std" / "norm.rules")
    whole = parse(std)
    monkeypatch.setattr(kept, "parse", lambda _: pytest.fail("parsed again"))
    assert kept.parse_kept(std) == whole
    assert not list(tmp_path.glob("parsed/*"))
    # what was edited since is another text
    monkeypatch.undo()
    monkeypatch.setenv("DSLC_CACHE", str(tmp_path))
    edited = SourceText(std.path, std.text.replace("operator ", "operator  ", 1))
    assert kept.parse_kept(edited).items[0].span.source.text == edited.text
    assert len(list(tmp_path.glob("parsed/*"))) == 1


@pytest.mark.parametrize("damage", [b"", b"garbage\n", b"[1]\n", b'{"a": 1}\n', b'{"a": [0, 5]}\nabc'])
def test_a_damaged_installation_parses(tmp_path: Path, damage: bytes) -> None:
    place = tmp_path / "shipped.bin"
    place.write_bytes(damage)
    assert shipped_at(place).read("a") is None
    assert shipped_at(tmp_path / "nothing").read("a") is None


def test_a_reader_that_changed_reads_no_trees_of_another(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    std = read_source(Path(rules.__file__).parent / "std" / "norm.rules")
    monkeypatch.setattr(shipped, "shipped", lambda: shipped_at(made))
    assert shipped.shipped_tree(std) is not None
    monkeypatch.setattr(packed, "reader", lambda: "another")
    assert shipped.shipped_tree(std) is None
