"""Searches for derivations and mutants beside whatever else runs, on another processor: halted while something is measured."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple

from dslc.deadline import OVER, Deadline, TimeUp
from dslc.derivation.programs import PricedProgram
from dslc.derivation.steps import DerivationStep
from dslc.ir.graph import Graph
from dslc.ir.packed import PackedValues, packed, unpacked
from dslc.processes.child import ready
from dslc.processes.forked import Fork
from dslc.processes.process import ProcessFailed
from dslc.records import record

NICE = 5  #: how much others come before it: whoever compiles kernels is waited for


@record
class DerivedOperator:
    """The programs of one operator, the cheapest by estimate first, and words about one at unknown sizes that may not be taken."""

    programs: tuple[PricedProgram, ...]
    skipped: str = ""


class _Message(NamedTuple):
    """The result of the task of a place, None where that failed: programs without their values, these, and the rest."""

    place: int
    found: tuple[list[tuple[tuple[DerivationStep, ...], tuple[str, ...], float]], PackedValues, str] | None


#: whoever asks, and the operator
Task = tuple[str, Graph]


class BackgroundSearch:
    """Does searches, one after the other, in a fork of this process; call `close`.

    Whoever asks for one that it has not begun has it alone: nothing is searched twice.
    """

    def __init__(self, tasks: Mapping[Task, Callable[[], DerivedOperator]]) -> None:
        self._places = {task: k for k, task in enumerate(tasks)}
        self._found: dict[int, DerivedOperator | None] = {}
        self._halts = 0
        # the tasks that are taken: both processes have this memory
        self._begun = memoryview(mmap.mmap(-1, max(1, len(tasks))))
        self._fork: Fork | None = None
        # where the system makes no process, whoever asks searches
        with suppress(OSError):
            self._fork = Fork(partial(_serve, list(tasks.values()), self._begun)) if tasks else None

    def derived(self, who: str, operator: Graph, until: Deadline) -> DerivedOperator | None:
        """Return what it finds for an operator, and wait where it has begun; None where it has not, and where it failed.

        Raises TimeUp.
        """
        place = self._places.get((who, operator))
        if place is None:
            return None
        self._receive(OVER)
        if place not in self._found and not self._begun[place]:
            self._begun[place] = 1
            return None
        while place not in self._found and self._fork:
            self._receive(until)
            if place not in self._found and until.over:
                raise TimeUp
        return self._found.get(place)

    @contextmanager
    def halted(self) -> Iterator[None]:
        """Leaves the processors to what is measured inside."""
        if not self._halts:
            # a pipe holds little: a process that is not read from waits
            self._receive(OVER)
        self._halts += 1
        try:
            if self._fork and self._halts == 1:
                self._fork.halt()
            yield
        finally:
            self._halts -= 1
            if self._fork and not self._halts:
                self._fork.go_on()

    def close(self) -> None:
        """Ends the process."""
        fork, self._fork = self._fork, None
        if fork:
            fork.end()

    def _receive(self, until: Deadline) -> None:
        """Takes what has arrived, or the first thing that arrives until then."""
        while self._fork and ready([self._fork], until):
            try:
                message: _Message = self._fork.receive()
            except ProcessFailed:
                self.close()
                return
            self._found[message.place] = None
            if message.found is not None:
                told, values, skipped = message.found
                programs = [PricedProgram(value, *one) for value, one in zip(unpacked(values), told, strict=True)]
                self._found[message.place] = DerivedOperator(tuple(programs), skipped)
            until = OVER


def _serve(works: Sequence[Callable[[], DerivedOperator]], begun: memoryview, answer: Callable[[object], None]) -> None:
    """The life of the fork."""
    with suppress(OSError):
        os.nice(NICE)
    for place, work in enumerate(works):
        if begun[place]:
            continue
        begun[place] = 1
        try:
            found = work()
            told = [(one.steps, one.targets, one.seconds) for one in found.programs]
            message = _Message(place, (told, packed([one.value for one in found.programs]), found.skipped))
        except Exception:
            # whoever asks searches it, and fails where it can be told
            message = _Message(place, None)
        answer(message)
