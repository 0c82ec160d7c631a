"""Optimizes every real model of `benchmarks.models` and writes the table of what came of it.

    python -m benchmarks.real_models [NAME ...] [--budget 60] [--threads N]

Rewrites ``benchmarks/RESULTS.md`` where all models were run.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from datetime import date
from pathlib import Path

import dslc
from benchmarks import machine, models

RESULTS = Path(__file__).with_name("RESULTS.md")
#: what follows this heading is written by hand and stays
OTHERS = "## Other benchmarks"
HEADER = (
    "model",
    "nodes",
    "after",
    "before ms",
    "after ms",
    "ratio",
    "95 % of ratio",
    "predicted",
    "max error",
    "original kept",
    "rules (predicted gain)",
    "seconds",
    "import + export s",
)


Row = tuple[str, ...]


def optimize(model: models.Model, options: argparse.Namespace) -> Row:
    """A row of the table. Runs dslc twice: once without measuring, for the time of import and export."""
    path = models.fetch(model.name)
    started = time.perf_counter()
    dslc.optimize(path, budget=0, bind=model.bind, specialize=options.specialize)
    overhead = time.perf_counter() - started
    result = dslc.optimize(
        path,
        budget=options.budget,
        bind=model.bind,
        seed=options.seed,
        threads=options.threads,
        specialize=options.specialize,
        cache=options.cache,
    )
    report = result.report
    gains = sorted((step for step in report.steps if step.gain_ms > 0), key=lambda step: -step.gain_ms)
    return (
        model.name,
        str(report.before.operators) if report.before else "-",
        str(report.after.operators) if report.after else "-",
        _number(report.before_ms, ".3f"),
        _number(report.after_ms, ".3f"),
        _number(report.ratio, ".3f"),
        f"[{_number(report.ratio_low, '.3f')}, {_number(report.ratio_high, '.3f')}]",
        _number(report.predicted_ratio, ".3f"),
        _number(report.max_rel_error, ".1e"),
        f"yes: {report.reason}" if report.kept_original else "no",
        ", ".join(f"{step.rule} x{step.count} ({step.gain_ms:.2f} ms)" for step in gains) or "-",
        f"{report.seconds:.0f}",
        f"{overhead:.1f}",
    )


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [HEADER, tuple("---" for _ in HEADER), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> int:
    """The command line; exit code 1 where a model failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_models", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="which models (default: all)")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for each model, all phases (default 60)")
    parser.add_argument("--threads", type=int, help="threads of the runtime (default: its own choice)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path, help="folder of the cost cache (default: dslc's own)")
    parser.add_argument("--specialize", action="store_true", help="fix dynamic dimensions to the sizes that are bound")
    arguments = parser.parse_args()
    rows, failed = [], []
    print(machine.describe(arguments.threads))
    for model in [models.find(name) for name in arguments.names] or list(models.MODELS.values()):
        try:
            rows.append(optimize(model, arguments))
            print(table(rows[-1:]).splitlines()[-1], flush=True)
        except Exception as error:
            # One model that fails must not hide what became of the others.
            failed.append(f"{model.name}: {type(error).__name__}: {error}")
            print(failed[-1], flush=True)
    if not arguments.names:
        RESULTS.write_text(_page(rows, failed, arguments), encoding="utf-8")
    return 1 if failed else 0


def _page(rows: list[Row], failed: list[str], arguments: argparse.Namespace) -> str:
    command = f"python -m benchmarks.real_models {' '.join(sys.argv[1:])}".strip()
    return "\n".join(
        [
            "# Results on real models",
            "",
            f"Written by `{command}` on {date.today().isoformat()}.",
            "",
            f"Machine: {machine.describe(arguments.threads)}.",
            "",
            "`ratio` is the median of paired, interleaved timings, original / result; where the original was kept",
            "it is 1 by definition. `predicted` is what the sum of measured costs promised. `import + export` is the",
            "time of a run with `budget=0`. Weights of the `light-*` networks are seeded random numbers.",
            "",
            table(rows),
            "",
            *(f"- failed: {line}" for line in failed),
            OTHERS + (RESULTS.read_text("utf-8").partition(OTHERS)[2] if RESULTS.exists() else ""),
        ]
    )


if __name__ == "__main__":
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    sys.exit(main())
