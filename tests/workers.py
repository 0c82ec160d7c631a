"""Processes that run models, prove or solve, forked from one that has imported what they need: importing it was a third of the time.

What is started is what `python -m dslc.cost.worker` and its like start, with the environment, folder and processors of the process
that asks. Command lines that tests start as processes of their own start theirs without this.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import IO, Any, NoReturn
from unittest import mock

RUNNER = "dslc.cost.worker"
#: modules that a process may be, each with a function `main`
SERVICES = (RUNNER, "dslc.prove.run.worker", "dslc.egraph.extract.ilp")
#: arguments of `prctl`: whose children those become whose parent ends
SUBREAPER = 36
#: libraries of products read them when they are imported
ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def serve(asked: socket.socket) -> None:
    """Fork a worker for each message until the other end closes."""
    import gc
    import importlib

    # the runtime is left to each fork: its import starts a thread
    worker, *_ = map(importlib.import_module, (*SERVICES, "dslc.cost.contents", "dslc.onnx.microbenchmarks"))
    importlib.import_module("dslc.semantics.library").standard()
    gc.freeze()
    while True:
        data, ends, _, _ = socket.recv_fds(asked, 1 << 20, 3)
        if not data:
            return
        back, there = os.pipe()
        between = os.fork()
        if not between:
            # its parent ends, so that whoever asked becomes the one that waits for it
            if pid := os.fork():
                os.write(there, pid.to_bytes(8, "little"))
                os._exit(0)
            _work(worker, asked, ends, there, pickle.loads(data))
        os.close(there)
        os.waitpid(between, 0)
        for end in ends:
            os.close(end)
        asked.sendall(os.read(back, 8))
        os.close(back)


def _work(worker: Any, asked: socket.socket, ends: list[int], there: int, state: dict[str, Any]) -> NoReturn:
    code = 1
    try:
        os.setsid()
        os.close(there)
        asked.close()
        for number, end in enumerate(ends):
            os.dup2(end, number)
            os.close(end)
        os.environ.clear()
        os.environ.update(state["environment"])
        os.chdir(state["folder"])
        os.sched_setaffinity(0, state["processors"])
        worker.CPUS = worker.allowed_cpus()
        # no test rests on the last percent of a time
        worker.BLOCKS, worker.SLICE, worker.WARM_RUNS = 3, 2e-3, 10
        # one that was started ahead and is never asked imports no runtime
        select.select([0], [], [])
        sys.modules[state["module"]].main()  # type: ignore[attr-defined]
        code = 0
    except SystemExit:
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


class Forks:
    """The process that forks, which is started with the first worker; a fork of this process has none."""

    def __init__(self) -> None:
        self._owner = 0
        self._socket: socket.socket | None = None

    def spawned(self, module: str, environment: dict[str, str], stderr: int | None) -> tuple[int, IO[bytes], IO[bytes]]:
        """Return the number of a new worker, what writes its requests and what reads its answers."""
        if self._owner != os.getpid():
            self._start()
        assert self._socket is not None
        (requests, to), (back, answers) = os.pipe(), os.pipe()
        hidden = os.open(os.devnull, os.O_WRONLY) if stderr is not None else os.dup(2)
        state = {
            "module": module,
            "environment": environment,
            "folder": os.getcwd(),
            "processors": os.sched_getaffinity(0),
        }
        libc = ctypes.CDLL(None)
        libc.prctl(SUBREAPER, 1)
        try:
            socket.send_fds(self._socket, [pickle.dumps(state)], [requests, answers, hidden])
            pid = int.from_bytes(self._socket.recv(8), "little")
        finally:
            libc.prctl(SUBREAPER, 0)
            for end in (requests, answers, hidden):
                os.close(end)
        return pid, os.fdopen(to, "wb", 0), os.fdopen(back, "rb", 0)

    def _start(self) -> None:
        near, far = socket.socketpair()
        # it ends when the last process that has the other end does
        subprocess.Popen(
            (sys.executable, "-P", __file__, str(far.fileno())),
            env={**os.environ, **ALONE},
            pass_fds=[far.fileno()],
            stdin=subprocess.DEVNULL,
        ).returncode = 0
        far.close()
        self._owner, self._socket = os.getpid(), near


@contextlib.contextmanager
def forked_workers() -> Iterator[None]:
    """Workers of this process are forks of one process. Only where children can be taken over: on Linux."""
    if sys.platform != "linux":
        yield
        return
    from dslc.processes import child

    forks, real = Forks(), child.spawned
    started = [(sys.executable, "-m", module) for module in SERVICES]

    def spawned(command: Any, stdin: int, stdout: Any, stderr: Any) -> tuple[int, Any, Any]:
        if command.arguments not in started or command.called != list(command.arguments):
            return real(command, stdin, stdout, stderr)
        return forks.spawned(command.arguments[-1], {**os.environ, **dict(command.environment)}, stderr)

    with mock.patch.object(child, "spawned", spawned):
        yield


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
