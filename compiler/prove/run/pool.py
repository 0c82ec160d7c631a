"""Provers in worker processes: a rule that takes too long costs its worker, and not the run."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType

from dslc.deadline import FOREVER, OVER, Deadline
from dslc.processes.child import Child, module, ready
from dslc.processes.process import ProcessFailed, ProcessFailure
from dslc.prove.known.lock import stopped
from dslc.prove.run.worker import Task
from dslc.prove.verdict import ProverName, Verdict

START = 300.0  #: seconds; a worker that has not loaded the rules by then never will
#: on a busy machine a prover may take so many times its limit, as long as its process was not given that much
PATIENCE = 10


class CannotStart(Exception):
    """No worker process comes up."""


class Changed(Exception):
    """The workers do not see the same rules."""


@dataclass(eq=False)
class _Worker:
    child: Child
    ready: bool = False
    task: Task | None = None
    verdicts: list[Verdict] = field(default_factory=list)
    began: float = 0.0
    #: seconds of processor time at `began`
    spent: float = 0.0
    #: when to look whether the limit is reached
    ends: float = 0.0

    @property
    def busy(self) -> bool:
        return self.task is not None or not self.ready


class ProverPool:
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
        self._workers: list[_Worker] = []
        self._waiting: deque[Task] = deque()
        #: verdicts of tasks that go on in another worker
        self._known: dict[str, list[Verdict]] = {}
        self._left = 0

    def __enter__(self) -> ProverPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        while self._workers:
            self._workers.pop().child.end()

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
        try:
            child = Child(module("dslc.prove.run.worker"))
        except ProcessFailed as problem:
            raise CannotStart(str(problem)) from None
        began = time.monotonic()
        self._workers.append(_Worker(child, began=began, ends=began + START))
        with contextlib.suppress(ProcessFailed):
            child.send(self._places, Deadline(began + START))

    def _give(self, worker: _Worker, task: Task) -> None:
        worker.task, worker.verdicts = task, []
        self._wind(worker)
        with contextlib.suppress(ProcessFailed):
            worker.child.send(task, Deadline(worker.began + START))

    def _readable(self, wait: bool) -> list[_Worker]:
        """Workers with news, and those whose time is up."""
        now = time.monotonic()
        ends = [worker.ends for worker in self._workers if worker.busy]
        news = ready([worker.child for worker in self._workers], Deadline(min(ends, default=now + 1)) if wait else OVER)
        found = [worker for worker in self._workers if worker.child in news]
        now = time.monotonic()
        for worker in self._workers:
            if worker.busy and worker not in found and now > worker.ends and self._late(worker, now):
                found.append(worker)
        return found

    def _wind(self, worker: _Worker) -> None:
        """Starts the clock of the next prover."""
        worker.began, worker.spent = time.monotonic(), worker.child.spent
        worker.ends = worker.began + self._limit

    def _late(self, worker: _Worker, now: float) -> bool:
        """Whether the limit is reached; else when to look again."""
        left = self._limit - (worker.child.spent - worker.spent)
        if not worker.ready or left <= 0.05 * self._limit or now > worker.began + PATIENCE * self._limit:
            return True
        worker.ends = now + left
        return False

    def _hear(self, worker: _Worker) -> tuple[Task, list[Verdict], tuple[ProverName, ...]] | None:
        """What a worker has done; the provers that are still to be asked elsewhere where it had to be ended."""
        try:
            # what has begun to come comes; who is late has nothing to say
            message = worker.child.receive(FOREVER if ready([worker.child], OVER) else OVER)
        except ProcessFailed as problem:
            return self._lost(worker, problem.failure is ProcessFailure.LATE)
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

    def _lost(self, worker: _Worker, late: bool) -> tuple[Task, list[Verdict], tuple[ProverName, ...]] | None:
        """A worker that is too slow, or gone: a new one takes its place, and the prover that it was at has not decided."""
        if not worker.ready:
            raise CannotStart("a worker process does not start")
        self._workers.remove(worker)
        worker.child.end()
        self._start()
        task = worker.task
        if task is None:
            return None
        at = len(worker.verdicts)
        seconds = time.monotonic() - worker.began
        reason = stopped(self._limit) if late else "its process died, as it does when memory runs out"
        undecided = Verdict(task.provers[at], "unknown", round(seconds * 1e3, 3), reason)
        return task, [*worker.verdicts, undecided], task.provers[at + 1 :]
