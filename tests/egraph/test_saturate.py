"""Saturation ends within its limits, and says what it left out; figures of the paper; another engine finds the same."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path

import pytest
from egraphs import call, check, directions, named, price, random_graph, results, tensor, weight

from dslc.deadline import Deadline
from dslc.egraph.extract.program import extract, program_of
from dslc.egraph.graph import EGraph
from dslc.egraph.rewrite import Cap, Caps, SaturationLimits, Stop, saturate
from dslc.egraph.view import View
from dslc.ir.graph import Graph, Node, Value
from dslc.match import find_matches
from dslc.search.runs.selection import chosen_rules
from dslc.semantics.library import load
from tests.egraph.steps import step


def chain(count: int) -> tuple[tuple[Value, ...], Value]:
    terms = tuple(tensor(f"x{k}", 2) for k in range(count))
    total = terms[0]
    for term in terms[1:]:
        total = call("add", total, term)
    return terms, total


FIGURE_1 = """dslc 1
import std.pointwise (add, mul, div)

substitution twice(A: f32[*S]) -> Y {\n  Y = mul(A, 2)\n  =>\n  Y = add(A, A)\n}
substitution regroup(A: f32[*S]) -> Y {\n  Y = div(mul(A, b), c)\n  =>\n  Y = mul(A, b / c)\n}
substitution drop(A: f32[*S]) -> Y {\n  Y = mul(A, 1)\n  =>\n  Y = A\n}
"""
REORDER = ("add_swapped", "add_to_the_left", "add_to_the_right")


def test_brackets_and_orders_of_three_terms_saturate() -> None:
    """x + y + z: three pairs and the whole in both orders: 3 * 2 + 6 sums over 7 classes."""
    terms, total = chain(3)
    egraph = EGraph.of(Graph(terms, (total,)))
    found = saturate(egraph, named(directions(), *REORDER))
    assert (found.stop, found.capped) == (Stop.SATURATED, frozenset())
    assert (len(egraph) - 3, len(egraph.members)) == (12, 7)
    check(egraph)


@pytest.mark.parametrize("seconds, limits", [
    (60, SaturationLimits(nodes=3_000, rounds=50)), (0.3, SaturationLimits(nodes=10**9, rounds=10**6)),
    (60, SaturationLimits(rounds=2)),
])  # fmt: skip
def test_brackets_and_orders_of_64_terms_stay_within_limits(seconds: float, limits: SaturationLimits) -> None:
    """2^64 classes would be needed: what ends it is said, and nothing claims to be all."""
    limits = replace(limits, until=Deadline.after(seconds))
    terms, total = chain(64)
    egraph = EGraph.of(Graph(terms, (total,)))
    began = time.monotonic()
    found = saturate(egraph, named(directions(), *REORDER), limits)
    assert found.stop in {Stop.NODES, Stop.SECONDS, Stop.ROUNDS}
    assert found.capped
    assert len(egraph) <= limits.nodes + 100
    assert time.monotonic() - began < max(20, 20 * seconds)
    check(egraph)
    program = extract(egraph, price)
    assert program is not None and program.cost == pytest.approx(63 * price(total.node))


def test_a_round_without_multi_pattern_rules_is_no_saturation() -> None:
    x = tensor("x", 2, 3)
    graph = Graph((x,), tuple(call("matmul", x, weight(3, 4, seed=k)) for k in range(3)))
    rules = named(directions(), "merge_matmuls")
    assert saturate(EGraph.of(graph), rules, SaturationLimits(k_multi=0)).stop is not Stop.SATURATED
    found = saturate(EGraph.of(graph), rules, SaturationLimits(k_multi=1))
    assert found.unions and Cap.ROUNDS in found.capped


@pytest.mark.parametrize("order", [("twice", "regroup", "drop"), ("drop", "regroup", "twice")])
def test_figures_1_and_2_no_order_of_rules_loses_what_another_one_finds(tmp_path: Path, order: tuple[str, ...]) -> None:
    """(a * 2) / 2: in a graph, adding instead of doubling destroys what cancels. An e-graph keeps both."""
    path = tmp_path / "figure.rules"
    path.write_text(FIGURE_1)
    compiled = {rule.name.rpartition(".")[2]: rule for rule in chosen_rules(load(path))}
    a = tensor("a", 4)
    egraph = EGraph.of(Graph((a,), (call("div", call("mul", a, 2.0), 2.0),)))
    for _ in range(4):
        for name in order:
            step(egraph, compiled[name], random.Random(0), Caps())
    check(egraph)
    # a, 2, a * 2, a + a in one class with it, (a * 2) / 2, and a * 1 in one with a
    assert (len(egraph), len(egraph.members)) == (7, 4)
    found = extract(egraph, price)
    assert found is not None
    assert program_of(egraph, found).outputs == (a,)


def test_a_pair_that_would_need_itself_is_not_merged() -> None:
    """y = x @ w and z = y @ w: their product by one weight cannot be computed before y is known."""
    x, w = tensor("x", 3, 3), weight(3, 3)
    y = call("matmul", x, w)
    egraph = EGraph.of(Graph((x,), (call("matmul", y, w),)))
    (rule,) = [rule for rule in directions() if rule.name == "egraph.products_by_one"]
    assert list(find_matches(rule, View(egraph))) == []
    outcome = step(egraph, rule, random.Random(0), Caps())
    assert outcome.unions == 0


def test_a_capped_application_takes_a_random_sample_and_says_so() -> None:
    x = tensor("x", 2, 2)
    graph = Graph(
        (x,),
        tuple(call("relu", call("transpose", call("add", x, weight(2, 2, seed=k)), perm=(1, 0))) for k in range(60)),
    )
    (rule,) = named(directions(), "add_swapped")
    seen = set()
    for seed in range(3):
        egraph = EGraph.of(graph)
        outcome = step(egraph, rule, random.Random(seed), Caps(matches=5, looked=20))
        assert (outcome.applied, outcome.capped) == (5, {Cap.MATCHES})
        again = EGraph.of(graph)
        step(again, rule, random.Random(seed), Caps(matches=5, looked=20))
        assert list(egraph.memo) == list(again.memo)
        seen.add(frozenset(egraph.memo))
    assert len(seen) == 3


def test_rules_that_fill_an_e_graph_leave_room_for_those_after_them() -> None:
    """Brackets and orders of 24 terms come first by name, and would take all of the room."""
    terms, total = chain(24)
    egraph = EGraph.of(Graph(terms, (call("neg", call("neg", total)),)))
    found = saturate(egraph, named(directions(), *REORDER, "double_neg"), SaturationLimits(nodes=200, rounds=3))
    assert found.stop is Stop.NODES
    program = extract(egraph, lambda node: 1.0 if "neg" in getattr(node, "op", "") else 1e-3)
    assert program is not None and program.cost < 1.0


@pytest.mark.parametrize(("ordered", "found"), [(False, True), (True, False)])
def test_as_tensat_does_it_the_first_rules_take_the_room_of_those_after_them(ordered: bool, found: bool) -> None:
    """The paper's Figure 2: what is found depends on the order of the rules where the limit is met."""
    terms, total = chain(24)
    egraph = EGraph.of(Graph(terms, (call("neg", call("neg", total)),)))
    rules = [*named(directions(), *REORDER), *named(directions(), "double_neg")]
    saturate(egraph, rules, SaturationLimits(nodes=200, rounds=3, ordered=ordered))
    program = extract(egraph, lambda node: 1.0 if "neg" in getattr(node, "op", "") else 1e-3)
    assert program is not None and (program.cost < 1.0) is found


