"""Searches over e-graphs: saturation, and tree search. At prices that are fixed, what they find is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from benchmarks.zoo import build
from dslc.cost.measure import Measured, Measurer, Sample
from dslc.cost.model import CostModel
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Call, Graph, Value, input_value
from dslc.match import CompiledRule
from dslc.onnx.importer import import_model
from dslc.search.candidate import Candidate, Limits
from dslc.search.rulesets import chosen_rules
from dslc.search.saturation import Saturate
from dslc.search.sources import Substitutions
from dslc.search.strategies import STRATEGIES
from dslc.search.strategy import Space, Strategy
from dslc.search.treesearch import Mcts
from dslc.search.validate import claims_of, validate
from dslc.semantics.apply import apply
from dslc.semantics.library import standard

RULES = standard()
SEARCHES = [pytest.param(Saturate(nodes=800, rounds=3), id="saturate"), pytest.param(Mcts(simulations=12, rollout=4), id="mcts")]
GATES = ("merge_matmuls", "split_through_binary", "add_of_matmuls", "merge_three_matmuls")


class Launches(Measurer):
    """Every node costs as much as any other, splits a little more."""

    def __init__(self) -> None:
        pass

    def measured(self, sample: Sample, turn: str = "") -> Measured:
        lines = sample.text.splitlines()
        return Measured(1e-5 * sum("= std." in line for line in lines) + 1e-6 * sum("= std.split#" in line for line in lines))


@dataclass
class Searched:
    start: Candidate
    found: list[Candidate]
    limits: Limits

    @property
    def best(self) -> Candidate:
        return self.found[-1] if self.found else self.start


def searched(strategy: Strategy, graph: Graph, rules: list[CompiledRule], limits: Limits, seed: int = 0) -> Searched:
    costs = CostModel(RULES, Launches(), lambda inputs, outputs: b"", 20)
    start = Candidate(graph, costs.graph_cost(graph))
    found = list(strategy.explore(Space(start, (Substitutions(tuple(rules)),), costs, limits, seed)))
    assert all(one.cost < start.cost for one in found)
    return Searched(start, found, limits)


def named(*names: str) -> list[CompiledRule]:
    return chosen_rules(RULES, [f"std.{name}" for name in names])


def op(name: str, *args: Any, **attrs: Any) -> Value:
    return apply(RULES, f"std.{name}", args, attrs)[0]


def tensor(name: str, *shape: int) -> Value:
    return input_value(name, TensorType(DType.F32, shape))


def gates() -> Graph:
    return import_model(build("nasrnn_gates", small=True), RULES, {}).graph


def operators(graph: Graph) -> list[str]:
    return sorted(node.op.removeprefix("std.") for node in graph.nodes() if isinstance(node, Call) and not node.constant)


@pytest.mark.parametrize("strategy", SEARCHES)
def test_what_shrinks_by_any_rule_shrinks(strategy: Strategy) -> None:
    x = tensor("x", 3, 4)
    turned = op("transpose", op("transpose", op("neg", op("neg", op("relu", op("relu", x)))), perm=(1, 0)), perm=(1, 0))
    found = searched(strategy, Graph((x,), (turned,)), chosen_rules(RULES), Limits(150))
    assert operators(found.best.graph) == ["relu"]


@pytest.mark.parametrize("strategy", SEARCHES)
def test_gates_become_products_of_what_they_share_and_every_fact_is_proved(strategy: Strategy) -> None:
    """Products are merged step by step: some steps gain nothing by themselves, and the path says which."""
    found = searched(strategy, gates(), named(*GATES), Limits(200))
    assert operators(found.best.graph).count("matmul") <= operators(found.start.graph).count("matmul") // 2
    assert found.best.cost < 0.4 * found.start.cost
    path = found.best.path()[1:]
    assert all(step.facts and {fact.rule for fact in step.facts} == {step.rule} for step in path)
    proved = validate(RULES, claims_of(found.best))
    assert proved.usable and set(proved.how.values()) == {"exact"}
    assert proved.rewrites == sum(len(step.facts) for step in path)


@pytest.mark.parametrize("strategy", SEARCHES)
def test_the_same_seed_finds_the_same_in_as_many_steps(strategy: Strategy) -> None:
    first, again = (searched(strategy, gates(), named(*GATES), Limits(60), seed=3) for _ in range(2))
    assert first.best.graph.outputs == again.best.graph.outputs
    assert list(first.best.rules()) == list(again.best.rules()) and first.limits.done == again.limits.done


@pytest.mark.parametrize("strategy", SEARCHES)
def test_rules_that_explode_stay_within_the_limits(strategy: Strategy) -> None:
    """Any order and any brackets of a sum of twenty terms; nothing costs less, so nothing is found."""
    terms = [tensor(f"x{k}", 2) for k in range(20)]
    total = terms[0]
    for term in terms[1:]:
        total = op("add", total, term)
    limits = Limits(40)
    explode = [rule for rule in chosen_rules(RULES) if rule.name.startswith(("std.add_", "std.sub_"))]
    found = searched(strategy, Graph(tuple(terms), (total,)), explode, limits)
    assert found.limits.done <= 40
    assert found.best.cost <= found.start.cost


@pytest.mark.parametrize("name", ["saturate", "mcts"])
def test_an_interrupt_leaves_what_was_found(name: str) -> None:
    """The second thing that is better is one too many: whoever is told of it presses Ctrl-C."""
    heard: list[Candidate] = []

    def built(candidate: Candidate) -> None:
        heard.append(candidate)
        raise KeyboardInterrupt

    limits = Limits(200, on_built=built)
    x = tensor("x", 3, 4)
    found = searched(STRATEGIES[name](), Graph((x,), (op("neg", op("neg", op("relu", op("relu", x)))),)), chosen_rules(RULES), limits)
    assert limits.interrupted and limits.stopped and len(heard) == 1
    assert found.best.cost <= found.start.cost


@pytest.mark.parametrize("strategy", SEARCHES)
def test_without_steps_nothing_happens(strategy: Strategy) -> None:
    found = searched(strategy, gates(), named(*GATES), Limits(0))
    assert found.found == [] and found.limits.done == 0


def test_a_large_graph_is_saturated_in_regions_and_facts_go_with_them() -> None:
    """Four hundred nodes in which each second pair of negations vanishes: a region's facts hold wherever it stands."""
    x = tensor("x", 3, 4)
    at = x
    for _ in range(100):
        at = op("relu", op("neg", op("neg", op("sigmoid", at))))
    found = searched(Saturate(nodes=400, rounds=2), Graph((x,), (at,)), named("double_neg"), Limits(60))
    assert operators(found.best.graph).count("neg") < 100
    assert all(step.facts for step in found.best.path()[1:])
    proved = validate(RULES, claims_of(found.best))
    assert proved.usable and proved.how == {"std.double_neg": "exact"}
