"""Searches for derivations beside whatever else runs, on another processor: halted while something is measured."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from dslc.deadline import OVER, Deadline, TimeUp
from dslc.derivation.programs import PricedProgram
from dslc.derivation.steps import DerivationStep
from dslc.ir.graph import Graph
from dslc.ir.packed import PackedValues, packed, unpacked
from dslc.processes.child import ready
from dslc.processes.forked import Fork
from dslc.processes.process import ProcessFailed
from dslc.search.finders.looking import LeftOut


@dataclass(frozen=True, slots=True)
class _Tuning:
    """Numbers of a process that searches beside this one.

    Attributes:
        nice: how much others come before it: whoever compiles kernels is waited for.
    """

    nice: int = 5


_TUNING = _Tuning()


@dataclass(frozen=True, slots=True)
class DerivedOperator:
    """The programs of one operator, the cheapest by estimate first, and one at unknown sizes that nobody may take."""

    programs: tuple[PricedProgram, ...]
    left_out: LeftOut | None


@dataclass(frozen=True, slots=True)
class _Message:
    """What was found for the operator of a place: programs as their steps, targets and seconds, and their values."""

    place: int
    told: tuple[tuple[tuple[DerivationStep, ...], tuple[str, ...], float], ...]
    values: PackedValues
    left_out: LeftOut | None


class Beside:
    """Searches the programs of operators, one after the other, in a fork of this process; call `close`.

    Whoever asks for an operator that it has not begun has it alone: no operator is searched twice.
    """

    def __init__(self, search: Callable[[Graph], DerivedOperator], operators: Sequence[Graph]) -> None:
        self._places = {operator: k for k, operator in enumerate(dict.fromkeys(operators))}
        self._found: dict[int, DerivedOperator] = {}
        self._halts = 0
        # of each operator whether it is somebody's: both processes have this memory
        self._begun = memoryview(mmap.mmap(-1, max(1, len(self._places))))
        self._fork: Fork | None = None
        if self._places:
            self._fork = Fork(partial(_serve, search, [*self._places], self._begun))

    def derived(self, operator: Graph, until: Deadline) -> DerivedOperator | None:
        """What it finds for an operator, which is waited for where it has begun; None where it has not, and where it failed.

        Raises TimeUp.
        """
        place = self._places.get(operator)
        if place is None:
            return None
        self._receive(OVER)
        if place not in self._found and not self._begun[place]:
            self._begun[place] = 1
            return None
        while place not in self._found and self._fork is not None:
            self._receive(until)
            if place not in self._found and until.over:
                raise TimeUp
        return self._found.get(place)

    @contextmanager
    def halted(self) -> Iterator[None]:
        """Leaves the processors to what is measured inside."""
        # a pipe holds little: who is not read from waits
        self._receive(OVER)
        self._halts += 1
        try:
            if self._fork is not None and self._halts == 1:
                self._fork.halt()
            yield
        finally:
            self._halts -= 1
            if self._fork is not None and not self._halts:
                self._fork.go_on()

    def close(self) -> None:
        """Ends the process."""
        fork, self._fork = self._fork, None
        if fork is not None:
            fork.end()

    def _receive(self, until: Deadline) -> None:
        """Takes what has arrived, or the first thing that arrives until then."""
        while self._fork is not None and ready([self._fork], until):
            try:
                message: _Message = self._fork.receive()
            except ProcessFailed:
                self.close()
                return
            programs = [PricedProgram(value, *told) for value, told in zip(unpacked(message.values), message.told, strict=True)]
            self._found[message.place] = DerivedOperator(tuple(programs), message.left_out)
            until = OVER


def _serve(
    search: Callable[[Graph], DerivedOperator], operators: Sequence[Graph], begun: memoryview, answer: Callable[[object], None]
) -> None:
    """The life of the fork."""
    with suppress(OSError):
        os.nice(_TUNING.nice)
    for place, operator in enumerate(operators):
        if begun[place]:
            continue
        begun[place] = 1
        found = search(operator)
        told = tuple((one.steps, one.targets, one.seconds) for one in found.programs)
        answer(_Message(place, told, packed([one.value for one in found.programs]), found.left_out))


__all__ = ["Beside", "DerivedOperator"]
