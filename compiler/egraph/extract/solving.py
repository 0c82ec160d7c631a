"""The process that solves programs, run as `python -m`; the other end is `solver`."""

from __future__ import annotations

import time
from dataclasses import dataclass

from dslc.egraph.extract.cuts import solve
from dslc.processes.child import Asker


@dataclass(frozen=True, slots=True)
class _Tuning:
    """Numbers that decide how a solving process divides its time.

    Attributes:
        solving: share of its time that it solves for: it ends a little after it should.
    """

    solving: float = 0.8


_TUNING = _Tuning()


def main() -> None:
    """Solves each program until its moment, and answers with what was found."""
    asker = Asker()
    for program, end, relaxed in asker:
        asker.answer(solve(program, _TUNING.solving * (end - time.monotonic()), relaxed))


if __name__ == "__main__":
    main()
