"""The process that solves programs, run as `python -m`; the other end is `solver`."""

from __future__ import annotations

import time

from dslc.egraph.extract.cuts import solve
from dslc.processes.child import Asker

#: of its time what it may solve for: it ends a little after it should
_SOLVING = 0.8


def main() -> None:
    """Solves each program until its moment, and answers with what was found."""
    asker = Asker()
    for program, end, relaxed in asker:
        asker.answer(solve(program, _SOLVING * (end - time.monotonic()), relaxed))


if __name__ == "__main__":
    main()
