"""What more time gains, and what each generator is worth: eleven models, by default and with one generator switched off.

    python -m benchmarks.anytime [NAME ...] [--budgets 10 20 40 60 120] [--arms all ...] [--isa x86-64-v3] [--threads 1] [--fresh]

Prints for each model and arm how many times as fast the result is after each budget (1 where the original is kept), which kinds of
steps it has after the longest, and what the longest run spent on whom. Arms of one model are run one after the other. With all
generators the ratio should rise with the budget, and be no lower than in any other arm, beyond noise. Each command has a cache of
its own, as on a new machine. Rows are kept in a file as they are measured; `--fresh` measures all again.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from benchmarks import machine
from benchmarks.harness import ARMS, Subject, kinds, optimized, ratio_of, spent, subject
from benchmarks.rows import Row, Rows, markdown
from dslc.folders import cache_folder

#: README's model, three real ones, and networks of the papers
NAMES = (
    "mtcnn-rnet", "pp-ocr-cls", "minilm", "infogan", "fsrcnn", "resnet18", "nasrnn", "gcn", "dilated-block", "dilated-by-4",
    "style-transfer",
)  # fmt: skip
#: arms that are run where none are named
SWITCHED = ("all", "no-derive", "no-mutate", "no-kernels")


def measured(of: Subject, arm: str, budgets: Sequence[float], isa: str, threads: int | None) -> Row:
    """One row."""
    reports = {budget: optimized(of, budget, isa, threads, ARMS[arm]) for budget in budgets}
    longest = reports[max(budgets)]
    return {
        "name": of.name, "arm": arm, "isa": isa, "kinds": kinds(longest), "spent": spent(longest),
        "ratios": {f"{budget:g}": ratio_of(report) for budget, report in reports.items()},
        "why": {f"{budget:g}": report["reason"] for budget, report in reports.items() if report["kept_original"]},
    }  # fmt: skip


def cells(row: Row, budgets: Sequence[float]) -> tuple[str, ...]:
    """A row as it is printed."""
    most = ", ".join(f"{name} {seconds:g}" for name, seconds in row["spent"].items() if seconds >= 0.5)
    ratios = (f"{row['ratios'][f'{budget:g}'][0]:.2f}" for budget in budgets)
    return (row["name"], row["arm"], *ratios, ", ".join(row["kinds"]) or "kept", most)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.anytime", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="which models (default: eleven)")
    parser.add_argument(
        "--budgets", type=float, nargs="+", default=[10.0, 20.0, 40.0, 60.0, 120.0], help="seconds (default 10 to 120)"
    )
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(SWITCHED), help="what is switched off")
    parser.add_argument("--isa", default="native", help="the level of instructions, as `dslc optimize --isa` takes it")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="measure again what is known")
    options = parser.parse_args()
    on = machine.describe(options.threads)
    print(on)
    header = ("model", "arm", *(f"{budget:g} s" for budget in options.budgets), "taken", "seconds of the longest")
    print(markdown([header]), flush=True)
    known = Rows(cache_folder(None) / "benchmark-anytime.json", on, options.fresh)
    for name in options.names or NAMES:
        with subject(name) as found:
            for arm in options.arms:
                key = f"{name} {arm} {options.isa} {' '.join(f'{budget:g}' for budget in options.budgets)}"
                row = known.get(key) or known.put(
                    key, measured(found, arm, options.budgets, options.isa, options.threads)
                )
                print(f"| {' | '.join(cells(row, options.budgets))} |", flush=True)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    sys.exit(main())
