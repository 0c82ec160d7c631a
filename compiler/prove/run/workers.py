"""Tasks of provers, answered by worker processes, or by this process where none can be used.

A rule that takes too long costs its worker, and not the run.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dslc.deadline import FOREVER, OVER, Deadline
from dslc.errors import error
from dslc.processes.child import Child, module, ready
from dslc.processes.process import ProcessFailed, ProcessFailure
from dslc.prove.evidence.lock import stopped
from dslc.prove.run.worker import Task, answered, definition_of
from dslc.prove.verdict import Verdict
from dslc.semantics.library import Rules

START = 300.0  #: seconds; a worker that has not loaded the rules by then never will
#: on a busy machine a prover may take so many times its limit, as long as its process was not given that much
PATIENCE = 10

Answered = tuple[Task, Sequence[Verdict]]


@dataclass(eq=False)
class _Worker:
    """A process; the clock of its prover began at a moment (and so many seconds of processor time), and ends at another one."""

    child: Child
    began: float
    ends: float
    spent: float = 0.0
    ready: bool = False
    task: Task | None = None
    #: provers that have answered for the task
    answered: int = 0

    def wind(self, limit: float) -> None:
        """Starts the clock of the next prover."""
        self.began, self.spent = time.monotonic(), self.child.spent
        self.ends = self.began + limit


class Workers:
    """Answers tasks about rules. Use it as a context manager: leaving it ends the processes.

    Args:
        count: of processes; 0 answers in this one, without limits of time. So does every other number where a file of the rules is
            gone or no process comes up, and for single rules that are neither in a file nor written into their tasks.
        limit: seconds of processor time that one prover may take for one rule; then its process is killed and replaced.
    """

    def __init__(self, rules: Rules, count: int, limit: float) -> None:
        self._rules, self._limit = rules, limit
        files = [module.path for module in rules.modules]
        self._places = [*map(str, rules.folders), *files]
        self._digest = rules.digest
        #: processes, at most
        self._most = count if all(Path(place).is_file() for place in files) else 0
        self._workers: list[_Worker] = []
        #: tasks that wait for a process, and for this one
        self._away: deque[Task] = deque()
        self._here: deque[Task] = deque()
        #: the verdicts of tasks that are not done
        self._begun: dict[str, list[Verdict]] = {}
        self._in_files = {id(item) for module in rules.modules for item in module.file.items}

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._most = 0
        while self._workers:
            self._workers.pop().child.end()

    @property
    def parallel(self) -> bool:
        """Return whether tasks are answered while this process does something else."""
        return self._most > 0

    @property
    def _open(self) -> list[Task]:
        """Tasks that processes have not answered yet."""
        return [*self._away, *(worker.task for worker in self._workers if worker.task)]

    @property
    def left(self) -> int:
        """The number of submitted tasks that have no answer yet."""
        return len(self._open) + len(self._here)

    def run(self, tasks: Sequence[Task]) -> Iterator[Answered]:
        """Every task with its verdicts, in the order in which they are done. Raises DslcError as `answers`."""
        self.submit(tasks)
        while self.left:
            yield from self.answers()

    def submit(self, tasks: Sequence[Task]) -> None:
        """Tasks to be done; `answers` gives their verdicts. A process finds rules in files only, or in the task."""
        for task in tasks:
            away = task.text or id(definition_of(self._rules, task.rule).syntax) in self._in_files
            (self._away if away and self._most else self._here).append(task)
        self._hand_out()

    def answers(self, wait: bool = True) -> Sequence[Answered]:
        """Tasks that are done, with their verdicts.

        Args:
            wait: for news of the processes, or for this one to answer a task; else only what is there already is looked at.

        Raises:
            DslcError: E0519 where the files of the rules have changed.
        """
        if self._open:
            heard = (self._hear(worker) for worker in self._readable(wait) if worker in self._workers)
            done = [found for found in heard if found is not None]
            self._hand_out()
            if done or self._most:
                return done
        if wait and self._here:
            task = self._here.popleft()
            return [(task, [*self._begun.pop(task.rule, ()), *answered(self._rules, task)])]
        return []

    def _hand_out(self) -> None:
        while len(self._workers) < min(self._most, len(self._open)):
            began = time.monotonic()
            try:
                child = Child(module("dslc.prove.run.worker"))
            except ProcessFailed:
                self._stay_here()
                return
            self._workers.append(_Worker(child, began, began + START))
            with contextlib.suppress(ProcessFailed):
                child.send(self._places, Deadline(began + START))
        for worker in self._workers:
            if worker.ready and not worker.task and self._away:
                worker.task, worker.answered = self._away.popleft(), 0
                worker.wind(self._limit)
                with contextlib.suppress(ProcessFailed):
                    worker.child.send(worker.task, Deadline(worker.began + START))

    def _stay_here(self) -> None:
        """No process comes up: this one answers all that is open."""
        self._here.extend(self._open)
        self._away.clear()
        self.__exit__()

    def _readable(self, wait: bool) -> list[_Worker]:
        """Workers with news, and those whose time is up."""
        busy = [worker for worker in self._workers if worker.task or not worker.ready]
        first = min((worker.ends for worker in busy), default=time.monotonic() + 1)
        news = ready([worker.child for worker in self._workers], Deadline(first) if wait else OVER)
        now = time.monotonic()
        return [
            worker for worker in self._workers if worker.child in news or (worker in busy and self._late(worker, now))
        ]

    def _late(self, worker: _Worker, now: float) -> bool:
        """Return whether the limit is reached; else when to look again."""
        if now <= worker.ends:
            return False
        left = self._limit - (worker.child.spent - worker.spent)
        if not worker.ready or left <= 0.05 * self._limit or now > worker.began + PATIENCE * self._limit:
            return True
        worker.ends = now + left
        return False

    def _hear(self, worker: _Worker) -> Answered | None:
        """The task that a worker has done, if it has done one."""
        try:
            # what has begun to come comes; a late process has nothing to say
            message = worker.child.receive(FOREVER if ready([worker.child], OVER) else OVER)
        except ProcessFailed as problem:
            return self._lost(worker, problem.failure is ProcessFailure.LATE)
        if not worker.ready:
            if message != self._digest:
                hint = "run it again: what was proved is kept"
                raise error("E0519", "the rule files were changed while they were proved", hint=hint)
            worker.ready = True
            return None
        assert worker.task
        verdicts = self._begun.setdefault(worker.task.rule, [])
        worker.wind(self._limit)
        if isinstance(message, Verdict):
            verdicts.append(message)
            worker.answered += 1
            return None
        task, worker.task = worker.task, None
        return task, self._begun.pop(task.rule)

    def _lost(self, worker: _Worker, late: bool) -> Answered | None:
        """A worker that is too slow, or gone: another one takes its place, and the prover that it was at has not decided."""
        if not worker.ready:
            self._stay_here()
            return None
        self._workers.remove(worker)
        worker.child.end()
        task, at = worker.task, worker.answered
        if not task:
            return None
        spent = round((time.monotonic() - worker.began) * 1e3, 3)
        reason = stopped(self._limit) if late else "its process died, as it does when memory runs out"
        verdicts = self._begun.setdefault(task.rule, [])
        verdicts += [Verdict(prover, "unknown", spent, reason) for prover in task.provers[at : at + 1]]
        if rest := task.provers[at + 1 :]:
            self._away.appendleft(replace(task, provers=rest))
            return None
        return task, self._begun.pop(task.rule)
