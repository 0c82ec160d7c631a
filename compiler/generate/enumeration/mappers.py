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
from functools import partial
from typing import Any

from dslc.errors import error
from dslc.generate.enumeration.evaluation import TupleChunk, evaluate_chunk
from dslc.generate.settings import GenerationSettings
from dslc.processes import forked as forks

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
