"""How often a model is called faster or slower than itself.

    python -m benchmarks.same [MODEL.onnx | NAME] [--runs 100] [--budget 3] [--threads N] [--bind NAME=N]

Runs ``dslc bench A A`` again and again, and counts verdicts: an interval of 95 % that holds at every look may exclude 1 in 5 of 100
runs, and by chance in up to 9 (97 of 100 times). Exit code 1 where there are more. `tests/search/test_sequential.py` counts them by
simulation, with more looks and contenders.
"""

from __future__ import annotations

import argparse
import sys
from math import comb
from pathlib import Path

from benchmarks import machine, models
from dslc.cost.clock import Clock
from dslc.cost.confidence_sequence import Interval
from dslc.cost.inputs import drawn_inputs
from dslc.cost.machine import this_machine
from dslc.cost.process import ModelFile
from dslc.cost.timing import raced
from dslc.onnx.protos import read_model

#: of equal models so many verdicts are allowed, and the chance that this many are exceeded
WRONG, CHANCE = 0.05, 0.03


def allowed(runs: int) -> int:
    """The least number of verdicts that more than 97 of 100 repetitions stay within, where each is wrong with 5 %."""
    total = 0.0
    for count in range(runs + 1):
        total += comb(runs, count) * WRONG**count * (1 - WRONG) ** (runs - count)
        if total > 1 - CHANCE:
            return count
    return runs


def compared(path: Path, bind: dict[str, int], threads: int | None, budget: float) -> Interval:
    """What `dslc bench` says of a model and itself."""
    feeds = drawn_inputs(read_model(path)[0], bind, draws=1).feeds[0]
    files = [ModelFile(str(path)), ModelFile(str(path))]
    return raced(files, [str(path), str(path)], feeds, this_machine(threads).threads, Clock(budget))[1].ratio


def main() -> int:
    """The command line; exit code 1 where there are too many verdicts."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.same", description="How often a model differs from itself."
    )
    parser.add_argument("model", nargs="?", default="light-squeezenet", help="a file, or a name of benchmarks.models")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--budget", type=float, default=3.0, help="seconds of each run (default 3)")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--bind", action="append", default=[], metavar="NAME=N")
    arguments = parser.parse_args()
    path, bind = (
        Path(arguments.model),
        {name: int(size) for name, _, size in (one.rpartition("=") for one in arguments.bind)},
    )
    if not path.is_file():
        bind = {**models.find(arguments.model).bind, **bind}
        path = models.fetch(arguments.model)
    faster = slower = 0
    print(machine.describe(arguments.threads))
    for run in range(arguments.runs):
        found = compared(path, bind, arguments.threads, arguments.budget)
        faster += found.low > 1
        slower += found.high < 1
        print(f"{run + 1:4}  {found}  faster {faster}, slower {slower}", flush=True)
    most = allowed(arguments.runs)
    print(
        f"{faster + slower} verdicts on equal files in {arguments.runs} runs ({faster} faster, {slower} slower); at most {most}"
    )
    return 1 if faster + slower > most else 0


if __name__ == "__main__":
    sys.exit(main())
