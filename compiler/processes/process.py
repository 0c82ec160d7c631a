"""A program in a session of its own: limited, halted, and ended with all that it has started, also where this process is killed.

A signal goes only to a group that this process made, and only until its leader was waited for: so long its number is its own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import IO, Self

from dslc.deadline import FOREVER, Deadline
from dslc.processes.guard import GUARD
from dslc.records import record

LOOK = 5e-4  #: seconds between the first two looks whether it has ended
LOOKS = 0.01  #: seconds between two looks, at most


class ProcessFailure(Enum):
    """The reason for which a process gives no answer; what is decided depends on this, never on the words of a message."""

    REFUSED = "it cannot be started"
    LATE = "it did not end in time"
    MEMORY = "killed, as the system does when memory runs out"
    ENDED = "it ended"


class ProcessFailed(Exception):
    """There is no answer."""

    def __init__(self, failure: ProcessFailure, detail: str = "") -> None:
        super().__init__(detail or failure.value)
        self.failure = failure


@record
class Command:
    """A program to be run.

    `environment` are variables beside this process's own, `folder` is where it runs. It may have `memory` bytes of addresses, and write
    `written` bytes to a file (0: no limit). macOS limits no memory.
    """

    arguments: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    folder: Path | None = None
    memory: int = 0
    written: int = 0

    @property
    def called(self) -> list[str]:
        """The arguments of its call, by a shell where it has limits: between a fork and the start of a program no Python may run."""
        limits = [f"ulimit -v {self.memory >> 10} 2>/dev/null"] if self.memory else []
        limits += [f"ulimit -f {self.written >> 9}"] if self.written else []
        shell = shutil.which("sh") if limits else None
        if shell is None:
            return list(self.arguments)
        return [shell, "-c", "; ".join([*limits, "ulimit -c 0", 'exec "$@"']), "sh", *self.arguments]


class Process:
    """A process that leads a group of its own. Use it as a context manager, or call `end`.

    Args:
        pid: its number, which is its group's; this process has started it, and alone waits for it.
        pipes: what is closed when it is let go of.
    """

    def __init__(self, pid: int, *pipes: IO[bytes]) -> None:
        self._owner, self._turn = os.getpid(), threading.Lock()
        self._pid, self._pipes = pid, pipes
        self._code: int | None = None
        try:
            GUARD.add(pid)
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.end()

    @property
    def pid(self) -> int:
        """Its number, and that of its group."""
        return self._pid

    @property
    def code(self) -> int | None:
        """Its exit code, a signal as a negative number; None while it runs. It is not waited for: its number stays its own."""
        with self._turn:
            if self._code is not None:
                return self._code
            # macOS has no such call, and a child that is gone is none
            with contextlib.suppress(AttributeError, ChildProcessError):
                found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                sign = 1 if found is None or found.si_code == os.CLD_EXITED else -1
                return None if found is None else sign * found.si_status
            return self._waited(os.WNOHANG)

    def _waited(self, options: int = 0) -> int | None:
        try:
            pid, status = os.waitpid(self.pid, options)
        except ChildProcessError:
            # a process that ignores the ends of its children, as some that start this one do, is not told how they ended
            pid, status = self.pid, 0
        if pid:
            self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self, until: Deadline = FOREVER) -> int:
        """Its code, once it has ended; raises ProcessFailed (LATE) at that moment."""
        pause = LOOK
        while (code := self.code) is None:
            left = until.left()
            if left <= 0:
                raise ProcessFailed(ProcessFailure.LATE)
            time.sleep(min(pause, left))
            pause = min(2 * pause, LOOKS)
        return code

    @property
    def spent(self) -> float:
        """Seconds of processor time, with those of the processes that it has started; 0 where it is gone."""
        import psutil  # type: ignore[import-untyped]

        try:
            process = psutil.Process(self.pid)
            ended = process.cpu_times()
            running = [one.cpu_times() for one in (process, *process.children())]
            return float(sum(times.user + times.system for times in running) + ended.children_user)
        except psutil.Error:
            return 0.0

    def halt(self) -> None:
        """Takes the processor from it, threads that spin included, until it may go on."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Gives the processor back."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends it at once; whoever waits for it finds it ended."""
        self._signal(signal.SIGKILL)

    def interrupt(self, seconds: float) -> None:
        """Sends it Ctrl-C, and waits so long for its end; the processes that it has started are its own business."""
        self._signal(signal.SIGINT, alone=True)
        with contextlib.suppress(ProcessFailed):
            self.wait(Deadline.after(seconds))

    def _signal(self, number: int, alone: bool = False) -> None:
        with self._turn:
            # a fork of this process has the object, but not the process
            if self._code is None and os.getpid() == self._owner:
                with contextlib.suppress(OSError):
                    (os.kill if alone else os.killpg)(self.pid, number)

    def end(self) -> None:
        """Ends it, and what it has started, where it runs; its number may be another's from then on."""
        self.kill()
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.close()
        if os.getpid() == self._owner and self._code is None:
            GUARD.remove(self.pid)
            with self._turn:
                if self._code is None:
                    self._waited()


def spawned(
    command: Command, stdin: int, stdout: int | IO[bytes], stderr: int | IO[bytes] | None
) -> tuple[int, IO[bytes] | None, IO[bytes] | None]:
    """The number of a command that runs in a session of its own, and the ends of its pipes; raises ProcessFailed (REFUSED)."""
    try:
        started = subprocess.Popen(
            command.called, bufsize=0, stdin=stdin, stdout=stdout, stderr=stderr, cwd=command.folder,
            env={**os.environ, **dict(command.environment)}, start_new_session=True,
        )  # fmt: skip
    except OSError as problem:
        raise ProcessFailed(ProcessFailure.REFUSED, str(problem)) from None
    # it is `Process` that waits for it
    started.returncode = 0
    return started.pid, started.stdin, started.stdout


class Job(Process):
    """A command that runs to its end, `seconds` at most; what it says is kept. Raises ProcessFailed (REFUSED)."""

    def __init__(self, command: Command, seconds: float) -> None:
        self.seconds, self._until = seconds, Deadline.after(seconds)
        # however much it says: a file grows no larger than the command may write
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            super().__init__(spawned(command, subprocess.DEVNULL, self._said, subprocess.STDOUT)[0])
        except BaseException:
            self._said.close()
            raise

    @property
    def ended(self) -> bool:
        """Return whether it has ended, or its time is over."""
        return self.code is not None or self._until.over

    def answer(self, most: int) -> tuple[int, str]:
        """Its code and so many bytes of what it said; raises ProcessFailed (LATE) where its time is over."""
        code = self.wait(self._until)
        self._said.seek(0)
        return code, self._said.read(most).decode("utf-8", "replace")

    def end(self) -> None:
        super().end()
        self._said.close()


@contextmanager
def halted(processes: Iterable[Process]) -> Iterator[None]:
    """Leaves the processors to what is measured inside."""
    held = list(processes)
    try:
        for one in held:
            one.halt()
        yield
    finally:
        for one in held:
            one.go_on()
