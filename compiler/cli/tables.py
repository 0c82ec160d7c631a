"""Tables on the standard output."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True)
class _Tuning:
    """Numbers that decide how wide tables are.

    Attributes:
        piped: columns of a table that no terminal shows: as many as its cells take.
    """

    piped: int = 10_000


_TUNING = _Tuning()


def console() -> Console:
    """Where a table is printed: as wide as the terminal, or, into a pipe or a file, as wide as what is in it."""
    from rich.console import Console as _Console

    return _Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _TUNING.piped)
