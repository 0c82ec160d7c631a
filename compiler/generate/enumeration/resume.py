"""What an interrupted enumeration has finished: fingerprints of a level, block by block, in a folder named by a digest of settings."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dslc.generate.terms.inputs import TUNING as INPUTS_TUNING
from dslc.generate.terms.inputs import Family
from dslc.interpret.domain import Array
from dslc.version import __version__


@dataclass(frozen=True, slots=True)
class _Tuning:
    """Numbers that decide when what is finished is written.

    Attributes:
        seconds: seconds since the last block after which one is written.
    """

    seconds: float = 10.0


_TUNING = _Tuning()

#: raised when terms are made in another order: fingerprints that were kept are of no use then
_ORDER = 2


def digest(
    rules_digest: str,
    family: Family,
    seed: int,
    varied: int = INPUTS_TUNING.varied,
    constants: int = INPUTS_TUNING.constants,
) -> str:
    """A name for an enumeration: equal for equal rules, inputs, menus and seeds; the number of operators does not matter."""
    order = sorted(family.varied)
    shown = (
        __version__,
        _ORDER,
        rules_digest,
        family.inputs,
        family.items,
        family.constants,
        family.roles,
        family.places,
        order,
        seed,
        varied,
        constants,
    )
    return hashlib.sha256("\n".join(map(str, shown)).encode()).hexdigest()[:24]


class Store:
    """Blocks of a level, in order: `level-4-00002.npz`. Each is written under another name first, so that every block is whole."""

    def __init__(self, folder: Path, seconds: float = _TUNING.seconds) -> None:
        self._folder = folder
        self._seconds = seconds
        self._last = time.monotonic()
        #: the number of the next block of each level
        self._next: dict[int, int] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def parts(self, level: int, sizes: Sequence[int]) -> list[Array]:
        """The finished results of a level, in order; a block that cannot be read, or is of other sizes than expected, ends them."""
        out: list[Array] = []
        number = 0
        while (path := self._path(level, number)).is_file():
            try:
                with np.load(path) as saved:
                    block = [saved[f"arr_{k}"] for k in range(len(saved.files))]
            except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
                block = []
            if not block or [array.size for array in block] != list(sizes[len(out) : len(out) + len(block)]):
                break
            out += block
            number += 1
        self._next[level] = number
        return out

    def due(self) -> bool:
        return time.monotonic() - self._last >= self._seconds

    def add(self, level: int, arrays: Sequence[Array]) -> None:
        """One more block."""
        number = self._next.get(level, 0)
        handle, name = tempfile.mkstemp(dir=self._folder, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez(file, *arrays)
            Path(name).replace(self._path(level, number))
        finally:
            Path(name).unlink(missing_ok=True)
        self._next[level] = number + 1
        self._last = time.monotonic()

    def _path(self, level: int, number: int) -> Path:
        return self._folder / f"level-{level}-{number:05d}.npz"
