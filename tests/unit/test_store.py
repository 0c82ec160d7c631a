"""What is kept between runs comes back as it was, or not at all, and does not grow without end."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from dslc.cli.check import command
from dslc.errors import DslcError
from dslc.store import Store, sealed, unsealed, write_file
from dslc.syntax import parser, shipped
from dslc.syntax.parser import grammar
from dslc.syntax.shipped import Shipped

LIBRARY = """dslc 1
export twice, plus

operator plus(A: T[*S], B: T[*S]) -> Y: T[*S] {
  Y[*i] = A[*i] + B[*i]
}
operator twice(X: T[*S]) -> Y: T[*S] {
  Y[*i] = 2 * X[*i]
}
property twice_of_a_sum(X: T[*S], Z: T[*S]) {
  holds twice(plus(X, Z)) == plus(twice(X), twice(Z))
}
"""


def test_an_entry_is_as_it_was_put(tmp_path: Path) -> None:
    store = Store(tmp_path / "some")
    assert store.get("a") is None and store.get_json("j") is None
    store.put("a", b"first")
    store.put("a", b"second")
    # in its order: a counterexample has its sizes as the rule names them
    store.put_json("j", {"b": [1, None], "a": 2})
    assert (store.get("a"), store.get_json("a")) == (b"second", None)
    assert [*store.get_json("j").items()] == [("b", [1, None]), ("a", 2)]
    assert sorted(one.name for one in store.folder.iterdir()) == ["a", "j"]


def test_no_damage_is_read(tmp_path: Path) -> None:
    store, content = Store(tmp_path), b"a tree, a price, a proof"
    data = sealed(content)
    flipped = [data[:k] + bytes([data[k] ^ 1 << bit]) + data[k + 1 :] for k in range(len(data)) for bit in range(8)]
    for damaged in (*flipped, *(data[:k] for k in range(len(data))), data + b"\0", content):
        (tmp_path / "a").write_bytes(damaged)
        assert store.get("a") is None and not (tmp_path / "a").exists()
        assert unsealed(damaged) is None
    assert unsealed(data) == content


def test_what_others_may_write_is_not_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "some")
    store.put("a", b"mine")
    (store.folder / "a").chmod(0o666)
    assert store.get("a") is None
    (store.folder / "a").chmod(0o600)
    assert store.get("a") == b"mine"
    store.folder.chmod(0o777)
    assert store.get("a") is None
    store.put("b", b"theirs")
    assert not (store.folder / "b").exists()


def test_what_was_not_asked_for_the_longest_goes_first(tmp_path: Path) -> None:
    store = Store(tmp_path, most=3)
    for k, key in enumerate("abcd"):
        store.put(key, b"x")
        os.utime(tmp_path / key, (k, k))
    assert store.get("a") == b"x"
    store.trim()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a", "c", "d"]
    Store(tmp_path, largest=2 * len(sealed(b"x"))).trim()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a", "d"]


def test_a_store_that_is_written_to_stays_small(tmp_path: Path) -> None:
    store = Store(tmp_path, most=10)
    for k in range(300):
        store.put(f"{k}", b"x")
    assert len(list(tmp_path.iterdir())) < 100


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = Store(tmp_path / "file" / "sub")
    store.put("a", b"x")
    assert store.get("a") is None


def test_a_file_is_written_whole_and_keeps_its_mode_and_its_links(tmp_path: Path) -> None:
    place, link = tmp_path / "out", tmp_path / "link"
    write_file(place, "one")
    place.chmod(0o640)
    link.symlink_to(place)
    write_file(link, b"two")
    assert place.read_text() == "two" and link.is_symlink() and place.stat().st_mode & 0o777 == 0o640
    write_file(tmp_path / "new" / "folder" / "out", "three", parents=True)
    with pytest.raises(DslcError, match="E0903"):
        write_file(tmp_path / "nowhere" / "out", "four")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link", "new", "out"]


def test_a_pipe_stays_a_pipe_and_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # opened for both, so that nobody waits
    with open(os.open(pipe, os.O_RDWR), "rb", buffering=0) as reader:
        write_file(pipe, "one")
        assert reader.read(10) == b"one" and pipe.is_fifo()


@pytest.mark.parametrize("seed", range(3))
def test_a_command_does_not_mind_damaged_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Trees, tables of the grammar and checked laws, each with a flipped bit or cut off."""
    monkeypatch.setenv("DSLC_CACHE", str(tmp_path / "cache"))
    for module in (parser, shipped):
        monkeypatch.setattr(module, "shipped", lambda: Shipped(tmp_path, {}))
    (tmp_path / "own.rules").write_text(LIBRARY)
    chance = random.Random(seed)
    answers = []
    for _ in range(3):
        grammar.cache_clear()
        found = CliRunner().invoke(command, [str(tmp_path / "own.rules")])
        answers.append((found.exit_code, found.output))
        kept = [one for one in (tmp_path / "cache").rglob("*") if one.is_file()]
        assert {one.parent.name for one in kept} >= {"parsed", "grammar", "checked"}
        for one in kept:
            data = bytearray(one.read_bytes())
            if chance.random() < 0.2:
                del data[chance.randrange(len(data)) :]
            else:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            one.write_bytes(data)
    assert answers == answers[:1] * 3 and answers[0][0] == 0, answers
