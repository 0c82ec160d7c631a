"""The enumerations of all families at once, each in a process of its own: what one takes in memory ends with it.

A process answers with the equations that it kept. Where it dies the enumeration is made again in this process: the result is the
same.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from dslc.errors import DslcError
from dslc.generate.enumeration.cluster import mapper_for, needs_cluster
from dslc.generate.enumeration.levels import enumerate_family
from dslc.generate.enumeration.resume import Store, digest
from dslc.generate.interrupts import Interrupts
from dslc.generate.settings import Settings
from dslc.generate.terms.inputs import Family
from dslc.generate.terms.term import Equation
from dslc.prove.garbage import rare_collections
from dslc.semantics.library import Rules

#: told the number of operators, and how many terms were evaluated
Told: TypeAlias = Callable[[int, int], None]
#: a process, the end of a pipe on which its answer comes, and those two numbers
_Process: TypeAlias = "tuple[Any, Connection, Any]"

# how often somebody who waits is told, in seconds
_TELL = 0.25
# a process that is to end has so many seconds to keep what it has finished
_END = 5.0


@dataclass(frozen=True, slots=True)
class Enumerated:
    """What is needed of an enumeration: numbers of `terms` and `equations` of all levels, the kept ones themselves, smaller ones first.

    `seconds` of processor time, where that was another process's.
    """

    terms: int
    equations: int
    kept: tuple[Equation, ...]
    seconds: float = 0.0


def enumerated(rules: Rules, settings: Settings, family: Family, told: Told) -> Enumerated:
    """One family's enumeration in this process, and what evaluates for it."""
    store = None
    if settings.resume is not None:
        store = Store(settings.resume / digest(rules.digest, family, settings.seed))
    with mapper_for(settings) as mapper:
        found = enumerate_family(
            rules,
            settings.libraries,
            family,
            settings.max_operators,
            settings.seed,
            mapper=mapper,
            store=store,
            progress=told,
        )
    terms, equations = (sum(getattr(level, name) for level in found.levels) for name in ("terms", "equations"))
    return Enumerated(terms, equations, tuple(found.equations()))


@contextmanager
def all_enumerated(
    rules: Rules, settings: Settings, families: Sequence[Family]
) -> Iterator[Callable[[Family, Told], Enumerated]]:
    """A function that waits for a family's enumeration. With one worker, or on a cluster, it makes it then, and here."""
    if settings.workers <= 1 or needs_cluster(settings):
        yield lambda family, told: enumerated(rules, settings, family, told)
        return
    fork = multiprocessing.get_context("fork")
    mine = replace(settings, workers=max(1, settings.workers // len(families)))
    processes: dict[Family, _Process] = {}
    try:
        for family in families:
            receive, send = fork.Pipe(duplex=False)
            # in memory that both have: nobody reads a pipe before the answer is wanted, and a full one would hold the process up
            done = fork.RawArray("q", 2)
            process = fork.Process(target=_serve, args=(rules, mine, family, send, done))
            process.start()
            send.close()
            processes[family] = process, receive, done
        yield lambda family, told: _received(rules, mine, family, processes.pop(family), told)
    finally:
        for process, receive, _ in processes.values():
            _ended(process, receive)


def _received(rules: Rules, settings: Settings, family: Family, made_by: _Process, told: Told) -> Enumerated:
    process, receive, done = made_by
    try:
        while not receive.poll(_TELL):
            told(*done)
        message = receive.recv()
        process.join(_END)
    except (EOFError, ConnectionResetError):
        return enumerated(rules, settings, family, told)
    finally:
        _ended(process, receive)
    if isinstance(message, DslcError):
        raise message
    found: Enumerated = message
    return found


def _ended(process: Any, receive: Connection) -> None:
    """Ends a process as Ctrl-C does: what it has finished is kept."""
    receive.close()
    if process.is_alive():
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGINT)
        process.join(_END)
        process.kill()
    process.join()


def _serve(rules: Rules, settings: Settings, family: Family, send: Connection, done: Any) -> None:
    def told(level: int, terms: int) -> None:
        interrupts.look()
        done[:] = [level, terms]

    interrupts = Interrupts()
    try:
        with interrupts, rare_collections():
            found = enumerated(rules, settings, family, told)
            used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
            send.send(replace(found, seconds=sum(one.ru_utime + one.ru_stime for one in used)))
    except DslcError as problem:
        send.send(problem)
    except (KeyboardInterrupt, BrokenPipeError):
        # whoever asked is interrupted too, or gone
        pass
