"""How soon `dslc optimize` has something: every model from an empty cache, at every budget, for one or more levels of instructions.

    python -m benchmarks.first_gain [NAME ...] [--budgets 10 20 40 60] [--isa x86-64-v3 ...] [--threads N] [--fresh]

Prints for each model and level, of the largest budget, the seconds until the first rewritten model with the outputs of the
original and until the first gain was decided, and for each budget how many times as fast the result is (1 where the original is
kept). NAME is one of `benchmarks.models`, of `benchmarks.modules` (README's first example is `mish`), of the zoo, or of
`benchmarks.kernel_models` (`kernels` for all of those at fixed sizes). Each command has a cache of its own, as on a new machine.
Rows are kept in a file as they are measured; `--fresh` measures all again.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Sequence

from benchmarks import machine
from benchmarks.harness import Subject, optimized, subject
from benchmarks.kernel_models import CASES
from benchmarks.rows import Row, Rows, markdown
from dslc.folders import cache_folder
from dslc.search.runs.benchmark import DECIDED
from dslc.search.runs.state import CHECKED

#: real models, networks, and small models that kernels decide
NAMES = (
    "mish", "mtcnn-rnet", "pp-ocr-cls", "minilm", "magika", "light-shufflenet", "infogan", "nasrnn", "mish 100000",
    "norm over channels 384x14", "add + RMS norm 1024x1024",
)  # fmt: skip


def measured(of: Subject, budgets: Sequence[float], isa: str, threads: int | None) -> Row:
    """One row."""
    reports = {budget: optimized(of, budget, isa, threads) for budget in budgets}
    longest = reports[max(budgets)]
    return {
        "name": of.name, "isa": isa, "checked": longest["moments"].get(CHECKED), "decided": longest["moments"].get(DECIDED),
        "ratios": {f"{budget:g}": report["ratio"] or 1.0 for budget, report in reports.items()},
        "wall": {f"{budget:g}": report["seconds"] for budget, report in reports.items()},
        "why": {f"{budget:g}": report["reason"] for budget, report in reports.items() if report["kept_original"]},
    }  # fmt: skip


def cells(row: Row, budgets: Sequence[float]) -> tuple[str, ...]:
    """A row as it is printed."""
    moments = (f"{row[key]:.1f}" if row[key] is not None else "-" for key in ("checked", "decided"))
    return (row["name"], row["isa"], *moments, *(f"{row['ratios'][f'{budget:g}']:.2f}" for budget in budgets))


def summary(rows: Sequence[Row], budgets: Sequence[float]) -> str:
    """The geometric mean of the ratios at each budget, by level."""
    lines = []
    for isa in dict.fromkeys(row["isa"] for row in rows):
        own = [row for row in rows if row["isa"] == isa]
        means = (math.exp(sum(math.log(row["ratios"][f"{budget:g}"]) for row in own) / len(own)) for budget in budgets)
        lines.append(
            f"{isa}: " + ", ".join(f"{mean:.2f} in {budget:g} s" for mean, budget in zip(means, budgets, strict=True))
        )
    return "Geometric means of the ratios: " + "; ".join(lines) + "."


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.first_gain", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which models (default: ten of all kinds)")
    parser.add_argument(
        "--budgets", type=float, nargs="+", default=[10.0, 20.0, 40.0, 60.0], help="seconds (default 10 20 40 60)"
    )
    parser.add_argument(
        "--isa", nargs="+", default=["native"], help="levels of instructions, as `dslc optimize --isa` takes them"
    )
    parser.add_argument("--threads", type=int)
    parser.add_argument("--fresh", action="store_true", help="measure again what is known")
    options = parser.parse_args()
    names = [
        one
        for name in options.names or NAMES
        for one in ([case.label for case in CASES] if name == "kernels" else [name])
    ]
    on = machine.describe(options.threads)
    print(on)
    header = ("model", "instructions", "checked s", "decided s", *(f"{budget:g} s" for budget in options.budgets))
    print(markdown([header]), flush=True)
    known, rows = Rows(cache_folder(None) / "benchmark-first-gain.json", on, options.fresh), []
    for name in names:
        for isa in options.isa:
            key = f"{name} {isa} {' '.join(f'{budget:g}' for budget in options.budgets)}"
            row = known.get(key)
            if row is None:
                with subject(name) as found:
                    row = known.put(key, measured(found, options.budgets, isa, options.threads))
            rows.append(row)
            print(f"| {' | '.join(cells(row, options.budgets))} |", flush=True)
    print(f"\n{summary(rows, options.budgets)}")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    sys.exit(main())
