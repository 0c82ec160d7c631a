"""The cost cache survives kills, other versions, corrupt files and a second process."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pytest

from dslc.cost.cache import NAME, CostCache
from dslc.folders import cache_folder, stand_in

INF = float("inf")


def test_keeps_seconds_and_verdicts(tmp_path: Path) -> None:
    with CostCache(tmp_path) as cache:
        cache.put_seconds("machine", {"a": 0.25, "b": INF})
        cache.put_verdict("k", {"ratio": 1.5, "kept": False})
    with CostCache(tmp_path) as cache:
        assert (cache.seconds("machine", "a"), cache.seconds("machine", "b")) == (0.25, INF)
        assert cache.seconds("machine", "c") is None
        assert cache.seconds("other machine", "a") is None
        assert cache.verdict("k") == {"ratio": 1.5, "kept": False}
        assert cache.counts() == (2, 1)


def _write_garbage(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)


def _write_other_version(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 999")
    db.execute("CREATE TABLE t(x)")
    db.commit()
    db.close()


def _write_other_tables(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE costs(x)")
    db.commit()
    db.close()


@pytest.mark.parametrize("write", [_write_garbage, _write_other_version, _write_other_tables])
def test_a_file_that_is_none_of_ours_is_set_aside_with_one_warning(tmp_path: Path, write: object) -> None:
    write(tmp_path / NAME)  # type: ignore[operator]
    before = (tmp_path / NAME).read_bytes()
    with pytest.warns(UserWarning, match="set aside") as caught, CostCache(tmp_path) as cache:
        cache.put_seconds("m", {"a": 1.0})
    assert len(caught) == 1
    assert next(tmp_path.glob("*.aside*")).read_bytes() == before
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with CostCache(tmp_path) as cache:
            assert cache.seconds("m", "a") == 1.0


def test_a_file_cut_off_while_it_is_in_use_costs_the_measurements_and_nothing_else(tmp_path: Path) -> None:
    cache = CostCache(tmp_path)
    cache.put_seconds("m", {f"key {k}": 1.0 for k in range(5000)})
    cache._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with (tmp_path / NAME).open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 200_000)
    with pytest.warns(UserWarning, match="cost cache"):
        other = CostCache(tmp_path)
        other.put_seconds("m", {"b": 2.0})
        assert other.seconds("m", "b") == 2.0


def test_a_row_that_changed_by_itself_counts_as_not_there(tmp_path: Path) -> None:
    """The database has no checksums of its own: a flipped bit would be another price, or text that nobody can read."""
    with CostCache(tmp_path) as cache:
        cache.put_seconds("m", {"a": 1.0, "b": 2.0})
        cache.put_verdict("k", {"kept": "yes"})
        cache.put_verdict("l", {"kept": "yes"})
        with cache._db as db:
            db.execute("UPDATE costs SET seconds = 3.0 WHERE signature = 'a'")
            db.execute("UPDATE verdicts SET verdict = CAST(x'7BFF7D' AS TEXT) WHERE key = 'k'")
        assert (cache.seconds("m", "a"), cache.seconds("m", "b")) == (None, 2.0)
        assert (cache.verdict("k"), cache.verdict("l")) == (None, {"kept": "yes"})
        cache.put_seconds("m", {"a": 1.0})
        assert cache.seconds("m", "a") == 1.0


def test_a_file_without_checksums_gets_them(tmp_path: Path) -> None:
    """What an earlier version measured is not measured again."""
    with CostCache(tmp_path) as cache:
        cache.put_seconds("m", {"a": 1.0, "b": INF})
        cache.put_verdict("k", {"kept": True})
        with cache._db as db:
            for statement in (
                "ALTER TABLE costs DROP COLUMN sum",
                "ALTER TABLE verdicts DROP COLUMN sum",
                "PRAGMA user_version = 1",
            ):
                db.execute(statement)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with CostCache(tmp_path) as cache:
                assert (cache.seconds("m", "a"), cache.seconds("m", "b"), cache.verdict("k")) == (
                    1.0,
                    INF,
                    {"kept": True},
                )


def test_a_folder_for_temporary_files_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One warning for each run, and what one run measures the next one finds."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "file").write_text("")
    for found in (None, 1.0):
        said = pytest.warns(UserWarning, match="cannot be written.*stands in for it")
        with said as warned, CostCache(tmp_path / "file" / "sub") as cache:
            assert cache.seconds("m", "a") == found
            cache.put_seconds("m", {"a": 1.0})
        assert len(warned) == 1


def test_what_a_folder_that_is_only_read_has_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / "cache"
    with CostCache(folder) as cache:
        cache.put_seconds("m", {"a": 1.0})
    monkeypatch.setattr("dslc.cost.cache.unwritable", lambda place: "it may only be read" if place == folder else "")
    stand_in(folder).mkdir()
    with pytest.warns(UserWarning, match="it may only be read"), CostCache(folder) as cache:
        assert cache.seconds("m", "a") == 1.0
        cache.put_seconds("m", {"a": 2.0})
    monkeypatch.undo()
    with CostCache(folder) as cache:
        assert cache.seconds("m", "a") == 1.0


def test_a_folder_that_others_may_write_to_does_not_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "file").write_text("")
    stand_in(tmp_path / "file" / "sub").parent.chmod(0o777)
    with pytest.warns(UserWarning, match="nothing is kept"), CostCache(tmp_path / "file" / "sub") as cache:
        cache.put_seconds("m", {"a": 1.0})
        assert cache.seconds("m", "a") == 1.0


def test_without_a_writable_folder_it_works_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="nothing is kept"), CostCache(tmp_path / "file" / "sub") as cache:
        cache.put_seconds("m", {"a": 1.0})
        assert cache.seconds("m", "a") == 1.0


def test_two_processes_share_it(tmp_path: Path) -> None:
    program = (
        "import sys; from dslc.cost.cache import CostCache\n"
        "cache = CostCache(sys.argv[1])\n"
        "for k in range(200): cache.put_seconds('m', {f'{sys.argv[2]}{k}': float(k)})\n"
    )
    running = [subprocess.Popen([sys.executable, "-W", "error", "-c", program, str(tmp_path), name]) for name in "abc"]
    assert [process.wait() for process in running] == [0, 0, 0]
    with CostCache(tmp_path) as cache:
        assert cache.counts() == (600, 0)


def test_a_kill_while_writing_loses_nothing_that_was_kept(tmp_path: Path) -> None:
    program = (
        "import os, sys; from dslc.cost.cache import CostCache\n"
        "cache = CostCache(sys.argv[1]); cache.put_seconds('m', {'kept': 1.0})\n"
        "cache._db.execute('BEGIN'); cache._db.execute(\"INSERT INTO costs VALUES ('m', 'half', 2.0, 0)\")\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False).returncode == -9
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with CostCache(tmp_path) as cache:
            assert cache.seconds("m", "kept") == 1.0
            assert cache.seconds("m", "half") is None


def test_the_folder_follows_option_then_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DSLC_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "dslc"
    monkeypatch.setenv("DSLC_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    assert cache_folder(tmp_path / "given") == tmp_path / "given"
