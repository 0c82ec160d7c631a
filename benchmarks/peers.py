"""Other runtimes beside ONNX Runtime, where they are installed: each runs a model in a process of its own."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from dslc.cost.clock import Clock
from dslc.cost.confidence_sequence import Timing
from dslc.cost.process import ModelFile, WorkerFailed
from dslc.cost.timing import race
from dslc.deadline import TimeUp

#: by the package that says whether they are here: their names, and what runs them
PEERS = {
    "openvino": ("OpenVINO f32", "benchmarks.openvino_runner"),
    "torch": ("torch.compile", "benchmarks.torch_runner"),
}
#: seconds in which another runtime has to load a model and run it once
FIRST = 240.0
#: what a cell says of a runtime that refuses a model, and of one whose process ended while it was timed
REFUSED, DIED, LATE = "refuses it", "dies", "does not end"


def installed() -> list[str]:
    """The names of those that are here."""
    return [name for package, (name, _) in PEERS.items() if importlib.util.find_spec(package) is not None]


def _word(problem: WorkerFailed) -> str:
    if problem.late:
        return LATE
    if problem.died:
        return DIED
    # what a runner does not know it names, and nothing else
    missing = str(problem).partition("NotImplementedError: ")[2]
    return f"no {missing}" if missing else REFUSED


def raced_with_peers(
    files: Sequence[ModelFile], feeds: Mapping[str, Any], threads: int, seconds: float
) -> tuple[list[Timing], dict[str, float | str]]:
    """Models against each other, and each other runtime that is here against the first of them on ONNX Runtime: how many times as
    fast it is, or a word where it cannot run it. They race one by one: one that dies, or takes long to start, costs no other anything.

    Raises:
        WorkerFailed: one of the models does not run on ONNX Runtime.
    """
    timings = race(files, feeds, threads, seconds)
    found: dict[str, float | str] = {}
    here = installed()
    for name, runner in PEERS.values():
        if name not in here:
            continue
        peer = ModelFile(files[0].model, folder=files[0].folder, runner=runner)
        try:
            found[name] = race([files[0], peer], feeds, threads, seconds / 2, clock=Clock(FIRST + seconds))[
                1
            ].ratio.ratio
        except WorkerFailed as problem:
            found[name] = _word(problem)
        except TimeUp:
            found[name] = LATE
    return timings, found


def cell(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.2f}"


__all__ = ["PEERS", "cell", "installed", "raced_with_peers"]
