"""The enumerations of all families at once, each in a process of its own: what one takes in memory ends with it.

A process answers with the equations that it kept. Where it dies the enumeration is made again in this process: the result is the
same.
"""

from __future__ import annotations

import mmap
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from dslc.deadline import Deadline
from dslc.errors import DslcError
from dslc.generate.enumeration.checkpoints import Blocks, digest
from dslc.generate.enumeration.levels import Enumerator
from dslc.generate.enumeration.mappers import mapper_for, needs_cluster
from dslc.generate.interrupts import Interrupts
from dslc.generate.settings import GenerationSettings
from dslc.generate.terms.inputs import Family
from dslc.generate.terms.term import Equation
from dslc.processes.child import ready
from dslc.processes.forked import Fork
from dslc.processes.process import ProcessFailed
from dslc.prove.garbage import gc_paused
from dslc.records import record
from dslc.semantics.library import Rules

#: told the number of operators, and how many terms were evaluated
LevelProgress: TypeAlias = Callable[[int, int], None]
#: a process, and those two numbers, in memory that both have: no pipe is read before the answer is wanted
_Process: TypeAlias = "tuple[Fork, memoryview]"


TELL = 0.25  #: seconds between two reports while an answer is waited for
END = 5.0  #: seconds that a process that is to end has to keep what it has finished


@record
class FamilyEquations:
    """The result of an enumeration: numbers of `terms` and `equations` of all levels, the kept ones themselves, smaller ones first.

    `seconds` of processor time, where that was another process's.
    """

    terms: int
    equations: int
    kept: tuple[Equation, ...]
    seconds: float = 0.0


def enumerated(rules: Rules, settings: GenerationSettings, family: Family, told: LevelProgress) -> FamilyEquations:
    """One family's enumeration in this process, and what evaluates for it."""
    store = None
    if settings.resume:
        store = Blocks(settings.resume / digest(rules.digest, family, settings.seed))
    with mapper_for(settings) as mapper:
        found = Enumerator(
            rules,
            settings.libraries,
            family,
            settings.max_operators,
            settings.seed,
            mapper=mapper,
            store=store,
            progress=told,
        ).run()
    terms, equations = (sum(getattr(level, name) for level in found.levels) for name in ("terms", "equations"))
    return FamilyEquations(terms, equations, tuple(found.equations()))


@contextmanager
def enumerations(
    rules: Rules, settings: GenerationSettings, families: Sequence[Family]
) -> Iterator[Callable[[Family, LevelProgress], FamilyEquations]]:
    """A function that waits for a family's enumeration. With one worker, or on a cluster, it makes it then, and here."""
    if settings.workers <= 1 or needs_cluster(settings):
        yield lambda family, told: enumerated(rules, settings, family, told)
        return
    mine = replace(settings, workers=max(1, settings.workers // len(families)))
    processes: dict[Family, _Process] = {}
    try:
        for family in families:
            done = memoryview(mmap.mmap(-1, 16)).cast("q")
            processes[family] = Fork(partial(_serve, rules, mine, family, done)), done
        yield lambda family, told: _received(rules, mine, family, processes.pop(family), told)
    finally:
        for fork, _ in processes.values():
            _ended(fork)


def _received(
    rules: Rules, settings: GenerationSettings, family: Family, made_by: _Process, told: LevelProgress
) -> FamilyEquations:
    fork, done = made_by
    try:
        while not ready([fork], Deadline.after(TELL)):
            told(*done)
        message = fork.receive()
    except ProcessFailed:
        return enumerated(rules, settings, family, told)
    finally:
        _ended(fork)
    if isinstance(message, DslcError):
        raise message
    found: FamilyEquations = message
    return found


def _ended(fork: Fork) -> None:
    """Ends a process as Ctrl-C does: what it has finished is kept."""
    if fork.code is None:
        fork.interrupt(END)
    fork.end()


def _serve(
    rules: Rules, settings: GenerationSettings, family: Family, done: memoryview, answer: Callable[[object], None]
) -> None:
    def told(level: int, terms: int) -> None:
        interrupts.look()
        done[0], done[1] = level, terms

    interrupts = Interrupts()
    try:
        with interrupts, gc_paused():
            found = enumerated(rules, settings, family, told)
            used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
            answer(replace(found, seconds=sum(one.ru_utime + one.ru_stime for one in used)))
    except DslcError as problem:
        answer(problem)
