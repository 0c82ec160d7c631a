"""The process that times models on another runtime, as `dslc.cost.worker` does on ONNX Runtime: the same requests and answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from dslc.cost.worker import answering, clocked, once, warmed
from dslc.processes.child import Asker


class Runner(Protocol):
    """A loaded model of a runtime."""

    def __init__(self, model: bytes, threads: int) -> None: ...

    def bind(self, feeds: Mapping[str, Any]) -> Callable[[], Any]:
        """A run on these inputs, without arguments."""


def serve(runner: type[Runner]) -> None:
    """Answers `load`, `bind` and `time` until the other end closes."""
    answering(Asker(), _Served(runner).answer)


class _Served:
    def __init__(self, runner: type[Runner]) -> None:
        self._runner = runner
        self._loaded: Runner | None = None
        self._call: Callable[[], Any] | None = None
        self._now: Callable[[], float] = time.perf_counter

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["do"] == "load":
            model = request["model"]
            # as ONNX Runtime's process: with one thread its own time leaves out what other processes took of the processor
            self._now = time.process_time if request["threads"] == 1 else time.perf_counter
            self._loaded = self._runner(
                model if isinstance(model, bytes) else Path(model).read_bytes(), request["threads"]
            )
            return {"outputs": []}
        if request["do"] == "bind" and self._loaded is not None:
            self._call = self._loaded.bind(request["feeds"])
            return {"plain": False, "seconds": once(self._call, self._now)}
        if request["do"] == "time" and self._call is not None:
            if request.get("warm", True):
                warmed(self._call)
            return {"seconds": clocked(self._call, request["calls"], request["inner"], self._now)}
        raise RuntimeError(f"cannot {request['do']}")


__all__ = ["Runner", "serve"]
