"""A program says what it rests on: that alone makes it equal to the first one, and each of it holds by itself."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from egraphs import call, directions, library, named, price, random_graph, some_rule, tensor, weight

from dslc.deadline import Deadline
from dslc.egraph.explain import fact, used
from dslc.egraph.extract.program import extract, program_of
from dslc.egraph.graph import EGraph
from dslc.egraph.rewrite import Caps, SaturationLimits, saturate
from dslc.egraph.story import kept
from dslc.interpret.floats import Floats
from dslc.interpret.run import run
from dslc.ir.graph import Graph, Node, Value, replace, with_args
from dslc.match import CompiledRule
from dslc.search.runs.selection import chosen_rules
from dslc.semantics.library import load
from tests.egraph.steps import step


def original(egraph: EGraph, number: int, known: dict[int, Value]) -> Value:
    """The term that a number came from, down to the model's inputs and weights."""
    made = list(egraph.made)

    def term(one: int) -> Value:
        if one not in known:
            entry = made[one]
            assert entry is not None
            node, index = entry
            args = tuple([term(egraph.number(arg)) for arg in node.args])
            known[one] = with_args(node, args)[index] if args else Value(node, index)
        return known[one]

    return term(number)


def random_egraph(seed: int, steps: int = 250, scales: bool = True) -> tuple[Graph, EGraph]:
    graph = random_graph(seed, scales)
    egraph = EGraph.of(graph)
    rng = random.Random(seed)
    for _ in range(steps):
        step(egraph, some_rule(rng), rng, Caps(matches=10, looked=40, nodes=300))
    return graph, egraph


def joins(folder: Path) -> list[CompiledRule]:
    """The brackets of concat, both ways."""
    path = folder / "joins.rules"
    types = "A: T[*L, P, *R], B: T[*L, Q, *R], C: T[*L, U, *R]"
    left, right = "concat(concat(A, B, axis=a), C, axis=a)", "concat(A, concat(B, C, axis=a), axis=a)"
    rules = [
        f"substitution {name}({types}) -> Y {{\n  Y = {one}\n  where rank(L) == a\n  =>\n  Y = {other}\n}}\n"
        for name, one, other in (("to_the_right", left, right), ("to_the_left", right, left))
    ]
    path.write_text("dslc 1\nimport std.join (concat)\n\n" + "".join(rules))
    return chosen_rules(load(path))


@pytest.mark.parametrize("seed", range(6))
def test_facts_suffice(tmp_path: Path, seed: int) -> None:
    """The first program and the extracted one in a new e-graph, with the facts and nothing else: one class."""
    graph, egraph = random_egraph(seed, scales=False)
    rng = random.Random(seed)
    prices: dict[Node, float] = {}
    # any program of the e-graph will do: these prices choose one that is far from the first
    first = set(EGraph.of(graph).memo)
    found = extract(egraph, lambda node: prices.setdefault(node, rng.random() + 20 * (node in first)))
    assert found is not None
    program = program_of(egraph, found)
    rests = used(egraph, found)
    again = EGraph.of(Graph(graph.inputs, (*graph.outputs, *program.outputs)))
    inputs = {value: again.value(again.memo[value.node].outs[0]) for value in graph.inputs if value.node in again.memo}
    terms: dict[int, Value] = {}
    for one in rests:
        told, stand = fact(one)
        leaves = [original(egraph, egraph.number(value), terms) for value in stand]
        sides = [replace(side.outputs, dict(zip(side.inputs, leaves, strict=True))) for side in (told.old, told.new)]
        for old, new in zip(*[replace(side, inputs) for side in sides], strict=True):
            again.union(*[again.number(again.add(value)) for value in (old, new)], one)
        again.rebuild()
    # calls of associative and commutative operators stand for any brackets and order: these are traits, and no fact says them
    brackets = [f"{name}_to_the_{side}" for name in ("add", "mul", "product") for side in ("left", "right")]
    rules = [*named(directions(), "add_swapped", "mul_swapped", *brackets), *joins(tmp_path)]
    saturate(again, rules, SaturationLimits(nodes=3_000, rounds=3))
    roots = [again.find(root) for root in again.roots]
    assert roots[: len(roots) // 2] == roots[len(roots) // 2 :]
    if program != graph:
        assert rests


@pytest.mark.parametrize("seed", range(6))
def test_every_fact_holds_whatever_its_holes_hold(seed: int) -> None:
    _, egraph = random_egraph(seed)
    reasons = dict.fromkeys(union.reason for union in egraph.unions if union.reason is not None)
    assert reasons
    rng = np.random.default_rng(seed)
    for one in list(reasons)[:40]:
        told, _ = fact(one)  # type: ignore[arg-type]
        feeds = {value: rng.standard_normal(value.type.shape) for value in told.old.inputs}
        sides = [run(library(), side.outputs, feeds, Floats()) for side in (told.old, told.new)]
        for old, new in zip(*sides, strict=True):
            np.testing.assert_allclose(np.asarray(old), np.asarray(new), rtol=1e-3, atol=1e-3)


def test_what_has_nothing_to_do_with_a_program_is_not_named() -> None:
    """relu(relu(x)) and transpose(transpose(y)) shrink by a rule each; the half that keeps its form rests on nothing."""
    x, y = tensor("x", 2, 3), tensor("y", 2, 3)
    tops = call("relu", call("relu", x)), call("transpose", call("transpose", y, perm=(1, 0)), perm=(1, 0))
    egraph = EGraph.of(Graph((x, y), tops))
    saturate(egraph, directions(), SaturationLimits(nodes=200, until=Deadline.after(20), rounds=3))
    both = extract(egraph, price)
    assert both is not None
    names = {one.rule.name for one in used(egraph, both)}
    assert any("turned_twice" in name for name in names)
    egraph.roots = egraph.roots[:1]
    one = extract(egraph, price)
    assert one is not None
    assert not any("turned_twice" in reason.rule.name for reason in used(egraph, one))


def test_a_merged_pair_of_products_is_one_fact_of_two_results() -> None:
    x = tensor("x", 2, 3)
    graph = Graph((x,), (call("matmul", x, weight(3, 4, seed=1)), call("matmul", x, weight(3, 5, seed=2))))
    egraph = EGraph.of(graph)
    saturate(egraph, named(directions(), "merge_matmuls"), SaturationLimits(rounds=2))
    found = extract(egraph, lambda node: 1.0 if "matmul" in getattr(node, "op", "") else 0.1)
    assert found is not None
    (one,) = used(egraph, found)
    told, leaves = fact(one)
    assert (told.rule, len(told.old.outputs), len(leaves)) == ("std.merge_matmuls", 2, 3)
    assert program_of(egraph, found) != graph


def test_a_call_of_no_arguments_is_part_of_a_fact_and_no_hole() -> None:
    """A mean as a product with ones: what stands for holes is in the e-graph, and the program can be told again."""
    x = tensor("x", 5, 7)
    graph = Graph((x,), (call("reduce_mean", x, axes=(1,), keepdims=True),))
    egraph = EGraph.of(graph)
    saturate(egraph, named(directions(), "mean_by_matmul"), SaturationLimits(rounds=2))
    found = extract(egraph, lambda node: 0.1 if "matmul" in getattr(node, "op", "") else 1.0 if node.args else 0.0)
    assert found is not None
    (one,) = used(egraph, found)
    told, leaves = fact(one)
    assert told.old.inputs and len(told.old.inputs) == len(leaves)
    again = kept(egraph, found, graph)
    assert any("matmul" in getattr(node, "op", "") for node in again.memo)
