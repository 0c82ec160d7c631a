"""Tasks of provers, answered by worker processes, or by this process where none can be used."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

from dslc.errors import error
from dslc.prove.known.digest import modules_digest
from dslc.prove.run.pool import CannotStart, Changed, ProverPool
from dslc.prove.run.worker import Task, answers, definition_of
from dslc.prove.verdict import Verdict
from dslc.semantics.library import Rules

Answered = tuple[Task, Sequence[Verdict]]


class Workers:
    """Answers tasks about rules. Use it as a context manager: leaving it ends the processes.

    Args:
        count: of processes; 0 answers in this one, without limits of time. So does every other number where a file of the rules is
            gone or no process comes up, and for single rules that are neither in a file nor written into their tasks.
        limit: seconds of processor time that one prover may take for one rule in a process.
    """

    def __init__(self, rules: Rules, count: int, limit: float) -> None:
        self._rules = rules
        places = [module.file.source.path for module in rules.modules]
        self._pool: ProverPool | None = None
        if count > 0 and all(Path(place).is_file() for place in places):
            self._pool = ProverPool([*map(str, rules.folders), *places], modules_digest(rules.modules), count, limit)
        #: what the processes have not answered yet, and what this process is to answer
        self._open: dict[str, Task] = {}
        self._here: deque[Task] = deque()
        self._in_files = {id(item) for module in rules.modules for item in module.file.items}

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.__exit__(kind, error, at)
            self._pool = None

    @property
    def parallel(self) -> bool:
        """Whether tasks are answered while this process does something else."""
        return self._pool is not None

    @property
    def left(self) -> int:
        """How many submitted tasks have no answer yet."""
        return len(self._open) + len(self._here)

    def run(self, tasks: Sequence[Task]) -> Iterator[Answered]:
        """Every task with its verdicts, in the order in which they are done. Raises DslcError as `answers`."""
        self.submit(tasks)
        while self.left:
            yield from self.answers()

    def submit(self, tasks: Sequence[Task]) -> None:
        """Tasks to be done; `answers` gives what became of them."""
        away = []
        for task in tasks:
            if self._pool is not None and self._readable(task):
                self._open[task.rule] = task
                away.append(task)
            else:
                self._here.append(task)
        if self._pool is not None:
            self._pool.submit(away)

    def answers(self, wait: bool = True) -> Sequence[Answered]:
        """Tasks that are done, with their verdicts.

        Args:
            wait: for news of the processes, or for this one to answer a task; else only what is there already is looked at.

        Raises:
            DslcError: E0519 where the files of the rules have changed.
        """
        if self._pool is not None and self._open:
            try:
                done = self._pool.answers(wait)
            except Changed:
                hint = "run it again: what was proved is kept"
                raise error("E0519", "the rule files were changed while they were proved", hint=hint) from None
            except CannotStart:
                self.__exit__(None, None, None)
                self._here.extend(self._open.values())
                self._open.clear()
            else:
                for task, _ in done:
                    del self._open[task.rule]
                return done
        if wait and self._here:
            task = self._here.popleft()
            return [(task, answers(self._rules, task))]
        return []

    def _readable(self, task: Task) -> bool:
        """Whether a process finds the task's rule: rules that were made in memory are in no file."""
        return bool(task.text) or id(definition_of(self._rules, task.rule).syntax) in self._in_files
