"""Worker processes: start, ask, stop while others run, and start again after a crash."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any

from dslc.codegen.host.processor import VARIABLE, processor
from dslc.cost.machine import allowed_cpus
from dslc.cost.worker import receive, send
from dslc.kernels import prepared

#: what runs models on ONNX Runtime
RUNNER = "dslc.cost.worker"
#: models of so many bytes are worth a file
LARGE = 1 << 22
#: a request may take so many seconds longer than is left, since starting a process is part of it
GRACE = 0.5
#: processes that are started ahead: for two models, new ones twice
SPARES = 4


class WorkerFailed(Exception):
    """The request could not be answered: the runtime refused, the process died (`died`), or it was killed because its time was
    over (`late`, a case of `died`)."""

    def __init__(self, message: str, died: bool = False, late: bool = False) -> None:
        super().__init__(message)
        self.died = died
        self.late = late


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model to be run: serialized, or a path; `folder` holds its external data.

    `runner` is the module that is started to run it, which answers as `dslc.cost.worker` does. Without `kernels` it runs as in a
    runtime that has no library for it.
    """

    model: bytes | str
    folder: str | None = None
    runner: str = RUNNER
    kernels: bool = True

    @property
    def bytes(self) -> int:
        """Its size with its external data: about what its weights take in memory."""
        if isinstance(self.model, bytes):
            size, external = len(self.model), _external_bytes(self.model, self.folder)
        else:
            path = Path(self.model)
            size = path.stat().st_size
            external = _external_bytes(path.read_bytes(), str(path.parent)) if size < 1 << 28 else 0
        return size + external


@contextlib.contextmanager
def on_disk(files: Sequence[ModelFile]) -> Iterator[list[ModelFile]]:
    """The same models, large ones in temporary files: sending one to a process takes longer than reading it there."""
    with tempfile.TemporaryDirectory(prefix="dslc-") as folder:
        yield [_stored(file, Path(folder) / f"{k}.onnx") for k, file in enumerate(files)]


def _stored(file: ModelFile, path: Path) -> ModelFile:
    if isinstance(file.model, str) or len(file.model) < LARGE or _external_bytes(file.model, file.folder):
        return file
    try:
        path.write_bytes(file.model)
    except OSError:
        return file
    return replace(file, model=str(path), folder=None)


