"""The parsed files of dslc's own libraries and the grammar's tables, made when dslc is built and installed beside this module.

The first use of a fresh installation starts with them, whatever its cache folder is. Each is kept under a digest of the text and of all
that reads it, so that what was edited since is not found here, and parsed. `python -m dslc.syntax.shipped` makes the file in place.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from dslc.errors import SourceText
from dslc.store import sealed, unsealed, write_file
from dslc.syntax import tree as t
from dslc.syntax.packed import pack, text_key, unpack

PLACE = Path(__file__).with_name("shipped.bin")


@dataclass(frozen=True)
class Shipped:
    """A file of byte strings: one line of JSON says where behind it each begins, and how long it is."""

    place: Path
    entries: Mapping[str, tuple[int, int]]

    def read(self, key: str) -> bytes | None:
        """The bytes under a key."""
        if key not in self.entries:
            return None
        start, length = self.entries[key]
        try:
            with self.place.open("rb") as file:
                file.seek(start)
                found = file.read(length)
        except OSError:
            return None
        return unsealed(found)


@functools.cache
def shipped(place: Path = PLACE) -> Shipped:
    """What was installed; nothing where nothing was, or what is there cannot be read."""
    try:
        with place.open("rb") as file:
            line = file.readline()
        listed = {str(key): (int(start) + len(line), int(length)) for key, (start, length) in json.loads(line).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        listed = {}
    return Shipped(place, listed)


def shipped_tree(source: SourceText) -> t.File | None:
    """The tree of a text that was parsed when dslc was built."""
    found = shipped().read(text_key(source)) if shipped().entries else None
    return None if found is None else unpack(found, source)


def make(place: Path) -> int:
    """Writes the file from the rule files of dslc's own libraries, and gives the number of trees in it."""
    from dslc.syntax.parser import parse, read_source, table_key, tables

    parts = {table_key(): tables()}
    folders = Path(str(resources.files("dslc.rules")))
    for path in sorted(folders.glob("*/*.rules")):
        source = read_source(path)
        parts[text_key(source)] = pack(parse(source))
    listed, start = {}, 0
    entries = [sealed(data) for data in parts.values()]
    for key, data in zip(parts, entries, strict=True):
        listed[key] = (start, len(data))
        start += len(data)
    write_file(place, b"".join([json.dumps(listed).encode() + b"\n", *entries]))
    return len(parts) - 1


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else PLACE)

__all__ = ["PLACE", "Shipped", "make", "shipped", "shipped_tree"]
