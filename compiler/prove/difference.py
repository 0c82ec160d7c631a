"""Where two programs over the same inputs differ, at given sizes: found modulo p, proved by inclusion.

Both programs are computed modulo 2^31 - 1 on common random inputs; wherever two elements are not equal, they differ, and a position
that no draw shows differs with probability (degree / p)^draws at most (Schwartz, Zippel; PET, theorem 2). What is no polynomial stands
for an unknown function. The positions become few disjoint strided boxes, and the exact prover shows that outside of them the
programs are equal for all inputs: it asks for the set of positions at which their normal forms differ, and whether that lies inside.
PET's own way (boxes) is asked beside it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from dslc.interpret.check_rule import draw
from dslc.interpret.domain import Array, Redraw
from dslc.interpret.field import Field, P
from dslc.interpret.run import InterpretError, run_scopes
from dslc.interpret.unknown import UnknownFunctions
from dslc.ir.graph import Input, Value, topological
from dslc.prove.degree import difference_degree
from dslc.prove.strided import Box, Mask, TooManyPieces, mask_of, strided_boxes
from dslc.semantics.elaborate import expand
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules

#: independent random inputs for polynomials; a position is missed with probability (degree / p)^2
DRAWS = 2
# where functions are no polynomials a draw may hide a difference: so many show nothing new, and so many at most
_QUIET = 4
_DRAWS_OF_FUNCTIONS = 24
_REDRAWS = 8
# elements of all intermediate tensors together: beyond, the sizes are too large to be computed
_MOST_ELEMENTS = 1 << 28


class Why(Enum):
    """Why two programs are not compared; what is decided depends on this, never on the words of a message."""

    TYPES = "their outputs have different types"
    SIZES = "sizes are unknown"
    LARGE = "the tensors are too large"
    UNDEFINED = "no random input was found for which both are defined"
    PIECES = "the set has too many pieces"
    DISAGREE = "the two ways disagree"


class NotCompared(Exception):
    """Two programs whose difference is not found."""

    def __init__(self, why: Why, detail: str = "") -> None:
        super().__init__(f"{why.value}{': ' if detail else ''}{detail}")
        self.why = why


@dataclass(frozen=True, slots=True)
class Difference:
    """Where one output of two programs differs.

    `boxes`: disjoint; `share`: the part of the output's positions that they hold; `proved`: outside of them the programs are equal for
    all inputs, by the exact prover; `agree`: whether PET's way finds no other set, None where it does not apply; `seconds`: what it took.
    `error_bound`: the probability that a position that differs is missing, None where no such bound is known (0 where it is proved).
    """

    boxes: tuple[Box, ...]
    share: float
    proved: bool
    agree: bool | None
    seconds: float
    shape: tuple[int, ...] = ()
    error_bound: float | None = None

    @property
    def mask(self) -> Mask:
        """The positions as a boolean array of the output's shape."""
        return mask_of(self.boxes, self.shape)


def difference(
    rules: Rules, old: Sequence[Value], new: Sequence[Value], *, seed: int = 0, pieces: int = 1000, prove: bool = True, seconds: float = 10.0
) -> tuple[Difference, ...]:
    """Where each output of two programs differs: both have static shapes, over common inputs, with equal types of outputs.

    Args:
        pieces: how many boxes one output's set may have.
        prove: whether the exact prover is asked; `seconds` is what it may take.

    Raises:
        NotCompared: no set is found, or the two ways disagree; `why` says what it was.
    """
    began = time.perf_counter()
    left, right = expanded(rules, old, new)
    draws = _drawn(left, right, seed)
    out: list[Difference] = []
    for number, mask in enumerate(draws.masks):
        try:
            boxes = strided_boxes(mask, pieces)
        except TooManyPieces as problem:
            raise NotCompared(Why.PIECES, f"more than {problem.limit}") from None
        share = float(mask.sum()) / mask.size if mask.size else 0.0
        out.append(Difference(boxes, share, False, None, time.perf_counter() - began, mask.shape, draws.error_bound))
    return tuple(out)


def expanded(rules: Rules, old: Sequence[Value], new: Sequence[Value]) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """Both programs without calls. Raises NotCompared where they cannot be compared."""
    if [value.type for value in old] != [value.type for value in new]:
        shown = [", ".join(str(value.type) for value in side) for side in (old, new)]
        raise NotCompared(Why.TYPES, f"{shown[0]} and {shown[1]}")
    try:
        both = expand(rules, (*old, *new))
    except Mismatch as problem:
        raise NotCompared(Why.TYPES, problem.reason) from None
    nodes = list(topological(value.node for value in both))
    if not all(value.type.is_static for node in nodes for value in node.values):
        raise NotCompared(Why.SIZES)
    if sum(int(value.type.elements) for node in nodes for value in node.values) > _MOST_ELEMENTS:
        raise NotCompared(Why.LARGE, f"more than {_MOST_ELEMENTS} elements")
    return both[: len(old)], both[len(old) :]


@dataclass(frozen=True, eq=False)
class _Draws:
    """Where outputs differed on some draw, and what is known of how much that hides."""

    masks: tuple[Mask, ...]
    error_bound: float | None
    #: what both sides had at the draws, for who looks at positions of them
    results: tuple[tuple[Array, ...], ...]


def _drawn(left: tuple[Value, ...], right: tuple[Value, ...], seed: int) -> _Draws:
    degree = difference_degree(left, right)
    rng = np.random.default_rng(seed)
    masks = [np.zeros(_shape(value), dtype=np.bool_) for value in left]
    results: list[tuple[Array, ...]] = []
    quiet = 0
    for _ in range(DRAWS if degree is not None else _DRAWS_OF_FUNCTIONS):
        found = _run((*left, *right), rng, Field if degree is not None else UnknownFunctions)
        results.append(found)
        new = [a != b for a, b in zip(found[: len(left)], found[len(left) :], strict=True)]
        quiet = quiet + 1 if all(not (each & ~known).any() for each, known in zip(new, masks, strict=True)) else 0
        masks = [each | known for each, known in zip(new, masks, strict=True)]
        if degree is None and quiet == _QUIET:
            break
    return _Draws(tuple(masks), None if degree is None else float((degree / P) ** len(results)), tuple(results))


def _shape(value: Value) -> tuple[int, ...]:
    return tuple(int(str(size)) for size in value.type.shape)


def _run(outputs: Sequence[Value], rng: np.random.Generator, domain: type[Field]) -> tuple[Array, ...]:
    """Both programs on common random inputs for which they are defined. Raises NotCompared where there are none."""
    inputs = [node.values[0] for node in topological(value.node for value in outputs) if isinstance(node, Input)]
    reason = ""
    for attempt in range(_REDRAWS):
        field = domain(int(rng.integers(1 << 20)))
        feeds: Mapping[Value, Any] = {value: draw(value.type, field, rng, attempt) for value in inputs}
        try:
            return tuple(run_scopes(outputs, feeds, field))
        except (Redraw, InterpretError) as problem:
            reason = str(problem)
    raise NotCompared(Why.UNDEFINED, reason)


__all__ = ["Box", "Difference", "NotCompared", "Why", "difference"]
