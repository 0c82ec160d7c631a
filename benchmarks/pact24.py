"""The tables of PACT 2024 on the networks here: extractors on initial e-graphs, and searches in the same time.

    python -m benchmarks.pact24 [--quick] [--models bert nasrnn ...] [--seconds 120] [--seeds 0 1 2]
                                [--rules std|pact24] [--kept FILE.json] [--only extractors|searches]

Prices are those of a table that stands in for a GPU: 5 us for a launch and the roofline of an A100. Extractors work on the e-graph of
the network itself, and on one that random rules have grown to 500 and 2,000 e-nodes; a number is the cost in us, and for grown ones
what it is above the bound of integer programming. Searches have the same seconds of the processor each, so that other work on the
machine counts for none of them; saturation and backtracking know no chance, tree search is the mean of the seeds. A model is a network
of `benchmarks.zoo`, or a real one of `benchmarks.models`. What is done is kept in a file as soon as it is done, so that a run that was
ended goes on where it was; tables are printed of what there is. `--quick`: three networks as small as tests have them, one seed, 20 s.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
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
from dslc.egraph.extract import EXTRACTORS, EGraphTable, Problem
from dslc.egraph.graph import EGraph
from dslc.ir.graph import Call, Graph, Node
from dslc.match import CompiledRule
from dslc.onnx.importer import import_model
from dslc.search.backtracking import Backtrack
from dslc.search.candidate import Candidate, Limits
from dslc.search.rulesets import chosen_rules
from dslc.search.saturation import Saturate
from dslc.search.sources import Substitutions
from dslc.search.strategy import Space, Strategy
from dslc.search.treesearch import Mcts
from dslc.semantics.library import Rules, load_many

MODELS = ("resnet50", "resnext50", "nasnet_a", "nasrnn", "bert")
QUICK = ("nasrnn_gates", "nasrnn", "bert")
SIZES = (500, 2_000)
#: an A100: seconds of a launch, bytes and multiplications a second
LAUNCH, BYTES, FLOPS = 5e-6, 1.555e12, 19.5e12
#: seconds of an extractor
EXTRACTION = 30.0
SEARCHES: Mapping[str, Callable[[], Strategy]] = {"backtrack": Backtrack, "saturate": lambda: Saturate(tidy=False), "mcts": Mcts}


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
    """What each extractor finds, in us, and the bound of integer programming."""
    problem = Problem(EGraphTable(egraph, costs.seconds), [egraph.find(root) for root in egraph.roots])
    out: dict[str, Any] = {"nodes": len(egraph)}
    for name, extractor in (("printed", printed_of), *EXTRACTORS.items()):
        found = extractor(problem, Deadline.after(EXTRACTION))
        if found is not None:
            out[name] = 1e6 * found.cost
            if name == "ilp":
                out["bound"] = 1e6 * found.bound
    return out


def searched(graph: Graph, rules: Sequence[CompiledRule], library: Rules, search: str, seconds: float, seed: int) -> dict[str, Any]:
    """What a search ends with, in us."""
    costs = prices(library)
    start = Candidate(graph, costs.graph_cost(graph))
    began = time.process_time()
    limits = Limits(until=Deadline(began + seconds, time.process_time))
    found = list(SEARCHES[search]().explore(Space(start, (Substitutions(tuple(rules)),), costs, limits, seed)))
    best = found[-1] if found else start
    return {"start": 1e6 * start.cost, "cost": 1e6 * best.cost, "steps": limits.done, "seconds": time.process_time() - began}


def graph_of(name: str, library: Rules, small: bool) -> Graph:
    """A network of the zoo, as small as tests have it or whole, or a real model at the sizes that it is measured at."""
    if name in NAMES:
        return network(name, library, small)
    model = models.find(name)
    return import_model(models.fetch(name), library, model.bind).graph


class Kept:
    """What was done, by a key, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.done: dict[str, dict[str, Any]] = json.loads(path.read_text("utf-8")) if path.exists() else {}

    def get(self, key: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
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
    parser.add_argument("--seconds", type=float, help="of each search (120; 20 where quick)")
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument("--rules", choices=["std", "pact24"], default="pact24")
    parser.add_argument("--only", choices=["extractors", "searches"], help="one of the two tables")
    parser.add_argument("--kept", type=Path, default=Path("pact24.json"))
    options = parser.parse_args()
    quick = options.quick
    chosen = options.models or (QUICK if quick else MODELS)
    seconds, seeds = options.seconds or (20.0 if quick else 120.0), options.seeds or ((0,) if quick else (0, 1, 2))
    library = load_many(["std", "taso_generated"])
    rules = chosen_rules(library, ["pact24"] if options.rules == "pact24" else ["default"])
    kept = Kept(options.kept)
    graphs = {name: graph_of(name, library, small=quick) for name in chosen}
    size = "small" if quick else "whole"
    if options.only != "searches":
        extractors(graphs, rules, library, kept, f"{size} {{}} extract {options.rules} {{}}")
    if options.only != "extractors":
        searches(graphs, rules, library, kept, f"{size} {{}} {{}} {options.rules} {seconds:g} {{}}", seconds, seeds)


def extractors(
    graphs: Mapping[str, Graph], rules: Sequence[CompiledRule], library: Rules, kept: Kept, key: str
) -> None:
    """The table of extractors; `key` says where a network's row of a size is kept."""
    print("| network | e-nodes | default | Algorithm 2 | shared | joint | ILP | bound |\n|" + "---|" * 8, flush=True)
    for name, graph in graphs.items():
        for most in (0, *SIZES):

            def one(graph: Graph = graph, most: int = most) -> dict[str, Any]:
                rng = random.Random(0)
                return extracted(grown(graph, rules, most, rng) if most else EGraph.of(graph), prices(library))

            row = kept.get(key.format(name, most), one)
            scale = row.get("bound") or 0.0
            cells = [row.get(how) for how in ("greedy", "printed", "shared", "joint", "ilp")]
            said = ["-" if c is None else f"{c / scale:.3f}" if most and scale else f"{c:.1f}" for c in cells]
            print("| " + " | ".join([name, str(row["nodes"]), *said, f"{scale:.1f}"]) + " |", flush=True)



def searches(
    graphs: Mapping[str, Graph], rules: Sequence[CompiledRule], library: Rules, kept: Kept, key: str, seconds: float,
    seeds: Sequence[int],
) -> None:  # fmt: skip
    """The table of searches; `key` says where what a search of a network found with a seed is kept."""
    print("\n| network | start | " + " | ".join(f"{name} (steps)" for name in SEARCHES) + " |\n|" + "---|" * (2 + len(SEARCHES)))
    for name, graph in graphs.items():
        cells, start = [], 0.0
        for search in SEARCHES:
            rows = [
                kept.get(
                    key.format(name, search, seed),
                    lambda graph=graph, search=search, seed=seed: searched(graph, rules, library, search, seconds, seed),  # type: ignore[misc]
                )
                for seed in (seeds if search == "mcts" else seeds[:1])
            ]
            start = rows[0]["start"]
            cells.append(f"{sum(row['cost'] for row in rows) / len(rows):.1f} ({sum(row['steps'] for row in rows) // len(rows)})")
        print("| " + " | ".join([name, f"{start:.1f}", *cells]) + " |", flush=True)


if __name__ == "__main__":
    main()
