"""The tables of PACT 2024 on its thirteen networks: extractors on e-graphs, and searches in the same time.

    python -m benchmarks.pact24 [--quick] [--models bert nasrnn ...] [--seconds 20] [--seeds 0 1 2 3 4] [--enodes 2000]
                                [--rules paper|pact24|std] [--kept FILE.json] [--only table1|grown|arms|searches ...]

Prices are those of a table that stands in for a GPU: 5 us for a launch and the roofline of an A100. `table1` has what each extractor
estimates on the e-graph of the network itself, in us (Table 1; equal chosen programs may be estimated far apart); `grown` has what
the chosen programs cost in e-graphs that random rules have grown, as a multiple of the bound of integer programming. `arms` has the
approaches of Table 2 and Figure 5: TENSAT, and trees by what rewards them and by what takes the last program out; `searches` has
dslc's own. Both print by how much the sum of prices got less in percent (the mean of the seeds and its deviation), the steps, and the
processor seconds until the end. All have the same seconds of the processor, so that other work on the machine counts for none, and
the same limit of e-nodes; what knows no chance is run once. A model is a network of `benchmarks.zoo`, or a real one of
`benchmarks.models`. `--rules paper`: the 124 + 15 rules of the rule set `pact24` in one direction each.

What is done is kept in a file as soon as it is done, so that a run that was ended goes on where it was; tables are printed of what
there is, with `--print` of nothing else. `--quick`: three networks as small as tests have them, one seed, 5 s.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks import models
from benchmarks.egraph import grown, network
from benchmarks.printed import printed_of
from benchmarks.zoo import NAMES
from dslc.cost import kinds
from dslc.cost.groups import Group
from dslc.cost.layout import Info
from dslc.cost.measure import Measurer
from dslc.cost.model import CostModel
from dslc.deadline import Deadline
from dslc.egraph.extract import EXTRACTORS, EGraphTable, ExtractionProblem
from dslc.egraph.graph import EGraph
from dslc.ir.graph import Call, Graph, Node
from dslc.match import CompiledRule
from dslc.onnx.importer import import_model
from dslc.search.candidates.candidate import Candidate, Limits
from dslc.search.options.strategies import Backtrack, Mcts, Saturate, Strategy
from dslc.search.runs.selection import chosen_rules
from dslc.search.strategies.space import Space, Substitutions
from dslc.semantics.library import Rules, load_many

#: in the order of the paper's tables
MODELS = (
    "vgg19", "mobilenet_v2", "squeezenet", "resnet50", "inception_v3", "nasrnn", "bert", "transformer_transducer", "vit_base",
    "vit_large", "nasnet_a", "resnext50", "vit_huge",
)  # fmt: skip
QUICK = ("nasrnn_gates", "nasrnn", "bert")
SIZES = (500, 2_000)
#: an A100: seconds of a launch, bytes and multiplications a second
LAUNCH, BYTES, FLOPS = 5e-6, 1.555e12, 19.5e12
#: seconds of an extractor
EXTRACTION = 30.0

#: makes a strategy with so many e-nodes at most
Make = Callable[[int], Strategy]


def tree(reward: str, final: str) -> Make:
    """A tree as the paper has it."""
    return lambda enodes: Mcts(enodes=enodes, reward=reward, final=final, near=0.0, tidy=False, whole=True)


ARMS: Mapping[str, Make] = {
    "TENSAT": lambda enodes: Saturate(enodes=enodes, tensat=True, final="ilp"),
    "DCF/DCF": tree("default", "default"),
    "DCF/ILP": tree("default", "ilp"),
    "OCF/OCF": tree("shared", "shared"),
    "OCF/ILP": tree("shared", "ilp"),
    "ILP/ILP": tree("ilp", "ilp"),
}
SEARCHES: Mapping[str, Make] = {
    "backtrack": lambda enodes: Backtrack(),
    "saturate": lambda enodes: Saturate(enodes=enodes),
    "saturate alone": lambda enodes: Saturate(enodes=enodes, tidy=False),
    "mcts": lambda enodes: Mcts(enodes=enodes),
    "mcts alone": lambda enodes: Mcts(enodes=enodes, tidy=False),
}
#: what depends on chance
DRAWN = ("mcts", "/")


class Unmeasured(Measurer):
    """Nothing is run: the table knows all prices."""

    def __init__(self) -> None:
        self.count = 0


class Gpu(CostModel):
    """Prices of a table instead of measured ones."""

    def measure(self, group: Group, turn: str = "") -> Info:
        return Info(sum(self.seconds(node) for node in group.nodes))

    def seconds(self, node: Node) -> float:
        """A launch, and the longer of both: moving what a node reads and writes, and multiplying."""
        if node.constant or not node.args:
            return 0.0
        if isinstance(node, Call) and self.lowerings.passes_on(node):
            return 0.0
        moved = sum(map(self.samples.bytes_of, (*node.args, *node.values)))
        work = kinds.flops(self.rules, node) if isinstance(node, Call) else None
        return LAUNCH + max(moved / BYTES, (work or 0.0) / FLOPS)


def prices(rules: Rules) -> Gpu:
    return Gpu(rules, Unmeasured(), lambda inputs, outputs: b"", 20)


def extracted(egraph: EGraph, costs: Gpu) -> dict[str, Any]:
    """What each extractor takes its program to cost, what that does, and the bound of integer programming, in us."""
    problem = ExtractionProblem(EGraphTable(egraph, costs.seconds), [egraph.find(root) for root in egraph.roots])
    out: dict[str, Any] = {"nodes": len(egraph)}
    for name, extractor in (("printed", printed_of), *EXTRACTORS.items()):
        began = time.monotonic()
        found = extractor(problem, Deadline.after(EXTRACTION))
        if found is not None:
            out[name], out[f"{name} estimate"] = 1e6 * found.cost, 1e6 * found.estimate
            out[f"{name} seconds"] = time.monotonic() - began
            if name == "ilp":
                # what integer programming takes a program to cost is what it does
                out["bound"], out["ilp estimate"] = 1e6 * found.bound, 1e6 * found.cost
    return out


def searched(
    graph: Graph, rules: Sequence[CompiledRule], library: Rules, make: Make, plan: Plan, seed: int
) -> dict[str, Any]:
    """What a search ends with, in us: the sum of prices of what it found, and of the start."""
    costs = prices(library)
    start = Candidate(graph, costs.graph_cost(graph))
    began = time.process_time()
    limits = Limits(until=Deadline(began + plan.seconds, time.process_time))
    notes: list[str] = []
    space = Space(start, (Substitutions(tuple(rules)),), costs, limits, seed, note=notes.append)
    found = list(make(plan.enodes).explore(space))
    best = found[-1] if found else start
    took = time.process_time() - began
    return {"start": 1e6 * start.cost, "cost": 1e6 * best.cost, "steps": limits.done, "seconds": took, "notes": notes}


def graph_of(name: str, library: Rules, small: bool) -> Graph:
    """A network of the zoo, as small as tests have it or whole, or a real model at the sizes that it is measured at."""
    if name in NAMES:
        return network(name, library, small)
    model = models.find(name)
    return import_model(models.fetch(name), library, model.bind).graph


@dataclass(frozen=True, slots=True)
class Plan:
    """What all searches are given alike: seconds of the processor, e-nodes, and the seeds of those that draw."""

    seconds: float
    enodes: int
    seeds: tuple[int, ...]


class Kept:
    """What was done, by a key, in a file."""

    def __init__(self, path: Path, printed: bool = False) -> None:
        self._path, self._printed = path, printed
        self.done: dict[str, dict[str, Any]] = json.loads(path.read_text("utf-8")) if path.exists() else {}

    def get(self, key: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        """What is known by a key, made where it is not; None where nothing may be made."""
        if key not in self.done and self._printed:
            return None
        if key not in self.done:
            self.done[key] = make()
            partial = self._path.with_suffix(".partial")
            partial.write_text(json.dumps(self.done, indent=1), "utf-8")
            os.replace(partial, self._path)
        return self.done[key]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--models", nargs="+")
    parser.add_argument("--seconds", type=float, help="of each search (20; 5 where quick)")
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument("--enodes", type=int, default=2_000)
    parser.add_argument("--rules", choices=["paper", "pact24", "std"], default="paper")
    parser.add_argument("--kept", type=Path, default=Path("pact24.json"))
    parser.add_argument("--only", nargs="+", choices=["table1", "grown", "arms", "searches"])
    parser.add_argument("--print", action="store_true", help="make nothing: print what is kept")
    options = parser.parse_args()
    quick = options.quick
    only = options.only or ["table1", "grown", "arms", "searches"]
    seeds = tuple(options.seeds or ((0,) if quick else range(5)))
    plan = Plan(options.seconds or (5.0 if quick else 20.0), options.enodes, seeds)
    library = load_many(["std", "taso_generated"])
    one_way = ["*^-1"] if options.rules == "paper" else []
    rules = chosen_rules(library, ["default" if options.rules == "std" else "pact24"], one_way)
    kept = Kept(options.kept, options.print)
    run = Run(library, rules, options.rules, kept, options.models or (QUICK if quick else MODELS), quick)
    several = {rule.name for rule in rules if len(rule.left.tops) > 1}
    print(f"{len({rule.name for rule in rules})} rules, {len(several)} of several patterns")
    if "table1" in only:
        table1(run)
    if "grown" in only:
        grown_extractors(run)
    if "arms" in only:
        searches(run, ARMS, plan)
    if "searches" in only:
        searches(run, SEARCHES, plan)


class Run:
    """Networks, rules, and what is known of them."""

    def __init__(
        self, library: Rules, rules: Sequence[CompiledRule], chosen: str, kept: Kept, names: Sequence[str], small: bool
    ) -> None:
        self.library, self.rules, self.chosen, self.kept, self.names, self.small = (
            library,
            rules,
            chosen,
            kept,
            names,
            small,
        )
        self._graphs: dict[str, Graph] = {}

    def graph(self, name: str) -> Graph:
        if name not in self._graphs:
            self._graphs[name] = graph_of(name, self.library, self.small)
        return self._graphs[name]

    def key(self, name: str, *parts: object) -> str:
        """Where something about a network is kept."""
        return " ".join(map(str, ("small" if self.small else "whole", name, *parts)))


def row_of(cells: Sequence[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def table1(run: Run) -> None:
    """What extractors estimate on the e-graphs of the networks themselves (Table 1)."""
    columns = (
        "network",
        "e-nodes",
        "default",
        "Algorithm 2",
        "shared",
        "joint",
        "ILP",
        "proved",
        "seconds of Algorithm 2",
        "of ILP",
    )
    print("\n" + row_of(columns) + "\n|" + "---|" * len(columns), flush=True)
    for name in run.names:
        row = run.kept.get(
            run.key(name, "table1"), lambda name=name: extracted(EGraph.of(run.graph(name)), prices(run.library))
        )  # type: ignore[misc]
        if row is None:
            continue
        estimates = [row.get(f"{how} estimate") for how in ("greedy", "printed", "shared", "joint", "ilp")]
        said = ["-" if one is None else f"{one:.1f}" if one < 1e5 else f"{one:.2e}" for one in estimates]
        proved = "yes" if row.get("ilp", 0.0) <= row.get("bound", 0.0) * (1 + 1e-6) else "no"
        took = [f"{row[f'{how} seconds']:.3f}" if f"{how} seconds" in row else "-" for how in ("printed", "ilp")]
        print(row_of([name, row["nodes"], *said, proved, *took]), flush=True)


def grown_extractors(run: Run) -> None:
    """What the chosen programs cost in e-graphs that random rules have grown, as multiples of the bound."""
    columns = ("network", "e-nodes", "default", "Algorithm 2", "shared", "joint", "ILP", "bound")
    print("\n" + row_of(columns) + "\n|" + "---|" * len(columns), flush=True)
    for name in run.names:
        for most in SIZES:

            def one(name: str = name, most: int = most) -> dict[str, Any]:
                return extracted(grown(run.graph(name), run.rules, most, random.Random(0)), prices(run.library))

            row = run.kept.get(run.key(name, "grown", run.chosen, most), one)
            if row is None:
                continue
            scale = row.get("bound") or 0.0
            cells = [row.get(how) for how in ("greedy", "printed", "shared", "joint", "ilp")]
            said = ["-" if c is None else f"{c / scale:.3f}" if scale else f"{c:.1f}" for c in cells]
            print(row_of([name, row["nodes"], *said, f"{scale:.1f}"]), flush=True)


def searches(run: Run, some: Mapping[str, Make], plan: Plan) -> None:
    """How much less the sum of prices is after each search (Table 2, Figure 5)."""
    print("\n" + row_of(["network", "start, us", *some]) + "\n|" + "---|" * (2 + len(some)), flush=True)
    for name in run.names:
        cells, start = [], 0.0
        for search, make in some.items():
            rows: list[dict[str, Any]] = []
            for seed in plan.seeds if any(part in search for part in DRAWN) else plan.seeds[:1]:

                def one(name: str = name, make: Make = make, seed: int = seed) -> dict[str, Any]:
                    return searched(run.graph(name), run.rules, run.library, make, plan, seed)

                row = run.kept.get(run.key(name, search, run.chosen, f"{plan.seconds:g}", plan.enodes, seed), one)
                if row is not None:
                    rows.append(row)
            if not rows:
                cells.append("-")
                continue
            start = rows[0]["start"]
            less = [100 * (1 - row["cost"] / start) for row in rows]
            spread = f" ± {stdev(less):.1f}" if len(less) > 1 else ""
            steps, took = (mean(row[what] for row in rows) for what in ("steps", "seconds"))
            cells.append(f"{mean(less):.1f}{spread} ({steps:.0f}, {took:.0f} s)")
        if start:
            print(row_of([name, f"{start:.1f}", *cells]), flush=True)


if __name__ == "__main__":
    main()
