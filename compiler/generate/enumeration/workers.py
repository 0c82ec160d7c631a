"""Who evaluates the chunks of an enumeration: this process, or several forked from it. A cluster has the same interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dslc.generate.enumeration.evaluate import TupleChunk, evaluate_chunk
from dslc.processes.forked import mapped

#: given what all tasks need to know, the tasks, and (`evaluate_chunk` where none is) the function of both: results in the order of the
#: tasks
Mapper = Callable[..., Iterator[Any]]
Work = Callable[[Any, Any], Any]


FEW = 100_000  #: terms; fewer are not worth new processes


def serial(state: Any, tasks: Iterable[Any], work: Work = evaluate_chunk) -> Iterator[Any]:
    """One after the other."""
    return (work(state, task) for task in tasks)


def forked(workers: int) -> Mapper:
    """Several processes that share the state's memory with this one."""

    def several(state: Any, tasks: Iterable[Any], work: Work = evaluate_chunk) -> Iterator[Any]:
        if work is not evaluate_chunk:
            # few and large: never more than one is held
            yield from serial(state, tasks, work)
            return
        listed: list[TupleChunk] = list(tasks)
        if workers <= 1 or sum(chunk.rows.shape[1] * len(chunk.steps) for chunk in listed) < FEW:
            yield from serial(state, listed)
            return
        yield from mapped(work, state, listed, workers)

    return several
