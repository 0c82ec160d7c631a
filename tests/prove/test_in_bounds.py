"""Data used as a position: the right side of a proved rule reads inside of its tensors wherever the left side does."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from dslc.interpret.differ import READ_OUTSIDE
from dslc.prove.run.verify import verify_rule
from dslc.prove.verdict import PROVERS, RuleVerdict
from dslc.semantics.library import Rules, load_many

HEAD = """dslc 1
import std (gather, gather_elements, slice, split, concat, pad, reshape, transpose, relu, add, mul, neg, matmul, reverse, cast)
operator pick(X: T[A], I: U[J]) -> Y: T[J] {
  \"\"\"The elements at the positions that I lists.\"\"\"
  where integer(U)
  Y[j] = X[I[j]]
}
operator rows(X: T[A, D], I: U[J]) -> Y: T[J, D] {
  \"\"\"The rows that I lists.\"\"\"
  where integer(U)
  Y[j, d] = X[I[j], d]
}
operator wrapped(X: T[A], I: U[J]) -> Y: T[J] {
  \"\"\"The elements at the positions that I lists, counted round and round.\"\"\"
  where integer(U)
  Y[j] = X[I[j] % A]
}
"""


def library(tmp_path: Path, params: str, left: str, right: str, guard: str = "integer(U)", arrow: str = "=>") -> Rules:
    file = tmp_path / "own.rules"
    file.write_text(
        f"{HEAD}substitution s({params}) -> Y {{\n  where {guard}\n  Y = {left}\n  {arrow}\n  Y = {right}\n}}\n"
    )
    return load_many([file])


RIGHT = {
    "positions of positions": ("X: T[A], I: U[J], K: U[L]", "pick(pick(X, I), K)", "pick(X, pick(I, K))"),
    "counted from the end": ("X: T[A], I: U[J], K: U[L]", "gather(gather(X, I), K)", "gather(X, gather(I, K))"),
    "before a function of elements": ("X: T[A], I: U[J]", "relu(pick(X, I))", "pick(relu(X), I)"),
    "of a sum": ("X: T[A], Z: T[A], I: U[J]", "add(pick(X, I), pick(Z, I))", "pick(add(X, Z), I)"),
    "an embedding and its projection": (
        "X: T[A, D], W: T[D, E], I: U[J]",
        "matmul(rows(X, I), W)",
        "rows(matmul(X, W), I)",
    ),
    "joined positions": (
        "X: T[A], I: U[J], K: U[L]",
        "concat(pick(X, I), pick(X, K), axis=0)",
        "pick(X, concat(I, K, axis=0))",
    ),
    "wider tables": (
        "X: T[A, D], Z: T[A, E], I: U[J]",
        "concat(rows(X, I), rows(Z, I), axis=1)",
        "rows(concat(X, Z, axis=1), I)",
    ),
    "turned positions": ("X: T[A], I: U[J]", "reverse(pick(X, I), axis=0)", "pick(X, reverse(I, axis=0))"),
    "fewer positions": (
        "X: T[A], I: U[4]",
        "slice(pick(X, I), start=[1], size=[2])",
        "pick(X, slice(I, start=[1], size=[2]))",
    ),
    "a remainder": (
        "X: T[A], Z: T[A], I: U[J]",
        "add(X, Z)",
        "slice(concat(add(X, Z), wrapped(X, I), axis=0), start=[0], size=[A])",
    ),
}


#: without the one that looks for counterexamples for seconds: it proves nothing, and could only take back what another one says
PROVING = tuple(prover for prover in PROVERS if prover != "field")
#: what it is asked of too, and refutes nothing: positions that are read through positions, also below 0
ASKED = ("counted from the end",)


@pytest.mark.parametrize("name", RIGHT)
def test_what_the_left_side_reads_too_is_in_bounds(tmp_path: Path, name: str) -> None:
    params, left, right = RIGHT[name]
    guard = "integer(U)" if "U[" in params else "A > 0"
    rules = library(tmp_path, params, left, right, guard)
    verdict = verify_rule(rules, rules.substitutions["own.s"], PROVERS if name in ASKED else PROVING)
    assert verdict.status in {"proved", "bounded"}, verdict.verdicts


WRONG = {
    "a part of the table": ("X: T[A], I: U[J]", "pick(X, I)", "pick(slice(X, start=[0], size=[4]), I)", "A > 4, integer(U)"),
    "another table that is left out": (
        "X: T[A], Z: T[B], I: U[J]", "pick(X, I)", "slice(concat(pick(X, I), pick(Z, I), axis=0), start=[0], size=[J])", "integer(U)",
    ),
    "through a split, which a law forgets": (
        "X: T[A], Z: T[B], I: U[J]", "neg(X)",
        "neg(split(concat(X, pick(Z, I), axis=0), axis=0, sizes=[A, J]).Y)", "integer(U)",
    ),
    "more positions": (
        "X: T[A], I: U[J]", "pick(X, slice(I, start=[0], size=[2]))", "slice(pick(X, I), start=[0], size=[2])", "J > 2, integer(U)",
    ),
    "times zero": (
        "X: T[A], I: U[J]", "mul(slice(X, start=[0], size=[1]), 0)", "mul(pick(X, slice(I, start=[0], size=[1])), 0)", "integer(U)",
    ),
    "positions moved": (
        "X: T[A], I: U[J]", "pick(X, I)",
        "pick(concat(slice(X, start=[1], size=[A - 1]), slice(X, start=[0], size=[1]), axis=0), add(I, -1))", "A > 1, integer(U)",
    ),
    "a table of another shape": (
        "X: T[A, D], I: U[J]", "reshape(rows(X, I), shape=[J * D])",
        "pick(slice(reshape(X, shape=[A * D]), start=[0], size=[A - 1]), I)", "D == 1, integer(U), A > 1",
    ),
    "only where it counts": ("X: T[A], I: U[J]", "wrapped(X, I)", "add(wrapped(X, I), mul(pick(X, I), 0))", "integer(U)"),
}  # fmt: skip


#: what is to be refuted, by whichever prover
REFUTED = ("a part of the table", "more positions", "times zero")


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RuleVerdict]:
    """What is said of each wrong rule, asked once."""

    @cache
    def of(name: str) -> RuleVerdict:
        rules = library(tmp_path_factory.mktemp("wrong"), *WRONG[name])
        return verify_rule(rules, rules.substitutions["own.s"], PROVERS if name in REFUTED else PROVING)

    return of


@pytest.mark.parametrize("name", WRONG)
def test_what_only_the_right_side_reads_is_not_proved(verdicts: Callable[[str], RuleVerdict], name: str) -> None:
    assert verdicts(name).status not in {"proved", "bounded"}


def test_what_is_read_in_no_rows_has_no_meaning_on_either_side(tmp_path: Path) -> None:
    sides = ("X: T[A, D], I: U[J]", "reshape(rows(X, I), shape=[J * D])", "pick(reshape(X, shape=[A * D]), I)")
    rules = library(tmp_path, *sides, "D == 1, integer(U), A < 1")
    assert verify_rule(rules, rules.substitutions["own.s"], PROVING).status in {"proved", "bounded"}


@pytest.mark.parametrize("name", REFUTED)
def test_positions_that_only_the_right_side_cannot_read_refute_it(
    verdicts: Callable[[str], RuleVerdict], name: str
) -> None:
    verdict = verdicts(name)
    assert verdict.status == "refuted"
    assert verdict.counterexample is not None and verdict.counterexample.right == READ_OUTSIDE


def test_a_rule_for_both_directions_is_in_bounds_in_both(tmp_path: Path) -> None:
    sides = ("X: T[A], I: U[4]", "slice(pick(X, I), start=[1], size=[2])", "pick(X, slice(I, start=[1], size=[2]))")
    one_way = library(tmp_path, *sides)
    assert verify_rule(one_way, one_way.substitutions["own.s"], PROVING).status == "proved"
    both = library(tmp_path, *sides, arrow="<=>")
    assert verify_rule(both, both.substitutions["own.s"], PROVING).status not in {"proved", "bounded"}
