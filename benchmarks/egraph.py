"""Steps of a search over e-graphs: clone, one random rule, the best program.

    python -m benchmarks.egraph [--models nasrnn bert] [--sizes 500 2000 10000] [--steps 300] [--seed 0] [--matches 1] [--rules std]

The thirty rules of `egraph.rules`, or std's, grow the e-graph of a network to a size, then steps are timed in two ways: as children of
one state, and as a random walk of ten steps, in which every state is looked at for the first time. A rule is applied at so many random
places at once as `--matches` says; what it matches in the first state is found before. Prints steps per processor second, where the
time goes in milliseconds for each step, and what a clone takes. A rule counts when it matches somewhere. Weights have types only.
"""

from __future__ import annotations

import argparse
import gc
import random
import re
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_
from math import prod
from pathlib import Path

from benchmarks.zoo import build
from dslc.egraph.extract.incremental import IncrementalExtraction
from dslc.egraph.graph import EGraph
from dslc.egraph.incremental_matches import IncrementalMatches
from dslc.egraph.rewrite import Caps, apply_matches
from dslc.egraph.view import View
from dslc.ir.graph import Call, Graph, Node, Value, input_value, replace
from dslc.match import CompiledRule, find_matches
from dslc.onnx.importer import import_model
from dslc.search.runs.selection import chosen_rules
from dslc.semantics.library import Rules, load_many
from tests.egraph.steps import step

RULES = Path(__file__).with_name("egraph.rules")
#: steps of a random walk
DEPTH = 10
#: matches of one rule that are applied, and that are looked at
CAPS = Caps(matches=200, looked=200, nodes=1 << 30)


class Prices:
    """Prices by operator, attributes and types, as a cost cache has them."""

    def __init__(self) -> None:
        self._known: dict[object, float] = {}

    def __call__(self, node: Node) -> float:
        key = (getattr(node, "head", node), *[arg.node.types[arg.index] for arg in node.args])
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = roofline(node)
        return found


def roofline(node: Node) -> float:
    """Seconds on a machine that launches a node in 2 us, moves 50 GB/s and multiplies 500 GFLOP/s."""
    read = sum(_elements(value) for value in node.args)
    written = sum(_elements(value) for value in node.values)
    work = 0.0
    if (
        isinstance(node, Call)
        and len(node.args) == 2
        and len(node.types) == 1
        and {2} == {value.type.rank for value in node.args}
    ):
        (rows, inner), (again, columns) = (value.type.shape for value in node.args)
        if inner == again and node.types[0].shape == (rows, columns) and isinstance(inner, int):
            work = 2.0 * written * inner
    return 2e-6 + 4 * (read + written) / 50e9 + work / 500e9


def _elements(value: Value) -> float:
    return float(prod(size if isinstance(size, int) else 1 for size in value.type.shape))


def network(name: str, rules: Rules, small: bool = False) -> Graph:
    """A network of the zoo, or one as small as tests have it, with weights of which only the types are known."""
    graph = import_model(build(name, small=small, weights=False), rules).graph
    weights = {
        value: input_value(value.node.name, value.type, constant=True)  # type: ignore[attr-defined]
        for value in graph.inputs
        if re.fullmatch(r"w\d+", value.node.name)  # type: ignore[attr-defined]
    }
    inputs = tuple(value for value in graph.inputs if value not in weights)
    return Graph(inputs, replace(graph.outputs, weights))


def grown(graph: Graph, rules: Sequence[CompiledRule], size: int, rng: random.Random) -> EGraph:
    """The e-graph of a graph after random rules, as soon as it has so many e-nodes."""
    egraph = EGraph.of(graph)
    idle = 0
    while len(egraph) < size and idle < 20 * len(rules):
        outcome = step(egraph, rng.choice(rules), rng, Caps(matches=50, looked=400, nodes=size))
        idle = 0 if outcome.unions else idle + 1
    return egraph


@dataclass(slots=True)
class Times:
    """Processor seconds of all steps, by part."""

    clone: float = 0.0
    match: float = 0.0
    apply: float = 0.0
    extract: float = 0.0
    steps: int = 0
    added: int = 0
    matches: int = 0
    slowest: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        return self.clone + self.match + self.apply + self.extract


#: an e-graph, its best program, and where rules match in it
State = tuple[EGraph, IncrementalExtraction, IncrementalMatches]


def one(state: State, rule: CompiledRule, rng: random.Random, times: Times, caps: Caps) -> State:
    """One step from a state; its parts are added to `times`."""
    egraph, best, places = state
    clock = time.process_time
    began = clock()
    child = egraph.clone()
    growing = best.clone(child)
    cloned = clock()
    matches, _ = places.of(rule, rng, caps)
    if len(matches) > caps.matches:
        matches = rng.sample(matches, caps.matches)
    matched = clock()
    outcome = apply_matches(child, matches, caps)
    applied = clock()
    growing.best()
    done = clock()
    times.clone += cloned - began
    times.match += matched - cloned
    times.apply += applied - matched
    times.extract += done - applied
    times.steps += 1
    times.added += len(child) - len(egraph)
    times.matches += outcome.applied
    times.slowest[rule.name] = max(times.slowest.get(rule.name, 0.0), done - began)
    return child, growing, IncrementalMatches(View(child, before=places.view), places, matches)


