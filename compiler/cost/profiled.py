"""Time of a model, node by node, as the runtime itself measures it."""

from __future__ import annotations

from collections.abc import Mapping
from tempfile import TemporaryDirectory
from typing import Any

from dslc.cost.process import ModelFile, Worker, WorkerFailed
from dslc.deadline import Deadline
from dslc.reporting.data import Timed


def profiled(file: ModelFile, feeds: Mapping[str, Any], threads: int, seconds: float) -> tuple[Timed, ...]:
    """Medians of each node's time, in order of execution, over the runs that fit into about so many seconds, without the first.

    Nothing where the model does not run, or not in that time; loading it counts.
    """
    if seconds <= 0:
        return ()
    try:
        # this process makes it and takes it away, whatever becomes of the worker
        with TemporaryDirectory(prefix="dslc-") as folder, Worker(threads, Deadline.after(seconds)) as worker:
            worker.load(file, profile=folder)
            answer = worker.ask({"do": "profile", "feeds": dict(feeds), "seconds": seconds / 2})
    except WorkerFailed:
        return ()
    return tuple(Timed(name, operator, taken * 1e3) for name, operator, taken in answer["nodes"])
