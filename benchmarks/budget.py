"""Whether `dslc optimize --budget` ends in time, on every model of `benchmarks.models`, each from a cold cache.

    python -m benchmarks.budget [NAME ...] [--budget 20 60] [--threads N] [--share 0.33]

Prints budget and wall time of each command, and what its phases took. `--share` gives dslc a part of each processor, as a slow or busy
machine does. Exit code 1 where one took longer than 10 % or 5 s more
than its budget (whichever is more).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import machine, models, throttle


def allowed(budget: float) -> float:
    """Seconds of wall time that a budget may end in."""
    return budget + max(5.0, 0.1 * budget)


def timed(model: models.Model, budget: float, threads: int | None, share: float = 1.0) -> tuple[float, dict[str, Any]]:
    """Wall time of the command, from its start to its end, and its report (empty where it failed)."""
    path = models.fetch(model.name).resolve()
    with tempfile.TemporaryDirectory() as cold:
        report = Path(cold) / "report.json"
        command = [
            sys.executable,
            "-m",
            "dslc",
            "optimize",
            str(path),
            "-o",
            str(Path(cold) / "fast.onnx"),
            "--report",
            str(report),
        ]
        command += ["--budget", f"{budget:g}s", *(f"--bind={name}={size}" for name, size in model.bind.items())]
        command += [] if threads is None else ["--threads", str(threads)]
        environment = {name: value for name, value in os.environ.items() if name != "DSLC_CACHE"}
        done = throttle.run(command, share, {**environment, "XDG_CACHE_HOME": cold})
        if done.code != 0:
            print(done.err.strip(), file=sys.stderr)
        return done.seconds, json.loads(report.read_text("utf-8")) if report.exists() else {}


def main() -> int:
    """The command line; exit code 1 where a command took too long or failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.budget", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="which models (default: all)")
    parser.add_argument("--budget", type=float, nargs="+", default=[20.0, 60.0], help="seconds (default 20 and 60)")
    parser.add_argument("--threads", type=int)
    throttle.add_option(parser)
    arguments = parser.parse_args()
    print(machine.describe(arguments.threads))
    print(
        "| model | budget s | wall s | in time | ratio | outcome | phases s | cut |\n|---|---:|---:|---|---:|---|---|---|"
    )
    late = 0
    for model in [models.find(name) for name in arguments.names] or list(models.MODELS.values()):
        for budget in arguments.budget:
            seconds, report = timed(model, budget, arguments.threads, arguments.share)
            in_time = bool(report) and seconds <= allowed(budget)
            late += not in_time
            phases = ", ".join(
                f"{name} {value:.1f}" for name, value in report.get("phases", {}).items() if value >= 0.05
            )
            ratio = report.get("ratio")
            outcome = report.get("reason") if report.get("kept_original", True) else "rewritten"
            cells = (
                model.name, f"{budget:g}", f"{seconds:.1f}", "yes" if in_time else "NO", "-" if ratio is None else f"{ratio:.3f}",
                str(outcome), phases, ", ".join(report.get("cut", ())) or "-",
            )  # fmt: skip
            print(f"| {' | '.join(cells)} |", flush=True)
    print(f"{late} late or failed")
    return 1 if late else 0


if __name__ == "__main__":
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    sys.exit(main())
