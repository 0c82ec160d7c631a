"""Steps of the tree search as it is: clone, one random rule of all, the best program; rules that match nowhere are paid for.

    python -m benchmarks.treesteps [--models nasrnn bert] [--sizes 500 2000 10000] [--seconds 5] [--seed 0] [--matches 1]

Random rules of std grow the e-graph of a network to a size; from there the simulations of `mcts` are run, each a child of that e-graph
and ten random rules one after the other, at the prices of `benchmarks.pact24`. A rule is applied at `--matches` random places at once.
Prints the steps of a processor second, and the cost of the best program by the sum of its prices. The first second is not counted, or
`--warm`: it finds what matches in the e-graph that all begin from, once for all simulations.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import random
import time
from collections.abc import Sequence
from contextlib import nullcontext

from benchmarks.egraph import grown, network
from benchmarks.pact24 import prices
from dslc.deadline import Deadline
from dslc.egraph.graph import EGraph
from dslc.ir.graph import Graph
from dslc.match import CompiledRule
from dslc.search.candidates.candidate import Candidate, Limits
from dslc.search.options.strategies import Mcts
from dslc.search.runs.selection import chosen_rules
from dslc.search.strategies.space import Space, Substitutions
from dslc.search.strategies.tree import Searching
from dslc.semantics.library import Rules, load_many

#: seconds that are not counted, where nobody says how many
WARM = 1.0
#: seconds, and simulations or e-nodes, that no run here reaches
FOREVER, MOST = 1e6, 10**9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["nasrnn", "bert"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[500, 2000, 10000])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--warm", type=float, default=WARM, help=f"seconds before, which are not counted ({WARM:g})")
    parser.add_argument("--simulations", type=int, help="so many instead of seconds, all of them counted")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--matches", nargs="+", type=int, default=[1], help="places at which one rule is applied")
    parser.add_argument("--profile", action="store_true", help="also where the time goes")
    options = parser.parse_args()
    library = load_many(["std"])
    rules = chosen_rules(library)
    print(f"{len(rules)} rules\n")
    columns = ["network", "e-nodes", "places", "simulations", "steps", "steps/s", "ms a step", "best, us"]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns), flush=True)
    for name in options.models:
        graph = network(name, library)
        for size in options.sizes:
            egraph = grown(graph, rules, size, random.Random(options.seed))
            for matches in options.matches:
                cells = [name, len(egraph), matches, *measured(graph, egraph, rules, library, matches, options)]
                print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def measured(
    graph: Graph,
    egraph: EGraph,
    rules: Sequence[CompiledRule],
    library: Rules,
    matches: int,
    options: argparse.Namespace,
) -> list[object]:
    """Simulations and steps, steps a second, milliseconds of one, and the sum of prices of the best program in us."""
    costs = prices(library)
    start = Candidate(graph, costs.graph_cost(graph))
    limits = Limits(until=Deadline(time.process_time() + FOREVER, time.process_time))
    tree = Mcts(simulations=MOST, enodes=MOST, matches=matches, stop=1.0, tidy=False, whole=True)
    searching = Searching(tree, Space(start, (Substitutions(tuple(rules)),), costs, limits, options.seed))
    searching.begin()
    searching._plant(egraph.clone())
    gc.collect()
    gc.freeze()
    began, before = time.process_time(), 0
    if options.simulations is None:
        while time.process_time() < began + options.warm and searching.expand():
            pass
        began, before = time.process_time(), limits.done
    end, count = began + options.seconds, 0
    # the clock of the processor, so that other work on the machine counts for none
    profile = cProfile.Profile(time.process_time)
    with profile if options.profile else nullcontext():
        while (
            time.process_time() < end if options.simulations is None else count < options.simulations
        ) and searching.expand():
            count += 1
    took, steps = time.process_time() - began, limits.done - before
    if options.profile:
        pstats.Stats(profile).sort_stats("cumtime").print_stats(110)
    gc.unfreeze()
    best = searching._initial if searching._least is None else searching._least[1].cost
    return [count, steps, f"{steps / took:.0f}", f"{1e3 * took / max(1, steps):.2f}", f"{1e6 * best:.3f}"]


if __name__ == "__main__":
    main()
