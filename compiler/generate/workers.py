"""Who evaluates the chunks of an enumeration: this process, or several forked from it. A cluster has the same interface."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator

from dslc.generate.evaluate import Chunk, State, evaluate_chunk
from dslc.interpret.domain import Array

#: evaluates chunks: results in the order of the chunks
Mapper = Callable[[State, Iterable[Chunk]], Iterator[Array]]

_shared: list[State] = []


def serial(state: State, chunks: Iterable[Chunk]) -> Iterator[Array]:
    """One after the other."""
    return (evaluate_chunk(state, chunk) for chunk in chunks)


def _evaluate(chunk: Chunk) -> Array:
    return evaluate_chunk(_shared[-1], chunk)


def forked(workers: int) -> Mapper:
    """Several processes that share the state's memory with this one."""

    def mapped(state: State, chunks: Iterable[Chunk]) -> Iterator[Array]:
        listed = list(chunks)
        if workers <= 1 or sum(chunk.rows.shape[1] * len(chunk.steps) for chunk in listed) < 100_000:
            yield from serial(state, listed)
            return
        _shared.append(state)
        try:
            with multiprocessing.get_context("fork").Pool(workers) as pool:
                yield from pool.imap(_evaluate, listed, chunksize=1)
        finally:
            _shared.pop()

    return mapped
