"""PET's Figure 13: what fully equivalent mutants, partially equivalent ones, and both make of whole networks.

    python -m benchmarks.pet_models [resnet18 csrnet resnet3d_18 bert ...] [--seconds 5] [--measure 60]

The dear linear operators of a network, equal ones once, are mutated; the cheapest mutant of each kind takes its place where it is
cheaper, its correction included. Prices are estimates, for a processor and for a GPU whose table has a column for the algorithm: a
dense 3x3 convolution of stride 1 may be Winograd's, with 2.25 times fewer products; one that is dilated, strided or grouped is an
implicit product. The price without fusion is that with each change of layout and each correction by itself. `--measure` adds
`dslc optimize` with mutants and without them, at so many seconds each: ratios over ONNX Runtime on this machine.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx

import dslc
from benchmarks import models, zoo
from benchmarks.pet_branches import joined
from dslc.analysis.counts import known_flops
from dslc.derivation.programs import estimated
from dslc.derivation.targets import summed
from dslc.errors import DslcError
from dslc.ir.graph import Call, Graph, Input, Node, ScopeNode, Value, topological
from dslc.ir.holes import abstracted, leaves_of
from dslc.ir.scalar import Reduce, walk
from dslc.mutate.batch_tiling import overlapping
from dslc.mutate.correct import SHARE as CORRECT_SHARE
from dslc.mutate.correct import Corrected, corrections
from dslc.mutate.mutant import MutantOptions, made
from dslc.mutate.problem import is_linear_region, problem_of, shape_of
from dslc.mutate.search import search
from dslc.onnx.importer import import_model
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules, standard

#: products and bytes a second of a V100, of which a kernel reaches a part, and what starting one takes
PRODUCTS, BYTES, LAUNCH = 0.6 * 15.7e12, 0.8 * 900e9, 4e-6
#: by how much Winograd's algorithm has fewer products, for windows of three positions
WINOGRAD = 2.25
#: the share of a network that equal operators must take together, and how many different ones are looked at
SHARE, SITES = 0.03, 8
#: mutants of one operator that are corrected
TRIED = 8
#: the networks that are looked at by default: the paper's, with the part of Inception-v3 whose branches are one of its cases
NETWORKS = ("resnet18", "csrnet", "resnet3d_18", "bert", "light-inception-v1", "light-inception-v2")

Price = Callable[[Node], float]


def graphics(rules: Rules) -> Price:
    """Seconds of a node on a GPU: what is slower of its products, by its algorithm, and its bytes."""
    products: dict[Node, float] = {}

    def price(node: Node) -> float:
        if isinstance(node, Input) or node.constant:
            return 0.0
        sizes = sum(value.type.elements * value.type.dtype.bytes for value in (*dict.fromkeys(node.args), *node.values))
        if isinstance(node, Call) and node not in products:
            products[node] = (
                2.0 * node.values[0].type.elements * summed(rules, node) / (WINOGRAD if winograd(node) else 1.0)
            )
        return LAUNCH + max(products.get(node, 0.0) / PRODUCTS, sizes / BYTES)

    return price


def winograd(node: Call) -> bool:
    """Whether a convolution may be Winograd's: dense, windows of three positions, one position after the other."""
    attrs = dict(node.attrs)
    if node.op != "std.conv" or attrs["groups"] != 1 or {*attrs["stride"], *attrs["dilation"]} != {1}:
        return False
    return set(shape_of(node.args[1])[2:]) == {3}


@dataclass(frozen=True)
class Found:
    """What takes the place of an operator: its price fused and by itself, operations, and whether it needs a correction."""

    fused: float
    apart: float
    flops: float
    partial: bool


def total(price: Price, *values: Value) -> float:
    return sum(price(node) for node in topological(value.node for value in values))


def apart(price: Price, one: Corrected) -> float:
    """A corrected mutant with each change of layout, each piece, and the choice between them by itself."""
    if not one.boxes:
        return total(price, one.mutant)
    pieces = one.pieces or (one.old,)
    moved = 3 * one.old.type.elements * one.old.type.dtype.bytes
    return total(price, one.mutant, *pieces) + LAUNCH + moved / BYTES


def flops(rules: Rules, value: Value) -> float:
    return known_flops(expand(rules, (value,))) or 0.0


def programs(rules: Rules, region: Graph, seconds: float) -> list[Value]:
    """Mutants of an operator at its sizes, and tiles that overlap."""
    problem = problem_of(rules, region)
    found = search(rules, problem, MutantOptions(seconds=seconds, processor=True))
    every = [value for mutant in found.mutants for value in made(rules, mutant, problem.small, problem.region)]
    return [*every, *overlapping(rules, region.outputs[0])]


def best(rules: Rules, region: Graph, every: list[Value], price: Price) -> Iterator[Found]:
    """What is cheaper than an operator, priced before anybody asks where it is wrong."""
    (old,) = region.outputs
    was = total(price, old)
    for value in sorted(every, key=lambda each: total(price, each))[:TRIED]:
        if total(price, value) >= was:
            return
        for one in corrections(rules, old, value, CORRECT_SHARE):
            fixed = one.value(rules)
            # a guard computes its branch where it holds
            again = 0.0 if one.pieces or not one.boxes else one.share * (was - LAUNCH)
            yield Found(total(price, fixed) + again, apart(price, one), flops(rules, value), bool(one.boxes))


