"""The evaluation of the chunks of an enumeration: by this process, by several forked from it, or by a Dask cluster.

On a cluster chunks are evaluated in any order, and put in order again. The state of a level (the values of the representatives) goes to
a worker once. A chunk is a pure function of the state and its numbers, so one that is lost with its worker is evaluated by another, and
the result is the same. A worker is given a chunk once it has memory for it: at most two chunks a worker are on their way.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from math import comb
from typing import Any

import numpy as np

from dslc.errors import error
from dslc.generate.enumeration.evaluation import TupleChunk, evaluate_chunk
from dslc.generate.settings import GenerationSettings
from dslc.interpret.domain import Array
from dslc.interpret.field import mixed
from dslc.processes import forked as forks

# ---- The evaluation of the chunks of an enumeration: by this process, by several forked from it, or by a Das--------

#: given what all tasks need to know, the tasks, and (`evaluate_chunk` where none is) the function of both: results in the order of the
#: tasks
Mapper = Callable[..., Iterator[Any]]
Work = Callable[[Any, Any], Any]


AHEAD = 2  #: chunks on their way, for each worker
RETRIES = 5  #: how often a chunk may lose its worker
FEW = 100_000  #: terms; fewer are not worth new processes


def serial(state: Any, tasks: Iterable[Any], work: Work = evaluate_chunk) -> Iterator[Any]:
    """One after the other."""
    return (work(state, task) for task in tasks)


def forked(workers: int, state: Any, tasks: Iterable[Any], work: Work = evaluate_chunk) -> Iterator[Any]:
    """Several processes that share the state's memory with this one."""
    if work is not evaluate_chunk:
        # few and large: never more than one is held
        return serial(state, tasks, work)
    listed: list[TupleChunk] = list(tasks)
    if workers <= 1 or sum(chunk.rows.shape[1] * len(chunk.steps) for chunk in listed) < FEW:
        return serial(state, listed)
    return forks.mapped(work, state, listed, workers)


def needs_cluster(settings: GenerationSettings) -> bool:
    """Return whether an address is given, or several workers for five and more operators."""
    return settings.scheduler is not None or (settings.workers > 1 and settings.max_operators >= 5)


@contextmanager
def mapper_for(settings: GenerationSettings) -> Iterator[Mapper]:
    """The evaluation of chunks: by a cluster where an address is given, or for five and more operators; else this machine's processes.

    Raises:
        DslcError: E0907 where Dask is not installed, E0902 where the scheduler does not answer.
    """
    if not needs_cluster(settings):
        yield partial(forked, settings.workers) if settings.workers > 1 else serial
        return
    try:
        import distributed
    except ImportError:
        raise error("E0907", "Dask is not installed", hint="`pip install dslc[cluster]`") from None
    # Dask's classes have no types
    distributed_: Any = distributed
    if settings.scheduler is None:
        local = distributed_.LocalCluster(
            n_workers=settings.workers, threads_per_worker=1, memory_limit=settings.memory, dashboard_address=None
        )
        with local as cluster, distributed_.Client(cluster) as client:
            yield on_cluster(client)
        return
    try:
        client = distributed_.Client(settings.scheduler, timeout="5s")
    except (OSError, TimeoutError) as problem:
        raise error("E0902", f"no scheduler answers at {settings.scheduler}: {problem}") from None
    with client:
        yield on_cluster(client)


