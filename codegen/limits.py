"""Work with a limit of time: a file may ask for a kernel that takes too long to make."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

T = TypeVar("T")


SECONDS = 20.0  #: seconds for reading the function of one kernel and generating it
ALL_SECONDS = 60.0  #: seconds for all kernels of a file
AGAIN = 0.5  #: seconds after which work that still runs is ended again


class TooLong(Exception):
    """Work that did not end in its time."""


class _Stopped(BaseException):
    """End of the thread whose work is no longer wanted."""


@contextmanager
def _untold() -> Iterator[None]:
    """A block in which Python prints nothing of an end that was lost in a callback: it is tried again."""
    before = sys.unraisablehook

    def told(lost: Any) -> None:
        if not issubclass(lost.exc_type, _Stopped):
            before(lost)

    sys.unraisablehook = told
    try:
        yield
    finally:
        if sys.unraisablehook is told:
            sys.unraisablehook = before


class _Work(threading.Thread, Generic[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__(name="dslc", daemon=True)
        self._work = work
        self.result: list[T] = []
        self.problem: BaseException | None = None
        self.ended = False

    def run(self) -> None:
        try:
            self.result.append(self._work())
        except _Stopped:
            pass
        except BaseException as problem:
            self.problem = problem
        finally:
            self.ended = True

    def stop(self) -> None:
        """Raises an exception in it as soon as it computes in Python; what hangs in a library in C is left to itself.

        Again and again, without waiting for it: an exception that is raised in a callback of the garbage collector is lost.
        """
        threading.Thread(target=self._end, name="dslc ends work", daemon=True).start()

    def _end(self) -> None:
        wait = AGAIN
        with _untold():
            while self.is_alive() and self.ident is not None and not self.ended:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident), ctypes.py_object(_Stopped))
                self.join(wait)
                wait *= 2


def within(seconds: float, work: Callable[[], T]) -> T:
    """The result of some work that takes no more than so many seconds; what it raises is raised here.

    Raises:
        TooLong: its time is over.
    """
    if seconds <= 0:
        raise TooLong(f"{seconds:.0f} s")
    thread = _Work(work)
    thread.start()
    try:
        thread.join(min(seconds, threading.TIMEOUT_MAX))
    except BaseException:
        # interrupted: whoever waits no more does not want it
        thread.stop()
        raise
    if thread.is_alive():
        thread.stop()
        raise TooLong(f"{seconds:.0f} s")
    if thread.problem is not None:
        raise thread.problem
    return thread.result[0]
