"""E-graphs for tests, and what always holds of one."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dslc.egraph.extract import Choice, Extraction
from dslc.egraph.graph import EGraph
from dslc.interpret.floats import Floats
from dslc.interpret.run import run
from dslc.ir.constants import array_value
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, Node, Value, input_value, with_args
from dslc.match import CompiledRule
from dslc.search.runs.selection import chosen_rules
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules, load_many

#: thirty rules that make e-graphs grow
GROWING = Path(__file__).parents[2] / "benchmarks" / "egraph.rules"


@functools.cache
def library(*names: str) -> Rules:
    return load_many([str(GROWING) if name == "growing" else name for name in names or ("std", "growing")])


@functools.cache
def directions(*names: str) -> tuple[CompiledRule, ...]:
    return tuple(chosen_rules(library(*names)))


def some_rule(rng: random.Random) -> CompiledRule:
    """A rule of the standard library, or rather one that makes e-graphs grow."""
    several = directions()
    growing = [rule for rule in several if rule.name.startswith("egraph.")]
    return rng.choice(growing if rng.random() < 0.7 else several)


def named(rules: Sequence[CompiledRule], *names: str) -> list[CompiledRule]:
    """Every direction of some rules, by their short names."""
    return [rule for rule in rules if rule.name.rpartition(".")[2].removesuffix("^-1") in names]


def tensor(name: str, *shape: int) -> Value:
    return input_value(name, TensorType(DType.F32, shape))


def weight(*shape: int, seed: int = 0) -> Value:
    return array_value(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def call(op: str, *args: Value | float, **attrs: object) -> Value:
    return apply(library(), f"std.{op}", list(args), attrs)[0]


def price(node: Node) -> float:
    """A price that fusing lowers: something for every node, and for what it reads and writes."""
    sizes = [value.type.shape for value in (*node.args, *node.values)]
    return 1e-6 + 1e-9 * sum(float(np.prod([int(size) for size in shape])) for shape in sizes)  # type: ignore[arg-type]


def random_graph(seed: int, scales: bool = True) -> Graph:
    """A few layers of products, sums and activations over small matrices, with weights and shared parts."""
    rng = random.Random(seed)
    inputs = [tensor(f"x{k}", 4, 4) for k in range(3)]
    values = list(inputs)
    for k in range(rng.randrange(6, 16)):
        a, b = rng.choice(values[-5:]), rng.choice(values)
        kind = rng.choice(["matmul", "weight", "add", "mul", "relu", "transpose", "scale" if scales else "add", "sub"])
        if kind == "weight":
            values.append(call("matmul", a, weight(4, 4, seed=k)))
        elif kind == "transpose":
            values.append(call("transpose", a, perm=(1, 0)))
        elif kind == "relu":
            values.append(call("relu", a))
        elif kind == "scale":
            values.append(call("mul", a, rng.choice([1.0, 2.0, 0.5])))
        else:
            values.append(call(kind, a, b))
    return Graph(tuple(inputs), (values[-1], values[-2]))


def results(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    feeds = {value: rng.standard_normal(tuple(map(int, value.type.shape))).astype(np.float32) for value in graph.inputs}  # type: ignore[arg-type]
    return [np.asarray(array) for array in run(library(), graph.outputs, feeds, Floats())]


def check(egraph: EGraph) -> None:
    """What holds after every `rebuild`: classes, e-nodes and users agree, equal e-nodes are one, and types and constness fit."""
    find = egraph.find
    assert set(egraph.members) == set(egraph.users) == set(egraph.values)
    place: dict[Node, list[int]] = {}
    for number, nodes in egraph.members.items():
        assert find(number) == number
        assert egraph.class_of(egraph.value(number)) == number
        assert len(set(nodes)) == len(nodes)
        for node in nodes:
            place.setdefault(node, []).append(number)
    readers: dict[int, list[Node]] = {}
    for node, entry in egraph.memo.items():
        assert place[node] == sorted({find(out) for out in entry.outs}, key=place[node].index)
        assert entry.kids == tuple(egraph.class_of(arg) for arg in node.args)
        # over the values that stand for the classes now: so congruent e-nodes would be one object
        assert all(arg == egraph.value(kid) for arg, kid in zip(node.args, entry.kids, strict=True))
        assert not node.args or with_args(node, node.args)[0].node is node
        for kid in set(entry.kids):
            readers.setdefault(kid, []).append(node)
        for index, out in enumerate(entry.outs):
            value = egraph.value(out)
            assert value.node.types[value.index] == node.types[index]
            assert value.constant or not node.constant
        if entry.unit >= 0:
            assert egraph.units[find(entry.unit)] is node
    assert set(place) == set(egraph.memo)
    for number, users in egraph.users.items():
        assert len(set(users)) == len(users)
        assert set(users) == set(readers.get(number, []))


def true_cost(extraction: Extraction, roots: Sequence[int]) -> float:
    """What the chosen nodes cost, each once; asserts that none needs itself, by another walk than the extractors'."""
    order: dict[int, Choice] = {}
    open_: set[int] = set()

    def visit(number: int) -> None:
        assert number not in open_, "a program that reads itself"
        if number in order:
            return
        open_.add(number)
        for kid in extraction.choice[number].kids:
            visit(kid)
        open_.discard(number)
        order[number] = extraction.choice[number]

    for root in roots:
        visit(root)
    return sum(choice.cost for choice in order.values())
