"""Kernels that will be asked for, compiled beside whatever else runs: one at a time, and halted while something is measured."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from dslc.codegen.host.compiler import COMPILER_MEMORY, COMPILER_SECONDS, Compiler, NotBuilt, compiler
from dslc.codegen.host.library import library_folder, object_kept
from dslc.codegen.host.processor import Processor
from dslc.codegen.text import KernelText
from dslc.processes.process import Job
from dslc.records import record
from dslc.store import is_private


@record
class _Told(Compiler):
    """A compiler that tells of what it starts."""

    started: Callable[[Job], None] = lambda _: None

    def start(
        self,
        source: Path,
        target: Path,
        *more: str,
        seconds: float = COMPILER_SECONDS,
        memory: int = COMPILER_MEMORY,
    ) -> Job:
        running = Compiler.start(self, source, target, *more, seconds=seconds, memory=memory)
        self.started(running)
        return running


class BackgroundCompiler:
    """Compiles kernels into the cache of objects, where `build` finds them; a failure is `build`'s to tell.

    A context manager, which ends the compiler that runs.
    """

    def __init__(self, folder: str | Path | None = None, processor: Processor | None = None) -> None:
        self._folder, self._processor = folder, processor
        self._texts: SimpleQueue[KernelText | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._running: Job | None = None
        self._halts = 0
        self._closed = False

    def __enter__(self) -> BackgroundCompiler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, texts: Iterable[KernelText]) -> None:
        """Kernels to be compiled, in their order."""
        for text in texts:
            self._texts.put(text)
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()

    @contextmanager
    def halted(self) -> Iterator[None]:
        """Leaves the processors to what is measured inside."""
        with self._lock:
            self._halts += 1
            if self._running:
                self._running.halt()
        try:
            yield
        finally:
            with self._lock:
                self._halts -= 1
                if self._running and not self._halts:
                    self._running.go_on()

    def close(self) -> None:
        """Ends the compiler that runs; what was added later is not compiled."""
        with self._lock:
            self._closed = True
            if self._running:
                self._running.kill()
        self._texts.put(None)
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        with contextlib.suppress(NotBuilt, OSError):
            found = compiler(self._processor)
            used = _Told(found.command, found.version, found.processor, self._started)
            place = library_folder(self._folder)
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            while is_private(place) and (text := self._texts.get()) and not self._closed:
                with tempfile.TemporaryDirectory(prefix="building-", dir=place) as temporary:
                    object_kept(used, text, place, Path(temporary))
                with self._lock:
                    self._running = None

    def _started(self, running: Job) -> None:
        with self._lock:
            self._running = running
            if self._closed:
                running.kill()
            elif self._halts:
                running.halt()
