"""The process in which models are loaded, run and timed: a crash or a lack of memory there leaves the optimizer alive.

Started as `python -m dslc.cost.worker`. Requests and answers are dictionaries; the other end is `dslc.cost.process.Worker`. One model
at a time.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil, inf
from pathlib import Path
from typing import Any, TextIO

from dslc.codegen.host.library import checked
from dslc.cost.machine import allowed_cpus
from dslc.kernels import known, register
from dslc.processes.child import Asker

# as the process was started: pinning changes what the system answers later
CPUS = allowed_cpus()


SAMPLE = 2e-4  #: seconds of a sample
SLICE = 4e-3  #: seconds of a block of samples: as long as a time slice
SHORTEST = 1e-6  #: seconds that a run takes at least, whatever a clock says
BLOCKS = 6  #: blocks of a measurement at least
WARM_RUNS = 30  #: runs of a fast model before it is measured
WARMING = 2e-3  #: seconds of runs before a block of samples that are compared with another model's
COLD = 2.0  #: how many times as long as a later run a first one may take
#: runs in which the time of each node is looked at, at most: the runtime writes a line for each node of each
PROFILED = 50


def _runtime() -> Any:
    """ONNX Runtime, whose Python interface is only partly typed."""
    return importlib.import_module("onnxruntime")


class _Hopeless(Exception):
    """A model beyond any limit of time, at `seconds` a run."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class LoadedModel:
    """A session with its inputs and outputs bound to memory, so that a run copies and allocates nothing."""

    def __init__(
        self, model: bytes | str, threads: int, folder: str | None = None, optimized: str = "", plain: bool = False,
        library: str = "", kernels: bool = True, profile: str = "",
    ) -> None:  # fmt: skip
        onnxruntime = _runtime()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        if folder is not None and isinstance(model, bytes):
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
        if plain:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        if library:
            with checked(Path(library)) as name:
                options.register_custom_ops_library(name)
        elif kernels:
            # kernels that were built for the model: whoever asks has seen to that
            register(options, known(model))
        if optimized:
            # where the runtime writes what it made of the model
            options.optimized_model_filepath = optimized
        before = _tasks()
        #: what the runtime writes about its nodes
        self.profile: TextIO | None = None
        if profile:
            options.enable_profiling = True
            options.profile_file_prefix = f"{profile}/run"
        with _spread(threads, before):
            self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        if profile:
            (written,) = Path(profile).iterdir()
            self.profile = written.open(encoding="utf-8")
            # private to this process, so that one that is ended from outside leaves nothing
            written.unlink()
        self.call: Callable[[], Any] = _unbound
        # with one thread nothing waits: its own time leaves out the share of other processes
        self.clock = time.thread_time if threads == 1 else time.perf_counter

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The outputs as numpy arrays (lists and dictionaries where the model has sequences and maps)."""
        if not self._tensors():
            return list(self.session.run(None, dict(feeds)))
        return list(map(_array, self.session.run_with_ort_values(None, self._values(feeds))))

    def bind(self, feeds: Mapping[str, Any], plain: bool = False, hopeless: float = inf) -> bool:
        """Prepares `call`: one run on these inputs.

        Whether its outputs are allocated anew in each run: where `plain` asks for it, and where the runtime binds none,
        as with a model that declares a wrong rank. Raises _Hopeless as soon as a run took much longer than `hopeless`
        seconds.
        """
        if not self._tensors():
            given = dict(feeds)
            self.call = lambda: self.session.run(None, given)
            return True
        values = self._values(feeds)
        try:
            bound = None if plain else self._binding(values, hopeless)
        except _Hopeless:
            raise
        except Exception:  # ONNX Runtime raises many kinds, none of them documented
            bound = None
        if bound is None:
            self.call = lambda: self.session.run_with_ort_values(None, values)
            self.call()
        else:
            # it was run when its outputs were bound
            self.call = lambda: self.session.run_with_iobinding(bound)
        return bound is None

    def _binding(self, values: Mapping[str, Any], hopeless: float = inf) -> Any:
        """Inputs and outputs bound to the memory that a first run took. Raises _Hopeless."""
        binding = self.session.io_binding()
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        names = [output.name for output in self.session.get_outputs()]
        for name in names:
            binding.bind_output(name, "cpu")
        for most in (COLD * hopeless, hopeless):
            (seconds,) = clocked(lambda: self.session.run_with_iobinding(binding), 1, 1, self.clock)
            if seconds > most:
                raise _Hopeless(seconds)
            # the first run made the memory that the others write to
            for name, value in zip(names, binding.get_outputs(), strict=True):
                binding.bind_ortvalue_output(name, value)
        return binding

    def _tensors(self) -> bool:
        ends = [*self.session.get_inputs(), *self.session.get_outputs()]
        return all(end.type.startswith("tensor(") and end.type != "tensor(string)" for end in ends)

    def _values(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        OrtValue = _runtime().OrtValue
        types = {end.name: end.type for end in self.session.get_inputs()}
        bfloat16 = 16  # onnx.TensorProto.BFLOAT16
        values = {}
        for name, array in feeds.items():
            if types.get(name) == "tensor(bfloat16)":
                import numpy as np

                values[name] = OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), bfloat16)
            else:
                values[name] = OrtValue.ortvalue_from_numpy(array)
        return values


def _tasks() -> set[int]:
    """The threads of this process, where the system tells."""
    return {int(task) for task in os.listdir("/proc/self/task")} if sys.platform == "linux" else set()


@contextlib.contextmanager
def _spread(threads: int, before: set[int]) -> Iterator[None]:
    """One processor for each thread where all are wanted: left alone, two of them often land on one."""
    cpus = CPUS
    if not before or threads != len(cpus) or threads == 1:
        yield
        return
    main = os.getpid()
    os.sched_setaffinity(main, cpus)
    yield
    with contextlib.suppress(OSError):
        for task, cpu in zip(sorted(_tasks() - before), cpus[1:], strict=False):
            os.sched_setaffinity(task, {cpu})
        os.sched_setaffinity(main, {cpus[0]})


def _array(value: Any) -> Any:
    if value.data_type() == "tensor(bfloat16)":
        import ctypes

        import ml_dtypes
        import numpy as np

        shape = tuple(value.shape())
        count = int(np.prod(shape))
        words = np.empty(count, np.uint16)
        if count:
            ctypes.memmove(words.ctypes.data, value.data_ptr(), count * 2)
        return words.view(ml_dtypes.bfloat16).reshape(shape)
    return value.numpy()


def clocked(call: Callable[[], Any], calls: int, inner: int, now: Callable[[], float]) -> list[float]:
    """Seconds of each of `calls` samples by the clock `now`; a sample is the mean of `inner` runs."""
    times = []
    for _ in range(calls):
        wall, start = time.perf_counter(), now()
        for _ in range(inner):
            call()
        spent = now() - start
        # a processor's clock may stand still: on a virtual machine it did
        times.append((spent if spent > 0 else time.perf_counter() - wall) / inner)
    return times


def once(call: Callable[[], Any], now: Callable[[], float]) -> float:
    """About what a run takes, in seconds; a slow one runs once."""
    first = clocked(call, 1, 1, now)[0]
    return first if first > SLICE else min(clocked(call, WARM_RUNS, 1, now))


def warmed(call: Callable[[], Any]) -> None:
    """Runs until the caches hold what a run leaves in them, and not what another process left."""
    until = time.perf_counter() + WARMING
    call()
    while time.perf_counter() < until:
        call()


def fastest(call: Callable[[], Any], seconds: float, now: Callable[[], float], hopeless: float = inf) -> float:
    """The least time of a run, in seconds.

    Blocks of samples, each as long as a system's time slices, until three blocks come near the least (3 %): a spell in which
    a neighbour has the processor, or half of the threads wait for one, is longer than a few runs, and no block that lies within
    it says what a run takes. So a busy machine gets more samples than a quiet one; or until time is up, after one block at least.
    Of what takes longer than `hopeless` seconds one run is enough, and of what takes longer than all of `seconds` as well: a spell
    is short beside it.
    """
    deadline = time.perf_counter() + seconds
    once = clocked(call, 1, 1, now)[0]
    if once > min(hopeless, seconds):
        return once
    if 3 * once < seconds:
        once = min(once, *clocked(call, 2, 1, now))
    if once < SAMPLE:
        # the first runs are slower, and a sample of too few runs would be the clock's time
        once = min(clocked(call, WARM_RUNS, 1, now))
    inner = max(1, int(SAMPLE / max(once, SHORTEST)))
    count = max(2, ceil(SLICE / max(once * inner, SAMPLE / 2)))
    blocks: list[float] = []
    while not blocks or (
        time.perf_counter() < deadline and (len(blocks) < BLOCKS or sorted(blocks)[2] > 1.03 * min(blocks))
    ):
        blocks.append(min(clocked(call, count, inner, now)))
    return min(blocks)


def _layout(model: bytes, weights: Sequence[str], threads: int) -> tuple[tuple[int, ...], bool, bool]:
    """Layouts as the runtime chose them, in the form of `dslc.cost.measure.Measured`."""
    from dslc.cost.contents import filled
    from dslc.onnx.microbenchmarks import changes, may_be_blocked, with_blocked

    def looked_at(one: bytes) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            LoadedModel(filled(one, weights, 1)[0], threads, optimized=f"{folder}/optimized.onnx")
            return changes(f"{folder}/optimized.onnx")

    names = [name for name in may_be_blocked(model) if name not in weights]
    if not names:
        return (), False, False
    found = looked_at(model)
    others = [name for name in names if name not in found.entering]
    joined = looked_at(with_blocked(model, others)) if others else None
    # inputs are named by their positions, weights after them
    entering = tuple(sorted(int(name.removeprefix("x")) for name in found.entering))
    return entering, found.leaving, joined is not None and joined.leaving and not joined.between


class WorkerServer:
    """Answers requests about the model that is loaded: a request names one of the methods below, and has its arguments."""

    def __init__(self) -> None:
        self._loaded: LoadedModel | None = None

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        arguments = dict(request)
        found: dict[str, Any] = getattr(self, arguments.pop("do"))(**arguments)
        return found

    @property
    def loaded(self) -> LoadedModel:
        if not self._loaded:
            raise RuntimeError("no model is loaded")
        return self._loaded

    def load(self, **arguments: Any) -> dict[str, Any]:
        self._loaded = None
        self._loaded = LoadedModel(**arguments)
        return {"outputs": [output.name for output in self._loaded.session.get_outputs()]}

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        return {"arrays": self.loaded.run(feeds)}

    def profile(self, feeds: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Name, operator and seconds of each node: the median of some runs without the first, two at least."""
        loaded, until, runs = self.loaded, time.perf_counter() + seconds, 0
        while runs < 3 or (runs < PROFILED and time.perf_counter() < until):
            loaded.run(feeds)
            runs += 1
        loaded.session.end_profiling()
        if loaded.profile is None:
            raise RuntimeError("the model was not loaded to be profiled")
        with loaded.profile as file:
            events = json.load(file)
        times: dict[tuple[str, str], list[float]] = {}
        for event in events:
            name, _, kind = str(event.get("name", "")).rpartition("_kernel")
            if event.get("cat") == "Node" and kind == "_time":
                times.setdefault((name, str(event.get("args", {}).get("op_name", ""))), []).append(event["dur"] * 1e-6)
        later = {node: sorted(own[1:] or own) for node, own in times.items()}
        return {"nodes": [(*node, own[len(own) // 2]) for node, own in later.items()]}

    def bind(self, feeds: Mapping[str, Any], plain: bool = False) -> dict[str, Any]:
        plain = self.loaded.bind(feeds, plain)
        return {"plain": plain, "seconds": once(self.loaded.call, self.loaded.clock)}

    def alone(self, seconds: float) -> dict[str, Any]:
        return {"seconds": fastest(self.loaded.call, seconds, self.loaded.clock)}

    def time(self, calls: int, inner: int, warm: bool = True) -> dict[str, Any]:
        call = self.loaded.call
        if warm:
            warmed(call)
        return {"seconds": clocked(call, calls, inner, self.loaded.clock)}

    def measure(
        self, model: bytes, weights: Sequence[str], copies: int, threads: int, seconds: float, layout: bool, hopeless: float = inf,
        library: str = "", like: bytes = b"",
    ) -> dict[str, Any]:  # fmt: skip
        """The seconds of a model by itself, and what the runtime does about layouts where that is asked for."""
        from dslc.cost.contents import filled

        # contents are made here: what a large model weighs would take longer to send than to measure
        whole, feeds = filled(model, weights, copies, like)
        loaded = LoadedModel(whole, threads=threads, library=library)
        try:
            loaded.bind(feeds, hopeless=hopeless)
            found = fastest(loaded.call, seconds, loaded.clock, hopeless)
        except _Hopeless as slow:
            found = slow.seconds
        del loaded
        return {"seconds": found, "layout": _layout(model, weights, threads) if layout else ((), False, False)}


def _unbound() -> None:
    raise RuntimeError("no inputs are bound")


def answering(asker: Asker, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answers requests until the other end closes; what is raised is an answer, too."""
    for request in asker:
        try:
            found = {"ok": True, **answer(request)}
        except MemoryError:
            found = {"ok": False, "error": "not enough memory"}
        except Exception as problem:
            found = {"ok": False, "error": f"{type(problem).__name__}: {problem}"}
        asker.answer(found)


def main() -> None:
    """Serves requests until the other end closes."""
    asker = Asker()
    # whoever asks asks for this
    _runtime()
    answering(asker, WorkerServer().answer)


if __name__ == "__main__":
    main()