def on_cluster(client: Any) -> Mapper:
    """A mapper that evaluates chunks on the workers of a `distributed.Client`.

    The state is the result of a task, so that Dask makes it again where it was lost with all workers that had it.
    """

    def submitted(*task: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")
            return client.submit(*task, retries=RETRIES, pure=False)

    def mapped(state: Any, tasks: Iterable[Any], work: Work = evaluate_chunk) -> Iterator[Any]:
        held = submitted(_identity, state)
        waiting: deque[Any] = deque()
        todo = iter(tasks)
        while True:
            ahead = AHEAD * max(1, len(client.nthreads()))
            while len(waiting) < ahead and (task := next(todo, None)) is not None:
                waiting.append(submitted(work, held, task))
            if not waiting:
                return
            yield waiting.popleft().result()

    return mapped


def _identity(state: Any) -> Any:
    return state


# ---- Terms that make up a graph of a given size together: the operators that they share count once -----------------

ROWS = 1 << 18  #: rows that are held at once, about


def overlap(a: Array, b: Array) -> Array:
    """The number of operators that the rows of two arrays [rows, operators] share (-1 stands for none)."""
    count = np.zeros(len(a), dtype=np.int32)
    for k in range(a.shape[1]):
        own = a[:, k]
        if (own < 0).all():
            break
        for j in range(b.shape[1]):
            count += (own >= 0) & (own == b[:, j])
    return count


def distinct(rows: Array, width: int) -> Array:
    """The different numbers of each row in order, -1 (which stands for none) after the last; `width` columns suffice."""
    none = np.iinfo(np.int32).max
    rows = np.where(rows < 0, none, rows)
    rows.sort(axis=1)
    rows[:, 1:][rows[:, 1:] == rows[:, :-1]] = none
    rows.sort(axis=1)
    return np.where(rows == none, -1, rows)[:, :width]


def union(a: Array, b: Array) -> Array:
    """The operators of both, as many columns as `a` has; the caller knows that they suffice."""
    return distinct(np.concatenate([a, b], axis=1), a.shape[1])


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
class TermsByOperators:
    """Terms of one size, to be found by some of their operators."""

    terms: Array
    ops: Array
    _subsets: dict[int, tuple[Array, Array]] = field(default_factory=dict, repr=False)

    def subsets(self, count: int) -> tuple[Array, Array]:
        """The keys of all sets of `count` operators of a term, in order, and the terms."""
        found = self._subsets.get(count)
        if found is None:
            keys = subset_keys(self.ops[self.terms], count)
            listed = np.repeat(self.terms, keys.shape[1])
            order = np.argsort(keys.reshape(-1), kind="stable")
            found = self._subsets[count] = keys.reshape(-1)[order], listed[order]
        return found


def subset_keys(ops: Array, count: int) -> Array:
    """A word for each set of `count` of the operators of a row [rows, sets]; rows of equally many operators, in order."""
    width = int((ops[0] >= 0).sum()) if len(ops) else 0
    keys = []
    for columns in combinations(range(width), count):
        key = np.zeros(len(ops), dtype=np.uint64)
        for column in columns:
            with np.errstate(over="ignore"):
                key = mixed(key + (ops[:, column] + 2).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
        keys.append(key)
    return np.stack(keys, axis=1) if keys else np.zeros((len(ops), 0), dtype=np.uint64)


def in_ranges(low: Array, counts: Array, most: int) -> Iterator[tuple[Array, Array]]:
    """Every place of ranges that begin at `low` and hold so many, with the number of its range; about `most` at once."""
    whole = np.cumsum(counts)
    first = 0
    while first < len(low):
        base = int(whole[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(whole, base + most, side="right")))
        many = counts[first:last]
        ranges = np.repeat(np.arange(first, last), many)
        inside = np.arange(len(ranges)) - np.repeat(np.cumsum(many) - many, many)
        yield ranges, low[ranges] + inside
        first = last


def sharing(own: Array, index: TermsByOperators, shared: int) -> Iterator[tuple[Array, Array]]:
    """The pairs of a row (with the operators `own`) and a term of the index that have exactly `shared` (at least one) in common.

    Yields row numbers and terms. A pair is met at the one set of so many operators that both have.
    """
    if not len(own) or not len(index.terms):
        return
    listed, terms = index.subsets(shared)
    step = max(1, ROWS // max(1, comb(own.shape[1], shared)))
    for start in range(0, len(own), step):
        keys = subset_keys(own[start : start + step], shared)
        low = np.searchsorted(listed, keys.reshape(-1), side="left")
        counts = np.searchsorted(listed, keys.reshape(-1), side="right") - low
        rows = np.repeat(np.arange(len(keys)), keys.shape[1]) + start
        for ranges, places in in_ranges(low, counts, ROWS):
            left, right = rows[ranges], terms[places]
            keep = overlap(own[left], index.ops[right]) == shared
            if keep.any():
                yield left[keep], right[keep]
