"""Rows of a table, kept in a file as they are measured: a table that was interrupted goes on where it ended."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class Rows:
    """The rows of a benchmark by name, of one machine; those of others stay in the file."""

    def __init__(self, path: Path, machine: str, fresh: bool = False) -> None:
        self.path, self.machine = path, machine
        self._all: dict[str, dict[str, Row]] = json.loads(path.read_text("utf-8")) if path.exists() else {}
        if fresh:
            self._all[machine] = {}

    def get(self, name: str) -> Row | None:
        return self._all.get(self.machine, {}).get(name)

    def put(self, name: str, row: Row) -> Row:
        """Keeps a row at once."""
        self._all.setdefault(self.machine, {})[name] = row
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self._all, indent=1), encoding="utf-8")
        os.replace(new, self.path)
        return row


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells as a table; the first is the heading."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], ["---"] * len(lines[0]), *lines[1:]])


__all__ = ["Row", "Rows", "markdown"]