def test_without_circles_nothing_is_read_that_depends_on_what_is_replaced() -> None:
    """Where x = -(-x) each of both classes depends on the other one: as a scale, each would read what depends on it."""
    x = tensor("x", 2)
    grown = []
    for acyclic in (False, True):
        egraph = EGraph.of(Graph((x,), (call("neg", call("neg", x)),)))
        saturate(egraph, named(directions(), "double_neg"), SaturationLimits(rounds=1))
        before = len(egraph)
        saturate(egraph, named(directions(), "neg_is_scale"), SaturationLimits(rounds=1, acyclic=acyclic))
        grown.append(len(egraph) - before)
    assert grown[0] > 0 and grown[1] == 0


def test_the_same_seed_makes_the_same_e_graph() -> None:
    graph = random_graph(3)
    found = []
    for _ in range(2):
        egraph = EGraph.of(graph)
        saturate(egraph, directions(), SaturationLimits(nodes=400, rounds=2, matches=30, seed=7))
        program = extract(egraph, price)
        assert program is not None
        found.append((len(egraph), program.cost, program_of(egraph, program)))
    assert found[0] == found[1]
    assert len(results(found[0][2])) == 2


def test_egglog_finds_the_same_classes() -> None:
    """Sums in all brackets and orders, distributed and factored: the other engine's e-nodes and ours are as many."""
    egglog = pytest.importorskip("egglog.bindings")
    names = (*REORDER, "mul_swapped", "distributed", "factored")
    x, y, z, w = (tensor(name, 2) for name in "xyzw")
    top = call("add", call("mul", x, z), call("add", call("mul", y, z), w))
    egraph = EGraph.of(Graph((x, y, z, w), (top,)))
    assert (
        saturate(egraph, named(directions(), *names), SaturationLimits(nodes=5_000, rounds=60)).stop is Stop.SATURATED
    )
    text = """
    (datatype E (X String) (A E E) (M E E))
    (rewrite (A a b) (A b a)) (rewrite (A a (A b c)) (A (A a b) c)) (rewrite (A (A a b) c) (A a (A b c)))
    (rewrite (M a b) (M b a)) (rewrite (M (A a b) c) (A (M a c) (M b c))) (rewrite (A (M a c) (M b c)) (M (A a b) c))
    (let top (A (M (X "x") (X "z")) (A (M (X "y") (X "z")) (X "w"))))
    (run 60)
    """
    other = egglog.EGraph()
    other.run_program(*other.parse_program(text))
    sizes = {}
    for name in ("A", "M"):
        (output,) = other.run_program(*other.parse_program(f"(print-size {name})"))
        sizes[name] = getattr(output, "size", None) or int(str(output))
    operators = [getattr(node, "op", "") for node in egraph.memo]
    assert (operators.count("std.add"), operators.count("std.mul")) == (sizes["A"], sizes["M"])


