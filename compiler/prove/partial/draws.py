"""Differences of two programs at random inputs: modulo p, with functions of which nothing is known, and over real numbers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from math import prod
from typing import Any

import numpy as np

from dslc.analysis.reads import computed, inputs_of
from dslc.interpret.check_rule import draw
from dslc.interpret.domain import Array, Redraw
from dslc.interpret.field import Field, P, UnknownFunctions
from dslc.interpret.floats import Floats
from dslc.interpret.run import InterpretError, run_scopes
from dslc.ir.graph import Value, Values
from dslc.ir.scalar import Reduce
from dslc.prove.field.degree import difference_degree
from dslc.prove.strided import Mask
from dslc.records import record

DRAWS = 2  #: independent random inputs for polynomials; a position is missed with probability (degree / p)^2
MANY = 1 << 20  #: outputs of more elements are drawn once where nothing is proved
DRAWS_OF_FUNCTIONS = 24  #: where functions are no polynomials a draw may hide a difference: so many are tried
REDRAWS = 8  #: draws of inputs whose values are not defined
REAL = 24  #: draws of real numbers at least
REAL_PER_CHOICE = 8  #: draws of real numbers for each element that a largest one is taken of
REAL_SECONDS = 2.0  #: seconds that these may take
CHOICES = 64  #: a largest of more elements may hide each of them too long
CLOSE = 1e-9  #: numbers that differ by less are rounded

_CHOOSING = frozenset("max min abs sign select and or == != < <= > >= floor ceil round trunc".split())


class WhyUncompared(Enum):
    """The reason for which two programs are not compared; what is decided depends on this, never on the words of a message."""

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


@record
class DrawnOutput:
    """The positions of one output at which draws differ.

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


class Draws:
    """Random inputs of two programs: each asked for once."""

    def __init__(self, left: Values, right: Values, seed: int) -> None:
        self._left, self._right = left, right
        self._inputs = inputs_of((*left, *right))
        self._degree = difference_degree(left, right)
        self._rng = np.random.default_rng(seed)
        self._made = 0
        self._masks = self._empty()
        self._found: list[DrawnOutput] | None = None

    def found(self, draws: int) -> list[DrawnOutput]:
        """The result of so many draws of polynomials, each output alone; of other functions as many are made as are needed."""
        if self._left == self._right:
            return [DrawnOutput(mask, None, 0.0) for mask in self._masks]
        if self._degree is None:
            self._found = self._found or self._of_functions()
            return self._found
        if draws > self._made:
            self._masks = _either(self._masks, self._differing(Field, draws - self._made))
            self._made = draws
        return [DrawnOutput(mask, None, float((self._degree / P) ** self._made)) for mask in self._masks]

    def more(self) -> list[DrawnOutput]:
        """As `found`, with as many draws as are worth it where nothing is proved."""
        if self._degree is not None:
            return self.found(DRAWS)
        masks = self._differing(Field, DRAWS_OF_FUNCTIONS)
        self._found = [replace(each, found=each.found | mask) for each, mask in zip(self.found(0), masks, strict=True)]
        return self._found

    def _empty(self) -> list[Mask]:
        return [np.zeros(value.type.sizes, dtype=np.bool_) for value in self._left]

    def _of_functions(self) -> list[DrawnOutput]:
        found, unknown = self._differing(Field, DRAWS), self._differing(UnknownFunctions, DRAWS)
        for _ in range(DRAWS_OF_FUNCTIONS):
            if all(map(np.array_equal, found, unknown)):
                break
            # in the order of a draw an element may be hidden by a larger one
            found = _either(found, self._differing(Field, 1))
            unknown = _either(found, unknown)
        return [
            DrawnOutput(one, None if np.array_equal(one, other) else other, None, less)
            for one, other, less in zip(found, unknown, self._of_numbers(unknown), strict=True)
        ]

    def _differing(self, domain: type[Field], draws: int) -> list[Mask]:
        masks, count = self._empty(), len(self._left)
        for _ in range(draws):
            found = self._run(domain)
            masks = [known | (a != b) for known, a, b in zip(masks, found[:count], found[count:], strict=True)]
        return masks

    def _run(self, domain: type[Field]) -> tuple[Array, ...]:
        """Both programs on common random inputs for which they are defined. Raises NotCompared where there are none."""
        reason = ""
        for attempt in range(REDRAWS):
            field = domain(int(self._rng.integers(1 << 20)))
            feeds: Mapping[Value, Any] = {
                value: draw(value.type, field, self._rng, attempt)
                if value.type.dtype.is_float
                else _integers(value, field, self._rng, attempt)
                for value in self._inputs
            }
            try:
                return tuple(run_scopes((*self._left, *self._right), feeds, field))
            except (Redraw, InterpretError) as problem:
                reason = str(problem)
        raise NotCompared(WhyUncompared.UNDEFINED, reason)

    def _of_numbers(self, found: Sequence[Mask]) -> list[Mask | None]:
        """Of positions that were found those where real numbers differ; None where these are all, or too few draws could be made.

        Functions that are analytic differ nearly everywhere or nowhere. Where elements are chosen, a draw shows one of the choices.
        """
        nothing: list[Mask | None] = [None] * len(found)
        choices = _choices((*self._left, *self._right))
        if choices > CHOICES:
            return nothing
        masks, count = self._empty(), len(self._left)
        domain, enough = Floats(rounded=False), max(REAL, REAL_PER_CHOICE * choices)
        until, made, last = time.monotonic() + REAL_SECONDS, 0, 0
        for attempt in range(4 * enough):
            feeds = {value: _numbers(value, self._rng, attempt) for value in self._inputs}
            try:
                results = run_scopes((*self._left, *self._right), feeds, domain)
            except (Redraw, InterpretError):
                continue
            made += 1
            pairs = zip(masks, found, self._left, results[:count], results[count:], strict=True)
            for mask, all_, value, a, b in pairs:
                equal = domain.close(a, b, CLOSE) if value.type.dtype.is_float else np.asarray(a == b)
                new = all_ & ~equal & ~mask
                if new.any():
                    mask |= new
                    last = made
            if all(map(np.array_equal, masks, found)):
                return nothing
            if made - last >= enough:
                return [None if np.array_equal(mask, all_) else mask for mask, all_ in zip(masks, found, strict=True)]
            if time.monotonic() > until:
                break
        return nothing


def _either(some: Sequence[Mask], others: Sequence[Mask]) -> list[Mask]:
    return [one | other for one, other in zip(some, others, strict=True)]


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
    """The number of elements of which one may be chosen: those of a largest, two for each condition; 0 where none is."""
    most = 0
    for part in computed(outputs):
        if isinstance(part, Reduce) and part.kind in {"max", "min", "any", "all"}:
            sizes = (int(str(size)) if str(size).isdecimal() else CHOICES + 1 for size in part.extents)
            most = max(most, prod(sizes))
        elif part.op in _CHOOSING:
            most = max(most, 2)
    return most


def _integers(value: Value, domain: Any, rng: np.random.Generator, attempt: int) -> Array:
    """Integers or truth values in turns: as they are drawn everywhere, and such of which none is 0, as divisors are to be."""
    drawn = np.asarray(draw(value.type, domain, rng, 0 if attempt % 2 else attempt))
    return np.where(drawn == 0, 1, drawn) if attempt % 2 and drawn.dtype.kind in "iu" else drawn
