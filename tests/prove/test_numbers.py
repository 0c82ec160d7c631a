"""Numbers of a rule that have to be numbers in a proof: every sign, and what lies at and around the numbers that it names."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from dslc.interpret.check_rule import check_substitution
from dslc.prove.instances.exploration import instance_set
from dslc.prove.run.provers import prover_verdict
from dslc.semantics.library import Rules, load
from dslc.semantics.values import Numbers, far_sizes, integers, numbers_of, reals, texts, values

WRONG = load(Path(__file__).parent / "wrong_numbers.rules")
NAMES = [name for name in WRONG.substitutions if name.startswith("wrong_numbers.")]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_wrong_for_some_numbers_is_refuted(name: str) -> None:
    verdict = prover_verdict(WRONG, WRONG.substitutions[name], "exact")
    assert verdict.answer == "differs" and verdict.counterexample is not None, verdict.scope


@pytest.mark.parametrize("name", ["any_factor", "of_a_product", "up_and_down", "any_text"])
def test_dslc_test_finds_them_too(name: str) -> None:
    outcome = check_substitution(WRONG, WRONG.substitutions[f"wrong_numbers.{name}"])
    assert not outcome.passed and outcome.status == "differs"


def own(tmp_path: Path, text: str) -> Rules:
    file = tmp_path / "own.rules"
    file.write_text(f"dslc 1\nimport .wrong_numbers (scaled_first, scaled_last, below)\n{text}", encoding="utf-8")
    (tmp_path / "wrong_numbers.rules").write_text(
        (Path(__file__).parent / "wrong_numbers.rules").read_text(encoding="utf-8")
    )
    return load(file)


def test_a_bounded_verdict_names_the_values(tmp_path: Path) -> None:
    rules = own(
        tmp_path,
        "substitution own(X: T[*S]) -> Y { Y = scaled_first(X, c=c) where c >= 0 => Y = scaled_last(X, c=c) }\n",
    )
    verdict = prover_verdict(rules, rules.substitutions["own.own"], "exact")
    assert verdict.answer == "equal" and verdict.scope.startswith("c in 0, 1/2, 1, 2")


def test_values_at_and_on_both_sides_of_an_edge() -> None:
    found = reals(Numbers((Fraction(-1, 2),)))
    assert {Fraction(-1, 2), Fraction(-1, 4), Fraction(-3, 4), Fraction(0)} <= set(found)
    assert found[0] == Fraction(-1, 2) and min(found) < -1 and max(found) > 1
    assert {99, 100, 101} <= set(integers(Numbers((Fraction(100),))))
    assert set(integers(Numbers(), ((">=", 2),))) == {2, 3}
    assert set(integers(Numbers(), ((">", 9),))) == {10, 11, 12}


def test_sizes_that_do_not_divide_what_is_named() -> None:
    assert {11, 2521} <= set(far_sizes(Numbers((Fraction(2520),))))
    assert far_sizes(Numbers((Fraction(2), Fraction(1, 7)))) == ()


def test_the_numbers_of_a_rule_and_of_what_it_reaches() -> None:
    found = numbers_of(WRONG.substitutions["wrong_numbers.any_count"])
    assert Fraction(4) in found.own and Fraction(1000) in found.reached
    assert Fraction(-3, 2) in numbers_of(WRONG.substitutions["wrong_numbers.of_a_product"]).own


def test_texts_are_those_that_functions_compare_with_and_another() -> None:
    op = WRONG.operators["wrong_numbers.by_text"]
    assert texts(op, op.attrs[0]) == ("plain", "another")


def test_axes_and_flags_are_enumerated() -> None:
    assert values("bool") == (False, True) and values("axis", rank=2) == (0, 1)
    assert set(values("axes", rank=2)) == {(), (0,), (1,), (0, 1)} and len(values("permutation", rank=3)) == 6


def test_two_of_many_numbers_take_every_pair_of_values() -> None:
    """Four numbers with 7 values each would be 2401 cases; every pair of values of any two of them is in 49."""
    std = load(Path(__file__).parent / "wrong_numbers.rules")
    found = instance_set(std, std.substitutions["wrong_numbers.bounds_in_any_order"])
    assert "each two of a, b, c, d in" in found.scope
