"""Differences of two lists of values at adversarial inputs of their own element types: integers wrap around, casts round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from dslc.analysis.reads import computed
from dslc.interpret.domain import Array, Redraw
from dslc.interpret.draws import MANNERS, Manner, elements
from dslc.interpret.exact import Exact
from dslc.interpret.floats import Floats
from dslc.interpret.run import Feeds, InterpretError, InterpretKind, run_scopes
from dslc.ir.dtype import DTYPES, DType, float_digits
from dslc.ir.graph import Constant, Value, Values, nodes_of
from dslc.records import record
from dslc.semantics.elaborate import expand
from dslc.semantics.env import Mismatch
from dslc.semantics.library import Rules

#: `types`: other types; `values`: other elements; `bounds`: only the right side reads outside a tensor; `undefined`: one side has
#: no result (no finite number, or an integer divided by zero) where the other one has
Way = Literal["types", "values", "bounds", "undefined"]

#: what stands for the result of a side that reads outside of a tensor
READ_OUTSIDE = "a read out of bounds"


TOLERANCE = 1e-6  #: share of the largest element by which equal numbers differ, where no narrower type rounds
HUGE = 1e15  #: numbers beyond this differ where exact ones do: in floats that may be the order of operations
LOOKED = 4  #: large elements that are computed exactly
#: two numbers that stand for quotients by zero: what is not the same with both depends on them
ABSENT: tuple[int, ...] = (3, -5)

_ROUNDED = {DType.F32: 1e-5, DType.F16: 2e-2, DType.BF16: 1e-1, DType.F64: TOLERANCE}


@record
class Difference:
    """The first element that differs: of which output, where, and what either side has there, as text."""

    way: Way
    output: int
    position: tuple[int, ...]
    left: str
    right: str
    feeds: Feeds


@dataclass(frozen=True, eq=False)
class PairOfLists:
    """Two lists of values without calls, of equal types, over common inputs."""

    inputs: Values
    left: Values
    right: Values
    tolerance: float
    #: where the types to which either side converts end to hold every integer, as powers of two
    powers: tuple[int, ...] = ()

    def difference(self, feeds: Feeds) -> Difference | None:
        """The first difference of the sides on some inputs; None where they agree, or where the left side has no meaning."""
        left = _results(self.left, feeds)
        if not isinstance(left, DefinedResults):
            return None
        right = _results(self.right, feeds)
        if isinstance(right, InterpretError):
            return Difference("bounds", 0, (), "a value", READ_OUTSIDE, feeds)
        if not right:
            return None
        for k, value in enumerate(self.left):
            found = self._first(value, left, right, k, feeds)
            if found is not None:
                way, at = found
                return Difference(way, k, at, left.text(k, at), right.text(k, at), feeds)
        return None

    def _first(
        self, value: Value, left: DefinedResults, right: DefinedResults, k: int, feeds: Feeds
    ) -> tuple[Way, tuple[int, ...]] | None:
        """The first element of output `k` that differs: another number before none at all."""
        a, b, missing = left.arrays[k], right.arrays[k], left.missing[k] | right.missing[k]
        if value.type.dtype.is_float:
            large = ~missing & (np.maximum(np.abs(a), np.abs(b)) > HUGE)
            for at in np.argwhere(large & ~np.isclose(a, b, rtol=self.tolerance))[:LOOKED]:
                if self.exactly(feeds, k, tuple(map(int, at))):
                    return "values", tuple(map(int, at))
            missing = missing | large
            equal = Floats(rounded=False).close(np.where(missing, 0.0, a), np.where(missing, 0.0, b), self.tolerance)
            for at in np.argwhere(~equal):
                if not self._cancelled(feeds, a[tuple(at)], b[tuple(at)]):
                    return "values", tuple(map(int, at))
        else:
            found = np.argwhere((a != b) & ~missing)
            if len(found):
                return "values", tuple(map(int, found[0]))
        found = np.argwhere(left.missing[k] != right.missing[k])
        return ("undefined", tuple(map(int, found[0]))) if len(found) else None

    def exactly(self, feeds: Feeds, k: int, at: tuple[int, ...]) -> bool | None:
        """True where an element of output `k` differs over the fractions; None where these cannot tell."""
        given = {
            v: Exact().encode(np.asarray(array), v.type.dtype) if v.type.dtype.is_float else array
            for v, array in feeds.items()
        }
        try:
            a, b = (result[at] for result in run_scopes((self.left[k], self.right[k]), given, Exact()))
        except (Redraw, InterpretError, ArithmeticError, ValueError):
            return None
        return bool(a != b) if isinstance(a, Fraction) and isinstance(b, Fraction) else None

    def _cancelled(self, feeds: Feeds, a: Any, b: Any) -> bool:
        """Return whether two numbers differ by no more than what the largest intermediate of either side may be rounded by."""
        nodes = nodes_of((*self.left, *self.right))
        values = [value for node in nodes for value in node.values if value.type.dtype.is_float and value not in feeds]
        found = _results(values, feeds)
        if not isinstance(found, DefinedResults):
            return False
        sizes = [np.abs(array[np.isfinite(array)]).max(initial=0.0) for array in found.arrays]
        return bool(abs(a - b) <= self.tolerance * max(sizes, default=0.0))


def pair_of(rules: Rules, inputs: Sequence[Value], left: Sequence[Value], right: Sequence[Value]) -> PairOfLists | None:
    """Two sides without calls; None where an operator inside another one's definition does not take these types."""
    try:
        scopes = expand(rules, (*left, *right))
    except Mismatch:
        return None
    converted = {DTYPES[part.op.partition(":")[2]] for part in computed(scopes) if part.op.startswith("convert:")}
    nodes = nodes_of(scopes)
    constants = {Value(node).type.dtype for node in nodes if isinstance(node, Constant)}
    tolerance = max((_ROUNDED[dtype] for dtype in converted | constants if dtype in _ROUNDED), default=TOLERANCE)
    powers = {float_digits(dtype) if dtype.is_float else 8 * dtype.bytes - k for dtype in converted for k in (0, 1)}
    return PairOfLists(tuple(inputs), scopes[: len(left)], scopes[len(left) :], tolerance, tuple(sorted(powers)))


