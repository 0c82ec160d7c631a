"""Cuts of loops into pieces, known when the code is written."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from dslc.codegen.nest import Block, Branch
from dslc.codegen.poly import Datum, Poly, Quotient, Var

WRITTEN = 16  #: pieces that are written one after the other at most: beyond, one text serves them all


@dataclass(slots=True)
class Notes:
    """Findings while a loop is written: conditions that it branches on, and quotients that stay constant in a piece."""

    conditions: list[Poly]
    frozen: dict[Quotient, Datum]
    leaves: int
    #: the condition of each branch
    branches: dict[int, Poly] = field(default_factory=dict)

    def pieces(self, lane: Var, start: str, stop: str) -> list[tuple[int, int]]:
        """First and last position (exclusive) of each piece of a loop from `start` to `stop`; none where one of them is not known."""
        if self.frozen or not self.conditions or not start.isdigit() or not stop.isdigit():
            return []
        first, last = int(start), int(stop)
        cuts = {first, last}
        for condition in self.conditions:
            step, rest = condition.coefficient(lane), condition.without(lane).number
            if step is None or step.number is None or rest is None or lane in condition.without(lane).deep:
                return []
            if step.number:
                # the first position that differs from the one before it
                cuts.add(-(rest // step.number) if step.number > 0 else rest // -step.number + 1)
        points = sorted(cut for cut in cuts if first <= cut <= last)
        return list(itertools.pairwise(points)) if len(points) <= WRITTEN + 1 else []

    def taken(self, block: Block, lane: Var, at: int) -> Block:
        """A loop's body without the branches that are not taken at a position."""
        out = Block()
        for statement in block.statements:
            condition = self.branches.get(id(statement)) if isinstance(statement, Branch) else None
            if condition is None or not isinstance(statement, Branch):
                out.statements.append(statement)
                continue
            step, rest = condition.coefficient(lane), condition.without(lane).number
            assert step is not None and step.number is not None and rest is not None
            out.statements.append(
                self.taken(statement.then if step.number * at + rest >= 0 else statement.other, lane, at)
            )
        return out
