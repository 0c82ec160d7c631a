"""The cost cache: what was measured once is not measured again.

One SQLite file in the user's cache folder. Two processes may share it and a kill at any moment leaves it whole (WAL). A
file that is corrupt or was written by another version is set aside with one warning, and a new one is begun; where none can
be written, one in a folder for temporary files takes its place, else one in memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any

from dslc.folders import cache_folder, stand_in, unwritable
from dslc.outside import in_line

SCHEMA = 2  #: version of the tables
NAME = "costs.sqlite3"
TABLES = (
    "CREATE TABLE costs"
    "(context TEXT, signature TEXT, seconds REAL, sum INTEGER, PRIMARY KEY (context, signature)) WITHOUT ROWID",
    "CREATE TABLE verdicts(key TEXT PRIMARY KEY, verdict TEXT NOT NULL, sum INTEGER) WITHOUT ROWID",
)
#: what a file of the version before lacks
_ADDED = ("ALTER TABLE costs ADD COLUMN sum INTEGER", "ALTER TABLE verdicts ADD COLUMN sum INTEGER")
_COLUMNS = ["context", "signature", "seconds", "sum", "key", "verdict", "sum"]


class CostCache:
    """Measured seconds and timing verdicts by key. Use it as a context manager, or call `close`.

    `warn` is told of a file that cannot be used, once; by default it is a Python warning.
    """

    def __init__(self, folder: str | Path | None = None, warn: Callable[[str], None] | None = None) -> None:
        self._warn = warn or (lambda text: warnings.warn(in_line(text), stacklevel=2))
        self.path = self._place(cache_folder(folder)) / NAME
        self._db = self._open()

    def __enter__(self) -> CostCache:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    def seconds(self, context: str, signature: str) -> float | None:
        """The measured time of a signature; infinity where it could not be run."""
        row = self._get("SELECT seconds, sum FROM costs WHERE context = ? AND signature = ?", (context, signature))
        if row is None or row[1] != _sum(context, signature, row[0]):
            return None
        return inf if row[0] is None else float(row[0])

    def put_seconds(self, context: str, times: Mapping[str, float]) -> None:
        kept = [(key, None if value == inf else float(value)) for key, value in times.items()]
        rows = [(context, key, value, _sum(context, key, value)) for key, value in kept]
        self._put("INSERT OR REPLACE INTO costs VALUES (?, ?, ?, ?)", rows)

    def verdict(self, key: str) -> dict[str, Any] | None:
        """Return the verdict that is kept under a key."""
        row = self._get("SELECT verdict, sum FROM verdicts WHERE key = ?", (key,))
        if row is None or row[1] != _sum(key, row[0]):
            return None
        found: dict[str, Any] = json.loads(row[0])
        return found

    def put_verdict(self, key: str, verdict: Mapping[str, Any]) -> None:
        text = json.dumps(verdict, sort_keys=True)
        self._put("INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?)", [(key, text, _sum(key, text))])

    def counts(self) -> tuple[int, int]:
        """Count costs and verdicts."""
        row = self._get("SELECT (SELECT count(*) FROM costs), (SELECT count(*) FROM verdicts)", ())
        return (int(row[0]), int(row[1])) if row else (0, 0)

    def _place(self, folder: Path) -> Path:
        """The folder, or what stands in for it where it cannot be written, with the costs that it had."""
        why = unwritable(folder)
        other = stand_in(folder) if why else folder
        if other == folder or unwritable(other):
            return folder
        self._warn(f"the cache folder {folder} cannot be written ({why}): {other} stands in for it")
        with contextlib.suppress(OSError):
            if not (other / NAME).exists():
                partial = other / f".{NAME}.{os.getpid()}"
                shutil.copyfile(folder / NAME, partial)
                partial.replace(other / NAME)
        return other

    # A file that breaks while it is in use is treated as one that was broken from the start.
    def _get(self, query: str, parameters: tuple[str, ...]) -> tuple[Any, ...] | None:
        try:
            row: tuple[Any, ...] | None = self._db.execute(query, parameters).fetchone()
        except sqlite3.Error as problem:
            self._replace(problem)
            return None
        return row

    def _put(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        listed = list(rows)
        try:
            with self._db:
                self._db.executemany(statement, listed)
        except sqlite3.Error as problem:
            self._replace(problem)
            with self._db:
                self._db.executemany(statement, listed)

    def _open(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return _patiently(str(self.path))
        except sqlite3.OperationalError as problem:
            return self._in_memory(problem)
        except sqlite3.DatabaseError as problem:
            return self._aside(problem)
        except OSError as problem:
            return self._in_memory(problem)

    def _replace(self, problem: sqlite3.Error) -> None:
        """After an error in use: a locked or unwritable file is left alone, a broken one is set aside."""
        self._db.close()
        lasting = isinstance(problem, sqlite3.OperationalError)
        self._db = self._in_memory(problem) if lasting else self._aside(problem)

    def _in_memory(self, problem: Exception) -> sqlite3.Connection:
        self._warn(f"the cost cache {self.path} cannot be used ({problem}): nothing is kept")
        return _connect(":memory:")

    def _aside(self, problem: Exception) -> sqlite3.Connection:
        """Moves a broken file away and starts a new one."""
        aside = next(path for k in range(1, 1 << 20) if not (path := self.path.with_suffix(f".aside{k}")).exists())
        try:
            os.replace(self.path, aside)
            for suffix in ("-wal", "-shm"):
                Path(str(self.path) + suffix).unlink(missing_ok=True)
            self._warn(f"the cost cache {self.path} was set aside as {aside.name} ({problem})")
            return _connect(str(self.path))
        except (OSError, sqlite3.Error) as second:
            return self._in_memory(second)


def _sum(*parts: Any) -> int:
    """A checksum of a row: the database itself has none, and a flipped bit would be another price."""
    return zlib.crc32(repr(parts).encode())


def _patiently(path: str) -> sqlite3.Connection:
    """`_connect`, tried again while another process makes the file: changing the journal mode does not wait by itself."""
    for _ in range(40):
        try:
            return _connect(path)
        except sqlite3.OperationalError as problem:
            if "locked" not in str(problem):
                raise
            time.sleep(0.05)
    return _connect(path)


def _connect(path: str) -> sqlite3.Connection:
    """A connection with the tables; raises `sqlite3.DatabaseError` for a corrupt file or another version's."""
    db = sqlite3.connect(path, timeout=30, check_same_thread=False)
    db.text_factory = partial(
        str, encoding="utf-8", errors="surrogateescape"
    )  # damaged text is no error, but has another sum
    try:
        with db:
            db.execute("BEGIN")  # one state of the file: another process may be making its tables
            made = _checked(db)
        if not made:
            with db:
                db.execute("BEGIN IMMEDIATE")
                if not _checked(db):
                    for statement in _ADDED if _columns(db) else TABLES:
                        db.execute(statement)
                    _add_sums(db)
                    db.execute(f"PRAGMA user_version = {SCHEMA}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        db.close()
        raise
    return db


def _add_sums(db: sqlite3.Connection) -> None:
    """Gives each row that was written before there were any its checksum."""
    for row in db.execute("SELECT context, signature, seconds FROM costs").fetchall():
        db.execute("UPDATE costs SET sum = ? WHERE context = ? AND signature = ?", (_sum(*row), *row[:2]))
    for row in db.execute("SELECT key, verdict FROM verdicts").fetchall():
        db.execute("UPDATE verdicts SET sum = ? WHERE key = ?", (_sum(*row), row[0]))


def _columns(db: sqlite3.Connection) -> list[str]:
    return [row[1] for name in ("costs", "verdicts") for row in db.execute(f"PRAGMA table_info({name})")]


def _checked(db: sqlite3.Connection) -> bool:
    """Return whether the tables are there; raises `sqlite3.DatabaseError` where others are, or those of a version that is not known."""
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if version not in (0, 1, SCHEMA):
        raise sqlite3.DatabaseError(f"it has version {version}, not {SCHEMA}")
    columns = _columns(db)
    if columns != [[], [name for name in _COLUMNS if name != "sum"], _COLUMNS][version]:
        raise sqlite3.DatabaseError("its tables are not those of a cost cache")
    return version == SCHEMA
