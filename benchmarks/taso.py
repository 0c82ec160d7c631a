"""Optimizes TASO's five networks with a rule library and prints what section 7 of its paper reports.

    python -m benchmarks.taso [NETWORK ...] [--rules LIB] [--only RULESET] [--budget 60] [--small]

Ratios against ONNX Runtime with all its optimizations on, predicted against measured, the speedup by the largest substitution
used (Figure 11), and which rule was used how often in which network (Figure 10). With ``--write``, and where all
networks are run, each network that is done replaces its own row in the section of ``benchmarks/RESULTS.md``, in the picture and in
``benchmarks/results/taso.json``, from which both are made; the rows of other networks stay.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import dslc
from benchmarks import heatmap, machine
from benchmarks.real_models import RESULTS
from benchmarks.study import ORIGINAL, Point, kendall, median_error, study
from benchmarks.zoo import NAMES, build
from dslc.cost.confidence_sequence import Interval
from dslc.folders import cache_folder
from dslc.match import CompiledRule
from dslc.report import Report
from dslc.search.runs.selection import chosen_rules, statuses, usable
from dslc.semantics.library import Rules, load_many

GENERATED = Path(__file__).parents[1] / "rules" / "taso_generated" / "taso_generated.rules"
PICTURE = Path(__file__).with_name("results") / "taso_heatmap.svg"
STORE = PICTURE.with_name("taso.json")
HEADING = "## TASO's five networks"
#: what follows this line of the section is written by hand and stays
REMARKS = "### Remarks"
#: the largest substitutions of Figure 11, in operators
SIZES = (1, 2, 3, 4)
HEADER = (
    "network", "nodes", "after", "before ms", "after ms", "ratio", "95 % of ratio", "predicted", "candidates", "median error",
    "tau", "by largest substitution: 1", "2", "3", "4", "search s", "steps", "original kept",
)  # fmt: skip

#: what the page says of a network, as it is kept in `STORE`
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one network: the report of the whole pipeline, its candidates timed, and the best one by rule size."""

    name: str
    report: Report
    points: tuple[Point, ...]
    by_size: tuple[Point | None, ...]

    def row(self) -> tuple[str, ...]:
        report = self.report
        return (
            self.name,
            str(report.before.operators) if report.before else "-",
            str(report.after.operators) if report.after else "-",
            _number(report.before_ms, ".3f"),
            _number(report.after_ms, ".3f"),
            _number(report.ratio, ".3f"),
            f"[{_number(report.ratio_low, '.3f')}, {_number(report.ratio_high, '.3f')}]",
            _number(report.predicted_ratio, ".3f"),
            f"{len(self.points)}, {sum(point.quiet for point in self.points)} quiet",
            _number(median_error(self.points), ".1%"),
            _number(kendall([*self.points, ORIGINAL]), ".2f"),
            *("-" if point is None else f"{point.measured.ratio:.3f}" for point in self.by_size),
            f"{report.seconds:.0f}",
            str(report.steps_done),
            f"yes: {report.reason}" if report.kept_original else "no",
        )


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def size_of(rule: CompiledRule) -> int:
    """How many operators the pattern of a rule has."""
    return len(rule.left.sites)


def sizes_of(rules: Rules, used: Sequence[CompiledRule]) -> dict[str, int]:
    """Each rule's size: that of the rule set `size_N` that it is in, as generated libraries have them, else its pattern's."""
    sizes = {rule.name: size_of(rule) for rule in used}
    for name in rules.rulesets:
        size = name.rpartition(".")[2].removeprefix("size_")
        if size.isdecimal():
            sizes.update((rule.name, int(size)) for rule in chosen_rules(rules, [name]) if rule.name in sizes)
    return sizes


def own_rules(rules: Rules, library: str) -> tuple[str, ...]:
    """The rules of a library without those of what it imports; all of the standard library where that is named."""
    if library == "std":
        return tuple(rules.substitutions)
    known = load_many(["std"]).substitutions
    return tuple(name for name in rules.substitutions if name not in known)


