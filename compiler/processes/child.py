"""A module of Python's in a process of its own that answers messages; what it answers with is `served`."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

from dslc.deadline import FOREVER, Deadline
from dslc.processes.process import Command, Process, ProcessFailed, ProcessFailure, spawned

GONE = 5.0  #: seconds until a process whose pipe is closed has ended

#: libraries of products take one processor: whoever starts several processes has one for each
_ALONE = (("OMP_NUM_THREADS", "1"), ("OPENBLAS_NUM_THREADS", "1"), ("ORT_DISABLE_TELEMETRY", "1"))


def module(name: str, **environment: str) -> Command:
    """A module that is run by this Python, as `python -m`."""
    return Command((sys.executable, "-m", name), (*_ALONE, *environment.items()))


class Answering(Process):
    """A process that sends messages on a pipe. Moments are seconds of `time.monotonic`."""

    def __init__(self, pid: int, answers: IO[bytes], *pipes: IO[bytes]) -> None:
        # asked for its number each time: that of a closed one may be another's
        self._answers = answers
        super().__init__(pid, answers, *pipes)

    def fileno(self) -> int:
        """The number of the pipe that can be read when there is news; see `ready`."""
        return self._answers.fileno()

    def receive(self, until: Deadline = FOREVER) -> Any:
        """Waits for the next message; raises ProcessFailed (LATE, MEMORY or ENDED)."""
        with self._failing():
            return receive(self._answers.fileno(), until)

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise ProcessFailed(ProcessFailure.LATE) from None
        except (EOFError, OSError):
            code = None
            with contextlib.suppress(ProcessFailed):
                code = self.wait(Deadline.after(GONE))
            if code == -signal.SIGKILL:
                raise ProcessFailed(ProcessFailure.MEMORY) from None
            named = "" if code is None else f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            raise ProcessFailed(ProcessFailure.ENDED, named) from None


Talks = TypeVar("Talks", bound=Answering)


class Child(Answering):
    """A command that is sent messages and answers with messages.

    Raises:
        ProcessFailed: REFUSED, it cannot be started.
    """

    def __init__(self, command: Command) -> None:
        hidden = None if os.environ.get("DSLC_DEBUG") else subprocess.DEVNULL
        pid, requests, answers = spawned(command, subprocess.PIPE, subprocess.PIPE, hidden)
        assert requests is not None and answers is not None
        os.set_blocking(requests.fileno(), False)
        self._requests = requests
        super().__init__(pid, answers, requests)

    def send(self, message: object, until: Deadline = FOREVER) -> None:
        """Sends a message; raises ProcessFailed (LATE, MEMORY or ENDED)."""
        with self._failing():
            send(self._requests.fileno(), message, until)


def ready(processes: Iterable[Talks], until: Deadline = FOREVER) -> list[Talks]:
    """Processes with news, a message or their end; none where there is none until then."""
    known = {one.fileno(): one for one in processes}
    poll = select.poll()
    for number in known:
        poll.register(number, select.POLLIN)
    return [known[number] for number, _ in poll.poll(min(until.left(), LONGEST) * 1e3)]


class Service:
    """A child that is started when something is asked, and anew where it has failed. Not for several threads.

    Args:
        start: starts one; what it raises, `ask` raises.
    """

    def __init__(self, start: Callable[[], Child]) -> None:
        self._start = start
        self._child: Child | None = None
        self._halted = False

    @property
    def child(self) -> Child | None:
        """The process, where there is one."""
        return self._child

    def running(self) -> Child:
        """The process, which is started where there is none, and goes on where it was halted."""
        if not self._child:
            self._child = self._start()
        elif self._halted:
            self._child.go_on()
        self._halted = False
        return self._child

    def ask(self, message: object, until: Deadline = FOREVER) -> Any:
        """The answer to a message; raises ProcessFailed, and has ended the process then."""
        child = self.running()
        try:
            child.send(message, until)
            return child.receive(until)
        except BaseException:
            # between a request and its answer: the next answer would be the wrong one
            self.close()
            raise

    def halt(self) -> None:
        """Takes the processor from the process until it is asked again."""
        if self._child and not self._halted:
            self._child.halt()
            self._halted = True

    def close(self) -> None:
        """Ends the process."""
        child, self._child, self._halted = self._child, None, False
        if child:
            child.end()


def goes_first() -> None:
    """Make this process the first to be ended where memory runs out, and not the one that has started it."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("500")


class Asker:
    """The far end: whoever has started this process. What a library prints goes to stderr, not between the answers."""

    def __init__(self) -> None:
        self._answers = os.dup(1)
        os.dup2(2, 1)
        goes_first()

    def __iter__(self) -> Iterator[Any]:
        """Messages until the other end closes."""
        with contextlib.suppress(EOFError, BrokenPipeError):
            while True:
                yield receive(0)

    def answer(self, message: object) -> None:
        """Sends a message; ends this process where no reader is left."""
        try:
            send(self._answers, message)
        except BrokenPipeError:
            raise SystemExit from None


_LENGTH = struct.Struct("<Q")
#: seconds that one wait takes at most: the system counts milliseconds in 31 bits
LONGEST = 1e6


def send(pipe: int, message: object, until: Deadline = FOREVER) -> None:
    """Writes a message; `pipe` does not block where there is a moment until which it has to be written.

    Raises:
        TimeoutError: it was not read in time.
        OSError: no reader is left.
    """
    data = pickle.dumps(message, protocol=5)
    for part in (_LENGTH.pack(len(data)), data):
        left = memoryview(part)
        while left:
            _awaited(pipe, select.POLLOUT, until)
            left = left[os.write(pipe, left) :]


def receive(pipe: int, until: Deadline = FOREVER) -> Any:
    """Reads the next message.

    Raises:
        TimeoutError: it was not whole in time.
        EOFError: no writer is left.
    """
    (length,) = _LENGTH.unpack(_exactly(pipe, _LENGTH.size, until))
    return pickle.loads(_exactly(pipe, length, until))


def _exactly(pipe: int, count: int, until: Deadline) -> bytearray:
    data = bytearray(count)
    left = memoryview(data)
    while left:
        _awaited(pipe, select.POLLIN, until)
        got = os.readv(pipe, [left])
        if not got:
            raise EOFError
        left = left[got:]
    return data


def _awaited(pipe: int, what: int, until: Deadline) -> None:
    """Waits until a pipe can be written or read, which is looked at once where it is too late."""
    poll = select.poll()
    poll.register(pipe, what)
    while True:
        left = until.left()
        if poll.poll(max(0.0, min(left, LONGEST)) * 1e3):
            return
        if left <= 0:
            raise TimeoutError
