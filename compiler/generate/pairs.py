"""Which terms make up a graph of a given size together: the operators that they share count once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dslc.interpret.domain import Array

#: about so many rows are held at once
ROWS = 1 << 18


def overlap(a: Array, b: Array) -> Array:
    """How many operators the rows of two arrays [rows, operators] share (-1 stands for none)."""
    count = np.zeros(len(a), dtype=np.int32)
    for k in range(a.shape[1]):
        own = a[:, k]
        if (own < 0).all():
            break
        for j in range(b.shape[1]):
            count += (own >= 0) & (own == b[:, j])
    return count


def union(a: Array, b: Array) -> Array:
    """The operators of both, as many columns as `a` has; whoever calls knows that they suffice."""
    width = a.shape[1]
    both = np.concatenate([a, b], axis=1)
    both = np.where(both < 0, np.iinfo(np.int32).max, both)
    both.sort(axis=1)
    both[:, 1:][both[:, 1:] == both[:, :-1]] = np.iinfo(np.int32).max
    both.sort(axis=1)
    both = both[:, :width]
    return np.where(both == np.iinfo(np.int32).max, -1, both)


def disjoint(own: Array | None, count: int, others: Array, ops: Array) -> Iterator[tuple[Array, Array]]:
    """All pairs of a row (of `count`, with the operators `own`; None where none has any) and another term that share no operator.

    Yields row numbers and terms.
    """
    if not len(others):
        return
    step = max(1, ROWS // len(others))
    for start in range(0, count, step):
        rows = np.arange(start, min(count, start + step))
        left, right = np.repeat(rows, len(others)), np.tile(others, len(rows))
        if own is not None:
            keep = overlap(own[left], ops[right]) == 0
            left, right = left[keep], right[keep]
        if len(left):
            yield left, right


@dataclass(frozen=True)
class Index:
    """The terms that contain each operator."""

    operators: Array
    terms: Array

    @staticmethod
    def of(terms: Array, ops: Array) -> Index:
        own = ops[terms]
        rows, columns = np.nonzero(own >= 0)
        operators, listed = own[rows, columns], terms[rows]
        order = np.lexsort((listed, operators))
        return Index(operators[order], listed[order])


def sharing(own: Array, index: Index, ops: Array, shared: int) -> Iterator[tuple[Array, Array]]:
    """The pairs of a row (with the operators `own`) and a term of the index that have exactly `shared` (at least one) in common.

    Yields row numbers and terms.
    """
    if not len(own) or not len(index.terms):
        return
    low = np.searchsorted(index.operators, own, side="left")
    high = np.searchsorted(index.operators, own, side="right")
    counts = np.where(own >= 0, high - low, 0)
    weight = np.cumsum(counts.sum(axis=1))
    start = 0
    while start < len(own):
        base = weight[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(weight, base + ROWS, side="right")))
        for rows, terms in _expanded(own[start:stop], low[start:stop], counts[start:stop], index, ops, shared):
            yield rows + start, terms
        start = stop


def _expanded(
    own: Array, low: Array, counts: Array, index: Index, ops: Array, shared: int
) -> Iterator[tuple[Array, Array]]:
    for column in range(own.shape[1]):
        count = counts[:, column]
        whole = int(count.sum())
        if not whole:
            continue
        rows = np.repeat(np.arange(len(own)), count)
        inside = np.arange(whole) - np.repeat(np.cumsum(count) - count, count)
        other = index.terms[low[rows, column] + inside]
        theirs = ops[other]
        keep = overlap(own[rows], theirs) == shared
        # a pair is counted at the first operator that it shares
        for earlier in range(column):
            before = own[rows, earlier]
            keep &= ~(theirs == before[:, None]).any(axis=1) | (before < 0)
        if keep.any():
            yield rows[keep], other[keep]
