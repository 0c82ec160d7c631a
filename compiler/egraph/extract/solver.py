"""An integer program, solved by HiGHS: here, or in a process of its own that is ended where it overruns its time.

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
from typing import Any

#: programs with more columns are solved in another process
_HERE = 4_000
#: seconds that a process may be late, and what it takes to start one
_GRACE, _START = 0.5, 0.5
#: of its time what it may solve for: it ends a little after it should
_SOLVING = 0.8


@dataclass(frozen=True, slots=True)
class Program:
    """Minimize `costs` over columns from 0 to `upper`, of which the first `whole` are whole numbers. Rows are sparse, row by row.

    `first` is what the solver begins with.
    """

    costs: Sequence[float]
    upper: Sequence[float]
    whole: int
    starts: Sequence[int]
    columns: Sequence[int]
    factors: Sequence[float]
    row_lower: Sequence[float]
    row_upper: Sequence[float]
    first: Sequence[float]


@dataclass(frozen=True, slots=True)
class Solved:
    """The best values that were found, empty for none, and what no program is below."""

    values: Sequence[float]
    bound: float


def solved(program: Program, seconds: float) -> Solved | None:
    """The best in so many seconds, or half a second more; None where the solver had to be ended."""
    if len(program.costs) <= _HERE or not isfinite(seconds):
        return _solve(program, seconds)
    if seconds <= _START:
        return None
    end = time.time() + seconds
    data = pickle.dumps((program, end), protocol=pickle.HIGHEST_PROTOCOL)
    command = [sys.executable, "-c", f"from {__name__} import main; main()"]
    # in a session of its own: an interrupt is this process' business
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    try:
        told, _ = process.communicate(data, timeout=max(0.0, end - time.time()) + _GRACE)
    except subprocess.TimeoutExpired:
        return None
    finally:
        process.kill()
        process.wait()
    if process.returncode or not told:
        return None
    found = pickle.loads(told)
    assert isinstance(found, Solved)
    return found


def _solve(program: Program, seconds: float) -> Solved:
    import highspy
    import numpy as np

    lp = highspy.HighsLp()
    lp.num_col_ = len(program.costs)
    lp.num_row_ = len(program.row_lower)
    lp.col_cost_ = np.array(program.costs)
    lp.col_lower_ = np.zeros(lp.num_col_)
    lp.col_upper_ = np.array(program.upper)
    lp.row_lower_ = np.array(program.row_lower)
    lp.row_upper_ = np.array(program.row_upper)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.array(program.starts, dtype=np.int32)
    lp.a_matrix_.index_ = np.array(program.columns, dtype=np.int32)
    lp.a_matrix_.value_ = np.array(program.factors)
    free = lp.num_col_ - program.whole
    lp.integrality_ = [highspy.HighsVarType.kInteger] * program.whole + [highspy.HighsVarType.kContinuous] * free
    # its stubs leave the constructor untyped
    make: Any = highspy.Highs
    solver: highspy.Highs = make()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("random_seed", 0)
    solver.setOptionValue("mip_rel_gap", 1e-7)
    solver.setOptionValue("mip_abs_gap", 1e-4)
    if isfinite(seconds):
        solver.setOptionValue("time_limit", max(0.1, seconds))
    solver.passModel(lp)
    solution = highspy.HighsSolution()
    solution.col_value = list(program.first)
    solver.setSolution(solution)
    solver.run()
    bound = float(solver.getInfo().mip_dual_bound)
    return Solved(list(solver.getSolution().col_value), bound if isfinite(bound) else 0.0)


def main() -> None:
    """Solves the program on the standard input until a moment, and writes what was found."""
    program, end = pickle.load(sys.stdin.buffer)
    sys.stdout.buffer.write(pickle.dumps(_solve(program, _SOLVING * (end - time.time())), protocol=pickle.HIGHEST_PROTOCOL))


__all__ = ["Program", "Solved", "solved"]