def optimize(
    name: str, options: argparse.Namespace, rules: Rules, used: Sequence[CompiledRule], only: Sequence[str]
) -> Outcome:
    """Everything about one network."""
    model = build(name, small=options.small, seed=options.seed)
    extra = () if options.rules == "std" else (options.rules,)
    report = dslc.optimize(
        model,
        rules=extra,
        only=only,
        allow=options.allow,
        budget=options.budget,
        seed=options.seed,
        threads=options.threads,
        cache=options.cache,
    ).report
    with study(model, rules, options.threads, options.cache) as found:
        best = found.search(used, options.budget, report.steps_done or None, options.seed)
        found.take_path(best, options.candidates // 2)
        sizes, largest = sizes_of(rules, used), {}
        few: list[CompiledRule] = []
        reached = found.start
        for size in SIZES:
            before, few = few, [rule for rule in used if sizes[rule.name] <= size]
            if len(few) > len(before):
                reached = found.search(few, options.budget / 2, None, options.seed)
            if found.take(reached, f"up to {size} operators"):
                largest[size] = hash(reached.graph.outputs)
        found.take_apart(found.built, options.candidates - len(found.found))
        lacking = options.candidates - len(found.found)
        if lacking > 0:
            wandered = found.wander(used, options.budget / 2, options.seed, [found.start, *best.path()[1:][-1:]])
            found.take_apart(wandered, lacking)
        points = found.points(max(10.0, options.budget / 2))
    best_of = tuple(points.get(largest.get(size, 0)) for size in SIZES)
    return Outcome(name, report, tuple(points.values()), best_of)


def record(outcome: Outcome, options: argparse.Namespace) -> Record:
    """All that the page says of a network, as plain values for JSON."""
    points = [
        {"what": one.what, "predicted": one.predicted, **dataclasses.asdict(one.measured)} for one in outcome.points
    ]
    return {
        "row": list(outcome.row()),
        "points": points,
        "uses": {step.rule: step.count for step in outcome.report.steps},
        "written": f"`python -m benchmarks.taso {' '.join(_shown(sys.argv[1:]))}`".replace(" `", "`")
        + f", {date.today().isoformat()}",
        "rules": f"{Path(options.rules).name} {outcome.report.rules[:12]}".strip(),
        "machine": machine.describe(options.threads),
    }


def _shown(arguments: Sequence[str]) -> list[str]:
    """The arguments without the folder of the cache, which is this machine's own business."""
    return [one for before, one in pairwise(["", *arguments]) if "--cache" not in (before, one.partition("=")[0])]


def points_of(records: Iterable[Record]) -> list[Point]:
    """The candidates of recorded networks."""
    return [
        Point(one["what"], one["predicted"], Interval(one["ratio"], one["low"], one["high"]))
        for entry in records
        for one in entry["points"]
    ]


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows as a Markdown table."""
    lines = [HEADER, tuple("---" for _ in HEADER), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def uses(records: Mapping[str, Record]) -> tuple[list[str], dict[tuple[str, str], int]]:
    """The rules that were used anywhere, the most used ones first, and how often each was used where."""
    counts = {(rule, name): count for name, entry in records.items() for rule, count in entry["uses"].items()}
    total: dict[str, int] = {}
    for (rule, _), count in counts.items():
        total[rule] = total.get(rule, 0) + count
    return sorted(total, key=lambda rule: (-total[rule], rule)), counts


def _which(records: Mapping[str, Record], field: str) -> list[str]:
    """What was different from network to network, with the networks that each holds for."""
    names: dict[str, list[str]] = {}
    for name, entry in records.items():
        names.setdefault(entry[field], []).append(name)
    return [f"- {', '.join(own)}: {value}" for value, own in names.items()]


def page(records: Mapping[str, Record], failed: Sequence[str], remarks: str) -> str:
    """The section of the results."""
    rows, counts = uses(records)
    every = points_of(records.values())
    quiet = [point for point in every if point.quiet]
    return "\n".join(
        [
            HEADING,
            "",
            "Written network by network by",
            "",
            *_which(records, "written"),
            "",
            "with the rules of",
            "",
            *_which(records, "rules"),
            "",
            "on",
            "",
            *_which(records, "machine"),
            "",
            "`ratio` is against ONNX Runtime with all its optimizations on, interleaved; 1 where the original was kept.",
            "`candidates` are graphs that the searches built, and of random walks of the rules where these are few, spread over",
            "the predicted ratios and timed against the original ([all of them](results/taso.json)): `median error` is that of",
            "their predicted ratios where the paired ratios spread less than 5 %, `tau` Kendall's, of those pairs of candidates,",
            "the original among them, that measuring tells apart.",
            "The columns 1 to 4 are measured ratios of what a search finds with substitutions of at most so many operators",
            "(TASO's Figure 11); `-` where these find nothing.",
            "",
            table([entry["row"] for entry in records.values()]),
            "",
            *(f"- failed: {line}" for line in failed),
            f"Predictions of all networks together: median error {_number(median_error(every), '.1%')} over {len(quiet)} quiet"
            f" measurements of {len(every)}.",
            "",
            f"Which rule was used how often in what was written (TASO's Figure 10; [picture](results/{PICTURE.name})):",
            "",
            heatmap.text(rows, list(records), counts),
            "",
            *([remarks] if remarks else []),
        ]
    )


def write(new: Mapping[str, Record], failed: Sequence[str], store: Path = STORE, results: Path = RESULTS) -> None:
    """Adds networks to those of earlier runs, and writes the section, in place of an earlier one, and the picture."""
    known: dict[str, Record] = json.loads(store.read_text("utf-8")) if store.exists() else {}
    known.update(new)
    records = {name: known[name] for name in sorted(known, key=lambda name: (name not in NAMES, NAMES.index(name)))}
    store.parent.mkdir(exist_ok=True)
    store.write_text(json.dumps(records, indent=1) + "\n", "utf-8")
    rows, counts = uses(records)
    store.with_name(PICTURE.name).write_text(
        heatmap.svg(rows, list(records), counts, "Substitutions used in each network"), "utf-8"
    )
    before, _, after = results.read_text("utf-8").partition(HEADING)
    following = after.find("\n## ")
    old, rest = (after[:following], after[following + 1 :]) if following >= 0 else (after, "")
    mark = old.find(REMARKS)
    text = page(records, failed, old[mark:].rstrip("\n") + "\n" if mark >= 0 else "")
    results.write_text(before.rstrip("\n") + "\n\n" + text + ("\n" + rest if rest else ""), "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; exit code 1 where a network failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.taso", description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="NETWORK", help=f"which networks (default: all): {', '.join(NAMES)}"
    )
    default = str(GENERATED) if GENERATED.exists() else "std"
    parser.add_argument(
        "--rules", default=default, metavar="LIB", help="library or .rules file (default: what is generated)"
    )
    parser.add_argument("--only", action="append", default=[], metavar="RULESET", help="these rules of it alone")
    parser.add_argument(
        "--allow", action="append", default=[], metavar="STATUS", help="beside proved and bounded rules"
    )
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of search for each network (default 60)")
    parser.add_argument(
        "--candidates", type=int, default=10, help="graphs that are timed against the original (default 10)"
    )
    parser.add_argument("--threads", type=int, help="threads of the runtime (default: one for each core)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--small", action="store_true", help="few and narrow layers")
    parser.add_argument("--cache", type=Path, help="folder of the cost cache (default: dslc's own)")
    parser.add_argument("--write", action="store_true", help="write the results also where only some networks were run")
    options = parser.parse_args(arguments)
    rules = load_many(["std", options.rules] if options.rules != "std" else ["std"])
    only = tuple(options.only) or (() if options.rules == "std" else own_rules(rules, options.rules))
    chosen = chosen_rules(rules, only)
    definitions = list(dict.fromkeys(rule.definition for rule in chosen))
    used, left = usable(chosen, statuses(rules, definitions, cache_folder(options.cache)), options.allow)
    print(machine.describe(options.threads))
    print(f"{len(used)} directions of rules, {len(left)} rules left out", flush=True)
    done: dict[str, Record] = {}
    failed: list[str] = []
    print("\n".join(table([]).splitlines()))
    for name in options.names or NAMES:
        try:
            outcome = optimize(name, options, rules, used, only)
            done[name] = record(outcome, options)
            print(table([outcome.row()]).splitlines()[-1], flush=True)
            for point in outcome.points:
                quiet = "" if point.quiet else " (noisy)"
                print(
                    f"{name}: {point.what}: predicted {point.predicted:.3f}, measured {point.measured}{quiet}",
                    flush=True,
                )
        except Exception as error:
            # One network that fails must not hide what became of the others.
            failed.append(f"{name}: {type(error).__name__}: {error}")
            print(failed[-1], flush=True)
        if not options.names or options.write:
            # what is done stays, whatever becomes of the others
            write(done, failed)
    rows, counts = uses(done)
    print(heatmap.text(rows, list(done), counts))
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    sys.exit(main())