def live(view: View, rules: Sequence[CompiledRule]) -> list[CompiledRule]:
    """The rules that match somewhere."""
    return [rule for rule in rules if next(find_matches(rule, view), None) is not None]


def measured(
    egraph: EGraph, rules: Sequence[CompiledRule], steps: int, joint: bool, rng: random.Random, caps: Caps
) -> tuple[Times, Times]:
    """Steps as children of one state, and as random walks from it."""
    state = (egraph, IncrementalExtraction(egraph, Prices(), joint), IncrementalMatches(View(egraph)))
    state[1].best()
    usable = live(state[2].view, rules)
    children, walks = Times(), Times()
    for rule in usable:
        one(state, rule, rng, Times(), caps)
    # as a search does: what is there stays, and the collector need not look through rules and states again and again
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    for _ in range(steps):
        one(state, rng.choice(usable), rng, children, caps)
    for _ in range(max(1, steps // DEPTH)):
        at = state
        for _ in range(DEPTH):
            at = one(at, rng.choice(usable), rng, walks, caps)
    return children, walks


def clone_of(egraph: EGraph, growing: IncrementalExtraction) -> tuple[float, float]:
    """Milliseconds of an e-graph's clone (the least of ten medians), and kB that one takes with its extraction."""
    took = []
    for _ in range(200):
        began = time.perf_counter()
        egraph.clone()
        took.append(time.perf_counter() - began)
    least = min(sorted(took[k : k + 20])[10] for k in range(0, 200, 20))
    gc.collect()
    tracemalloc.start()
    kept = []
    for _ in range(20):
        child = egraph.clone()
        kept.append((child, growing.clone(child)))
    size = tracemalloc.get_traced_memory()[0] / len(kept)
    tracemalloc.stop()
    return 1e3 * least, size / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["nasrnn", "bert"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[500, 2000, 10000])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--matches", type=int, default=CAPS.matches, help="places at which one rule is applied")
    parser.add_argument(
        "--rules", choices=["egraph", "std"], default="egraph", help="the thirty of egraph.rules, or all of std"
    )
    parser.add_argument(
        "--profile", action="store_true", help="profile children of the last size instead of timing them"
    )
    options = parser.parse_args()
    caps = replace_(CAPS, matches=options.matches, looked=options.matches)
    rules = load_many(["std", str(RULES)])
    own = options.rules == "egraph"
    used = [rule for rule in chosen_rules(rules) if rule.name.startswith("egraph." if own else "std.")]
    print(f"{len(used)} rules, {sum(len(rule.left.tops) > 1 for rule in used)} of them with several patterns\n")
    columns = [
        "network",
        "e-nodes",
        "classes",
        "reward",
        "steps",
        "steps/s",
        "clone",
        "match",
        "apply",
        "extract",
        "added",
        "matches",
    ]
    print(
        "| " + " | ".join([*columns, "clone alone, ms", "kB a clone"]) + " |\n|" + "---|" * (len(columns) + 2),
        flush=True,
    )
    for name in options.models:
        graph = network(name, rules)
        for size in options.sizes:
            rng = random.Random(options.seed)
            egraph = grown(graph, used, size, rng)
            if options.profile:
                _profile(egraph, used, options.steps, rng, caps)
                continue
            for joint in (False, True):
                growing = IncrementalExtraction(egraph, Prices(), joint)
                growing.best()
                clone, memory = clone_of(egraph, growing)
                both = measured(egraph, used, options.steps, joint, rng, caps)
                for what, times in zip(("children", "walk"), both, strict=True):
                    parts = [
                        f"{1e3 * part / times.steps:.2f}"
                        for part in (times.clone, times.match, times.apply, times.extract)
                    ]
                    each = [f"{times.added / times.steps:.0f}", f"{times.matches / times.steps:.0f}"]
                    reward = "joint" if joint else "shared"
                    cells = [name, len(egraph), len(egraph.members), reward, what, f"{times.steps / times.total:.0f}"]
                    print(
                        "| " + " | ".join(map(str, [*cells, *parts, *each, f"{clone:.3f}", f"{memory:.0f}"])) + " |",
                        flush=True,
                    )


def _profile(egraph: EGraph, used: Sequence[CompiledRule], steps: int, rng: random.Random, caps: Caps) -> None:
    import cProfile
    import pstats

    with cProfile.Profile() as profile:
        measured(egraph, used, steps, True, rng, caps)
    pstats.Stats(profile).sort_stats("tottime").print_stats(35)


if __name__ == "__main__":
    main()
