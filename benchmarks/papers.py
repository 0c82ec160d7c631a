"""The papers' evaluations on this machine: one row for a model, a batch and an arm, measured by `dslc optimize` on a cold machine.

    python -m benchmarks.papers einnet|pet [TABLE ...] [--models NAME ...] [--batch 1 16] [--arms NAME ...] [--budget 60]
                                [--threads 1] [--isa native] [--seed 0] [--json FILE] [--print] [--fresh]
    python -m benchmarks.papers pact24 ...          (the options of `python -m benchmarks.pact24`)

| paper | table | of the paper |
|---|---|---|
| einnet | networks | Figures 12 and 13: seven networks, by rules alone, with kernels, with derivations |
| einnet | cases | Table 3: operators |
| pet | networks | Figures 8 and 13: networks without mutants, with equal ones alone, with corrected ones |
| pet | operators | Table 4: operators for which PET has mutants |
| pet | depth | Figure 14: mutants by the steps that they take |

A cell says how many times as fast as ONNX Runtime the written model is (1.00 where the original was kept, behind it the best that was
timed), its interval, and what was taken. Rows are kept as they are measured; `--print` measures nothing, `--json` writes the rows.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import machine, pact24
from benchmarks.harness import ARMS, kinds, knows, optimized, ratio_of, spent, subject
from benchmarks.rows import Row, Rows, markdown
from dslc.folders import cache_folder

#: options by the name of an arm
Arms = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Table:
    """Models and arms of one table; `batches`: those of the paper, 0 is the model's own."""

    models: tuple[str, ...]
    arms: Arms
    batches: tuple[int, ...] = (0,)


def arms(*names: str) -> Arms:
    """Arms by name."""
    return {name: ARMS[name] for name in names}


TABLES: Mapping[str, Mapping[str, Table]] = {
    "einnet": {
        "networks": Table(
            ("infogan", "dcgan", "fsrcnn", "gcn", "resnet18", "csrnet", "longformer_dilated"),
            arms("rules alone", "rules and kernels", "all"), (1, 16),
        ),
        "cases": Table(
            ("conv3x3 512x7", "conv5x5 16x32x56", "transposed 16x448x2", "longformer_dilated"), arms("rules and kernels", "all")
        ),
    },
    "pet": {
        "networks": Table(
            ("csrnet", "csrnet_14", "resnet18", "inception_v3", "bert", "resnet3d_18"),
            arms("no-mutate", "equal mutants", "all"), (1, 16),
        ),
        "operators": Table(
            (
                "dilated-by-2 256x17", "dilated-by-4 256x33", "dilated-by-4", "images 16x256x5", "images 8x128x9", "stride-2 128x28",
                "stride-2 128x27x31", "depthwise 16x128x7",
            ),
            arms("no-mutate", "equal mutants", "all"),
        ),
        "depth": Table(
            ("dilated-by-4 256x33", "csrnet_14"), {f"{depth} steps": ("--mutant-depth", str(depth)) for depth in (1, 2, 3, 4)}
        ),
    },
}  # fmt: skip


def measured(name: str, batch: int, options: Sequence[str], chosen: argparse.Namespace) -> Row:
    """One row; raises RuntimeError with what `dslc optimize` said where it failed."""
    with subject(name, **({"batch": batch} if batch else {})) as found:
        report = optimized(found, chosen.budget, chosen.isa, chosen.threads, (*options, "--seed", str(chosen.seed)))
    bare = report["without_library"]
    return {
        "ms": report["before_ms"], "ratio": ratio_of(report), "bare": bare and bare["ratio"], "kinds": kinds(report),
        "steps": [step["rule"] for step in report["steps"]], "spent": spent(report), "seconds": report["seconds"],
        "why": report["reason"] if report["kept_original"] else "",
    }  # fmt: skip


def cell(row: Row | None) -> str:
    """A row as one cell."""
    if row is None:
        return "-"
    if "failed" in row:
        return row["failed"].splitlines()[0]
    ratio, low, high = row["ratio"]
    between = f" [{low:.2f}, {high:.2f}]" if low and high and not row["why"] else ""
    return f"{ratio:.2f}{between} {', '.join(row['kinds']) or 'kept'}"


def shown(paper: str, name: str, table: Table, known: Rows, chosen: argparse.Namespace) -> list[Row]:
    """Prints a table row by row, and gives its cells."""
    found: list[Row] = []
    of = {arm: options for arm, options in table.arms.items() if not chosen.arms or arm in chosen.arms}
    print(f"\n{paper}, {name}: {chosen.budget:g} s, {chosen.threads} thread(s), {chosen.isa}, seed {chosen.seed}\n")
    print(markdown([("model", "batch", "ORT ms", *of)]), flush=True)
    for model in chosen.models or table.models:
        batches = (chosen.batch or table.batches) if knows(model, "batch") else (0,)
        for batch in batches:
            cells, time = [], "-"
            for arm, options in of.items():
                key = (
                    f"{model} {batch} {' '.join(options)} {chosen.isa} {chosen.budget:g} {chosen.threads} {chosen.seed}"
                )
                row = known.get(key)
                if row is None and not chosen.print:
                    try:
                        row = known.put(key, measured(model, batch, options, chosen))
                    except (RuntimeError, KeyError, TypeError) as problem:
                        # one model that fails must not hide what became of the others; it is tried again next time
                        row = {"failed": f"{type(problem).__name__}: {problem}"}
                if row is not None:
                    found.append({"paper": paper, "table": name, "model": model, "batch": batch, "arm": arm, **row})
                    time = f"{row['ms']:.3g}" if row.get("ms") else time
                cells.append(cell(row))
            own = str(batch) if batch else "own"
            print(f"| {' | '.join((model, own, time, *cells))} |", flush=True)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; exit code 1 where something failed."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] == ["pact24"]:
        sys.argv[1:] = given[1:]
        pact24.main()
        return 0
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paper", choices=[*TABLES, "pact24"])
    parser.add_argument(
        "tables", nargs="*", metavar="TABLE", help=", ".join(f"{one}: {' '.join(own)}" for one, own in TABLES.items())
    )
    parser.add_argument("--models", nargs="+", metavar="NAME", help="in the place of the table's")
    parser.add_argument("--batch", nargs="+", type=int, help="in the place of the table's")
    parser.add_argument("--arms", nargs="+", metavar="NAME", help="some of the table's")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of each command (default 60)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--isa", default="native", help="the level of instructions, as `dslc optimize --isa` takes it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="writes the rows")
    parser.add_argument("--print", action="store_true", help="measure nothing: print what is known")
    parser.add_argument("--fresh", action="store_true", help="measure again what is known")
    chosen = parser.parse_args(given)
    own = TABLES[chosen.paper]
    if unknown := [one for one in chosen.tables if one not in own]:
        parser.error(f"{chosen.paper} has no table {unknown[0]!r}; there are: {', '.join(own)}")
    on = machine.describe(chosen.threads)
    print(on)
    known = Rows(cache_folder(None) / "benchmark-papers.json", on, chosen.fresh)
    rows = [row for name in chosen.tables or own for row in shown(chosen.paper, name, own[name], known, chosen)]
    if chosen.json is not None:
        chosen.json.write_text(json.dumps({"machine": on, "rows": rows}, indent=1), encoding="utf-8")
    return 1 if any("failed" in row for row in rows) else 0


if __name__ == "__main__":
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    sys.exit(main())
