"""Mutants of several operators: chains that stand for regions of several, and regions between operators that are not linear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dslc.interpret.floats import Floats
from dslc.interpret.run import run
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Call, Graph, Value
from dslc.ir.holes import hole, program
from dslc.mutate.mutant import Mutant, MutantOptions, made
from dslc.mutate.problem import is_linear_call, problem_of, regions, shape_of
from dslc.mutate.search import search
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules, standard


@pytest.fixture(scope="module")
def rules() -> Rules:
    return standard()


Operator = Callable[..., Value]


def region(rules: Rules, build: Callable[..., Value], *shapes: tuple[int, ...]) -> Graph:
    """What `build` makes of an applier of operators and of holes."""
    holes = tuple(hole(k, TensorType(DType.F32, shape)) for k, shape in enumerate(shapes))

    def call(op: str, *args: Value, **attrs: Any) -> Value:
        return apply(rules, f"std.{op}", list(args), attrs)[0]

    return program(holes, (build(call, *holes),))


def equal(rules: Rules, over: Graph, tries: int, **options: Any) -> dict[tuple[str, ...], tuple[Mutant, Value]]:
    """Mutants that are equal everywhere, at the region's sizes, by the operators that they run one after the other."""
    problem = problem_of(rules, over)
    found: dict[tuple[str, ...], tuple[Mutant, Value]] = {}
    for mutant in search(rules, problem, MutantOptions(tries=tries, share=0.0, **options)).mutants:
        for value in made(rules, mutant, problem.small, problem.region):
            ops = tuple(core.op.removeprefix("std.") for core in (*(step.core for step in mutant.before), mutant.core))
            found.setdefault(ops, (mutant, value))
    return found


def error(rules: Rules, over: Graph, other: Value) -> float:
    """The largest difference of a program from a region, on random floats."""
    rng = np.random.default_rng(0)
    feeds = {value: rng.standard_normal(shape_of(value)) for value in over.inputs}
    old, new = run(rules, (*over.outputs, other), feeds, Floats())
    return float(np.abs(old - new).max())


# build, shapes, tries, and what must be among the chains
CASES: dict[str, tuple[Callable[..., Value], list[tuple[int, ...]], int, tuple[str, ...]]] = {
    "a sum of products is a product with a sum": (
        lambda op, x, a, b: op("add", op("matmul", x, a), op("matmul", x, b)), [(6, 8), (8, 10), (8, 10)], 160, ("add", "matmul"),
    ),
    "products are associative": (
        lambda op, x, a, b: op("matmul", op("matmul", x, a), b), [(20, 30), (30, 40), (40, 5)], 160, ("matmul", "matmul"),
    ),
    "an average goes before a convolution of one position": (
        lambda op, x, k: op("avg_pool", op("conv", x, k), kernel=(2, 2), stride=(2, 2)), [(1, 3, 4, 4), (5, 3, 1, 1)], 1200,
        ("avg_pool", "conv"),
    ),
    "filters next to each other are one convolution": (
        lambda op, x, a, b: op("concat", op("conv", x, a), op("conv", x, b), axis=1), [(1, 2, 3, 3), (3, 2, 2, 2), (3, 2, 2, 2)], 800,
        ("concat", "conv"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_chains_of_operators_are_mutants(rules: Rules, name: str) -> None:
    build, shapes, tries, wanted = CASES[name]
    over = region(rules, build, *shapes)
    every = equal(rules, over, tries)
    assert wanted in every, sorted(every)
    mutant, value = every[wanted]
    assert error(rules, over, value) < 1e-9
    assert mutant.steps <= 4 and value not in over.outputs


def test_the_depth_bounds_chains(rules: Rules) -> None:
    build, shapes, tries, wanted = CASES["a sum of products is a product with a sum"]
    over = region(rules, build, *shapes)
    assert all(mutant.steps <= 1 and not mutant.before for mutant, _ in equal(rules, over, tries, depth=1).values())
    assert wanted in equal(rules, over, tries, depth=2)


def test_regions_end_where_an_operator_is_not_linear(rules: Rules) -> None:
    def build(op: Operator, x: Value, a: Value, b: Value, c: Value) -> Value:
        hidden = op("relu", op("add", op("matmul", x, a), c))
        return op("mul", op("matmul", hidden, b), c)

    over = region(rules, build, (4, 6), (6, 6), (6, 6), (4, 6))
    nodes = [node for node in over.nodes() if isinstance(node, Call)]
    used: dict[Value, list[Any]] = {}
    for node in nodes:
        for arg in node.args:
            used.setdefault(arg, []).append(node)

    def parts(most: int, final: set[Value]) -> set[tuple[str, ...]]:
        found = regions(nodes, used, final, most, lambda call: is_linear_call(rules, call))
        return {tuple(node.op.removeprefix("std.") for node in (root, *inner)) for root, inner in found}

    assert parts(4, set(over.outputs)) == {("add", "matmul"), ("mul", "matmul")}
    assert parts(1, set(over.outputs)) == set()
    # what the graph gives is no inside of a region
    first = next(node for node in nodes if node.op == "std.matmul")
    assert parts(4, {first.values[0]}) == {("mul", "matmul")}


def test_a_split_is_inside_of_a_region(rules: Rules) -> None:
    """Halves of one tensor, each times a matrix of its own: one product with both matrices below each other."""

    def build(op: Operator, x: Value, a: Value, b: Value) -> Value:
        left, right = apply(rules, "std.split", [x], {"axis": 1, "sizes": (4, 4)})
        return op("add", op("matmul", left, a), op("matmul", right, b))

    over = region(rules, build, (6, 8), (4, 5), (4, 5))
    nodes = [node for node in over.nodes() if isinstance(node, Call)]
    used: dict[Value, list[Any]] = {}
    for node in nodes:
        for arg in node.args:
            used.setdefault(arg, []).append(node)
    largest = {"add", "matmul", "split"}

    def reached(final: set[Value]) -> bool:
        found = regions(nodes, used, final, 4, lambda call: is_linear_call(rules, call))
        return any({node.op.removeprefix("std.") for node in (root, *inner)} == largest for root, inner in found)

    assert reached(set(over.outputs))
    # where something else needs a half, it is computed anyway
    half = next(node for node in nodes if node.op == "std.split").values[1]
    assert not reached({*over.outputs, half})
    _, value = equal(rules, over, 400, depth=3)["concat", "matmul"]
    assert error(rules, over, value) < 1e-9
