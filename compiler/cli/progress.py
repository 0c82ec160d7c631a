"""Progress of `dslc optimize`: a bar on a terminal, a line every ten seconds elsewhere; and Ctrl-C."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from types import FrameType
from typing import TYPE_CHECKING

from dslc.terminal import console, guarded

if TYPE_CHECKING:
    from dslc.cost.clock import Clock
    from dslc.search.options.settings import Progress


LINES = 10.0  #: seconds between two lines where there is no terminal
LOOKS = 0.2  #: seconds between two looks of the bar at the clock
LOST = 0.02  #: seconds until a Ctrl-C that was lost is tried again
FULL = 0.999  #: share of a bar that is shown, at most: a full one would stop its clock


class Shown:
    """The phase at hand, and the best so far."""

    def __init__(self, clock: Clock, log: Callable[[str], object]) -> None:
        self._clock, self._log = clock, log
        self.what = "starting"
        self.best, self.ratio = "", 1.0

    def phase(self, name: str) -> None:
        if name != self.what:
            self.what = name
            self._log(f"{self._clock.seconds:6.1f} s  {name}")

    def found(self, ratio: float, steps: int) -> None:
        if ratio <= self.ratio:
            return
        self.best, self.ratio = f"{ratio:.3g}x predicted, step {steps}", ratio
        self._log(f"{self._clock.seconds:6.1f} s  {self.best}")

    @property
    def line(self) -> str:
        """Seconds, what is being done, and the best so far."""
        return f"{self._clock.seconds:6.1f} s  {self.what}" + (f" ({self.best})" if self.best else "")


@dataclass(slots=True)
class Pressed:
    """A count of requests to end a command, and the last signal (0: none)."""

    count: int = 0
    number: int = 0

    def __call__(self) -> int:
        return self.count

    @property
    def code(self) -> int:
        """The exit code of a command that was ended so, as shells have it."""
        return 128 + (self.number or signal.SIGINT)


@contextmanager
def interrupts(*more: signal.Signals) -> Iterator[Pressed]:
    """Counts how often Ctrl-C is pressed, which raises KeyboardInterrupt as ever. `more`: signals that do the same.

    It is raised again where a callback of the interpreter (that of a weak reference) has lost it.
    """
    found, again, over, trying = Pressed(), False, False, threading.Lock()

    def pressed(number: int, frame: FrameType | None) -> None:
        nonlocal again
        repeated, again = again, False
        if not (over and repeated):
            found.count, found.number = found.count + (not repeated), number
            signal.default_int_handler(number, frame)

    def once_more() -> None:
        nonlocal again
        with trying:
            # after the block nothing is interrupted any more
            if not over:
                again = True
                _again(found.number)

    with _handled((signal.SIGINT, *more), pressed, lambda: threading.Timer(LOST, once_more).start()):
        try:
            yield found
        finally:
            over = True
            with trying:
                pass


@contextmanager
def _handled(
    numbers: tuple[signal.Signals, ...], pressed: Callable[[int, FrameType | None], None], lost: Callable[[], object]
) -> Iterator[None]:
    """Signals go to `pressed`; `lost` is called for a KeyboardInterrupt that a callback of the interpreter has lost."""
    unraisable = sys.unraisablehook

    def hook(what: sys.UnraisableHookArgs) -> None:
        if what.exc_type is not KeyboardInterrupt:
            unraisable(what)
        else:
            lost()

    try:
        before = {number: signal.signal(number, pressed) for number in numbers}
    except ValueError:
        # not the main thread, which alone is told of signals
        yield
        return
    sys.unraisablehook = hook
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = unraisable


def _again(number: int) -> None:
    """Sends a signal to this process' main thread, which wakes it; or tells Python alone, as soon as it is back from a call."""
    if hasattr(signal, "pthread_kill") and (main := threading.main_thread().ident) is not None:
        signal.pthread_kill(main, number)
    else:
        _thread.interrupt_main(signal.Signals(number))


@contextmanager
def finishing(*more: signal.Signals) -> Iterator[None]:
    """A block that one Ctrl-C (or one of `more` signals) does not end, and a second one does: the result is there, and is written."""
    count = 0

    def pressed(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count > 1:
            signal.default_int_handler(number, frame)

    with _handled((signal.SIGINT, *more), pressed, lambda: None):
        yield


@contextmanager
def progress(clock: Clock, quiet: bool, verbose: bool) -> Iterator[Progress]:
    """Shows on stderr what is told to the progress that it gives; nothing where `quiet`, and every phase where `verbose`.

    A thread of its own looks at the clock, so that time goes on while a phase blocks.
    """
    from dslc.search.options.settings import Progress

    if quiet:
        yield Progress()
        return
    if sys.stderr.isatty():
        with _bar(clock, verbose) as shown:
            yield Progress(phase=shown.phase, best=shown.found)
        return
    shown = Shown(clock, _say if verbose else str)
    with _every(LINES, lambda: _say(shown.line)):
        yield Progress(phase=shown.phase, best=shown.found)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


@contextmanager
def _bar(clock: Clock, verbose: bool) -> Iterator[Shown]:
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    total = clock.budget if clock.budget < inf else None
    clocked = "{task.fields[seconds]:.0f} s" + (f" of {total:.0f} s" if total is not None else "")
    phase, best = (TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[best]}"))
    columns = (phase, BarColumn(), TextColumn(clocked), best)
    with Bar(*columns, console=(on := console(err=True)), transient=True) as bar, guarded():
        task = bar.add_task("starting", total=total, best="", seconds=0.0)
        shown = Shown(clock, on.print if verbose else str)

        def look() -> None:
            seconds = clock.seconds
            done = 0.0 if total is None else min(seconds, FULL * total)
            bar.update(task, description=shown.what, best=shown.best, seconds=seconds, completed=done)

        with _every(LOOKS, look):
            yield shown


@contextmanager
def _every(seconds: float, call: Callable[[], None]) -> Iterator[None]:
    """Calls something every so many seconds, in a thread that ends with the block."""
    over = threading.Event()

    def loop() -> None:
        while not over.wait(seconds):
            call()

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=1)
