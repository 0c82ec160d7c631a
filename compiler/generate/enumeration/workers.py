"""Who evaluates the chunks of an enumeration: this process, or several forked from it. A cluster has the same interface."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dslc.generate.enumeration.evaluate import Chunk, evaluate_chunk

#: given what all tasks need to know, the tasks, and (`evaluate_chunk` where none is) the function of both: results in the order of the
#: tasks
Mapper = Callable[..., Iterator[Any]]
Work = Callable[[Any, Any], Any]

#: fewer terms are not worth new processes
_FEW = 100_000

_shared: list[tuple[Work, Any]] = []


def serial(state: Any, tasks: Iterable[Any], work: Work = evaluate_chunk) -> Iterator[Any]:
    """One after the other."""
    return (work(state, task) for task in tasks)


def _worked(task: Any) -> Any:
    work, state = _shared[-1]
    return work(state, task)


def forked(workers: int) -> Mapper:
    """Several processes that share the state's memory with this one."""

    def mapped(state: Any, tasks: Iterable[Any], work: Work = evaluate_chunk) -> Iterator[Any]:
        if work is not evaluate_chunk:
            # few and large: never more than one is held
            yield from serial(state, tasks, work)
            return
        listed: list[Chunk] = list(tasks)
        if workers <= 1 or sum(chunk.rows.shape[1] * len(chunk.steps) for chunk in listed) < _FEW:
            yield from serial(state, listed)
            return
        _shared.append((work, state))
        try:
            with multiprocessing.get_context("fork").Pool(workers) as pool:
                yield from pool.imap(_worked, listed, chunksize=1)
        finally:
            _shared.pop()

    return mapped
