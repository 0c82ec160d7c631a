"""Generated kernels against ONNX Runtime, and against OpenVINO (32 bits) and torch.compile where these are installed.

    python -m benchmarks.kernels [NAME ...] [--isa LEVEL] [--budget SECONDS] [--seconds SECONDS] [--fresh]

Every row is a small model as exporters write it, at fixed and at symbolic sizes. A runtime is timed in turn with ONNX Runtime, each in
a process of its own that is stopped while the other runs. Kernels are written for each level of instructions that is asked for: by
default for x86-64-v3, which most machines have, and for all that this one can do; ONNX Runtime uses all of it at every level. Rows are
kept in a file as they are measured, so that a table that was interrupted goes on where it ended; `--fresh` measures all again.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from benchmarks import machine
from benchmarks.kernel_models import CASES, Case, addition
from benchmarks.peers import cell, raced_with_peers
from benchmarks.rows import Row, Rows, markdown
from dslc.codegen.host.library import Library
from dslc.codegen.host.processor import NAMES, NATIVE, here, runs, wanted
from dslc.cost.cache import CostCache
from dslc.cost.clock import Clock
from dslc.cost.machine import this_machine
from dslc.cost.measure import Measurer
from dslc.cost.model import CostModel
from dslc.cost.process import ModelFile, Worker
from dslc.cost.timing import race
from dslc.errors import DslcError
from dslc.folders import cache_folder
from dslc.fuse.fusion import Fusing, FusingStory
from dslc.kernels import note, prepared
from dslc.onnx.exporter import export, node_model
from dslc.onnx.importer import import_model
from dslc.semantics.library import standard

#: the level that most machines have
USUAL = "x86-64-v3"
#: of an addition: the part of the speed of a plain addition that moves as many bytes
HEADER = (
    "model", "sizes", "level", "ORT ms", "kernel ms", "ratio", "95 % of ratio", "goal", "of an addition", "peers over ORT", "kernels",
)  # fmt: skip


def with_kernels(
    model: onnx.ModelProto, sizes: Mapping[str, int], threads: int, seconds: float, cache: str | Path | None = None
) -> tuple[onnx.ModelProto, Library | None, FusingStory]:
    """A model with what pays as kernels, their library, and the story; without a library it is the model as it was."""
    rules, clock = standard(), Clock(seconds)
    imported = import_model(model, rules, {})
    opset = imported.context.opset

    def build(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> bytes | None:
        try:
            found, _ = node_model(outputs, rules, opset, inputs=inputs)
        except DslcError:
            return None
        data: bytes = found.SerializeToString(deterministic=True)
        return data

    with CostCache(cache) as costs:
        measurer = Measurer(this_machine(threads), costs, clock.until())
        try:
            prices = CostModel(rules, measurer, build, opset, sizes)
            found = Fusing(imported.graph, rules, prices, opset, clock.until(), sizes, cache).run()
        finally:
            measurer.close()
    if not found.graphs or found.library is None:
        return model, None, found.story
    made = export(imported.context, found.graphs[0], rules)
    note(made, found.texts, threads)
    prepared(made, cache, texts=found.texts)
    return made, found.library, found.story


def sizes_of(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The symbolic dimensions of a model's inputs at the shapes of its inputs."""
    out = {}
    for end in model.graph.input:
        for dimension, size in zip(end.type.tensor_type.shape.dim, shapes[end.name], strict=True):
            if dimension.dim_param:
                out[dimension.dim_param] = int(size)
    return out


def measured(case: Case, symbolic: bool, level: str, options: argparse.Namespace) -> Row:
    """One row, with kernels of a level of instructions."""
    with wanted(level):
        return {**_measured(case, symbolic, options), "level": level}


