"""Other runtimes beside ONNX Runtime, where they are installed: each runs a model in a process of its own."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from dslc.cost.process import ModelFile, Worker, WorkerFailed
from dslc.cost.timing import Timing, race

#: by the package that says whether they are here: their names, and what runs them
PEERS = {"openvino": ("OpenVINO f32", "benchmarks.openvino_runner"), "torch": ("torch.compile", "benchmarks.torch_runner")}
#: seconds in which another runtime has to load a model and run it once
FIRST = 240.0
#: seconds in which it is found out whether one dies
LASTS = 2.0
#: what a cell says of a runtime that refuses a model, and of one whose process ended while it was timed
REFUSED, DIED, LATE = "refuses it", "dies", "does not end"


def installed() -> list[str]:
    """The names of those that are here."""
    return [name for package, (name, _) in PEERS.items() if importlib.util.find_spec(package) is not None]


def peers_of(file: ModelFile, feeds: Mapping[str, Any], threads: int) -> tuple[dict[str, ModelFile], dict[str, str]]:
    """The model for those that run it, and for the others a word about why not."""
    runs: dict[str, ModelFile] = {}
    words: dict[str, str] = {}
    here = installed()
    for name, runner in PEERS.values():
        if name not in here:
            continue
        peer = ModelFile(file.model, folder=file.folder, runner=runner)
        try:
            _once(peer, feeds, threads)
        except WorkerFailed as problem:
            words[name] = _word(problem)
        else:
            runs[name] = peer
    return runs, words


def _once(file: ModelFile, feeds: Mapping[str, Any], threads: int) -> None:
    with Worker(threads, lambda: FIRST, file.runner) as worker:
        worker.load(file)
        worker.ask({"do": "bind", "feeds": dict(feeds)})


def _lasts(files: Sequence[ModelFile], feeds: Mapping[str, Any], threads: int) -> bool:
    """Whether two of them are timed to the end."""
    try:
        race(files, feeds, threads, LASTS)
    except WorkerFailed:
        return False
    return True


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
    """Models against each other and against other runtimes on the first of them, all in turn, and how many times as fast as the first
    each of these is; those that cannot run it have a word instead.

    Raises:
        WorkerFailed: one of the models does not run on ONNX Runtime.
    """
    runs, words = peers_of(files[0], feeds, threads)
    found: dict[str, float | str] = dict(words)
    while True:
        try:
            timings = race([*files, *runs.values()], feeds, threads, seconds)
        except WorkerFailed:
            # one that ran once may still die
            dead = [name for name, peer in runs.items() if not _lasts([files[0], peer], feeds, threads)]
            if not dead:
                raise
            for name in dead:
                del runs[name]
                found[name] = DIED
            continue
        ratios = {name: timing.ratio.ratio for name, timing in zip(runs, timings[len(files) :], strict=True)}
        return timings[: len(files)], {**found, **ratios}


def cell(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.2f}"


__all__ = ["PEERS", "cell", "installed", "peers_of", "raced_with_peers"]
