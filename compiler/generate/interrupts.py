"""Ctrl-C that is not lost: what is raised inside a callback of the interpreter, as that of a weak reference, is only printed."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Any


class Interrupts:
    """Use it as a context manager of a main thread. An interruption is raised at once, and again by `look` where that was lost."""

    def __init__(self) -> None:
        self._asked = False

    def __enter__(self) -> Interrupts:
        self._handler, self._unraisable = signal.getsignal(signal.SIGINT), sys.unraisablehook
        signal.signal(signal.SIGINT, self._interrupted)
        sys.unraisablehook = self._lost
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._handler)
        sys.unraisablehook = self._unraisable

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        raise KeyboardInterrupt

    def _lost(self, what: Any) -> None:
        if what.exc_type is not KeyboardInterrupt:
            self._unraisable(what)

    def look(self) -> None:
        """Raises KeyboardInterrupt where an interruption was asked for."""
        if self._asked:
            raise KeyboardInterrupt
