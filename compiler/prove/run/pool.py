"""Provers in worker processes: a rule that takes too long costs its worker, and not the run."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import IO

from dslc.prove.known.lock import stopped
from dslc.prove.run.worker import Task, receive, send
from dslc.prove.verdict import ProverName, Verdict

# a worker that has not loaded the rules by then never will
_START = 300.0
# on a busy machine a prover may take so many times its limit, as long as its process was not given that much
_PATIENCE = 10


class CannotStart(Exception):
    """No worker process comes up."""


class Changed(Exception):
    """The workers do not see the same rules."""


@dataclass(eq=False)
class _Worker:
    process: subprocess.Popen[bytes]
    reading: IO[bytes]
    writing: IO[bytes]
    ready: bool = False
    task: Task | None = None
    verdicts: list[Verdict] = field(default_factory=list)
    began: float = 0.0
    #: seconds of processor time at `began`
    spent: float = 0.0
    #: when to look whether the limit is reached
    ends: float = 0.0


class Pool:
    """Worker processes that all hold the same rules. Use it as a context manager: leaving it ends them.

    Args:
        places: the files to load, and the folders of which every file belongs to the folder's library.
        digest: of their texts; a worker that finds other texts is not used.
        workers: how many.
        limit: seconds of processor time that one prover may take for one rule; then its process is killed and replaced.
    """

    def __init__(self, places: Sequence[str], digest: str, workers: int, limit: float) -> None:
        self._places, self._digest, self._limit = list(places), digest, limit
        self._count = workers
        self._selector = selectors.DefaultSelector()
        self._workers: list[_Worker] = []
        self._waiting: deque[Task] = deque()
        #: verdicts of tasks that go on in another worker
        self._known: dict[str, list[Verdict]] = {}
        self._left = 0

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in list(self._workers):
            self._end(worker)
        self._selector.close()

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, list[Verdict]]]:
        """Every task with its verdicts, in the order in which they are done. Raises CannotStart and Changed."""
        self.submit(tasks)
        while self._left:
            yield from self.answers()

    def submit(self, tasks: Sequence[Task]) -> None:
        """Tasks to be done while the caller does something else; `answers` gives what became of them."""
        self._waiting.extend(tasks)
        self._left += len(tasks)
        while len(self._workers) < min(self._count, self._left):
            self._start()
        self._hand_out()

    @property
    def left(self) -> int:
        """How many submitted tasks have no answer yet."""
        return self._left

    def answers(self, wait: bool = True) -> list[tuple[Task, list[Verdict]]]:
        """The tasks that were done since, with their verdicts; it gives the workers the next ones.

        Args:
            wait: for some news, of which there may be none that is an answer; else only what is there already is looked at.

        Raises:
            CannotStart, Changed: of the workers.
        """
        out: list[tuple[Task, list[Verdict]]] = []
        if self._left:
            for worker in self._readable(wait):
                done = self._hear(worker)
                if done is None:
                    continue
                task, verdicts, rest = done
                self._known.setdefault(task.rule, []).extend(verdicts)
                if rest:
                    self._waiting.appendleft(replace(task, provers=rest))
                    continue
                self._left -= 1
                out.append((task, self._known.pop(task.rule)))
            self._hand_out()
        return out

    def _hand_out(self) -> None:
        for worker in self._workers:
            if worker.ready and worker.task is None and self._waiting:
                self._give(worker, self._waiting.popleft())

    def _start(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "dslc.prove.run.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # nothing may wait in a buffer, where the selector does not see it
            bufsize=0,
            stderr=None if os.environ.get("DSLC_DEBUG") else subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            # Ctrl-C is for the caller, which then ends its workers; a worker's own processes end with it
            start_new_session=True,
        )
        assert process.stdin is not None and process.stdout is not None
        worker = _Worker(process, process.stdout, process.stdin, began=time.monotonic(), ends=time.monotonic() + _START)
        self._workers.append(worker)
        self._selector.register(process.stdout, selectors.EVENT_READ, worker)
        with contextlib.suppress(OSError):
            send(process.stdin, self._places)

    def _give(self, worker: _Worker, task: Task) -> None:
        worker.task, worker.verdicts = task, []
        self._wind(worker)
        with contextlib.suppress(OSError):
            send(worker.writing, task)

    def _readable(self, wait: bool) -> list[_Worker]:
        """Workers with news, and those whose time is up."""
        now = time.monotonic()
        ends = [worker.ends for worker in self._workers if worker.task is not None or not worker.ready]
        events = self._selector.select(max(0.0, min(ends, default=now + 1) - now) if wait else 0)
        found = [key.data for key, _ in events]
        now = time.monotonic()
        for worker in self._workers:
            busy = worker.task is not None or not worker.ready
            if busy and worker not in found and now > worker.ends and self._late(worker, now):
                found.append(worker)
        return found

    def _wind(self, worker: _Worker) -> None:
        """Starts the clock of the next prover."""
        worker.began, worker.spent = time.monotonic(), _spent(worker.process.pid)
        worker.ends = worker.began + self._limit

    def _late(self, worker: _Worker, now: float) -> bool:
        """Whether the limit is reached; else when to look again."""
        left = self._limit - (_spent(worker.process.pid) - worker.spent)
        if not worker.ready or left <= 0.05 * self._limit or now > worker.began + _PATIENCE * self._limit:
            return True
        worker.ends = now + left
        return False

    def _hear(self, worker: _Worker) -> tuple[Task, list[Verdict], tuple[ProverName, ...]] | None:
        """What a worker has done; the provers that are still to be asked elsewhere where it had to be ended."""
        late = time.monotonic() > worker.ends
        message = _GONE if late and not self._has_news(worker) else self._message(worker)
        if message is _GONE:
            return self._lost(worker, late)
        if not worker.ready:
            if message != self._digest:
                raise Changed
            worker.ready = True
            return None
        self._wind(worker)
        assert worker.task is not None
        if isinstance(message, Verdict):
            worker.verdicts.append(message)
            return None
        task, worker.task = worker.task, None
        return task, worker.verdicts, ()

    def _has_news(self, worker: _Worker) -> bool:
        return any(key.data is worker for key, _ in self._selector.select(0))

    def _message(self, worker: _Worker) -> object:
        try:
            return receive(worker.reading)
        except (EOFError, OSError):
            return _GONE

    def _lost(self, worker: _Worker, late: bool) -> tuple[Task, list[Verdict], tuple[ProverName, ...]] | None:
        """A worker that is too slow, or gone: a new one takes its place, and the prover that it was at has not decided."""
        if not worker.ready:
            raise CannotStart("a worker process does not start")
        self._end(worker)
        self._start()
        task = worker.task
        if task is None:
            return None
        at = len(worker.verdicts)
        seconds = time.monotonic() - worker.began
        reason = stopped(self._limit) if late else "its process died, as it does when memory runs out"
        undecided = Verdict(task.provers[at], "unknown", round(seconds * 1e3, 3), reason)
        return task, [*worker.verdicts, undecided], task.provers[at + 1 :]

    def _end(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        self._selector.unregister(worker.reading)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(worker.process.pid, signal.SIGKILL)
        for stream in (worker.reading, worker.writing):
            with contextlib.suppress(OSError):
                stream.close()
        worker.process.wait()


def _spent(pid: int) -> float:
    """Seconds of processor time of a process and its children."""
    import psutil  # type: ignore[import-untyped]

    try:
        process = psutil.Process(pid)
        running = [process, *process.children()]
        ended = process.cpu_times()
        return float(sum(t.user + t.system for t in (one.cpu_times() for one in running)) + ended.children_user)
    except psutil.Error:
        return 0.0


_GONE = object()
