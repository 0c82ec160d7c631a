"""What the tables of whole runs have in common: models by name, arms by name, and one run of `dslc optimize` on a cold machine.

A *model* is one of the zoo, of `benchmarks.models`, `benchmarks.modules` or `benchmarks.kernel_models`, or of `ONE_OPERATOR`; an *arm*
is a name for options of the command.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto

from benchmarks import models, zoo
from benchmarks.kernel_models import CASES
from benchmarks.modules import MODULES
from benchmarks.zoo.network import Network

#: sizes for models whose file leaves them open
BATCH = {"mtcnn-rnet": {"N": 16}}
#: options of each arm: what is switched off
ARMS: Mapping[str, tuple[str, ...]] = {
    "all": (), "no-derive": ("--no-derive",), "no-mutate": ("--no-mutate",), "no-kernels": ("--portable", "inline"),
    "rules alone": ("--no-derive", "--no-mutate", "--portable", "inline"), "rules and kernels": ("--no-derive", "--no-mutate"),
    "equal mutants": ("--mutant-limit", "0"),
}  # fmt: skip


def convolution(
    channels: int, height: int, width: int = 0, *, batch: int = 1, window: int = 3, stride: int = 1, dilation: int = 1, groups: int = 1,
) -> ModelProto:  # fmt: skip
    """A model of one convolution."""
    net = Network("convolution")
    x = net.input("x", batch, channels, height, width or height)
    return net.model({"y": net.conv(x, channels, window, stride, dilation=dilation, groups=groups)})


def transposed(channels: int, side: int, filters: int, *, batch: int = 1) -> ModelProto:
    """A model of one transposed convolution of 4x4 by 2, as generators of images have it."""
    net = Network("transposed")
    return net.model({"y": net.transposed_conv(net.input("x", batch, channels, side, side), filters, 4, 2, 1)})


def dilated_block(batch: int = 1) -> ModelProto:
    """Two convolutions of CSRNet's back end, dilated by 2, at 28x28."""
    net = Network("dilated_block")
    t = net.input("features", batch, 256, 28, 28)
    for width in (128, 64):
        t = net.relu(net.conv(t, width, 3, dilation=2, gain=1.4, bias=True))
    return net.model({"density": t})


#: models of one operator or two, at sizes of the papers' networks
ONE_OPERATOR: Mapping[str, Callable[..., ModelProto]] = {
    "conv3x3 512x7": partial(convolution, 512, 7),
    "conv5x5 16x32x56": partial(convolution, 32, 56, batch=16, window=5),
    "transposed 16x448x2": partial(transposed, 448, 2, 256, batch=16),
    "dilated-block": dilated_block,
    "dilated-by-4": partial(convolution, 128, 65, dilation=4),
    "dilated-by-2 256x17": partial(convolution, 256, 17, dilation=2),
    "dilated-by-4 256x33": partial(convolution, 256, 33, dilation=4),
    "images 16x256x5": partial(convolution, 256, 5, batch=16),
    "images 8x128x9": partial(convolution, 128, 9, batch=8),
    "stride-2 128x28": partial(convolution, 128, 28, stride=2),
    "stride-2 128x27x31": partial(convolution, 128, 27, 31, stride=2),
    "depthwise 16x128x7": partial(convolution, 128, 7, batch=16, groups=128),
}


@dataclass(frozen=True)
class Subject:
    """A model in a file, and what binds its sizes."""

    name: str
    path: Path
    bind: Mapping[str, int] = field(default_factory=dict)


@contextmanager
def subject(name: str, **options: Any) -> Iterator[Subject]:
    """The model of a name, for as long as it is used; `options` (a batch, a seed) are those of a network of the zoo or an operator.

    Raises:
        KeyError: nothing is called so.
        TypeError: it does not know such an option.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        case = next((case for case in CASES if case.label == name), None)
        if name in ONE_OPERATOR or name in MODULES:
            written = {**ONE_OPERATOR, **MODULES}[name](**options)
            path.write_bytes(written.SerializeToString(deterministic=True))
            yield Subject(name, path)
        elif case is not None:
            _without(name, options)
            onnx.save(case.model(False)[0], path)
            yield Subject(name, path)
        elif name.replace("-", "_") in zoo.NAMES:
            zoo.write(name, path, **options)
            yield Subject(name, path)
        else:
            found = models.find(name)
            _without(name, options)
            yield Subject(name, models.fetch(name).resolve(), {**found.bind, **BATCH.get(name, {})})


def knows(name: str, option: str) -> bool:
    """Whether a network of the zoo or an operator has such an option."""
    entry = zoo.ENTRIES.get(name.replace("-", "_"))
    made = ONE_OPERATOR.get(name) or (entry.model if entry is not None else None)
    return made is not None and option in signature(made).parameters


def _without(name: str, options: Mapping[str, Any]) -> None:
    if options:
        raise TypeError(f"{name} is a file, and has no {next(iter(options))}")


def optimized(of: Subject, budget: float, isa: str, threads: int | None, options: Sequence[str] = ()) -> dict[str, Any]:
    """The report of one command with an empty cache; raises RuntimeError with what it said where it failed."""
    with tempfile.TemporaryDirectory() as cold:
        report = Path(cold) / "report.json"
        command = [
            sys.executable,
            "-m",
            "dslc",
            "optimize",
            str(of.path),
            "-o",
            str(Path(cold) / "fast.onnx"),
            "--report",
            str(report),
        ]
        command += ["--budget", f"{budget:g}s", *(f"--bind={name}={size}" for name, size in of.bind.items())]
        command += [*options, *([] if threads is None else ["--threads", str(threads)])]
        environment = {key: value for key, value in os.environ.items() if key not in {"DSLC_CACHE", "DSLC_ISA"}}
        environment |= {"XDG_CACHE_HOME": cold, "DSLC_ISA": isa}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if not report.exists():
            raise RuntimeError(done.stderr.strip() or f"exit code {done.returncode}")
        found: dict[str, Any] = json.loads(report.read_text("utf-8"))
        return found


def kinds(report: Mapping[str, Any]) -> list[str]:
    """Kinds of the steps that made a result."""
    found: dict[str, None] = {}
    for step in report["steps"]:
        rule = step["rule"]
        corrected = " corrected" if "computed again" in rule else ""
        others = "derivation" if "einnet." in rule else rule if rule == "kernels" else "rules"
        found[f"mutant{corrected}" if "mutant by" in rule else others] = None
    return list(found)


def spent(report: Mapping[str, Any]) -> dict[str, float]:
    """Seconds that each generator was asked for."""
    found: dict[str, float] = {}
    for one in report["asked"]:
        found[one["name"]] = round(found.get(one["name"], 0.0) + one["seconds"], 1)
    return found


def ratio_of(report: Mapping[str, Any]) -> list[float | None]:
    """How many times as fast the result is, 1 where the original was kept, and the ends of the interval."""
    return [report["ratio"] or 1.0, report["ratio_low"], report["ratio_high"]]


__all__ = [
    "ARMS", "ONE_OPERATOR", "Subject", "convolution", "dilated_block", "kinds", "knows", "optimized", "ratio_of", "spent", "subject",
]  # fmt: skip
