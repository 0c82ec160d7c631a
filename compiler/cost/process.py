"""Processes that run models: started ahead, asked within a budget, halted while others run, and started again after a crash."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

from dslc.codegen.host.processor import VARIABLE, processor
from dslc.cost.machine import allowed_cpus
from dslc.deadline import FOREVER, Deadline
from dslc.kernels import prepared
from dslc.processes.child import Child, Service, module
from dslc.processes.process import ProcessFailed, ProcessFailure, halted
from dslc.records import record
from dslc.reporting.data import Timed

#: what runs models on ONNX Runtime
RUNNER = "dslc.cost.worker"


LARGE = 1 << 22  #: bytes of a model that is worth a file
GRACE = 0.5  #: seconds that a request may take longer than is left, since starting a process is part of it
LOADING = 3.0  #: seconds of loading what is measured
HOPELESS = 8.0  #: how many times as long as a hopeless run takes a run may take before it is ended
SPARES = 4  #: processes that are started ahead: for two models, new ones twice


class WorkerFailed(Exception):
    """The request could not be answered.

    The runtime refused, the process died (`died`), or it was killed because its time was over (`late`, a case of
    `died`).
    """

    def __init__(self, message: str, died: bool = False, late: bool = False) -> None:
        super().__init__(message)
        self.died = died
        self.late = late


@record
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


def started(runner: str, isa: str) -> Child:
    """A process that runs models with kernels of a level of instructions; it may not be ready yet."""
    return Child(module(runner, **{VARIABLE: isa}))


class PrestartedWorkers:
    """Processes started ahead for whoever will need one: starting one takes as long as timing a fast model.

    They start beside what Python does on another processor, and are halted while something is measured.
    """

    def __init__(self, runner: str = RUNNER) -> None:
        self._runner, self._isa = runner, processor().isa
        self._idle: list[Child] = []

    def fill(self, count: int = SPARES) -> None:
        """Starts as many as are missing to that number; none where there is one processor, on which it would take another's time."""
        if len(allowed_cpus()) > 1:
            self._idle += [started(self._runner, self._isa) for _ in range(count - len(self._idle))]

    def take(self, runner: str, isa: str) -> Child | None:
        """One of that kind that runs, if any."""
        while self._idle and (runner, isa) == (self._runner, self._isa):
            child = self._idle.pop(0)
            if child.code is None:
                return child
            child.end()
        return None

    def halted(self) -> contextlib.AbstractContextManager[None]:
        """Leaves the processors to what is measured inside."""
        return halted(self._idle)

    def close(self) -> None:
        """End the processes that were started and never taken."""
        while self._idle:
            self._idle.pop().end()


class Worker:
    """A process that runs models. Use it as a context manager, or call `close`.

    Args:
        threads: of the runtime. Kernels are those for the processor that is wanted when the worker is made.
        until: when requests end; a process that has not answered then is killed.
        runner: the module that is started.
        spares: processes that were started ahead.
    """

    def __init__(
        self, threads: int, until: Deadline = FOREVER, runner: str = RUNNER, spares: PrestartedWorkers | None = None
    ) -> None:
        self.threads = threads
        self._processor = processor()
        self._runner = runner
        self._spares = spares
        self._until = until
        self._service = Service(self._started)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def load(self, file: ModelFile, plain: bool = False, library: str = "", profile: str = "") -> list[str]:
        """Loads a model in place of the one before, and gives the names of its outputs; raises WorkerFailed.

        `plain` turns the runtime's own optimizations of graphs off. Kernels of the model are built where they were not; `library` is
        the path of one that has them. `profile`: an empty folder, where what nodes take is asked for.
        """
        if file.kernels and not library:
            prepared(file.model, processor=self._processor)
        names: list[str] = self.ask({
            "do": "load", "model": file.model, "folder": file.folder, "threads": self.threads, "plain": plain, "library": library,
            "kernels": file.kernels, "profile": profile,
        })["outputs"]  # fmt: skip
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
        hopeless: float = inf,
    ) -> dict[str, Any]:
        """The seconds of a run of so many copies of a small model, filled as `dslc.cost.contents` says.

        With `layout` also what the runtime does about layouts. `library` is the path of one with its kernels, `like` a
        model that says what its inputs may be. Of what takes longer than `hopeless` seconds one run is enough, and of
        what takes far longer the process is ended.

        It takes about `seconds` at most, kernels that are built for the model not counted; raises WorkerFailed.
        """
        prepared(model, processor=self._processor)
        request = {
            "do": "measure", "model": model, "weights": tuple(weights), "copies": copies, "seconds": seconds, "hopeless": hopeless,
            "layout": layout, "threads": self.threads, "library": library, "like": like,
        }  # fmt: skip
        return self.ask(request, LOADING + HOPELESS * hopeless)

    def start(self) -> None:
        """Starts the process where there is none, and does not wait for it; raises WorkerFailed."""
        try:
            self._service.running()
        except ProcessFailed as problem:
            raise WorkerFailed(f"the process that runs models did not start ({problem})", died=True) from None

    def ask(self, request: dict[str, Any], most: float = inf) -> dict[str, Any]:
        """Sends a request and waits for the answer, so many seconds at most; raises WorkerFailed.

        A dead process is started anew next time.
        """
        seconds = min(self._until.left(), most)
        if seconds <= 0:
            raise WorkerFailed("there was no time left to run it", died=True, late=True)
        try:
            answer: dict[str, Any] = self._service.ask(request, Deadline.after(seconds + GRACE))
        except ProcessFailed as problem:
            late = problem.failure is ProcessFailure.LATE
            why = f"it did not end within {seconds:.3g} s" if late else f"the process that runs models died ({problem})"
            raise WorkerFailed(why, died=True, late=late) from None
        if not answer["ok"]:
            raise WorkerFailed(answer["error"])
        return answer

    def stop(self) -> None:
        """Halts the process, threads that spin included, until the next request."""
        self._service.halt()

    def close(self) -> None:
        """Ends the process."""
        self._service.close()

    def _started(self) -> Child:
        spare = self._spares.take(self._runner, self._processor.isa) if self._spares else None
        return spare or started(self._runner, self._processor.isa)


def profiled(file: ModelFile, feeds: Mapping[str, Any], threads: int, seconds: float) -> tuple[Timed, ...]:
    """Medians of each node's time, in order of execution, over the runs that fit into about so many seconds, without the first.

    Nothing where the model does not run, or not in that time; loading it counts.
    """
    if seconds <= 0:
        return ()
    try:
        # this process makes it and takes it away, whatever becomes of the worker
        with TemporaryDirectory(prefix="dslc-") as folder, Worker(threads, Deadline.after(seconds)) as worker:
            worker.load(file, profile=folder)
            answer = worker.ask({"do": "profile", "feeds": dict(feeds), "seconds": seconds / 2})
    except WorkerFailed:
        return ()
    return tuple(Timed(name, operator, taken * 1e3) for name, operator, taken in answer["nodes"])