def test_a_weight_that_is_joined_anew_at_every_place_costs_what_it_takes_to_read() -> None:
    """Two products are one over joined weights: as if weights were free that is cheaper, and dearer where another weight is read."""
    x, weights = tensor("x", 8, 8), [weight(8, 8, seed=k) for k in range(2)]
    graph = Graph((x,), tuple(call("relu", call("matmul", x, one)) for one in weights))
    egraph = EGraph.of(graph)
    saturate(egraph, named(directions(), "merge_matmuls"), SaturationLimits(rounds=2, k_multi=1))

    def per_node(node: Node) -> float:
        return {"std.matmul": 10.0, "std.split": 1.0}.get(getattr(node, "op", ""), 0.0) if node.args else 0.0

    def weigh(value: Value, node: Node) -> float:
        assert not node.constant
        return 0.0 if value in weights else 12.0

    free, weighed = extract(egraph, per_node), extract(egraph, per_node, weigh=weigh)
    assert free is not None and weighed is not None
    assert (free.cost, weighed.cost) == (11.0, 20.0)
    assert program_of(egraph, weighed) == graph
    dear = extract(egraph, lambda node: 3 * per_node(node), weigh=weigh)
    assert dear is not None and dear.cost == 3 * 11.0 + 12.0, "one joined weight is paid for once, whatever reads it"
    assert len(program_of(egraph, dear).outputs) == 2
