"""Steps of the tree search as it is: clone, one random rule of all, the best program; rules that match nowhere are paid for.

    python -m benchmarks.treesteps [--models nasrnn bert] [--sizes 500 2000 10000] [--seconds 5] [--seed 0] [--matches 1]

Random rules of std grow the e-graph of a network to a size; from there the simulations of `mcts` are run, each a child of that e-graph
and ten random rules one after the other, at the prices of `benchmarks.pact24`. A rule is applied at `--matches` random places at once.
Prints the steps of a processor second, and the cost of the best program by the sum of its prices. The first second is not counted: it
finds what matches in the e-graph that all begin from.
"""

from __future__ import annotations

import argparse
import gc
import random
import time

from benchmarks.egraph import grown, network
from benchmarks.pact24 import prices
from dslc.deadline import Deadline
from dslc.search.candidate import Candidate, Limits
from dslc.search.rulesets import chosen_rules
from dslc.search.tree import Searching
from dslc.search.treesearch import Mcts
from dslc.semantics.library import load_many

#: seconds that are not counted
WARM = 1.0
import os; SORT = os.environ.get("SORT","cumtime")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["nasrnn", "bert"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[500, 2000, 10000])
    parser.add_argument("--seconds", type=float, default=5.0)
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
                costs = prices(library)
                start = Candidate(graph, costs.graph_cost(graph))
                until = Deadline(time.process_time() + 1e6, time.process_time)
                limits = Limits(until=until)
                most = 10**9
                tree = Mcts(simulations=most, enodes=most, matches=matches, stop=1.0, tidy=False, whole=True)
                searching = Searching(tree, start, rules, costs, limits, options.seed, lambda found: None)
                searching.begin()
                own = egraph.clone()
                searching._plant(own)
                gc.collect()
                gc.freeze()
                count = 0
                began, before = time.process_time(), 0
                if options.simulations is None:
                    while time.process_time() < began + WARM and searching.expand():
                        pass
                    began, before = time.process_time(), limits.done
                if options.profile:
                    import cProfile

                    profile = cProfile.Profile(time.process_time)
                    profile.enable()
                while (
                    count < options.simulations if options.simulations is not None else time.process_time() < began + options.seconds
                ) and searching.expand():
                    count += 1
                took, steps = time.process_time() - began, limits.done - before
                if options.profile:
                    import pstats

                    profile.disable()
                    pstats.Stats(profile).sort_stats(SORT).print_stats(110)
                gc.unfreeze()
                best = searching._least[1].cost if searching._least is not None else searching._initial
                cells = [name, len(own), matches, count, steps, f"{steps / took:.0f}", f"{1e3 * took / max(1, steps):.2f}", f"{1e6 * best:.3f}"]
                print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
