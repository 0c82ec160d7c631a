"""What an interrupted enumeration has finished: fingerprints of a level, block by block, in a folder named by a digest of its settings."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dslc.generate.inputs import Family
from dslc.interpret.domain import Array

#: a block is written when so many seconds have passed since the last one
SECONDS = 10.0


def digest(rules_digest: str, family: Family, seed: int) -> str:
    """A name for an enumeration: equal for equal rules, inputs, menus and seeds; the number of operators does not matter."""
    return hashlib.sha256(f"{rules_digest}\n{family}\n{seed}".encode()).hexdigest()[:24]


class Store:
    """Blocks of a level, in order: `level-4-00002.npz`. Each is written under another name first, so that every block is whole."""

    def __init__(self, folder: Path, seconds: float = SECONDS) -> None:
        self._folder = folder
        self._seconds = seconds
        self._last = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)

    def parts(self, level: int) -> list[list[Array]]:
        """The finished blocks of a level; one that cannot be read ends the list."""
        out: list[list[Array]] = []
        while (path := self._path(level, len(out))).is_file():
            try:
                with np.load(path) as saved:
                    out.append([saved[f"a{k}"] for k in range(len(saved.files))])
            except (OSError, ValueError, KeyError, EOFError):
                break
        return out

    def due(self, fresh: Sequence[Array]) -> bool:
        return bool(fresh) and time.monotonic() - self._last >= self._seconds

    def add(self, level: int, arrays: Sequence[Array]) -> None:
        """One more block."""
        number = 0
        while self._path(level, number).is_file():
            number += 1
        handle, name = tempfile.mkstemp(dir=self._folder, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez(file, **{f"a{k}": array for k, array in enumerate(arrays)})
            Path(name).replace(self._path(level, number))
        finally:
            Path(name).unlink(missing_ok=True)
        self._last = time.monotonic()

    def clear(self) -> None:
        """Forgets everything."""
        for path in self._folder.glob("level-*.npz"):
            path.unlink()

    def _path(self, level: int, number: int) -> Path:
        return self._folder / f"level-{level}-{number:05d}.npz"
