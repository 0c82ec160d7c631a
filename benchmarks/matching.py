"""How long one round takes: every direction of every rule looked for in a network, and every right side built.

    python -m benchmarks.matching [--models nasrnn nasnet_a] [--rules std taso_generated] [--rounds 7] [--largest 10000]

Prints, for each network, the median of the processor times of rounds that are interleaved with those of the other networks, with the
rules warm (their guard keys met) and the index of the graph made anew each time; then how a round grows from 100 nodes to `--largest`
on a chain, a block that is repeated and (to a tenth of that) a long sum. Networks have no weights, so that none are drawn. Garbage is
collected as in every command of dslc: what was there before is not looked at again.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.zoo import build
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, Value, input_value
from dslc.match import CompiledRule, GraphIndex, find_matches
from dslc.match.apply import replacements
from dslc.match.cases import cases_of
from dslc.match.recipe import Refused
from dslc.onnx.importer import import_model
from dslc.prove.garbage import gc_paused
from dslc.search.runs.selection import chosen_rules
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules, load_many

#: the size that growth is measured against
SMALLEST = 100


@dataclass(frozen=True, slots=True)
class Round:
    """What one round took, in seconds of processor time, and what it found."""

    seconds: float
    matches: int
    applied: int


def one_round(graph: Graph, rules: Sequence[CompiledRule]) -> Round:
    """Every direction at every place of a graph, with its right side; the graph is indexed anew."""
    started = time.process_time()
    index = GraphIndex(graph)
    matches = applied = 0
    for rule in rules:
        for match in find_matches(rule, index):
            matches += 1
            try:
                replacements(match)
                applied += 1
            except Refused:
                continue
    return Round(time.process_time() - started, matches, applied)


def medians(graphs: Mapping[str, Graph], rules: Sequence[CompiledRule], rounds: int) -> dict[str, tuple[float, Round]]:
    """The median round of each graph; a round of every graph follows one of the one before, so that all see the same machine."""
    last = {name: one_round(graph, rules) for name, graph in graphs.items()}
    times: dict[str, list[float]] = {name: [] for name in graphs}
    gc.collect()
    with gc_paused():
        for _ in range(rounds):
            for name, graph in graphs.items():
                last[name] = one_round(graph, rules)
                times[name].append(last[name].seconds)
    return {name: (median(times[name]), last[name]) for name in graphs}


# ---- graphs of any size ----------------------------------------------------------------------------------------


def _tensor(name: str, *shape: int) -> Value:
    return input_value(name, TensorType(DType.F32, shape))


def chain(rules: Rules, nodes: int) -> Graph:
    """Layers one after the other, each a product, a sum and relu: five nodes with its two weights."""
    x = value = _tensor("x", 8, 16)
    for k in range(nodes // 5):
        (value,) = apply(rules, "std.matmul", [value, _tensor(f"w{k}", 16, 16)])
        (value,) = apply(rules, "std.add", [value, _tensor(f"b{k}", 16)])
        (value,) = apply(rules, "std.relu", [value])
    return Graph((x,), (value,))


def blocks(rules: Rules, nodes: int) -> Graph:
    """One block again and again: two products of one operand, their sum, the operand added, relu: seven nodes with its weights."""
    x = value = _tensor("x", 8, 16)
    for k in range(nodes // 7):
        (left,) = apply(rules, "std.matmul", [value, _tensor(f"l{k}", 16, 16)])
        (right,) = apply(rules, "std.matmul", [value, _tensor(f"r{k}", 16, 16)])
        (total,) = apply(rules, "std.add", [left, right])
        (total,) = apply(rules, "std.add", [total, value])
        (value,) = apply(rules, "std.relu", [total])
    return Graph((x,), (value,))


def residuals(rules: Rules, nodes: int) -> Graph:
    """A sum that goes on and on, with a product of what it is so far: every part of it is a sum of many operands. Four nodes a term."""
    x = value = _tensor("x", 8, 16)
    for k in range(nodes // 4):
        (inner,) = apply(rules, "std.relu", [value])
        (inner,) = apply(rules, "std.matmul", [inner, _tensor(f"w{k}", 16, 16)])
        (value,) = apply(rules, "std.add", [value, inner])
    return Graph((x,), (value,))


def growth(
    make: Callable[[Rules, int], Graph], rules: Rules, used: Sequence[CompiledRule], largest: int, rounds: int
) -> list[tuple[int, float, Round]]:
    """The median round by the number of nodes."""
    sizes = []
    size = SMALLEST
    while size <= largest:
        sizes.append(size)
        size *= 10
    graphs = {str(size): make(rules, size) for size in sizes}
    found = medians(graphs, used, rounds)
    return [(len(graphs[str(size)].nodes()), *found[str(size)]) for size in sizes]


# ---- the command -----------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=["nasrnn", "nasnet_a"])
    parser.add_argument("--rules", nargs="+", default=["std", "taso_generated"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--largest", type=int, default=10_000, help="nodes of the largest chain; 0 leaves growth out")
    options = parser.parse_args()
    rules = load_many(options.rules)
    used = chosen_rules(rules)
    print(
        f"{len(used)} directions of {len({rule.definition.name for rule in used})} rules of {', '.join(options.rules)}\n"
    )
    if options.models:
        graphs = {name: import_model(build(name, weights=False), rules).graph for name in options.models}
        print(
            "| network | nodes | round, s | matches | applied | rules that match | guard keys |\n|---|---|---|---|---|---|---|"
        )
        for name, (seconds, found) in medians(graphs, used, options.rounds).items():
            matching, keys = _keys(graphs[name], used)
            cells = (name, len(graphs[name].nodes()), f"{seconds:.3f}", found.matches, found.applied, matching, keys)
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    if options.largest >= SMALLEST:
        print(
            "\n| graph | nodes | round, s | matches | ms for a node | against the smallest |\n|---|---|---|---|---|---|"
        )
        # a long sum has a hundred matches for each of its nodes
        for make, largest in ((chain, options.largest), (blocks, options.largest), (residuals, options.largest // 10)):
            rows = growth(make, rules, used, largest, max(1, options.rounds // 2))
            base = rows[0][1] / rows[0][0]
            for nodes, seconds, found in rows:
                each = seconds / nodes
                cells = (
                    make.__name__,
                    nodes,
                    f"{seconds:.3f}",
                    found.matches,
                    f"{1e3 * each:.3f}",
                    f"{each / base:.2f}",
                )
                print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def _keys(graph: Graph, rules: Sequence[CompiledRule]) -> tuple[int, int]:
    """How many rules match, and how many guard keys their matches have."""
    index = GraphIndex(graph)
    cases: dict[CompiledRule, set[int]] = {}
    for rule in rules:
        for match in find_matches(rule, index):
            cases.setdefault(rule, set()).add(id(match.case))
    assert all(len(found) <= len(cases_of(rule)) for rule, found in cases.items())
    return len(cases), sum(map(len, cases.values()))


if __name__ == "__main__":
    main()
