"""Classes stay closed under congruence, whatever is added and merged; every program in them computes what the first one did."""

from __future__ import annotations

import random

import numpy as np
import pytest
from egraphs import call, check, price, random_graph, results, some_rule, tensor, true_cost, weight

from dslc.egraph.extract import EXTRACTORS, EGraphTable, ExtractionProblem
from dslc.egraph.extract.incremental import IncrementalExtraction
from dslc.egraph.extract.program import extract, program_of
from dslc.egraph.graph import EGraph
from dslc.egraph.rewrite import Caps
from dslc.ir.graph import Graph
from tests.egraph.steps import step


def test_equal_arguments_make_equal_results() -> None:
    """f(x) and f(y) are one class as soon as x and y are, and so is what reads them."""
    x, y = tensor("x", 2, 3), tensor("y", 2, 3)
    tops = call("exp", call("relu", x)), call("exp", call("relu", y))
    egraph = EGraph.of(Graph((x, y), (*tops, call("sub", *tops))))
    a, b, _ = egraph.roots
    assert egraph.find(a) != egraph.find(b)
    (i, j) = [egraph.find(entry.outs[0]) for node, entry in egraph.memo.items() if not node.args]
    before = len(egraph)
    egraph.union(i, j, "given")
    egraph.rebuild()
    check(egraph)
    assert egraph.find(a) == egraph.find(b)
    assert before - len(egraph) == 2


def test_what_equals_a_weight_is_one() -> None:
    """relu(x + w) reads a constant as soon as x is merged with one."""
    x, w = tensor("x", 2), weight(2)
    egraph = EGraph.of(Graph((x,), (call("relu", call("add", x, w)),)))
    (root,) = egraph.roots
    assert not egraph.constant(egraph.find(root))
    leaves = [entry.outs[0] for node, entry in egraph.memo.items() if not node.args]
    egraph.union(leaves[0], leaves[1], "given")
    egraph.rebuild()
    check(egraph)
    assert egraph.constant(egraph.find(root))


def test_values_of_other_types_are_never_merged() -> None:
    egraph = EGraph.of(Graph((), (call("relu", tensor("x", 2)), call("relu", tensor("y", 3)))))
    with pytest.raises(ValueError, match="no types of equal values"):
        egraph.union(*egraph.roots, None)


def test_an_input_may_be_called_as_a_class_is() -> None:
    """Names of inputs are the model's: `h0`, `h1` stand for other classes than 0 and 1."""
    x, y = tensor("h1", 2), tensor("h0", 2)
    graph = Graph((x, y), (call("sub", x, call("exp", y)),))
    egraph = EGraph.of(graph)
    check(egraph)
    found = extract(egraph, price)
    assert found is not None
    assert program_of(egraph, found) == graph


@pytest.mark.parametrize("seed", range(8))
def test_thousands_of_random_steps_keep_every_invariant(seed: int) -> None:
    """Clone, one random rule, the best program: as a search does it. What a clone does, its origin never sees."""
    graph = random_graph(seed)
    expected = results(graph)
    rng = random.Random(seed)
    states = [(egraph := EGraph.of(graph), IncrementalExtraction(egraph, price))]
    check(egraph)
    for number in range(250):
        origin, best = rng.choice(states[-6:])
        size, touched = len(origin), dict(origin.members)
        egraph = origin.clone()
        growing = best.clone(egraph)
        outcome = step(egraph, some_rule(rng), rng, Caps(matches=20, looked=60, nodes=400))
        assert len(origin) == size and origin.members == touched
        if not outcome.unions:
            continue
        check(egraph)
        found = growing.best()
        assert found is not None
        roots = [egraph.find(root) for root in egraph.roots]
        assert found.cost == pytest.approx(true_cost(found, roots))
        if number % 8 == 0:
            program = program_of(egraph, found)
            for got, wanted in zip(results(program), expected, strict=True):
                np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=1e-3 * max(1.0, float(np.abs(wanted).max())))
        states.append((egraph, growing))


@pytest.mark.parametrize("seed", range(4))
def test_every_extractor_gives_a_program_of_its_cost(seed: int) -> None:
    graph = random_graph(100 + seed)
    expected = results(graph)
    egraph = EGraph.of(graph)
    rng = random.Random(seed)
    for _ in range(150):
        step(egraph, some_rule(rng), rng, Caps(matches=10, looked=40, nodes=300))
    check(egraph)
    roots = [egraph.find(root) for root in egraph.roots]
    problem = ExtractionProblem(EGraphTable(egraph, price), roots)
    costs = {}
    for name, extractor in EXTRACTORS.items():
        found = extractor(problem)
        assert found is not None
        found = problem.named(found)
        assert found.cost == pytest.approx(true_cost(found, roots))
        costs[name] = found.cost
        for got, wanted in zip(results(program_of(egraph, found)), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=1e-3 * max(1.0, float(np.abs(wanted).max())))
    assert costs["ilp"] <= costs["joint"] <= costs["shared"] <= costs["greedy"]
