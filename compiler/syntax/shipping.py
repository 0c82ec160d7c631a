"""Makes what is installed beside `dslc.syntax.shipped`: `python -m dslc.syntax.shipping` puts it in its place."""

from __future__ import annotations

import json
import sys
from importlib import resources
from pathlib import Path

from dslc.store import sealed, write_file
from dslc.syntax.packed import pack, text_key
from dslc.syntax.parser import parse, read_source, table_key, tables
from dslc.syntax.shipped import PLACE


def make(place: Path) -> int:
    """Writes the file from the rule files of dslc's own libraries, and gives the number of trees in it."""
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