def _external_bytes(data: bytes, folder: str | None) -> int:
    """The sizes of the files that hold a model's external data, each counted once."""
    if folder is None or b"location" not in data:
        return 0
    import onnx

    model = onnx.ModelProto.FromString(data)
    names = {
        entry.value
        for tensor in model.graph.initializer
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return sum(path.stat().st_size for name in names if (path := Path(folder) / name).exists())


def started(runner: str, isa: str) -> subprocess.Popen[bytes]:
    """A process that runs models with kernels of a level of instructions; it may not be ready yet."""
    alone = {"ORT_DISABLE_TELEMETRY": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", runner],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **alone, VARIABLE: isa},
        # Ctrl-C is for the optimizer, which then ends its workers
        start_new_session=True,
    )


class Spares:
    """Processes started ahead for whoever will need one: starting one takes as long as timing a fast model.

    They start beside what Python does on another processor, and are halted while something is measured.
    """

    def __init__(self, runner: str = RUNNER) -> None:
        self._runner, self._isa = runner, processor().isa
        self._idle: list[subprocess.Popen[bytes]] = []

    def fill(self, count: int = SPARES) -> None:
        """Starts as many as are missing to that number; none where there is one processor, on which it would take another's time."""
        if len(allowed_cpus()) > 1:
            self._idle += [started(self._runner, self._isa) for _ in range(count - len(self._idle))]

    def take(self, runner: str, isa: str) -> subprocess.Popen[bytes] | None:
        """One of that kind that runs, if any."""
        while self._idle and (runner, isa) == (self._runner, self._isa):
            process = self._idle.pop(0)
            if process.poll() is None:
                return process
            ended(process)
        return None

    @contextlib.contextmanager
    def halted(self) -> Iterator[None]:
        """Leaves the processors to what is measured inside."""
        held = list(self._idle) if hasattr(signal, "SIGSTOP") else []
        for process in held:
            process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in held:
                process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Ends those that nobody took."""
        while self._idle:
            ended(self._idle.pop())


def ended(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and lets go of its pipes."""
    process.kill()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    process.wait()


class Worker:
    """A process that runs models. Use it as a context manager, or call `close`.

    Args:
        threads: of the runtime. Kernels are those for the processor that is wanted when the worker is made.
        left: seconds that a request may take, asked at each one; a process that has not answered then is killed.
        runner: the module that is started.
        spares: processes that were started ahead.
    """

    def __init__(
        self, threads: int, left: Callable[[], float] = lambda: inf, runner: str = RUNNER, spares: Spares | None = None
    ) -> None:
        self.threads = threads
        self._processor = processor()
        self._runner = runner
        self._spares = spares
        self._left = left
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def load(self, file: ModelFile, plain: bool = False, library: str = "", profiled: bool = False) -> list[str]:
        """Loads a model in place of the one before, and gives the names of its outputs; raises WorkerFailed.

        `plain` turns the runtime's own optimizations of graphs off. Kernels of the model are built where they were not; `library` is
        the path of one that has them. `profiled`: what nodes take is asked for.
        """
        if file.kernels and not library:
            prepared(file.model, processor=self._processor)
        request = {"do": "load", "model": file.model, "folder": file.folder, "threads": self.threads, "plain": plain}
        answer = self.ask({**request, "library": library, "kernels": file.kernels, "profiled": profiled})
        names: list[str] = answer["outputs"]
        return names

    def measure(
        self,
        model: bytes,
        seconds: float,
        weights: Sequence[str] = (),
        copies: int = 1,
        layout: bool = False,
        library: str = "",
        like: bytes = b"",
    ) -> dict[str, Any]:
        """The seconds of a run of so many copies of a small model, filled as `dslc.cost.contents` says; with `layout` also what the
        runtime does about layouts. `library` is the path of one with its kernels, `like` a model that says what its inputs may be.

        It takes about `seconds` at most, kernels that are built for the model not counted; raises WorkerFailed.
        """
        prepared(model, processor=self._processor)
        request = {"do": "measure", "model": model, "weights": tuple(weights), "copies": copies, "seconds": seconds}
        return self.ask({**request, "layout": layout, "threads": self.threads, "library": library, "like": like})

    def start(self) -> None:
        """Starts the process where there is none, and does not wait for it."""
        if self._process is None:
            self._running()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Sends a request and waits for the answer; raises WorkerFailed. A dead process is started anew next time."""
        seconds = self._left()
        if seconds <= 0:
            raise WorkerFailed("there was no time left to run it", died=True, late=True)
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        late = threading.Event()

        def kill() -> None:
            late.set()
            process.kill()

        # a session that hangs inside the runtime answers no signal but this one
        timer = threading.Timer(seconds + GRACE, kill) if seconds < inf else None
        try:
            if timer is not None:
                timer.daemon = True
                timer.start()
            send(process.stdin, request)
            answer = receive(process.stdout)
        except (BrokenPipeError, OSError, EOFError):
            answer = None
        except BaseException:
            # interrupted between a request and its answer: the next answer would be the wrong one
            self.close()
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if answer is None:
            code = self._ended()
            if late.is_set():
                raise WorkerFailed(f"it did not end within {seconds:.3g} s", died=True, late=True)
            raise WorkerFailed(f"the process that runs models died ({_reason(code)})", died=True)
        if not answer["ok"]:
            raise WorkerFailed(answer["error"])
        return answer

    def stop(self) -> None:
        """Halts the process, threads that spin included, until the next request."""
        if hasattr(signal, "SIGSTOP") and self._process is not None and not self._stopped:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGSTOP)
                self._stopped = True

    def close(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is None:
            return
        ended(process)
        self._stopped = False

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            spare = None if self._spares is None else self._spares.take(self._runner, self._processor.isa)
            self._process = spare or started(self._runner, self._processor.isa)
        elif self._stopped:
            self._process.send_signal(signal.SIGCONT)
        self._stopped = False
        return self._process

    def _ended(self) -> int:
        process = self._process
        assert process is not None
        try:
            code = process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = 0
        self.close()
        return code


def _reason(code: int) -> str:
    if code == -signal.SIGKILL:
        return "killed, as the system does when memory runs out"
    if code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"
