"""Linear programs, solved by HiGHS, which says nothing of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import highspy


def quiet_solver() -> highspy.Highs:
    """A solver that prints nothing, also not as it is made: its callbacks, which it enables then, write its name to the output."""
    import highspy

    # its stubs leave the constructor untyped
    base: Any = highspy.Highs

    class Quiet(base):  # type: ignore[misc]
        def enableCallbacks(self) -> Any:
            self.setOptionValue("output_flag", False)
            return super().enableCallbacks()

    solver: highspy.Highs = Quiet()
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("random_seed", 0)
    return solver


#: sums of (number, factor), each with what it is at least
Rows = Sequence[tuple[Sequence[tuple[int, float]], float]]


def linear_program(cost: Sequence[float], rows: Rows, upper: Sequence[float] | None = None) -> highspy.HighsLp:
    """Numbers from 0 to `upper` with the least cost for which every row is at least its bound."""
    import highspy
    import numpy as np

    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(cost), len(rows)
    lp.col_cost_ = np.array(cost)
    lp.col_lower_ = np.zeros(len(cost))
    lp.col_upper_ = np.full(len(cost), highspy.kHighsInf) if upper is None else np.array(upper)
    lp.row_lower_, lp.row_upper_ = np.array([bound for _, bound in rows]), np.full(len(rows), highspy.kHighsInf)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.cumsum([0, *(len(row) for row, _ in rows)], dtype=np.int32)
    lp.a_matrix_.index_ = np.array([column for row, _ in rows for column, _ in row], dtype=np.int32)
    lp.a_matrix_.value_ = np.array([factor for row, _ in rows for _, factor in row])
    return lp


def smallest(cost: Sequence[float], rows: Rows, seconds: float) -> Sequence[float]:
    """Numbers that are 0 or 1 with the least cost for which every row is at least its bound; none where time was too short."""
    import highspy

    solver = quiet_solver()
    solver.setOptionValue("time_limit", seconds)
    program = linear_program(cost, rows, [1.0] * len(cost))
    program.integrality_ = [highspy.HighsVarType.kInteger] * len(cost)
    solver.passModel(program)
    solver.run()
    found: Sequence[float] = solver.getSolution().col_value
    return found
