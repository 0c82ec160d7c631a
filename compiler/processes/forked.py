"""Forks of this process, which have all that is in its memory: sending it would take long.

They end with this process, as other processes do.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from dslc.processes.child import Answering, goes_first, send

#: signals that wait until a fork is on its own, and would come out in the middle of this process' work
_LATER = {signal.SIGINT, signal.SIGTERM}


class Fork(Answering):
    """A fork that calls a function, with another one that sends a message. Ctrl-C interrupts it only by `interrupt`.

    Raises OSError where the system makes none.
    """

    def __init__(self, function: Callable[[Callable[[object], None]], None]) -> None:
        back, there = os.pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _LATER)
        try:
            try:
                pid = os.fork()
            except OSError:
                os.close(back)
                os.close(there)
                raise
            if not pid:
                _called(function, there, before)
            # also done by the fork: whoever comes first, it is done before it is relied upon
            with contextlib.suppress(OSError):
                os.setpgid(pid, pid)
            os.close(there)
            super().__init__(pid, os.fdopen(back, "rb", 0))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _called(function: Callable[[Callable[[object], None]], None], pipe: int, signals: set[Any]) -> NoReturn:
    """The life of a fork: nothing of what is above it is gone back to."""
    code = 1
    try:
        # what is older is not destroyed here: a session of ONNX Runtime would wait for its threads, which a fork has not
        gc.freeze()
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)
        goes_first()
        function(lambda message: send(pipe, message))
        code = 0
    except (KeyboardInterrupt, BrokenPipeError):
        # whoever asked is interrupted too, or gone
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


#: the work of the forks that are made next, and what all of it needs to know
_shared: list[tuple[Callable[[Any, Any], Any], Any]] = []


def mapped(
    work: Callable[[Any, Any], Any], state: Any, tasks: Sequence[Any], workers: int, chunk: int = 1
) -> Iterator[Any]:
    """The results of `work` on the state and each task, in the order of the tasks: by several forks, which share the state's memory."""
    _shared.append((work, state))
    try:
        with multiprocessing.get_context("fork").Pool(workers, _end_with_parent) as pool:
            yield from pool.imap(_worked, tasks, chunksize=chunk)
    finally:
        _shared.pop()


def _worked(task: Any) -> Any:
    work, state = _shared[-1]
    return work(state, task)


def _end_with_parent() -> None:
    """Has Linux end a fork of a pool when the thread that made it does: it waits for tasks on a pipe whose other end it has, too."""
    gc.freeze()
    if sys.platform == "linux":
        parent_death = 1
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(parent_death, signal.SIGKILL)
