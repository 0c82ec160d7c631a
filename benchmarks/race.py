"""Optimized models against ONNX Runtime, and against OpenVINO (32 bits) and torch.compile where these are installed.

    python -m benchmarks.race [NAME ...] [--budget SECONDS] [--seconds SECONDS] [--threads N] [--fresh]

A name is one of `benchmarks.zoo` or of `benchmarks.models`, `zoo` and `real` are all of them; without names, the models that kernels
decide about. A runtime is timed in turn with ONNX Runtime, each in a process of its own that is stopped while the other runs.
Optimized models and rows are kept as they are made: an interrupted table goes on where it ended, and a row gets the columns of
runtimes that were installed after it was measured. `--fresh` makes all again.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

import dslc
from benchmarks import machine, models, zoo
from benchmarks.peers import PEERS, cell, installed, raced_with_peers
from benchmarks.rows import Row, Rows, markdown
from dslc.cost.inputs import drawn_inputs
from dslc.cost.machine import this_machine
from dslc.cost.process import ModelFile
from dslc.folders import cache_folder
from dslc.onnx.save import save

#: what is known to be possible over ONNX Runtime, by hand
GOALS: Mapping[str, float] = {"resnet18": 1.55, "infogan": 2.1, "fsrcnn": 2.1, "dcgan": 1.15, "nasrnn": 1.8}
DEFAULT = (
    *GOALS,
    "nasrnn_20",
    "convnext",
    "llama",
    "longformer",
    "gcn",
    "csrnet",
    "csrnet_14",
    "squeezenet",
    "inception_v3",
)
#: those that take gigabytes, and pieces of others
LEFT_OUT = {"vit_huge", "vit_large", "nasnet_pools", "nasrnn_gates"}
HEADER = (
    "model", "nodes", "after", "ORT ms", "dslc", "95 %", "without library", "predicted", *(name for name, _ in PEERS.values()),
    "goal", "",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Racer:
    """A model by name: its file, and sizes of what it leaves open."""

    name: str
    path: Path
    bind: Mapping[str, int]


def named(name: str, folder: Path) -> Racer:
    """A network of the zoo, written where it was not yet, or a real model.

    Raises:
        KeyError: for an unknown name.
    """
    plain = name.replace("-", "_")
    if plain not in zoo.NAMES:
        return Racer(name, models.fetch(name), models.find(name).bind)
    path = folder / f"{plain}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        # other runtimes read one file
        zoo.write(plain, path.with_suffix(".new"), external=False)
        os.replace(path.with_suffix(".new"), path)
    return Racer(plain, path, zoo.ENTRIES[plain].sizes)


def optimized(racer: Racer, folder: Path, options: argparse.Namespace) -> Row:
    """What dslc makes of a model, as a file, and what its report says."""
    made = dslc.optimize(
        racer.path, budget=options.budget, threads=options.threads, bind=racer.bind, cache=options.cache
    )
    report = made.report
    row: Row = {
        "before": report.before.operators if report.before else 0, "after": report.after.operators if report.after else 0,
        "predicted": report.predicted_ratio, "seconds": report.seconds, "notes": list(report.notes),
        "why": report.reason if report.kept_original else "",
        "rules": [f"{step.rule} x{step.count}" for step in report.steps],
    }  # fmt: skip
    if not report.kept_original:
        target = folder / f"{racer.name}.fast.onnx"
        save(made.model, target, folder=racer.path.parent)
        row |= {"file": str(target), "kernels": len(made.model.functions)}
    return row


def timed(racer: Racer, row: Row, options: argparse.Namespace) -> Row:
    """A row with its times: the original, the optimized model, that without its library, and other runtimes on the original."""
    files = [ModelFile(str(racer.path))]
    if "file" in row:
        files.append(ModelFile(row["file"]))
        if row["kernels"]:
            files.append(ModelFile(row["file"], kernels=False))
    feeds = drawn_inputs(onnx.load(racer.path), racer.bind, draws=1).feeds[0]
    timings, peers = raced_with_peers(files, feeds, options.threads, options.seconds)
    ratios = [(one.ratio.ratio, one.ratio.low, one.ratio.high) for one in timings[1:]]
    # without the library of kernels, where it has one
    return {
        **row,
        "ms": timings[0].minimum * 1e3,
        "dslc": ratios[:1],
        "bare": ratios[1:],
        "peers": {**row.get("peers", {}), **peers},
    }


def cells(name: str, row: Row) -> tuple[str, ...]:
    """A row as it is printed; a runtime that is not here has a dash."""
    (ratio, low, high) = row["dslc"][0] if row["dslc"] else (1.0, 1.0, 1.0)
    # few pairs say nothing about where a ratio lies
    between = f"[{low:.2f}, {high:.2f}]" if low > 0 else "-"
    bare = row["bare"][0][0] if row["bare"] else ratio
    predicted = row["predicted"]
    return (
        name, str(row["before"]), str(row["after"]), f"{row['ms']:.3f}", f"{ratio:.2f}", between, f"{bare:.2f}",
        "-" if predicted is None else f"{predicted:.2f}", *(cell(row["peers"].get(peer, "-")) for peer, _ in PEERS.values()),
        f"{GOALS[name]:g}" if name in GOALS else "", row["why"],
    )  # fmt: skip


def complete(row: Row | None) -> bool:
    """Whether a row has its times, those of every runtime that is installed."""
    return row is not None and "ms" in row and set(installed()) <= set(row["peers"])


def chosen(names: Sequence[str]) -> list[str]:
    """The models that names mean, each once."""
    groups: Mapping[str, Sequence[str]] = {
        "zoo": [name for name in zoo.NAMES if name not in LEFT_OUT], "real": list(models.MODELS),
    }  # fmt: skip
    return list(dict.fromkeys(one for name in names or DEFAULT for one in groups.get(name, (name,))))


def main() -> int:
    """The command line; exit code 1 where a model failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.race", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"models, `zoo` or `real` (default: {', '.join(DEFAULT)})"
    )
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for optimizing a model (default 60)")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds for timing it (default 20)")
    parser.add_argument("--threads", type=int, default=this_machine().threads)
    parser.add_argument("--cache", type=Path, help="folder of the caches (default: dslc's own)")
    parser.add_argument("--fresh", action="store_true", help="make again what is known")
    options = parser.parse_args()
    on = f"{machine.describe(options.threads)}, budget {options.budget:g} s"
    print(f"{on}\n\n{markdown([HEADER])}", flush=True)
    folder = cache_folder(options.cache) / "race"
    known, failed = Rows(folder / "rows.json", on, options.fresh), 0
    for name in chosen(options.names):
        try:
            row = raced(named(name, folder), known, folder, options)
        except Exception as error:
            # one model that fails must not hide what became of the others
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
            failed += 1
        else:
            print(f"| {' | '.join(cells(name, row))} |", flush=True)
    return 1 if failed else 0


def raced(racer: Racer, known: Rows, folder: Path, options: argparse.Namespace) -> Row:
    """A row, as far as it is known already."""
    row: Row | None = known.get(racer.name)
    if row is None or ("file" in row and not Path(row["file"]).exists()):
        row = known.put(racer.name, optimized(racer, folder, options))
    return row if complete(row) else known.put(racer.name, timed(racer, row, options))


if __name__ == "__main__":
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    sys.exit(main())