def sites(rules: Rules, graph: Graph, price: Price) -> tuple[dict[Graph, int], float]:
    """The dear linear operators of a network, and how often each occurs; the price of everything."""
    counts: dict[Graph, int] = {}
    for node in graph.nodes():
        if isinstance(node, Call) and not node.constant and len(node.types) == 1 and node.values[0].type.is_static:
            region, _ = abstracted(node.values, leaves_of((node,)))
            counts[region] = counts.get(region, 0) + 1
    every = sum(price(node) for node in graph.nodes() if isinstance(node, Call))
    worth = {region: number * total(price, *region.outputs) for region, number in counts.items()}
    dear = [region for region in worth if worth[region] >= SHARE * every and wanted(rules, region)]
    return {region: counts[region] for region in sorted(dear, key=lambda region: -worth[region])[:SITES]}, every


def wanted(rules: Rules, region: Graph) -> bool:
    """Whether an operator is linear and sums."""
    try:
        (value,) = expand(rules, region.outputs)
    except DslcError:
        return False
    reduces = isinstance(value.node, ScopeNode) and any(
        isinstance(part, Reduce) for part in walk(value.node.scope.body)
    )
    return reduces and is_linear_region(rules, region)


def branches(rules: Rules, graph: Graph) -> Iterator[tuple[Call, ...]]:
    """Calls of one operator with equal attributes and other weights, of one tensor each, none below another (Figure 10)."""
    users: dict[tuple[Value, str, object], list[Call]] = {}
    for node in graph.nodes():
        if (
            isinstance(node, Call)
            and len(node.args) == 2
            and not node.constant
            and node.args[1].constant
            and node.types[0].is_static
        ):
            users.setdefault((node.args[0], node.op, node.attrs), []).append(node)
    yield from (tuple(calls) for calls in users.values() if len(calls) > 1)


def as_one(rules: Rules, calls: tuple[Call, ...], price: Price) -> float:
    """The seconds that branches as one operator take less; 0 where they take more. Who reads a part of the result looks it up."""
    region, _ = abstracted(tuple(call.values[0] for call in calls), leaves_of(calls))
    was, best = total(price, *region.outputs), 0.0
    for one in joined(rules, problem_of(rules, region)):
        made_of = one.made(rules, region) or ()
        nodes = [node for node in topological(value.node for value in made_of) if Value(node) not in made_of]
        best = max(best, was - sum(map(price, nodes))) if nodes else best
    return best


def path_of(name: str, folder: Path) -> tuple[Path, dict[str, int]]:
    """The file of a network of the zoo, or of a real model, and the sizes that it leaves open."""
    if name in zoo.NAMES:
        path = folder / f"{name}.onnx"
        onnx.save(zoo.build(name), path)
        return path, {}
    return models.fetch(name), dict(models.MODELS[name].bind)


def table(rules: Rules, name: str, seconds: float, measure: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, bind = path_of(name, Path(folder))
        graph = import_model(onnx.load(path), rules, bind).graph
        found: dict[Graph, list[Value]] = {}
        spent = 0.0
        for where, price in (("processor", estimated(rules)), ("GPU", graphics(rules))):
            counts, every = sites(rules, graph, price)
            began = time.process_time()
            for region in counts:
                if region not in found:
                    found[region] = programs(rules, region, seconds)
            spent += time.process_time() - began
            choices = {region: list(best(rules, region, found[region], price)) for region in counts}
            operations = sum(
                flops(rules, node.values[0]) for node in graph.nodes() if isinstance(node, Call) and not node.constant
            )
            gained = {calls: as_one(rules, calls, price) for calls in branches(rules, graph)}
            for policy, kinds in (("equal", {False}), ("partial", {True}), ("both", {False, True})):
                # branches as one are equal
                less = sum(gained.values()) if False in kinds else 0.0
                joint = sum(gain > 0 for gain in gained.values()) if less else 0
                fused, single, work, taken = every - less, every - less, operations, 0
                for region, number in counts.items():
                    was = total(price, *region.outputs)
                    ways = [one for one in choices[region] if one.partial in kinds and one.fused < was]
                    if ways:
                        one = min(ways, key=lambda each: each.fused)
                        taken += number
                        fused += number * (one.fused - was)
                        single += number * (one.apart - was)
                        work += number * (one.flops - flops(rules, region.outputs[0]))
                mutants = sum(map(len, found.values()))
                cells = (name, where, policy, len(counts), mutants, f"{spent:.0f}", taken, joint, f"{work / operations:.2f}",
                         f"{every / fused:.2f}", f"{every / single:.2f}")  # fmt: skip
                print(f"| {' | '.join(map(str, cells))} |", flush=True)
        if measure:
            for mutate in (True, False):
                report = dslc.optimize(path, budget=measure, bind=bind, mutate=mutate).report
                told = (
                    f"{report.ratio:.3f} [{report.ratio_low:.3f}, {report.ratio_high:.3f}]" if report.ratio else "kept"
                )
                print(f"{name}, {'with' if mutate else 'without'} mutants: {told} times as fast", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NETWORKS)
    parser.add_argument("--seconds", type=float, default=5.0, help="of the process, for each operator")
    parser.add_argument(
        "--measure", type=float, default=0.0, help="seconds for `dslc optimize` with and without mutants"
    )
    args = parser.parse_args()
    rules = standard()
    columns = "network, table, mutants, operators, found, search s, replaced, branches, FLOPs, price ratio, without fusion".split(
        ", "
    )
    print(f"| {' | '.join(columns)} |\n| {' | '.join(['---'] * len(columns))} |")
    for name in args.names:
        table(rules, name, args.seconds, args.measure)


if __name__ == "__main__":
    main()
