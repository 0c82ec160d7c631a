"""Traversal iterators taken apart: where a scope uses `i // d` and `i % d`, `i` becomes `d * high + low`.

Positions are affine in the parts, so that groups, heads and blocks are strided views and matrix products instead of gathers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dslc.ir.graph import Scope
from dslc.ir.scalar import Apply, Iter, Num, Scalar, apply, iterator, num, rebuild, walk


@dataclass(frozen=True, slots=True)
class Prepared:
    """A scope over split iterators; its result in row-major order is that of the original scope."""

    iters: tuple[Iter, ...]
    sizes: tuple[int, ...]
    body: Scalar


def _number(node: Scalar) -> int | None:
    if isinstance(node, Num) and isinstance(node.value, int) and not isinstance(node.value, bool) and node.value > 0:
        return node.value
    return None


def _parts(node: Scalar) -> tuple[Iter, int, int | None] | None:
    """`i // a % b` as (i, a, a * b); without `%` the last is None."""
    if not isinstance(node, Apply) or node.name not in {"//", "%"}:
        return None
    inner, divisor = node.args[0], _number(node.args[1])
    if divisor is None:
        return None
    if isinstance(inner, Iter):
        return (inner, divisor, None) if node.name == "//" else (inner, 1, divisor)
    if node.name == "%" and isinstance(inner, Apply) and inner.name == "//" and isinstance(inner.args[0], Iter):
        below = _number(inner.args[1])
        return None if below is None else (inner.args[0], below, below * divisor)
    return None


def _chain(extent: int, divisors: set[int]) -> list[int]:
    """Divisors of the extent, each of which divides the next."""
    chain: list[int] = []
    for divisor in sorted(divisors):
        if 1 < divisor < extent and extent % divisor == 0 and (not chain or divisor % chain[-1] == 0):
            chain.append(divisor)
    return chain


@lru_cache(maxsize=1024)
def prepare(scope: Scope) -> Prepared:
    """Raises ValueError where a size is symbolic."""
    extents = []
    for size in scope.extents:
        value = size if isinstance(size, int) else size.value if isinstance(size, Num) else None
        if not isinstance(value, int):
            raise ValueError(f"the size {size} is symbolic: bind it first")
        extents.append(value)
    divisors: dict[Iter, set[int]] = {it: set() for it in scope.iters}
    for node in walk(scope.body):
        found = _parts(node)
        if found is not None and found[0] in divisors:
            divisors[found[0]].update(d for d in found[1:] if d is not None)
    iters: list[Iter] = []
    sizes: list[int] = []
    weights: dict[Iter, list[tuple[Iter, int]]] = {}
    for it, extent in zip(scope.iters, extents, strict=True):
        chain = _chain(extent, divisors[it])
        steps = [*reversed(chain), 1]
        above = [extent, *reversed(chain)]
        parts = [it] if not chain else [iterator(f"{it.name}.{k}") for k in range(len(steps))]
        weights[it] = list(zip(parts, steps, strict=True))
        iters.extend(parts)
        sizes.extend(high // low for high, low in zip(above, steps, strict=True))
    extent_of = dict(zip(scope.iters, extents, strict=True))

    def leaf(node: Scalar) -> Scalar | None:
        if isinstance(node, Iter) and node in weights and len(weights[node]) > 1:
            return apply("+", *(apply("*", num(step), part) for part, step in weights[node]))
        found = _parts(node)
        if found is None or found[0] not in weights:
            return None
        it, low, high = found
        extent = extent_of[it]
        high = extent if high is None or high >= extent else high
        steps = {1, extent, *(step for _, step in weights[it])}
        if low >= extent:
            return num(0)
        if low not in steps or high not in steps:
            return None
        return apply(
            "+", num(0), *(apply("*", num(step // low), part) for part, step in weights[it] if low <= step < high)
        )

    return Prepared(tuple(iters), tuple(sizes), rebuild(scope.body, leaf))