def feeds_of(
    pair: PairOfLists, manner: Manner, rng: np.random.Generator, named: Sequence[Fraction] = (), mixed: bool = False
) -> Feeds:
    """Random inputs of one manner, or (`mixed`) of a manner for each."""
    sizes = [size for value in pair.inputs for size in value.type.sizes]
    most = int(rng.integers(1, max(2, *sizes) + 1)) if sizes else 2
    return {
        value: elements(
            value.type, MANNERS[int(rng.integers(len(MANNERS)))] if mixed else manner, rng, named, most, pair.powers
        )
        for value in pair.inputs
    }


def shown_feeds(feeds: Feeds) -> list[str]:
    """Small inputs of a counterexample, one line each."""
    arrays = [(getattr(value.node, "name", "?"), np.asarray(array)) for value, array in feeds.items()]
    return [f"{name} = {np.array2string(array, separator=', ')}" for name, array in arrays if array.size <= 16]


@dataclass(frozen=True, eq=False)
class DefinedResults:
    """Results, and where they have no value: no finite number, or an integer that depends on a quotient by zero."""

    arrays: list[Array]
    missing: list[Array]

    def text(self, k: int, at: tuple[int, ...]) -> str:
        item = self.arrays[k][at]
        return "no value" if self.missing[k][at] else f"{item:.7g}" if self.arrays[k].dtype.kind == "f" else str(item)


def _results(values: Sequence[Value], feeds: Feeds) -> DefinedResults | InterpretError | None:
    """None where an operator has no meaning on these inputs."""
    try:
        first, second = (run_scopes(values, feeds, Floats(rounded=False, absent=absent)) for absent in ABSENT)
    except InterpretError as problem:
        return problem if problem.kind is InterpretKind.OUT_OF_BOUNDS else None
    except (OverflowError, MemoryError):
        return None
    missing = [
        (a != b) | (~np.isfinite(a) if a.dtype.kind == "f" else False) for a, b in zip(first, second, strict=True)
    ]
    return DefinedResults(first, missing)
