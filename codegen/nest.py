"""The loop nest of a kernel as a tree; templates/cpp/kernel.cpp.j2 writes it down, and no other text of it exists."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Block:
    """Statements in order. What is still being written is filled from inside and from outside: lists, not tuples."""

    statements: list[Statement] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Let:
    """A constant of the generated code."""

    type: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable: an accumulator."""

    type: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Assign:
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Store:
    """`function(pointer, value[, active])`: elements that leave the registers."""

    function: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """`for (var = start; var < stop; var += step)`; `unrolled` where a compiler is told to write it out."""

    var: str
    start: str
    stop: str
    step: int
    body: Block
    unrolled: bool = False


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Branch:
    condition: str
    then: Block
    other: Block


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows `first` to `last` - 1 of the outer loops, whose variables are found once and then counted."""

    vars: tuple[str, ...]
    extents: tuple[str, ...]
    body: Block


Statement = Let | Variable | Assign | Store | Loop | Lanes | Branch | Segments | Rows | Block


def kind(statement: Statement) -> str:
    """The name of a statement's macro in the template."""
    return type(statement).__name__.lower()
