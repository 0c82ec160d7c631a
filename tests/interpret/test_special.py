"""NaN, infinities, zeros of both signs, and what overflows: rules say so, and weights are not folded into infinities."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from dslc.checking.files import check_files
from dslc.egraph.graph import EGraph
from dslc.egraph.rewrite import Caps, apply_matches, matches_of
from dslc.egraph.view import View
from dslc.interpret import Floats, run, special
from dslc.interpret.floats import Narrow
from dslc.interpret.special import unlabelled
from dslc.ir.constants import array_value, holds
from dslc.ir.dtype import DType
from dslc.ir.graph import Graph, input_value
from dslc.match import GraphIndex, apply_match, compile_directions, find_matches
from dslc.semantics.apply import apply
from dslc.semantics.library import load_many, standard


@pytest.mark.parametrize("library", ["std", "taso", "pet"])
def test_shipped_rules_say_what_they_change(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # one instance of each rule: a second one takes as long, and shows it of one rule in forty more
    monkeypatch.setattr(special, "INSTANCES", 1)
    monkeypatch.setattr(special, "COMPARED", 2)
    rules = load_many([library])
    loose = [
        sub.name
        for sub in rules.substitutions.values()
        if sub.name.startswith(f"{library}.") and unlabelled(rules, sub)
    ]
    assert not loose


@pytest.mark.parametrize(
    ("left", "right", "changes"),
    [
        ("mul(X, X)", "mul(abs(X), abs(X))", False),
        ("add(X, 0)", "X", True),  # -0.0
        ("mul(X, 0)", "sub(X, X)", True),  # -0.0
        ("sub(X, 0)", "X", False),
        ("sqrt(mul(X, X))", "abs(X)", True),  # an overflow
        ("pow(X, 1/2)", "sqrt(X)", True),  # -inf
        ("neg(sub(X, Z))", "sub(Z, X)", True),
        ("transpose(relu(X), perm=[1, 0])", "relu(transpose(X, perm=[1, 0]))", False),
    ],
)
def test_a_rule_that_changes_special_numbers_has_to_say_so(
    tmp_path: Path, left: str, right: str, changes: bool
) -> None:
    used = "Z: T[M, N]" if "Z" in left else ""
    text = f"""dslc 1
import std (abs, add, mul, neg, pow, relu, sqrt, sub, transpose)
substitution r(X: T[M, N]{", " * bool(used)}{used}) -> Y {{
  Y = {left}
  where floating(T)
  =>
  Y = {right}
  LABEL
}}
"""
    for label, wanted in (("", changes), ("verify numerics = nonfinite", False)):
        file = tmp_path / "r.rules"
        file.write_text(text.replace("LABEL", label), "utf-8")
        assert ("E0508" in {finding.code for finding in check_files([file])}) == wanted


@pytest.mark.parametrize(
    ("operator", "dtype", "first", "second", "folds"),
    [
        ("add", np.float32, 3e38, 3e38, False),
        ("add", np.float32, 3e38, -3e38, True),
        ("add", np.float16, 6e4, 6e4, False),
        ("add", np.float64, 1e308, 1e308, False),
        ("mul", np.float32, [1e30, 1], [1e30, 2], False),
        ("mul", np.float32, 1e-30, 1e-30, False),
        ("mul", np.float32, 1e-30, 1e30, True),
        ("mul", np.float32, [0, 1], [2, 0], True),
        ("mul", np.float32, np.inf, 2, True),  # it was infinite before
    ],
)
def test_weights_meet_where_they_stay_numbers(
    operator: str, dtype: type, first: object, second: object, folds: bool
) -> None:
    rules = standard()
    a, b = (array_value(np.asarray(one, dtype)) for one in (first, second))
    X = input_value("X", array_value(np.array([1, 2], dtype)).type)
    op = rules.operators[f"std.{operator}"]
    (inner,) = apply(rules, op, [X, a], {})
    graph = Graph((X,), tuple(apply(rules, op, [inner, b], {})))
    (rule,) = compile_directions(rules, rules.substitutions[f"std.{operator}_constants"])
    found = [apply_match(match, graph) for match in find_matches(rule, GraphIndex(graph), constants=True)]
    assert any(one is not None for one in found) == folds
    egraph = EGraph.of(graph)
    matches, _ = matches_of(rule, View(egraph), random.Random(0), Caps())
    assert bool(apply_matches(egraph, matches, Caps()).applied) == folds


def test_numbers_of_rules_that_a_type_does_not_hold() -> None:
    assert [holds(DType.F16, n) for n in (6e4, 7e4, 1e-12, 0, float("inf"))] == [True, False, False, True, True]
    assert [holds(DType.F32, n) for n in (3e38, 10**40, 1e-50, float("nan"))] == [True, False, False, True]


def test_remainders_of_large_quotients_are_exact() -> None:
    rules = standard()
    a, b = (
        np.array([1e9, -1e10, 3e38, -0.0, 5, np.inf], np.float32),
        np.array([0.7, 0.7, 1e-30, 2, np.inf, 1], np.float32),
    )
    value = apply(rules, rules.operators["std.fmod"], [array_value(a), array_value(b)], {})
    with np.errstate(all="ignore"):
        assert np.array_equal(run(rules, value, {}, Floats())[0], np.fmod(a, b), equal_nan=True)


@pytest.mark.parametrize("batch", [(), (1,), (3,)])
@pytest.mark.parametrize("sizes", [(2, 3, 4), (3, 3, 3), (1, 5, 1), (2, 0, 2)])
def test_products_of_special_numbers_are_those_of_single_elements(
    batch: tuple[int, ...], sizes: tuple[int, int, int]
) -> None:
    domain, rng, (rows, inner, columns) = Narrow(DType.F32), np.random.default_rng(0), sizes
    numbers = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45, -0.0, 0.0, 1.0, -2.5], np.float32)
    for _ in range(20):
        a, b = (rng.choice(numbers, (*batch, *size)).astype(float) for size in ((rows, inner), (inner, columns)))
        with np.errstate(all="ignore"):
            found, single = (
                domain.matmul(a, b),
                domain.total(domain.arithmetic("*", a[..., None], b[..., None, :, :]), (-2,)),
            )
        assert np.array_equal(found, single, equal_nan=True)
        assert np.array_equal(np.signbit(found[found == 0]), np.signbit(single[found == 0]))


def test_products_that_overflow_need_the_memory_of_their_matrices() -> None:
    a = np.full((256, 256), 3e38)
    tracemalloc.start()
    with np.errstate(all="ignore"):
        found = Narrow(DType.F32).matmul(a, a)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.isposinf(found).all()
    assert peak < 20 * a.nbytes
