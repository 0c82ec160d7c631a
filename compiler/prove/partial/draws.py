"""What random inputs show of where two programs differ: modulo p, with functions of which nothing is known, and over real numbers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import prod
from typing import Any

import numpy as np

from dslc.interpret.check_rule import draw
from dslc.interpret.domain import Array, Redraw
from dslc.interpret.field import Field, P, UnknownFunctions
from dslc.interpret.floats import Floats
from dslc.interpret.run import InterpretError, run_scopes
from dslc.ir.graph import Input, ScopeNode, Value, topological
from dslc.ir.scalar import Apply, Reduce, walk
from dslc.prove.field.degree import difference_degree
from dslc.prove.strided import Mask

DRAWS = 2  #: independent random inputs for polynomials; a position is missed with probability (degree / p)^2
MANY = 1 << 20  #: outputs of more elements are drawn once where nothing is proved
DRAWS_OF_FUNCTIONS = 24  #: where functions are no polynomials a draw may hide a difference: so many are tried
REDRAWS = 8  #: draws of inputs whose values are not defined
REAL = 24  #: draws of real numbers at least
REAL_PER_CHOICE = 8  #: draws of real numbers for each element that a largest one is taken of
REAL_SECONDS = 2.0  #: seconds that these may take
CHOICES = 64  #: a largest of more elements may hide each of them too long
CLOSE = 1e-9  #: numbers that differ by less are rounded

_CHOOSING = frozenset({
    "max", "min", "abs", "sign", "select", "and", "or", "==", "!=", "<", "<=", ">", ">=", "floor", "ceil", "round", "trunc",
})  # fmt: skip


class WhyUncompared(Enum):
    """Why two programs are not compared; what is decided depends on this, never on the words of a message."""

    TYPES = "their outputs have different types"
    SIZES = "sizes are unknown"
    LARGE = "the tensors are too large"
    UNDEFINED = "no random input was found for which both are defined"
    PIECES = "the set has too many pieces"
    DATA = "what is read depends on elements"
    DISAGREE = "the two ways disagree"


class NotCompared(Exception):
    """Two programs whose difference is not found."""

    def __init__(self, why: WhyUncompared, detail: str = "") -> None:
        super().__init__(f"{why.value}{': ' if detail else ''}{detail}")
        self.why = why


@dataclass(frozen=True, slots=True)
class DrawnOutput:
    """What draws show of one output.

    `found`: where both sides differed on some draw; `unknown`: where they do if nothing is known of functions, which laws of functions
    may make too large; None where there are only polynomials, or where it is the same. `real`: those where real numbers differed, where
    so many draws showed no others that laws of functions make the rest equal; None where these are all, or nothing is known.
    """

    found: Mask
    unknown: Mask | None
    error_bound: float | None
    real: Mask | None = None

    @property
    def candidates(self) -> tuple[Mask, ...]:
        """The sets that may be the one, the smallest first: what a draw showed differs, what no draw showed may be hidden."""
        sets = [self.found] if self.real is None else [self.real, self.found | self.real]
        return (*sets, *([] if self.unknown is None else [self.unknown]))


def few(values: Sequence[Value]) -> int:
    """How many draws are made where nothing is proved of what they show."""
    return DRAWS if sum(int(value.type.elements) for value in values) < MANY else 1


class Draws:
    """Random inputs of two programs: each asked for once."""

    def __init__(self, left: tuple[Value, ...], right: tuple[Value, ...], seed: int) -> None:
        self._sides = left, right
        self._degree = difference_degree(left, right)
        self._rng = np.random.default_rng(seed)
        self._made = 0
        self._masks = [np.zeros(value.type.sizes, dtype=np.bool_) for value in left]
        self._found: list[DrawnOutput] | None = None

    def found(self, draws: int) -> list[DrawnOutput]:
        """What so many draws show of polynomials, each output alone; of other functions as many are made as are needed."""
        left, right = self._sides
        if left == right:
            return [DrawnOutput(mask, None, 0.0) for mask in self._masks]
        if self._degree is None:
            self._found = self._found or self._of_functions()
            return self._found
        if draws > self._made:
            more = _differing(left, right, self._rng, Field, draws - self._made)
            self._masks = [one | other for one, other in zip(self._masks, more, strict=True)]
            self._made = draws
        return [DrawnOutput(mask, None, float((self._degree / P) ** self._made)) for mask in self._masks]

    def more(self) -> list[DrawnOutput]:
        """As `found`, with as many draws as are worth it where nothing is proved."""
        if self._degree is not None:
            return self.found(DRAWS)
        masks = _differing(*self._sides, self._rng, Field, DRAWS_OF_FUNCTIONS)
        self._found = [replace(each, found=each.found | mask) for each, mask in zip(self.found(0), masks, strict=True)]
        return self._found

    def _of_functions(self) -> list[DrawnOutput]:
        left, right = self._sides
        found = _differing(left, right, self._rng, Field, DRAWS)
        unknown = _differing(left, right, self._rng, UnknownFunctions, DRAWS)
        for _ in range(DRAWS_OF_FUNCTIONS):
            if all(np.array_equal(one, other) for one, other in zip(found, unknown, strict=True)):
                break
            # in the order of a draw an element may be hidden by a larger one
            more = _differing(left, right, self._rng, Field, 1)
            found = [one | other for one, other in zip(found, more, strict=True)]
            unknown = [one | other for one, other in zip(found, unknown, strict=True)]
        real = _of_numbers(left, right, unknown, self._rng)
        return [
            DrawnOutput(one, None if np.array_equal(one, other) else other, None, less)
            for one, other, less in zip(found, unknown, real, strict=True)
        ]


def _differing(
    left: tuple[Value, ...], right: tuple[Value, ...], rng: np.random.Generator, domain: type[Field], draws: int
) -> list[Mask]:
    masks = [np.zeros(value.type.sizes, dtype=np.bool_) for value in left]
    for _ in range(draws):
        found = _run((*left, *right), rng, domain)
        masks = [known | (a != b) for known, a, b in zip(masks, found[: len(left)], found[len(left) :], strict=True)]
    return masks


def _of_numbers(
    left: tuple[Value, ...], right: tuple[Value, ...], found: Sequence[Mask], rng: np.random.Generator
) -> list[Mask | None]:
    """Of positions that were found those where real numbers differ; None where these are all, or too few draws could be made.

    Functions that are analytic differ nearly everywhere or nowhere. Where elements are chosen, a draw shows one of the choices.
    """
    nothing: list[Mask | None] = [None] * len(found)
    choices = _choices((*left, *right))
    if choices > CHOICES:
        return nothing
    masks = [np.zeros_like(mask) for mask in found]
    domain, enough = Floats(rounded=False), max(REAL, REAL_PER_CHOICE * choices)
    inputs = inputs_of((*left, *right))
    until, made, last = time.monotonic() + REAL_SECONDS, 0, 0
    for attempt in range(4 * enough):
        feeds = {value: _numbers(value, rng, attempt) for value in inputs}
        try:
            results = run_scopes((*left, *right), feeds, domain)
        except (Redraw, InterpretError):
            continue
        made += 1
        for mask, all_, value, a, b in zip(masks, found, left, results[: len(left)], results[len(left) :], strict=True):
            equal = domain.close(a, b, CLOSE) if value.type.dtype.is_float else np.asarray(a == b)
            new = all_ & ~equal & ~mask
            if new.any():
                mask |= new
                last = made
        if all(np.array_equal(mask, all_) for mask, all_ in zip(masks, found, strict=True)):
            return nothing
        if made - last >= enough:
            return [None if np.array_equal(mask, all_) else mask for mask, all_ in zip(masks, found, strict=True)]
        if time.monotonic() > until:
            break
    return nothing


def _numbers(value: Value, rng: np.random.Generator, attempt: int) -> Array:
    """Real numbers in turns: any, those above and below 0, few different ones, growing and falling ones, large ones."""
    if not value.type.dtype.is_float:
        return _integers(value, Floats(), rng, attempt % 6)
    shape = value.type.sizes
    drawn = rng.standard_normal(shape)
    match attempt % 6:
        case 1:
            return np.abs(drawn) + 0.1
        case 2:
            return -np.abs(drawn) - 0.1
        case 3:
            return rng.integers(-2, 3, shape).astype(np.float64)
        case 4:
            ordered = np.sort(drawn, axis=None).reshape(shape)
            return ordered if rng.random() < 0.5 else -ordered
        case 5:
            return drawn * 4
        case _:
            return drawn


def _choices(outputs: Sequence[Value]) -> int:
    """Of how many elements one may be chosen: what a largest is taken of, twice for each condition; 0 where none is."""
    most = 0
    for node in topological(value.node for value in outputs):
        if isinstance(node, ScopeNode):
            for part in walk(node.scope.body):
                if isinstance(part, Reduce) and part.kind in {"max", "min", "any", "all"}:
                    most = max(
                        most,
                        prod(int(str(size)) if str(size).isdecimal() else CHOICES + 1 for size in part.extents),
                    )
                elif isinstance(part, Apply) and part.name in _CHOOSING:
                    most = max(most, 2)
    return most


def inputs_of(outputs: Sequence[Value]) -> list[Value]:
    """The tensors that programs are computed of."""
    return [node.values[0] for node in topological(value.node for value in outputs) if isinstance(node, Input)]


def _integers(value: Value, domain: Any, rng: np.random.Generator, attempt: int) -> Array:
    """Integers or truth values in turns: as they are drawn everywhere, and such of which none is 0, as divisors are to be."""
    drawn = np.asarray(draw(value.type, domain, rng, 0 if attempt % 2 else attempt))
    return np.where(drawn == 0, 1, drawn) if attempt % 2 and drawn.dtype.kind in "iu" else drawn


def _run(outputs: Sequence[Value], rng: np.random.Generator, domain: type[Field]) -> tuple[Array, ...]:
    """Both programs on common random inputs for which they are defined. Raises NotCompared where there are none."""
    inputs = inputs_of(outputs)
    reason = ""
    for attempt in range(REDRAWS):
        field = domain(int(rng.integers(1 << 20)))
        feeds: Mapping[Value, Any] = {
            value: draw(value.type, field, rng, attempt)
            if value.type.dtype.is_float
            else _integers(value, field, rng, attempt)
            for value in inputs
        }
        try:
            return tuple(run_scopes(outputs, feeds, field))
        except (Redraw, InterpretError) as problem:
            reason = str(problem)
    raise NotCompared(WhyUncompared.UNDEFINED, reason)
