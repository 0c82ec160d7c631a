"""Choosing columns at the lowest cost by HiGHS: here, or in a process of its own that is ended where it overruns its time.

The solver looks at its clock now and then only: preparing a large program takes as long as it takes.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

#: programs with more columns are solved in another process
_HERE = 4_000
#: and smaller ones that take longer than so many seconds: an interrupt waits until the solver is back
_QUICK = 1.0
#: seconds that a process may be late, and what it takes to start one
_GRACE, _START = 0.5, 0.5
#: what a process does
_COMMAND = f"from {__name__} import main; main()"
#: of its time what it may solve for: it ends a little after it should
_SOLVING = 0.8


@dataclass(frozen=True, slots=True)
class Program:
    """Choose columns at the lowest cost: one of every class in `roots`, and of every class that a chosen one reads, in no circle.

    Classes are 0 to `classes` - 1, columns by place: `owner` is the class of each, `kids` what it reads. `first` are the columns of
    a program to begin with; costs are so that it costs about a thousand.
    """

    classes: int
    roots: Sequence[int]
    owner: Sequence[int]
    costs: Sequence[float]
    kids: Sequence[Sequence[int]]
    first: Sequence[int]


@dataclass(frozen=True, slots=True)
class Solved:
    """The columns of the best program that was found, and what no program is below."""

    chosen: Sequence[int]
    bound: float
    optimal: bool = False


def solved(program: Program, seconds: float) -> Solved | None:
    """The best in so many seconds, or half a second more; None where the solver had to be ended."""
    from dslc.egraph.extract.cuts import solve

    if not isfinite(seconds):
        return solve(program, seconds)
    first: Solved | None = None
    if len(program.costs) <= _HERE:
        began = time.monotonic()
        first = solve(program, min(seconds, _QUICK))
        seconds -= time.monotonic() - began
        if first.optimal:
            return first
    if seconds <= _START:
        return first
    end = time.time() + seconds
    data = pickle.dumps((program, end), protocol=pickle.HIGHEST_PROTOCOL)
    command = [sys.executable, "-c", _COMMAND]
    # in a session of its own: an interrupt is this process' business
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    try:
        told, _ = process.communicate(data, timeout=max(0.0, end - time.time()) + _GRACE)
    except subprocess.TimeoutExpired:
        return first
    finally:
        process.kill()
        process.wait()
    if process.returncode or not told:
        return first
    found = pickle.loads(told)
    assert isinstance(found, Solved)
    return found


def main() -> None:
    """Solves the program on the standard input until a moment, and writes what was found."""
    from dslc.egraph.extract.cuts import solve

    program, end = pickle.load(sys.stdin.buffer)
    found = solve(program, _SOLVING * (end - time.time()))
    sys.stdout.buffer.write(pickle.dumps(found, protocol=pickle.HIGHEST_PROTOCOL))


__all__ = ["Program", "Solved", "solved"]
