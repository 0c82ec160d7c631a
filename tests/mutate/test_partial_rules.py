"""Partial substitutions in a graph: several operators on the left, and corrections of an author's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dslc.interpret.floats import Floats
from dslc.interpret.run import run
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, Value, input_value
from dslc.ir.holes import hole, program
from dslc.mutate.correct import Corrected, corrections, differing, fact_of, wrong_at
from dslc.mutate.partial import PartialMutant, PartialRule, applied, compiled, sites
from dslc.mutate.problem import shape_of
from dslc.search.region_rewrites.validate import validate
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules, load_many

# rows are shifted by one: all but the last element of each row is right
HEAD = "dslc 1\nimport std (matmul, relu, neg, add)\n"
RULE = """
partial substitution {name}(X: T[N, K], W: T[K, M]) -> Y {{
  {left}
  =>
  P = matmul(X, W)
  Y = {{[n: N, m: M] {right} if m < M - 1 else 0}}
  correct {correct}
}}
"""
MINUS = ("P = matmul(X, W)\n  Y = neg(P)", "0 - P[n, m]")
RULES = {
    "auto": (*MINUS, "auto limit 1 / 2"),
    "own": (*MINUS, "Y = neg(matmul(X, W)) limit 1 / 2"),
    # over what both sides bind
    "of_both": (*MINUS, "Y = {[n: N, m: M] -1 * P[n, m]} limit 1 / 2"),
    # right where the sides are equal, wrong in the last column
    "wrong": (*MINUS, "Y = {[n: N, m: M] 0 - P[n, m] if m < M - 1 else P[n, m]} limit 1 / 2"),
    "beyond": (*MINUS, "auto limit 1 / 100"),
}


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Rules:
    path: Path = tmp_path_factory.mktemp("partial") / "own.rules"
    every = [
        RULE.format(name=name, left=left, right=right, correct=correct)
        for name, (left, right, correct) in RULES.items()
    ]
    path.write_text(HEAD + "".join(every))
    return load_many(["std", path])


@pytest.fixture(scope="module")
def every(rules: Rules) -> tuple[PartialRule, ...]:
    return compiled(rules, rules.substitutions.values())


def call(rules: Rules, op: str, *args: Value, **attrs: Any) -> Value:
    return apply(rules, f"std.{op}", list(args), attrs)[0]


def minus_product(rules: Rules) -> Graph:
    holes = tuple(hole(k, TensorType(DType.F32, shape)) for k, shape in enumerate(((4, 5), (5, 6))))
    return program(holes, (call(rules, "neg", call(rules, "matmul", *holes)),))


def one(rules: Rules, every: tuple[PartialRule, ...], name: str) -> tuple[Graph, PartialMutant]:
    over = minus_product(rules)
    return over, next(each for each in applied(rules, every, over) if each.rule == f"own.{name}")


def error(rules: Rules, over: Graph, other: Value) -> float:
    rng = np.random.default_rng(0)
    feeds = {value: rng.standard_normal(shape_of(value)) for value in over.inputs}
    old, new = run(rules, (*over.outputs, other), feeds, Floats())
    return float(np.abs(old - new).max())


def is_shown(rules: Rules, over: Graph, made: Corrected) -> bool:
    (old,) = over.outputs
    fact = fact_of("corrected", old, made, old, made.value(rules), over.inputs, lambda value: value)
    return validate(rules, [fact]).how["corrected"] == "exact"


@pytest.mark.parametrize("name", ["auto", "own", "of_both"])
def test_a_rule_of_several_operators_is_corrected(rules: Rules, every: tuple[PartialRule, ...], name: str) -> None:
    over, found = one(rules, every, name)
    assert (found.own is None) == (name == "auto") and found.limit == 0.5
    assert error(rules, over, found.value) > 0.1
    made, *_ = corrections(rules, over.outputs[0], found.value, found.limit, found.own)
    assert made.share == 1 / 6 and made.own == found.own
    assert error(rules, over, made.value(rules)) < 1e-9 and is_shown(rules, over, made)


def test_a_correction_that_is_wrong_on_the_set_is_refused_with_the_position(
    rules: Rules, every: tuple[PartialRule, ...]
) -> None:
    over, found = one(rules, every, "wrong")
    (old,) = over.outputs
    assert corrections(rules, old, found.value, found.limit, found.own) == []
    where = differing(rules, old, found.value)
    assert where is not None and found.own is not None
    assert wrong_at(rules, old, found.own, where.boxes) == (0, 5)
    # nor is it proved where somebody claims it
    _, right = one(rules, every, "own")
    made = corrections(rules, old, right.value, right.limit, right.own)[0]
    assert not is_shown(rules, over, replace(made, own=found.own))


def test_a_limit_holds_for_rules_of_several_operators(rules: Rules, every: tuple[PartialRule, ...]) -> None:
    over, found = one(rules, every, "beyond")
    assert found.limit == 0.01 and corrections(rules, over.outputs[0], found.value, found.limit) == []


def test_places_in_a_graph_are_found(rules: Rules, every: tuple[PartialRule, ...]) -> None:
    x = input_value("x", TensorType(DType.F32, (4, 5)))
    a, b = (input_value(name, TensorType(DType.F32, (5, 6)), True) for name in "ab")
    halves = [call(rules, "neg", call(rules, "matmul", x, weight)) for weight in (a, b)]
    graph = Graph((x, a, b), (call(rules, "relu", call(rules, "add", *halves)),))
    found = list(sites(every, graph))
    assert {tuple(node.op for node in place) for _, place in found} == {("std.neg", "std.matmul")}
    # five rules match at two places, which are one program over holes
    assert len(found) == 2 and len({program for program, _ in found}) == 1
    assert {place[0].values[0] for _, place in found} == set(halves)
