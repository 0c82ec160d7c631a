"""Files that are whole or not there, and the one store of what dslc keeps between runs and may lose.

An entry is a file that ends in a seal: a digest of what stands before it. It stands behind, so that a shared library can be loaded
from its entry. What is damaged, cut off, of another format, or may be written by others counts as not there, and is deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dslc.errors import error
from dslc.records import record

MOST = 20_000  #: entries of a store
LARGEST = 1 << 31  #: bytes of all entries of a store
BETWEEN = 16  #: of so many entries that are put, one has the store looked over

_SEAL = struct.Struct("<32s16s")
_FORMAT = b"dslc-entry-1\0\0\0\0"


def sealed(content: bytes) -> bytes:
    """Content with its seal."""
    return content + _SEAL.pack(hashlib.sha256(content).digest(), _FORMAT)


def unsealed(data: bytes) -> bytes | None:
    """The content before a seal; None where it is another content, or there is no seal."""
    if len(data) < _SEAL.size:
        return None
    content = data[: -_SEAL.size]
    digest, written = _SEAL.unpack(data[-_SEAL.size :])
    return content if written == _FORMAT and hashlib.sha256(content).digest() == digest else None


@record
class Store:
    """Entries by key, in a folder of this user's. A key is a file's name: a digest of all that decides about the content.

    Attributes:
        most, largest: entries and bytes that are kept, about; those that were not asked for the longest go first.
    """

    folder: Path
    most: int = MOST
    largest: int = LARGEST

    def get(self, key: str) -> bytes | None:
        """The content of a key; None where there is nothing, or nothing that can be trusted."""
        place = self.folder / key
        try:
            if not is_private(self.folder):
                return None
            with open(private(place), "rb") as file:
                content = unsealed(file.read())
            if content is None:
                place.unlink(missing_ok=True)
            else:
                os.utime(place)
        except OSError:
            return None
        return content

    def put(self, key: str, content: bytes) -> None:
        """Keeps a content where that is possible."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if is_private(self.folder):
                replace_file(self.folder / key, sealed(content), 0o600)
                if hashlib.sha256(key.encode()).digest()[0] % BETWEEN == 0:
                    self.trim()

    def get_json(self, key: str) -> Any:
        """The value of an entry; None where there is none."""
        content = self.get(key)
        try:
            return None if content is None else json.loads(content)
        except (ValueError, RecursionError):
            return None

    def put_json(self, key: str, value: Any) -> None:
        """Keeps a value of JSON where that is possible."""
        self.put(key, json.dumps(value).encode())

    def trim(self) -> None:
        """Deletes the entries that are too many, or too large together."""
        entries = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as listed:
            for one in listed:
                with contextlib.suppress(OSError):
                    if one.is_file(follow_symlinks=False):
                        entries.append((Path(one.path), one.stat(follow_symlinks=False)))
        found = sorted(entries, key=lambda entry: -entry[1].st_mtime)
        room = self.largest
        for k, (place, state) in enumerate(found):
            room -= state.st_size
            if k >= self.most or room < 0:
                with contextlib.suppress(OSError):
                    place.unlink(missing_ok=True)


def write_file(path: Path, data: str | bytes, parents: bool = False) -> None:
    """Writes a file that is as it was or complete, whenever the process is killed; a link stays, and leads to it.

    What is no file (a device, a pipe) stays what it is, and is written to.

    Args:
        parents: whether folders that are not there are made.

    Raises:
        DslcError: E0903 where it cannot be written.
    """
    try:
        if parents:
            path.parent.mkdir(parents=True, exist_ok=True)
        content = data.encode("utf-8") if isinstance(data, str) else data
        if is_stream(path):
            path.write_bytes(content)
        else:
            replace_file(path.resolve(), content)
    except OSError as problem:
        raise error("E0903", f"cannot write {path}: {problem.strerror or problem}", path=str(path)) from None


def is_stream(path: Path) -> bool:
    """Return whether a path takes bytes and is no file: a device, a pipe, a terminal. A new file would take its place."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def replace_file(place: Path, data: bytes, mode: int = 0o666) -> None:
    """Writes beside a place, with the mode of what is there, or this one, and renames.

    Raises:
        OSError: it cannot be written.
    """
    partial, file = beside(place, mode)
    try:
        with open(file, "wb") as out:
            out.write(data)
        if place.exists():
            partial.chmod(place.stat().st_mode & 0o7777)
        partial.replace(place)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def beside(place: Path, mode: int = 0o666) -> tuple[Path, int]:
    """A new file in the folder of a place, under an unpredictable name, and its descriptor.

    Raises:
        OSError: it cannot be made.
    """
    path = place.with_name(f".dslc-{os.urandom(8).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    return path, os.open(path, flags, mode)


def private(place: Path, others: int = 0o022) -> int:
    """The descriptor of a file that is this user's (or the system's), and that no other user may write to.

    `others` are the bits of its mode that say so.

    Raises:
        OSError: it is another one.
    """
    # a pipe without a writer would be waited for
    file = os.open(place, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    state = os.fstat(file)
    if not stat.S_ISREG(state.st_mode) or not _owned(state, others):
        os.close(file)
        raise PermissionError(f"others may write to {place}")
    return file


def is_private(path: Path) -> bool:
    """True for a folder of this user (or the system) to which no other user may write."""
    return _owned(path.stat(), 0o022)


def _owned(state: os.stat_result, others: int) -> bool:
    return not hasattr(os, "getuid") or (state.st_uid in (os.getuid(), 0) and not state.st_mode & others)


def rule_files(paths: Sequence[str]) -> Iterator[Path]:
    """The given files, and every `.rules` file in the given folders.

    Raises:
        DslcError: E0902 where nothing has that name, or a folder has no such file.
    """
    for name in paths:
        path = Path(name)
        if path.is_dir():
            found = sorted(entry for entry in path.rglob("*.rules") if entry.is_file())
            if not found:
                raise error("E0902", f"there is no .rules file in {name}", path=name)
            yield from found
        elif path.exists():
            yield path
        else:
            raise error("E0902", f"no file or folder is named {name}", path=name)
