"""Strategies and sources: what a search is given, what it yields, and what its candidates rest on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_optimize import equal, noise, powers

from dslc.ir.constants import array_value, fill
from dslc.ir.dtype import DType, TensorType
from dslc.ir.facts import Fact, fact_of
from dslc.ir.graph import Graph, Kernel, Value, input_value, kernel_value, replace
from dslc.ir.holes import abstracted, instantiated
from dslc.match import GraphIndex, find_matches, replacements
from dslc.onnx.importer import import_model
from dslc.search.candidates.candidate import Candidate, rewritten
from dslc.search.candidates.export import NameHistory
from dslc.search.generators import scheduler
from dslc.search.generators.protocol import Generator, Proposal, SearchContext
from dslc.search.generators.rules import Rules
from dslc.search.options.settings import Settings
from dslc.search.pipeline import optimize
from dslc.search.region_rewrites.validate import claims_of, validate
from dslc.search.runs.selection import chosen_rules
from dslc.search.strategies.space import Space, Substitutions
from dslc.semantics.apply import apply
from dslc.semantics.library import standard

RULES = standard()


def tensor(name: str, *shape: int) -> Value:
    return input_value(name, TensorType(DType.F32, shape))


def op(name: str, *args: Any, **attrs: Any) -> Value:
    return apply(RULES, f"std.{name}", args, attrs)[0]


X, Y = tensor("x", 4, 6), tensor("y", 4, 6)
W, V = (array_value(np.random.default_rng(k).random((6, 8)).astype(np.float32)) for k in range(2))
GRAPHS = {
    "products of one operand": (op("matmul", X, W), op("matmul", X, V)),
    "a number that a rule asks about": (op("pow", op("add", X, Y), fill(0.5, TensorType(DType.F32, ()))),),
    "a part of what matched": (op("neg", op("relu", op("relu", op("add", X, Y)))),),
    "sums and transposes": (
        op("add", op("transpose", X, perm=(1, 0)), op("transpose", op("neg", op("neg", Y)), perm=(1, 0))),
    ),
}


def facts_of(outputs: tuple[Value, ...]) -> list[tuple[Fact, tuple[Value, ...]]]:
    return list(Substitutions(tuple(chosen_rules(RULES))).facts(Graph((X, Y), outputs)))


@pytest.mark.parametrize("name", list(GRAPHS))
def test_a_fact_of_a_rule_holds_whatever_its_holes_hold(name: str) -> None:
    found = facts_of(GRAPHS[name])
    assert found
    nodes = set(Graph((X, Y), GRAPHS[name]).nodes())
    for fact, values in found:
        assert all(value.node in nodes for value in (*values, *instantiated(fact.old, values))), fact.rule
        proved = validate(RULES, [fact])
        assert proved.rewrites == 1 and not proved.failed and proved.how[fact.rule] in {"exact", "field"}, (
            fact.rule,
            proved,
        )


def test_a_fact_that_does_not_hold_is_refuted() -> None:
    total = op("sub", X, Y)
    wrong, values = fact_of("own.turned", (total,), (op("sub", Y, X),), (X, Y))
    assert validate(RULES, [wrong]).failed == "own.turned"
    several, _ = fact_of("own.both", (op("neg", X), total), (op("neg", X), op("sub", Y, X)), (X, Y))
    assert validate(RULES, [several]).failed == "own.both"
    assert values == (X, Y)


@dataclass(frozen=True, slots=True)
class FirstFacts:
    """Takes a fact of its sources wherever that makes the graph cheaper; what it yields does not say how it was rewritten."""

    most: int = 8

    def explore(self, space: Space) -> Iterator[Candidate]:
        best = space.start
        for _ in range(self.most):
            before = best
            for source in space.sources:
                for fact, values in source.facts(best.graph):
                    if not space.limits.step():
                        return
                    new = dict(zip(instantiated(fact.old, values), instantiated(fact.new, values), strict=True))
                    graph = Graph(best.graph.inputs, replace(best.graph.outputs, new))
                    cost = space.costs.graph_cost(graph)
                    if cost < 0.9 * best.cost:
                        best = Candidate(graph, cost, best, fact.rule, 1, (fact,))
                        yield best
                        break
            if best is before:
                return


def settings(tmp_path: Path, **options: Any) -> Settings:
    return Settings(budget=240.0, threads=1, cache=tmp_path, timing=False, only=("std.pow_half",), **options)


def test_another_strategy_is_a_class_and_its_candidates_are_proved_by_their_facts(tmp_path: Path) -> None:
    result = optimize(powers(), settings(tmp_path, strategy=FirstFacts()))
    (step,) = result.report.steps
    assert (step.rule, step.count) == ("std.pow_half", 1) and step.validated in {"exact", "field"}
    assert equal(powers(), result.model, {"x": noise(256, 1024)})


@dataclass(frozen=True, slots=True)
class Liar:
    """Says of one graph that it equals another, by a fact that is wrong."""

    def explore(self, space: Space) -> Iterator[Candidate]:
        (root,) = space.graph.outputs
        left, right = root.node.args
        fact, _ = fact_of("own.lie", (root,), (left,), (left, right))
        yield Candidate(Graph(space.graph.inputs, (left,)), space.start.cost / 2, space.start, "own.lie", 1, (fact,))


def test_a_wrong_fact_is_found_where_the_outputs_do_not_tell(tmp_path: Path) -> None:
    """Any error is tolerated, so that the proof alone decides."""
    report = optimize(powers(8, 16), settings(tmp_path, strategy=Liar(), tolerance=1e9)).report
    assert report.kept_original
    assert any("own.lie was left out" in one and "shapes" in one for one in report.warnings), report.warnings


def test_what_a_candidate_claims_are_its_facts() -> None:
    fact, _ = fact_of("own.double", (op("neg", op("neg", X)),), (X,), (X,))
    start = Candidate(Graph((X,), (op("neg", op("neg", X)),)), 2.0)
    found = Candidate(Graph((X,), (X,)), 1.0, start, "own.double", 1, (fact,))
    assert list(claims_of(found)) == [fact]
    assert validate(RULES, claims_of(found)).how == {"own.double": "exact"}


# ---- whole graphs beside the strategy's ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Powers(Generator):
    """Proposes the model without its power of a half, at some part of its cost, and says whether it was asked about anything else."""

    cost: float
    _: KW_ONLY
    name: str = "powers"
    gain: float = 0.5
    seconds: float = 1.0
    reported_if_skipped: bool = True

    def promise(self, context: SearchContext, base: Candidate) -> float:
        return 1.0 if base is context.start else 0.0

    def propose(self, context: SearchContext, base: Candidate) -> Iterator[Proposal]:
        (rule,) = chosen_rules(RULES, ["std.pow_half"])
        (match,) = find_matches(rule, GraphIndex(base.graph))
        made = rewritten(base.graph, replacements(match))
        yield Proposal([Candidate(made, self.cost * base.cost, base, "own.generator", 1)])


@pytest.mark.parametrize(("cost", "taken"), [(0.5, True), (2.0, False)])
def test_what_a_generator_proposes_is_checked_and_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cost: float, taken: bool
) -> None:
    """The strategy finds nothing; what is proposed counts where it is predicted to be faster."""
    monkeypatch.setattr(scheduler, "GENERATORS", (Rules(), Powers(cost)))
    result = optimize(powers(), replaced(settings(tmp_path), only=("std.double_neg",)))
    assert result.report.kept_original != taken
    assert [(step.rule, step.validated) for step in result.report.steps] == (
        [("own.generator", "exact")] if taken else []
    )
    assert ("Sqrt" in {node.op_type for node in result.model.graph.node}) == taken
    # the report says who was asked, and what became of it
    (asked,) = [one for one in result.report.asked if one.name == "powers"]
    assert (asked.base, asked.turns, asked.done) == ("the original", 2, True)
    assert asked.gained == (0.5 if taken else 0.0)


@dataclass(frozen=True)
class Negations(Powers):
    """Negates the result twice, which costs hardly more."""

    def propose(self, context: SearchContext, base: Candidate) -> Iterator[Proposal]:
        (root,) = base.graph.outputs
        made = op("neg", op("neg", root))
        fact, _ = fact_of("own.negations", (root,), (made,), tuple(root.node.args))
        graph = Graph(base.graph.inputs, (made,))
        yield Proposal([Candidate(graph, self.cost * base.cost, base, "own.negations", 1, (fact,))])


def test_rules_go_on_from_what_others_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "GENERATORS", (Rules(), Negations(1.05)))
    report = optimize(powers(), replaced(settings(tmp_path), only=("std.double_neg",))).report
    asked = {(one.name, one.base) for one in report.asked if one.turns}
    assert ("rules", "candidate 1: own.negations") in asked
    assert {one.name: one.proposed for one in report.generators} == {"rules": 1, "powers": 1}


# ---- groups that run as one ---------------------------------------------------------------------------------------------


def grouped(*outputs: Value) -> tuple[Value, ...]:
    """Some values as the results of one kernel over the inputs below them."""
    group, args = abstracted(outputs, (X, Y))
    return kernel_value(group, args)


def test_a_graph_with_kernels_is_proved_hashed_and_searched_as_what_it_means() -> None:
    total, product = op("relu", op("add", X, op("neg", Y))), op("mul", X, op("neg", Y))
    start = Candidate(Graph((X, Y), (op("neg", op("neg", total)), op("sigmoid", product))), 2.0)
    new = dict(zip((total, product), grouped(total, product), strict=True))
    fused = Candidate(rewritten(start.graph, new), 1.0, start, "fused", 2)
    again = rewritten(start.graph, dict(zip((total, product), grouped(total, product), strict=True)))
    assert again.outputs == fused.graph.outputs and hash(again.outputs) == hash(fused.graph.outputs)
    found = validate(RULES, claims_of(fused))
    assert (found.how, found.rewrites, found.failed) == ({"fused": "exact"}, 2, "")
    facts = Substitutions(tuple(chosen_rules(RULES))).facts(fused.graph)
    assert "std.double_neg" in {fact.rule for fact, _ in facts}
    assert [type(node) for node in fused.graph.nodes()].count(Kernel) == 1


def test_a_kernel_that_computes_something_else_is_refuted() -> None:
    """Its results exchanged: of one type, and of one group."""
    start = Candidate(Graph((X, Y), (op("relu", X), op("neg", X))), 2.0)
    first, second = grouped(*start.graph.outputs)
    wrong = rewritten(start.graph, dict(zip(start.graph.outputs, (second, first), strict=True)))
    assert validate(RULES, claims_of(Candidate(wrong, 1.0, start, "fused", 1))).failed == "fused"


def test_a_kernel_is_named_after_what_it_replaced() -> None:
    model = powers()
    imported = import_model(model, RULES)
    (root,) = imported.graph.outputs
    group, args = abstracted((root,), imported.graph.inputs)
    start = Candidate(imported.graph, 2.0)
    fused = Candidate(rewritten(imported.graph, {root: kernel_value(group, args)[0]}), 1.0, start, "fused", 1)
    told = NameHistory(imported.context).of(fused)
    (kernel,) = (node for node in fused.graph.nodes() if isinstance(node, Kernel))
    assert told.naming.nodes[kernel].text("k_1") == "y/fused" and told.places == (("fused", "y"),)
    assert told.naming.values[kernel.values[0]] == "y"
