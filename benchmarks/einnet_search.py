"""What a search for derived programs takes: `python -m benchmarks.einnet_search [--figure 17] [--case conv5x5] [--depth 3]`.

Per case and depth: expressions, applications of rules, seconds of processor time and the best price, with the fingerprint (equal
expressions looked at once) and without, guided by the distance to an operator and not (EinNet, Figures 17 to 19). Rows are kept in a
file as they are made, so that a run that is stopped goes on where it was. `--states` ends a search by what it looked at and not by
time, so that a busy machine finds the same.

`--figure 17` prints as Markdown what the best program costs at each depth by estimate, and its ratio to the call; 18 what a search
takes without the distance, 19 without the fingerprint. `--figure 16` measures with generated kernels as the only backend: the call,
and the best of the programs that were derived of it, every operator being a kernel; beside both on ONNX Runtime.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path

from dslc.deadline import Deadline
from dslc.derivation.calls import read_call
from dslc.derivation.programs import estimated
from dslc.derivation.search import DerivationLimits, DerivationSearch
from dslc.derivation.targets import targets_of
from dslc.prove.garbage import gc_paused
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


#: with the fingerprint, and guided by the distance
Way = tuple[bool, bool]
#: case, depth, fingerprint, guided, and the limit of expressions
Key = tuple[str, int, bool, bool, float]
EVERY: tuple[Way, ...] = ((True, True), (False, True), (True, False))
#: what the figures of the paper compare
FIGURES: dict[int, tuple[Way, ...]] = {17: EVERY[:1], 18: (EVERY[0], EVERY[2]), 19: EVERY[:2]}
NAMES = {True: {True: "both", False: "no distance"}, False: {True: "no fingerprint", False: "neither"}}


@dataclass(frozen=True)
class Row:
    """One search; `estimate` is the best price by estimate in milliseconds of what was derived, None where nothing was found."""

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
    #: expressions that were looked at at most
    limit: float = inf

    @property
    def key(self) -> Key:
        return self.case, self.depth, self.fingerprint, self.guided, self.limit


def measured(rules: Rules, case: str, depth: int, fingerprint: bool, guided: bool, limit: float, budget: float) -> Row:
    called = read_call(rules, CASES[case][0])
    (value,) = expand(rules, (called.value,))
    limits = DerivationLimits(
        max_depth=depth, until=Deadline.after(budget), fingerprint=fingerprint, guided=guided, max_states=limit
    )
    targets = targets_of(rules, [call.op for call in called.calls])
    search = DerivationSearch(rules, list(rules.derivations.values()), limits, targets)
    began = time.process_time()
    with gc_paused():
        found = search.run(value)
    seconds = time.process_time() - began
    # what matches the call as it stands is no derivation
    best = min((program.seconds * 1e3 for program in found.programs if program.steps), default=None)
    counted = found.states, found.applications, seconds, len(found.programs)
    return Row(case, depth, fingerprint, guided, *counted, best, found.complete, budget, limit)


def known(path: Path) -> dict[Key, Row]:
    """The rows of earlier runs, of one search the last; a line that was cut short is made again."""
    rows = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row = Row(**json.loads(line))
        except (ValueError, TypeError):
            continue
        rows[row.key] = row
    return rows


def wanted(cases: list[str], depths: list[int], ways: Sequence[Way], limit: float) -> Iterator[Key]:
    """The shallow ones first, so that a run that is stopped has a table of all cases."""
    for depth in depths:
        for fingerprint, guided in ways:
            for case in cases:
                yield case, depth, fingerprint, guided, limit


def line(row: Row) -> str:
    price = "-" if row.estimate is None else f"{row.estimate:.4f}"
    # a search that did not look at everything within the depth
    cut = "" if row.complete else "*"
    numbers = f"{row.states:>8} {row.applications:>8} {row.seconds:>8.2f}{cut:1} {row.programs:>8} {price:>10}"
    return f"{row.case:<16} {row.depth:>5} {NAMES[row.fingerprint][row.guided]:<16}{numbers}  {CASES[row.case][1]}".rstrip()


def given(rules: Rules, case: str) -> float:
    """The price of the call itself by the same estimate, in milliseconds."""
    price = estimated(rules)
    return 1e3 * sum(price(node) for node in read_call(rules, CASES[case][0]).graph.nodes())


def table(
    rules: Rules, rows: Mapping[Key, Row], figure: int, cases: Sequence[str], depths: Sequence[int], limit: float
) -> str:
    """One of the figures in Markdown: a row for each case and way to search, a column for each depth."""
    lines = ["| case | with | " + " | ".join(map(str, depths)) + " |", "|---|---|" + "---:|" * len(depths)]
    for case in cases:
        for way in FIGURES[figure]:
            cells = []
            for depth in depths:
                row = rows.get((case, depth, *way, limit))
                if row is None:
                    cells.append("")
                elif figure == 17:
                    best = row.estimate
                    cells.append("-" if best is None else f"{best:.4g} ms, {given(rules, case) / best:.2f}")
                else:
                    best = row.estimate
                    cells.append(f"{row.states} / {row.seconds:.1f} s / " + ("-" if best is None else f"{best:.4g} ms"))
            lines.append(f"| {case} | {NAMES[way[0]][way[1]]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--depth", action="append", type=int)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of one search")
    parser.add_argument("--states", type=float, default=inf, help="expressions of one search")
    parser.add_argument("--figure", type=int, choices=(16, *FIGURES), help="the table of a figure of the paper")
    parser.add_argument("--results", type=Path, default=Path("einnet_search.jsonl"), help="rows, kept as they are made")
    options = parser.parse_args()
    rules = load_many(["std", "einnet"])
    cases, depths = options.case or list(CASES), options.depth or list(range(2, 8))
    if options.figure == 16:
        from benchmarks.einnet_kernels import print_table

        print_table(
            rules, {case: CASES[case][0] for case in cases}, max(options.depth or [4]), options.states, options.budget
        )
        return
    done = known(options.results)
    print("(* not everything within the depth was looked at: by time, or as only so many of a layer are taken further)")
    print("case             depth with              states  applied  seconds  programs    best ms  EinNet")
    for key in wanted(cases, depths, FIGURES.get(options.figure, EVERY), options.states):
        row = done.get(key)
        if row is None or (not row.complete and row.budget < options.budget and row.seconds > 0.5 * row.budget):
            row = done[key] = measured(rules, *key, options.budget)
            with options.results.open("a") as file:
                file.write(json.dumps(asdict(row)) + "\n")
        print(line(row), flush=True)
    if options.figure:
        print(table(rules, done, options.figure, cases, depths, options.states))


if __name__ == "__main__":
    main()
