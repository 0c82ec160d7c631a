"""Integer programs of e-graphs, in which circles are forbidden by cuts: those that a solution breaks, until one breaks none.

A class is needed (z) where a column that reads it is chosen (x). Of classes that could be had from each other only, the *loop* S, one
has to be had from outside: z[k] <= sum of x over the columns of S that read nothing in S, for every k in S. The relaxation with such
cuts is what bounds the cost; where it is near what is known, most columns are too dear to be chosen and go.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import isfinite
from typing import TYPE_CHECKING

from dslc.analysis.linear_programs import quiet_solver
from dslc.egraph.extract.columns import IntegerProgram, Solved
from dslc.egraph.view import components

if TYPE_CHECKING:
    import highspy


BROKEN = 0.01  #: by how much a cut has to be broken
CUTS = 400  #: cuts of one round
ROUNDS = 200  #: rounds on the relaxation
TARGETS = 30  #: classes for which a narrow way is looked for in a round
SWITCHES = 20  #: how often what stands for a column is another one
IDLE = 8  #: rounds with little gain after which the relaxation ends
GAIN = 0.002  #: share of what is between the relaxation and the known program that is little gain
RELAXED = 0.5  #: share of the time for the relaxation
LAZY = 15  #: solutions with circles that are cut, before an order of the classes is asked for
SOME = 1e-6  #: what is not zero
SAME = 1e-9  #: what is the same cost
WRONG = 1e-4  #: what the solver is wrong by in costs

_INF = 1e30  #: HiGHS takes what is larger as infinite


def solve(program: IntegerProgram, seconds: float, relaxed: bool) -> Solved:
    """The best program in about so many seconds; `relaxed`: with cuts on the relaxation first."""
    return _Solving(program, seconds, relaxed).run()


class _Solving:
    def __init__(self, program: IntegerProgram, seconds: float, relaxed: bool) -> None:
        self.program = program
        self.rounds = ROUNDS if relaxed else 0
        self.end = time.monotonic() + seconds
        self.began, self.seconds = time.monotonic(), seconds
        self.own: list[list[int]] = [[] for _ in range(program.classes)]
        for column, number in enumerate(program.owner):
            self.own[number].append(column)
        self.readers: list[list[int]] = [[] for _ in range(program.classes)]
        for column, kids in enumerate(program.kids):
            for kid in kids:
                self.readers[kid].append(column)
        self.best: Sequence[int] = program.first
        self.cost = sum(program.costs[column] for column in program.first)
        self.bound = 0.0
        below = {n: sorted({kid for c in columns for kid in program.kids[c]}) for n, columns in enumerate(self.own)}
        self.part = [-1] * program.classes
        self.parts = [members for members in components(below) if len(members) > 1]
        for k, members in enumerate(self.parts):
            for number in members:
                self.part[number] = k
        #: what is less by no more than this is no program
        self.apart = max(0.0, program.step - WRONG)
        self.turn = 0
        self.known: set[tuple[int, tuple[int, ...]]] = set()
        self.solver = self._begin(below)

    # ---- the solver ------------------------------------------------------------------------------------------------

    def _begin(self, below: dict[int, list[int]]) -> highspy.Highs:
        import highspy
        import numpy as np

        program, columns = self.program, len(self.program.costs)
        rows = _Rows()
        for number, own in enumerate(self.own):
            rows.add([(columns + number, -1.0), *((column, 1.0) for column in own)], 0.0, 0.0)
            by_kid: dict[int, list[int]] = {kid: [] for kid in below[number]}
            for column in own:
                for kid in program.kids[column]:
                    by_kid[kid].append(column)
            for kid, reading in by_kid.items():
                # whichever column reads it, it has to be there
                rows.add([(columns + kid, 1.0), *((column, -1.0) for column in reading)], 0.0, _INF)
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = columns + program.classes, len(rows.lower)
        lp.col_cost_ = np.array([*program.costs, *[0.0] * program.classes])
        lower = np.zeros(lp.num_col_)
        for root in program.roots:
            lower[columns + root] = 1.0
        lp.col_lower_, lp.col_upper_ = lower, np.ones(lp.num_col_)
        lp.row_lower_, lp.row_upper_ = np.array(rows.lower), np.array(rows.upper)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.array(rows.starts, dtype=np.int32)
        lp.a_matrix_.index_ = np.array(rows.columns, dtype=np.int32)
        lp.a_matrix_.value_ = np.array(rows.factors)
        solver = quiet_solver()
        solver.setOptionValue("mip_rel_gap", SAME)
        solver.setOptionValue("mip_abs_gap", max(SOME, self.apart))
        solver.passModel(lp)
        self.rows = len(rows.lower)
        return solver

    def _run(self, share: float = 1.0) -> bool:
        """Solves what there is within the time, or a share of it; whether it came to an end."""
        import highspy

        solver = self.solver
        if isfinite(self.seconds):
            left = min(self.end, self.began + share * self.seconds) - time.monotonic()
            if left <= 0.01:
                return False
            solver.setOptionValue("time_limit", left)
        solver.run()
        return bool(solver.getModelStatus() == highspy.HighsModelStatus.kOptimal)

    def _add(self, rows: _Rows) -> None:
        import numpy as np

        self.solver.addRows(
            len(rows.lower), np.array(rows.lower), np.array(rows.upper), len(rows.columns), np.array(rows.starts[:-1], dtype=np.int32),
            np.array(rows.columns, dtype=np.int32), np.array(rows.factors),
        )  # fmt: skip

    # ---- the search ------------------------------------------------------------------------------------------------

    def run(self) -> Solved:
        if self._relaxed():
            self._whole()
        return Solved(self.best, min(self.bound, self.cost), self._done)

    @property
    def _done(self) -> bool:
        return self.cost - self.bound <= max(SOME, self.apart)

    def _relaxed(self) -> bool:
        """Cuts on the relaxation, as long as they lift it; False where that already says all, or time is over."""
        idle = 0
        for _ in range(self.rounds):
            if not self._run(RELAXED):
                # not even this was solved: its time is over
                return self._left > 0
            before = self.bound
            self.bound = max(self.bound, self.solver.getInfo().objective_function_value)
            values = self.solver.getSolution().col_value
            self._guided(values)
            if self._done:
                return False
            idle = idle + 1 if self.bound - before <= GAIN * (self.cost - before) else 0
            if idle >= IDLE or not self._cut(values):
                break
        if self.rounds:
            self._fix()
        return self._left > 0

    @property
    def _left(self) -> float:
        return self.end - time.monotonic()

    def _fix(self) -> None:
        """Columns that no program below the best one has go."""
        import numpy as np

        columns = len(self.program.costs)
        if not self._run():
            return
        dual = np.array(self.solver.getSolution().col_dual[:columns])
        dear = np.flatnonzero(dual > self.cost - self.apart - self.bound + WRONG).astype(np.int32)
        keep = set(self.best)
        dear = np.array([column for column in dear.tolist() if column not in keep], dtype=np.int32)
        if len(dear):
            self.solver.changeColsBounds(len(dear), dear, np.zeros(len(dear)), np.zeros(len(dear)))
        # cuts that do not hold this solution back are only in the way
        loose = (
            np.flatnonzero(np.array(self.solver.getSolution().row_value)[self.rows :] > SOME).astype(np.int32)
            + self.rows
        )
        if len(loose):
            self.solver.deleteRows(len(loose), loose)
            self.known.clear()

    def _whole(self) -> None:
        """Whole numbers: every solution with a circle is cut off, until one has none."""
        import highspy
        import numpy as np

        columns = len(self.program.costs)
        every = np.arange(columns, dtype=np.int32)
        self.solver.changeColsIntegrality(columns, every, np.array([highspy.HighsVarType.kInteger] * columns))
        for turn in range(1 << 30):
            if turn == LAZY:
                self._order()
            self._start(turn >= LAZY)
            done = self._run()
            info = self.solver.getInfo()
            if isfinite(info.mip_dual_bound):
                self.bound = max(self.bound, info.mip_dual_bound)
            values = self.solver.getSolution().col_value
            if len(values) and info.primal_solution_status == 2:
                self._guided(values)
                broken = self._cut(values)
            else:
                broken = False
            if not done or not broken or self._done or self._left <= 0:
                return

    def _start(self, ordered: bool) -> None:
        """What the solver begins with: the best program."""
        import highspy

        program, columns = self.program, len(self.program.costs)
        values = [0.0] * (columns + program.classes)
        for column in self.best:
            values[column] = 1.0
            values[columns + program.owner[column]] = 1.0
        if ordered:
            at = {number: k for k, number in enumerate(self._below())}
            for members in self.parts:
                ranked = sorted(members, key=lambda number: at.get(number, len(at)))
                place = {number: float(k) for k, number in enumerate(ranked)}
                values += [place[number] for number in members]
        solution = highspy.HighsSolution()
        solution.col_value = values
        self.solver.setSolution(solution)

    def _below(self) -> list[int]:
        """The classes of the best program, those that a class reads before it."""
        chosen = {self.program.owner[column]: column for column in self.best}
        out: list[int] = []
        seen: set[int] = set()
        for root in self.program.roots:
            stack = [(root, False)]
            while stack:
                number, done = stack.pop()
                if done:
                    out.append(number)
                elif number not in seen:
                    seen.add(number)
                    stack.append((number, True))
                    stack += [(kid, False) for kid in self.program.kids[chosen[number]] if kid not in seen]
        return out

    def _order(self) -> None:
        """A place for every class that is in a circle: a column is behind what it reads."""
        import numpy as np

        program = self.program
        at = len(program.costs) + program.classes
        rows = _Rows()
        uppers: list[float] = []
        for members in self.parts:
            big = float(len(members))
            place = {number: at + len(uppers) + k for k, number in enumerate(members)}
            uppers += [big - 1] * len(members)
            for number in members:
                by_kid: dict[int, list[int]] = {}
                for column in self.own[number]:
                    for kid in program.kids[column]:
                        if kid in place:
                            by_kid.setdefault(kid, []).append(column)
                for kid, reading in by_kid.items():
                    ones = [(column, -big) for column in reading]
                    rows.add([(place[number], 1.0), (place[kid], -1.0), *ones], 1.0 - big, _INF)
        none = np.array([], dtype=np.int32)
        count = len(uppers)
        self.solver.addCols(
            count,
            np.zeros(count),
            np.zeros(count),
            np.array(uppers),
            0,
            np.zeros(count, dtype=np.int32),
            none,
            np.array([]),
        )
        self._add(rows)

    # ---- cuts ------------------------------------------------------------------------------------------------------

    def _cut(self, values: Sequence[float]) -> bool:
        """Adds cuts that a solution breaks; whether there were any."""
        columns, program = len(self.program.costs), self.program
        rows = _Rows()
        for loop in chain(self._loops(values), self._sources(values)):
            inside = set(loop)
            outside = [c for n in loop for c in self.own[n] if inside.isdisjoint(program.kids[c])]
            worth = sum(values[column] for column in outside)
            for number in loop:
                if values[columns + number] > worth + BROKEN:
                    key = (number, tuple(sorted(loop)))
                    if key not in self.known:
                        self.known.add(key)
                        rows.add([(columns + number, -1.0), *((column, 1.0) for column in outside)], 0.0, _INF)
            if len(rows.lower) >= CUTS or self._left <= 0:
                break
        if rows.lower:
            self._add(rows)
        return bool(rows.lower)

    def _loops(self, values: Sequence[float]) -> Iterator[list[int]]:
        """Classes that a solution may have from each other: what is read in a circle as a whole, and its shortest circles."""
        columns, program, part = len(self.program.costs), self.program, self.part
        reads: dict[int, dict[int, float]] = {}
        for column, number in enumerate(program.owner):
            value = values[column]
            if value > SOME and part[number] >= 0:
                for kid in program.kids[column]:
                    if part[kid] == part[number]:
                        row = reads.setdefault(number, {})
                        row[kid] = row.get(kid, 0.0) + value
        # how far a class is from being had by reading that one: a circle is broken where all of it is less than what one is needed
        edges = {
            n: [(kid, max(0.0, values[columns + n] - much)) for kid, much in row.items()] for n, row in reads.items()
        }
        for least in (0.5, 0.9, 0.1):
            strong = {
                n: [kid for kid, far in row if far <= (1 - least) * values[columns + n]] for n, row in edges.items()
            }
            for kids in list(strong.values()):
                for kid in kids:
                    strong.setdefault(kid, [])
            yield from (loop for loop in components(strong) if len(loop) > 1)
        covered: set[int] = set()
        for number in sorted(edges, key=lambda n: -values[columns + n]):
            if values[columns + number] <= BROKEN:
                return
            if number in covered:
                continue
            loop = _circle(edges, number, values[columns + number] - BROKEN)
            if loop is not None:
                covered.update(loop)
                yield loop

    def _sources(self, values: Sequence[float]) -> Iterator[list[int]]:
        """Classes that are needed more than what they are made of is had: the narrowest way from leaves to a class.

        Of what a column reads one class stands for all, the one that is had the least; another one where the narrowest way shows it.
        """
        columns, program = len(self.program.costs), self.program
        some = [column for column in range(columns) if values[column] > SOME]
        # how much of each class is had by one way
        had: dict[int, float] = {}
        missing = {column: len(program.kids[column]) for column in some}
        heap = [(-values[column], column) for column in some if not missing[column]]
        readers: dict[int, list[int]] = {}
        for column in some:
            for kid in program.kids[column]:
                readers.setdefault(kid, []).append(column)
        heapq.heapify(heap)
        while heap:
            much, column = heapq.heappop(heap)
            number = program.owner[column]
            if number in had:
                continue
            had[number] = -much
            for reader in readers.get(number, ()):
                missing[reader] -= 1
                if not missing[reader]:
                    heapq.heappush(heap, (max(much, -values[reader]), reader))
        stands = {column: min(program.kids[column], key=lambda kid: had.get(kid, 0.0), default=-1) for column in some}
        wanted = sorted({program.owner[column] for column in some}, key=lambda n: -values[columns + n])
        wanted = [n for n in wanted if values[columns + n] > 0.05]
        first = wanted[:TARGETS]
        rest = wanted[TARGETS:]
        self.turn += 1
        begin = self.turn * TARGETS % max(1, len(rest))
        for target in [*first, *rest[begin : begin + TARGETS]]:
            if self._left <= 0:
                return
            stand = dict(stands)
            for _ in range(SWITCHES):
                inside = _narrowest(program, values, some, stand, target, values[columns + target] - BROKEN)
                if inside is None:
                    break
                switched = False
                for column in some:
                    if program.owner[column] in inside and stand[column] not in inside:
                        other = next((kid for kid in program.kids[column] if kid in inside), None)
                        if other is not None:
                            stand[column], switched = other, True
                if not switched:
                    break
            else:
                continue
            if inside is not None:
                yield sorted(inside)

    # ---- programs --------------------------------------------------------------------------------------------------

    def _guided(self, values: Sequence[float]) -> None:
        """The program of the cheapest trees, where what a solution chose costs little, if that is the best so far."""
        costs = self.program.costs
        for share in (1.0, 0.9):
            found = self._cheapest(
                [cost * max(0.0, 1.0 - share * value) + SOME for cost, value in zip(costs, values, strict=False)]
            )
            if found is not None:
                cost = sum(costs[column] for column in found)
                if cost < self.cost - SAME:
                    self.best, self.cost = found, cost

    def _cheapest(self, costs: Sequence[float]) -> list[int] | None:
        program = self.program
        missing = [len(kids) for kids in program.kids]
        total = list(costs)
        heap = [(cost, column) for column, cost in enumerate(costs) if not missing[column]]
        heapq.heapify(heap)
        by: dict[int, int] = {}
        while heap:
            cost, column = heapq.heappop(heap)
            number = program.owner[column]
            if number in by:
                continue
            by[number] = column
            for reader in self.readers[number]:
                missing[reader] -= 1
                total[reader] += cost
                if not missing[reader]:
                    heapq.heappush(heap, (total[reader], reader))
        out: list[int] = []
        seen: set[int] = set()
        stack = list(program.roots)
        while stack:
            number = stack.pop()
            if number in seen:
                continue
            seen.add(number)
            if number not in by:
                return None
            out.append(by[number])
            stack += program.kids[by[number]]
        return out


class _Rows:
    """A sparse matrix, row by row."""

    def __init__(self) -> None:
        self.starts: list[int] = [0]
        self.columns: list[int] = []
        self.factors: list[float] = []
        self.lower: list[float] = []
        self.upper: list[float] = []

    def add(self, entries: Iterable[tuple[int, float]], lower: float, upper: float) -> None:
        for column, factor in entries:
            self.columns.append(column)
            self.factors.append(factor)
        self.starts.append(len(self.columns))
        self.lower.append(lower)
        self.upper.append(upper)


def _circle(edges: dict[int, list[tuple[int, float]]], start: int, below: float) -> list[int] | None:
    """The shortest circle through a class, where it is shorter than that."""
    far: dict[int, float] = {start: 0.0}
    via: dict[int, int] = {}
    heap: list[tuple[float, int]] = [(0.0, start)]
    while heap:
        length, number = heapq.heappop(heap)
        if length > far[number]:
            continue
        for kid, more in edges.get(number, ()):
            new = length + more
            if new >= below:
                continue
            if kid == start:
                out = [number]
                while out[-1] != start:
                    out.append(via[out[-1]])
                return out
            if new < far.get(kid, below):
                far[kid] = new
                via[kid] = number
                heapq.heappush(heap, (new, kid))
    return None


def _narrowest(
    program: IntegerProgram,
    values: Sequence[float],
    some: Sequence[int],
    stand: dict[int, int],
    target: int,
    below: float,
) -> set[int] | None:
    """The classes behind the narrowest place of all ways to one; None where as much as `below` comes through."""
    # backwards from the target: residual graph, edge kid -> owner
    room: dict[int, dict[int, float]] = {}
    for column in some:
        kid, number = stand[column], program.owner[column]
        if kid == number:
            continue
        row = room.setdefault(number, {})
        row[kid] = row.get(kid, 0.0) + values[column]
    through = 0.0
    while True:
        via: dict[int, int] = {target: target}
        queue = [target]
        end = False
        for number in queue:
            for kid, much in room.get(number, {}).items():
                if much > 1e-9 and kid not in via:
                    via[kid] = number
                    if kid == -1:
                        end = True
                        break
                    queue.append(kid)
            if end:
                break
        if not end:
            return set(via)
        at, least = -1, 2.0
        while at != target:
            least = min(least, room[via[at]][at])
            at = via[at]
        at = -1
        while at != target:
            above = via[at]
            room[above][at] -= least
            if at != -1:
                back = room.setdefault(at, {})
                back[above] = back.get(above, 0.0) + least
            at = above
        through += least
        if through >= below:
            return None
