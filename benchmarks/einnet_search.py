"""What a search for derived programs takes: `python -m benchmarks.einnet_search [--case conv5x5] [--depth 3] [--budget 60]`.

Per case and depth: expressions, applications of rules, seconds of processor time and the best price, with the fingerprint (equal
expressions looked at once) and without, guided by the distance to an operator and not (EinNet, Figures 17 to 19). Rows are kept in a
file as they are made, so that a run that is stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from dslc.derive.calls import read_call
from dslc.derive.search import Limits, Search
from dslc.derive.targets import targets_of
from dslc.prove.garbage import rare_collections
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules, load_many

#: calls, and what EinNet needed for the like: seconds and states, as far as its paper and its log say
CASES = {
    "conv3x3": ("conv(X: f32[1, 512, 7, 7], K: f32[512, 512, 3, 3], pads=[1, 1, 1, 1])", "120 s at most"),
    "conv5x5": ("conv(X: f32[16, 32, 56, 56], K: f32[32, 32, 5, 5], pads=[2, 2, 2, 2])", "101 s, 2200000 states"),
    "conv_transpose": (
        "conv_transpose(X: f32[16, 448, 2, 2], K: f32[448, 256, 4, 4], stride=[2, 2], pads=[1, 1, 1, 1])", "11 s",
    ),
    "dilated": ("conv(X: f32[1, 64, 28, 28], K: f32[64, 64, 3, 3], pads=[2, 2, 2, 2], dilation=[2, 2])", ""),
    "row": ("conv(X: f32[1, 21, 14, 14], K: f32[21, 21, 1, 7], pads=[0, 3, 0, 3])", ""),
    "g2bmm": ("g2bmm(A: f32[8, 512, 64], B: f32[8, 512, 64], width=32, dilation=4)", ""),
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One search; `estimate` is the best price by estimate in milliseconds, None where nothing was found."""

    case: str
    depth: int
    fingerprint: bool
    guided: bool
    states: int
    applications: int
    seconds: float
    programs: int
    estimate: float | None
    #: whether everything within the depth was looked at, and the seconds that the search had
    complete: bool
    budget: float

    @property
    def key(self) -> tuple[str, int, bool, bool]:
        return self.case, self.depth, self.fingerprint, self.guided


def measured(rules: Rules, case: str, depth: int, fingerprint: bool, guided: bool, budget: float) -> Row:
    called = read_call(rules, CASES[case][0])
    (value,) = expand(rules, (called.value,))
    limits = Limits(max_depth=depth, seconds=budget, fingerprint=fingerprint, guided=guided)
    targets = targets_of(rules, [call.op for call in called.calls])
    search = Search(rules, list(rules.derivations.values()), limits, targets)
    began = time.process_time()
    with rare_collections():
        found = search.run(value)
    seconds = time.process_time() - began
    best = min((program.seconds * 1e3 for program in found.programs), default=None)
    counted = found.states, found.applications, seconds, len(found.programs)
    return Row(case, depth, fingerprint, guided, *counted, best, found.complete, budget)


def known(path: Path) -> dict[tuple[str, int, bool, bool], Row]:
    """The rows of earlier runs, of one search the last; a line that was cut short is made again."""
    rows = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row = Row(**json.loads(line))
        except (ValueError, TypeError):
            continue
        rows[row.key] = row
    return rows


def wanted(cases: list[str], depths: list[int]) -> Iterator[tuple[str, int, bool, bool]]:
    """The shallow ones first, so that a run that is stopped has a table of all cases."""
    for depth in depths:
        for fingerprint, guided in ((True, True), (False, True), (True, False)):
            for case in cases:
                yield case, depth, fingerprint, guided


def line(row: Row) -> str:
    how = "both" if row.fingerprint and row.guided else "no fingerprint" if row.guided else "no distance"
    price = "-" if row.estimate is None else f"{row.estimate:.4f}"
    # a search that did not look at everything within the depth
    cut = "" if row.complete else "*"
    numbers = f"{row.states:>8} {row.applications:>8} {row.seconds:>8.2f}{cut:1} {row.programs:>8} {price:>10}"
    return f"{row.case:<16} {row.depth:>5} {how:<16}{numbers}  {CASES[row.case][1]}".rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--depth", action="append", type=int)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of one search")
    parser.add_argument("--results", type=Path, default=Path("einnet_search.jsonl"), help="rows, kept as they are made")
    options = parser.parse_args()
    rules = load_many(["std", "einnet"])
    done = known(options.results)
    print("(* not everything within the depth was looked at: by time, or as only so many of a layer are taken further)")
    print("case             depth with              states  applied  seconds  programs    best ms  EinNet")
    for key in wanted(options.case or list(CASES), options.depth or list(range(2, 8))):
        row = done.get(key)
        if row is None or (not row.complete and row.budget < options.budget and row.seconds > 0.5 * row.budget):
            row = measured(rules, *key, options.budget)
            with options.results.open("a") as file:
                file.write(json.dumps(asdict(row)) + "\n")
        print(line(row), flush=True)


if __name__ == "__main__":
    main()
