"""Checkpoints of an enumeration: fingerprints of a level, block by block, in a folder named by a digest of settings."""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dslc.generate.terms.inputs import CONSTANTS, VARIED, Family
from dslc.interpret.domain import Array
from dslc.store import Store
from dslc.version import __version__

SECONDS = 10.0  #: seconds since the last block after which one is written
LARGEST = 1 << 34  #: bytes of all blocks of an enumeration

#: raised when terms are made in another order: fingerprints that were kept are of no use then
_ORDER = 2


def digest(
    rules_digest: str,
    family: Family,
    seed: int,
    varied: int = VARIED,
    constants: int = CONSTANTS,
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


class Blocks:
    """Blocks of a level, in order: `level-4-00002.npz`."""

    def __init__(self, folder: Path, seconds: float = SECONDS) -> None:
        self._store = Store(folder, largest=LARGEST)
        self._seconds = seconds
        self._last = time.monotonic()
        #: the number of the next block of each level
        self._next: dict[int, int] = {}

    def parts(self, level: int, sizes: Sequence[int]) -> list[Array]:
        """The finished results of a level, in order; a block that cannot be read, or is of other sizes than expected, ends them."""
        out: list[Array] = []
        number = 0
        while (kept := self._store.get(self._key(level, number))) is not None:
            with np.load(io.BytesIO(kept)) as saved:
                block = [saved[f"arr_{k}"] for k in range(len(saved.files))]
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
        file = io.BytesIO()
        np.savez(file, *arrays)
        self._store.put(self._key(level, number), file.getvalue())
        self._next[level] = number + 1
        self._last = time.monotonic()

    def _key(self, level: int, number: int) -> str:
        return f"level-{level}-{number:05d}.npz"
