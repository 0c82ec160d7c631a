"""The process that solves programs, run as `python -m`; the other end is `solver`."""

from __future__ import annotations

import time

from dslc.egraph.extract.cuts import solve
from dslc.processes.child import Asker

SOLVING = 0.8  #: share of its time that it solves for: it ends a little after it should


def main() -> None:
    """Solves each program until its moment, and answers with what was found."""
    asker = Asker()
    for program, end, relaxed in asker:
        asker.answer(solve(program, SOLVING * (end - time.monotonic()), relaxed))


if __name__ == "__main__":
    main()
