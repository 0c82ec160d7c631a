"""Whether numbers say, too, that two programs differ: terms of sums that meet a place several times may cancel others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dslc.interpret.domain import Domain, Redraw
from dslc.interpret.field import Field
from dslc.interpret.floats import Floats
from dslc.interpret.run import InterpretError, run_scopes
from dslc.ir.dtype import DType
from dslc.ir.graph import Input, ScopeNode, Value, topological
from dslc.ir.scalar import Num, Reduce, walk
from dslc.prove.exact.answers import Differs
from dslc.prove.sizes import at_sizes

DRAWS = 3  #: draws of numbers
WORK = 1 << 21  #: elements that are computed, at most


def refuted_by_numbers(left: Sequence[Value], right: Sequence[Value], found: Differs) -> bool:
    """False where both programs have the same values at the sizes of a counterexample, for every draw; True where some differ, and
    where that is not known: a size is not given, there is too much to compute, or a draw has no values."""
    values = at_sizes((*left, *right), found.sizes)
    inputs = [node.values[0] for node in topological(value.node for value in values) if isinstance(node, Input)]
    if not all(value.known and value.type.is_static for value in (*values, *inputs)) or _work(values) > WORK:
        return True
    half = len(left)
    domains: tuple[Domain, ...] = (Field(1), Floats(rounded=False))
    for domain in domains:
        try:
            for draw in range(DRAWS):
                drawn = np.random.default_rng(draw)
                feeds = {value: _drawn(value, drawn) for value in inputs}
                results = run_scopes(values, feeds, domain)
                if any(not _same(a, b) for a, b in zip(results[:half], results[half:], strict=True)):
                    return True
        except (InterpretError, Redraw, ArithmeticError, ValueError, TypeError, MemoryError):
            continue
        return False
    return True


def _drawn(value: Value, drawn: np.random.Generator) -> np.ndarray:
    least, most = (0, 2) if value.type.dtype is DType.BOOL else (-99, 100)
    return drawn.integers(least, most, _shape(value))


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool(
        np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=1e-9, atol=1e-9, equal_nan=True)
    )


def _shape(value: Value) -> tuple[int, ...]:
    return tuple(size for size in value.type.shape if isinstance(size, int))


def _work(values: Sequence[Value]) -> int:
    """Elements that are computed, those of sums included."""
    total = 0
    for node in topological(value.node for value in values):
        count = 1
        for size in _shape(node.values[0]) if isinstance(node, ScopeNode) else ():
            count *= size
        for each in walk(node.scope.body) if isinstance(node, ScopeNode) else ():
            for extent in each.extents if isinstance(each, Reduce) else ():
                count *= int(extent.value) if isinstance(extent, Num) and isinstance(extent.value, int) else WORK
        total += count
    return total
