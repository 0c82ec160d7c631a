"""A command that gets a part of a processor: what a slow or busy machine does, on a fast one.

    python -m benchmarks.throttle [--share 0.33] COMMAND ...

Stops and continues the command and all that it starts, some twenty times a second. Processes that the command itself has stopped stay
so. It needs no rights and no limits of the system's; all of its processes together get the share of each processor.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import psutil

#: a third of a processor on a machine with two
THIRD = 1 / 3


@dataclass(frozen=True, slots=True)
class Done:
    """Exit code, what was written, and seconds of wall time."""

    code: int
    out: str
    err: str
    seconds: float


def run(command: Sequence[str], share: float = 1.0, environment: Mapping[str, str] | None = None) -> Done:
    """Runs a command with a share (0 to 1) of each processor."""
    began = time.monotonic()
    process = subprocess.Popen(
        list(command), env=dict(environment or os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with throttled(process.pid, share):
        out, err = process.communicate()
    return Done(process.returncode, out, err, time.monotonic() - began)


@contextlib.contextmanager
def throttled(pid: int, share: float, period: float = 0.05) -> Iterator[None]:
    """Gives a process and all below it a share of each processor, in periods of so many seconds."""
    over = threading.Event()
    # held from here on: its number may be another's once it has ended
    parent = _process(pid)

    def turns() -> None:
        while parent is not None and not over.is_set():
            stopped = _stop(parent)
            over.wait((1 - share) * period)
            for each in reversed(stopped):
                _signal(each, signal.SIGCONT)
            over.wait(share * period)

    thread = threading.Thread(target=turns, daemon=True)
    if share < 1:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if share < 1:
            thread.join()


def _process(pid: int) -> psutil.Process | None:
    """A process by its number, which psutil compares with the moment of its start before it sends a signal; None where it has ended."""
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def _stop(parent: psutil.Process) -> list[psutil.Process]:
    """Stops a process and those below it, parents first, and gives those that were not stopped already."""
    stopped: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        _signal(parent, signal.SIGSTOP)
        stopped.append(parent)
        for each in parent.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if each.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
                    _signal(each, signal.SIGSTOP)
                    stopped.append(each)
    return stopped


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.Error, OSError):
        process.send_signal(number)


def add_option(parser: argparse.ArgumentParser) -> None:
    """`--share`, as the benchmarks of budgets have it."""
    parser.add_argument(
        "--share", type=float, default=1.0, metavar="PART",
        help="of each processor that dslc gets, as on a slow machine (0.33: a third; default all)",
    )  # fmt: skip


def main() -> int:
    """The command line; the command's exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throttle", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--share", type=float, default=THIRD)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    process = subprocess.Popen(options.command)
    with throttled(process.pid, options.share):
        return process.wait()


if __name__ == "__main__":
    sys.exit(main())
