"""The parsed files of dslc's own libraries and the grammar's tables, made when dslc is built and installed beside this module.

The first use of a fresh installation starts with them, whatever its cache folder is. Each is kept under a digest of the text and of all
that reads it, so that what was edited since is not found here, and parsed. `dslc.syntax.shipping` makes the file.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dslc.errors import SourceText
from dslc.store import unsealed
from dslc.syntax import tree as t
from dslc.syntax.packed import text_key, unpack

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
    """Installed grammar tables; None without them, or where they cannot be read."""
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