def _measured(case: Case, symbolic: bool, options: argparse.Namespace) -> Row:
    model, shapes = case.model(symbolic)
    threads = options.threads
    made, library, story = with_kernels(model, sizes_of(model, shapes), threads, options.budget, options.cache)
    row: Row = {
        "label": case.label,
        "sizes": "symbolic" if symbolic else "fixed",
        "goal": case.goal,
        "kernels": len(story.kept),
    }
    if library is None:
        return {
            **row,
            "why": "; ".join(f"{one.why.value} ({one.detail})" for one in story.dropped)
            or "nothing was predicted to gain",
        }
    feeds = case.feeds()
    files = [ModelFile(model.SerializeToString()), ModelFile(made.SerializeToString())]
    timings, peers = raced_with_peers(files, feeds, threads, options.seconds)
    row |= {
        "error": _error(files, feeds, threads),
        "before": timings[0].minimum * 1e3, "after": timings[1].minimum * 1e3, "ratio": timings[1].ratio.ratio,
        "low": timings[1].ratio.low, "high": timings[1].ratio.high, "peers": peers,
    }  # fmt: skip
    if not symbolic:
        # an addition of as many bytes
        n = case.bytes // 12
        alone = ModelFile(addition(n).SerializeToString())
        import numpy as np

        plain = race([alone, alone], {name: np.ones(n, np.float32) for name in "xy"}, threads, options.seconds / 4)[
            0
        ].minimum
        row["bandwidth"] = plain / timings[1].minimum
    return row


def _error(files: Sequence[ModelFile], feeds: Mapping[str, Any], threads: int) -> float:
    """The largest difference of the outputs, relative to the largest element."""
    import numpy as np

    found = []
    for file in files:
        with Worker(threads) as worker:
            worker.load(file)
            found.append(worker.ask({"do": "run", "feeds": dict(feeds)})["arrays"])
    return max(float(np.max(np.abs(a - b)) / max(float(np.max(np.abs(a))), 1e-30)) for a, b in zip(*found, strict=True))


def cells(row: Row) -> tuple[str, ...]:
    """A row as it is printed."""
    if "ratio" not in row:
        return (row["label"], row["sizes"], row["level"], *("-" for _ in HEADER[3:-1]), row["why"])
    share = f"{row['bandwidth']:.0%}" if "bandwidth" in row else "-"
    peers = ", ".join(f"{name} {cell(value)}" for name, value in row["peers"].items()) or "-"
    return (
        row["label"], row["sizes"], row["level"], f"{row['before']:.4f}", f"{row['after']:.4f}", f"{row['ratio']:.2f}",
        f"[{row['low']:.2f}, {row['high']:.2f}]", f"{row['goal']:g}", share, peers, str(row["kernels"]),
    )  # fmt: skip


def table(rows: Sequence[Row]) -> str:
    """The rows in Markdown, and the geometric mean of their ratios at each level."""
    lines = [markdown([HEADER, *map(cells, rows)]), ""]
    for level in dict.fromkeys(row["level"] for row in rows):
        ratios = [row.get("ratio", 1.0) for row in rows if row["level"] == level]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        lines.append(f"{level}: geometric mean of the ratios {mean:.2f}, the least {min(ratios):.2f}.")
    return "\n".join(lines)


def levels() -> tuple[str, ...]:
    """What most machines have, where this one has more, and all that it can do."""
    return (USUAL, NATIVE) if runs(USUAL) and here().level != USUAL else (NATIVE,)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="rows whose label has one of these in it (default: all)"
    )
    parser.add_argument("--isa", action="append", choices=NAMES, help="a level of instructions; may be repeated")
    parser.add_argument(
        "--budget", type=float, default=60.0, help="seconds for finding the kernels of a model (default 60)"
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds for timing it (default 8)")
    parser.add_argument("--threads", type=int, default=this_machine().threads)
    parser.add_argument("--cache", type=Path, help="folder of the caches (default: dslc's own)")
    parser.add_argument("--fresh", action="store_true", help="measure again what is known")
    options = parser.parse_args()
    on = machine.describe(options.threads)
    print(f"{on}\n{here()}")
    known = Rows(cache_folder(options.cache) / "benchmark-kernels.json", on, options.fresh)
    rows = []
    for case in CASES:
        for symbolic in (False, True):
            key = f"{case.label} {'symbolic' if symbolic else 'fixed'}"
            if options.names and not any(name in key for name in options.names):
                continue
            for level in options.isa or levels():
                own = f"{key} {level}"
                rows.append(known.get(own) or known.put(own, measured(case, symbolic, level, options)))
                print(f"| {' | '.join(cells(rows[-1]))} |", flush=True)
    print(f"\n{table(rows)}")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    sys.exit(main())
