"""The loop nest of a kernel as a tree; templates/cpp/kernel.cpp.j2 writes it down, and no other text of it exists."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from dslc.codegen.poly import Datum, Poly, Quotient, Var
from dslc.records import record


@dataclass(slots=True)
class Block:
    """Statements in order. What is still being written is filled from inside and from outside: lists, not tuples."""

    statements: list[Statement] = field(default_factory=list)


@record
class Let:
    """A constant of the generated code."""

    type: str
    name: str
    value: str


@record
class Variable:
    """A variable: an accumulator."""

    type: str
    name: str
    value: str


@record
class Assign:
    """An assignment: `name = value;`."""

    name: str
    value: str


@record
class Store:
    """`function(pointer, value[, active])`: elements that leave the registers."""

    function: str
    arguments: tuple[str, ...]


@record
class Loop:
    """`for (var = start; var < stop; var += step)`; `unrolled` where a compiler is told to write it out."""

    var: str
    start: str
    stop: str
    step: int
    body: Block
    unrolled: bool = False


@record
class Lanes:
    """A loop over vectors: `full` for `step` positions at a time, `half` for one vector, `tail` for the `active` last ones."""

    var: str
    start: str
    stop: str
    step: int
    full: Block | None
    half: Block | None
    half_step: int
    tail: Block | None
    active: str


@record
class Branch:
    """A branch: `if (condition) ... else ...`."""

    condition: str
    then: Block
    other: Block


@record
class Segments:
    """A range in pieces: inside one, what `cuts` and `periods` depend on stays as it is at its `start`.

    `lets` are computed at the start of a piece; a cut is a position where a condition changes.
    """

    var: str
    start: str
    stop: str
    end: str
    lets: tuple[Let, ...]
    cuts: tuple[str, ...]
    body: Block


@record
class Rows:
    """Rows `first` to `last` - 1 of the outer loops, whose variables are found once and then counted."""

    vars: tuple[str, ...]
    extents: tuple[str, ...]
    body: Block


Statement = Let | Variable | Assign | Store | Loop | Lanes | Branch | Segments | Rows | Block


def kind(statement: Statement) -> str:
    """The name of a statement's macro in the template."""
    return type(statement).__name__.lower()


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
            if not condition or not isinstance(statement, Branch):
                out.statements.append(statement)
                continue
            step, rest = condition.coefficient(lane), condition.without(lane).number
            assert step is not None and step.number is not None and rest is not None
            out.statements.append(
                self.taken(statement.then if step.number * at + rest >= 0 else statement.other, lane, at)
            )
        return out
