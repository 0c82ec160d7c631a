"""The field prover: what it refutes and how it shows it, what it calls equal, and how far that may err."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from dslc.interpret.field import P
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Value, input_value
from dslc.prove.field.degree import Degree, degrees
from dslc.prove.field.prover import DRAWS as PROVER_DRAWS
from dslc.prove.field.prover import field_verdict
from dslc.semantics.apply import apply
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules, load_many, standard

HEAD = """dslc 1
import std (add, sub, mul, div, neg, relu, exp, sqrt, pow, matmul, transpose, concat, slice, softmax)
"""


def rules_of(tmp_path: Path, text: str) -> Rules:
    file = tmp_path / "own.rules"
    file.write_text(HEAD + text)
    return load_many([file])


@pytest.fixture(scope="module")
def std() -> Rules:
    return standard()


def tensor(name: str, *shape: int) -> Value:
    return input_value(name, TensorType(DType.F32, shape))


def degree_of(rules: Rules, value: Value) -> Degree | None:
    return degrees(expand(rules, (value,)))[0]


def test_degrees_of_sums_products_quotients_and_powers(std: Rules) -> None:
    a, b, c = tensor("a", 2, 3), tensor("b", 3, 4), tensor("c", 4, 2)
    (ab,) = apply(std, "std.matmul", (a, b))
    (abc,) = apply(std, "std.matmul", (ab, c))
    assert degree_of(std, a) == Degree(1) and degree_of(std, ab) == Degree(2) and degree_of(std, abc) == Degree(3)
    (both,) = apply(std, "std.add", (a, apply(std, "std.mul", (a, a))[0]))
    assert degree_of(std, both) == Degree(2)
    (quotient,) = apply(std, "std.div", (both, a))
    assert degree_of(std, quotient) == Degree(2, 1)
    # three quotients of a row have a common denominator of degree 3
    (total,) = apply(std, "std.reduce_sum", (quotient,), {"axes": (1,)})
    assert degree_of(std, total) == Degree(4, 3)


@pytest.mark.parametrize("name", ["std.relu", "std.exp", "std.sqrt"])
def test_what_is_no_polynomial_has_no_degree(std: Rules, name: str) -> None:
    (value,) = apply(std, name, (tensor("a", 3),))
    assert degree_of(std, value) is None


def test_the_error_bound_is_degree_over_p_to_the_number_of_draws(std: Rules) -> None:
    law = field_verdict(std, std.substitutions["std.double_neg"])
    assert law.answer == "equal" and law.error_bound == pytest.approx((1 / P) ** PROVER_DRAWS)


def test_a_product_of_three_has_degree_three(tmp_path: Path) -> None:
    rules = rules_of(
        tmp_path,
        """
substitution associative(A: T[M, K], B: T[K, N], C: T[N, P]) -> Y {
  Y = matmul(matmul(A, B), C)
  where M >= 5, P >= 5
  =>
  Y = matmul(A, matmul(B, C))
}
""",
    )
    found = field_verdict(rules, rules.substitutions["own.associative"])
    assert found.answer == "equal" and found.error_bound == pytest.approx((3 / P) ** PROVER_DRAWS)


def test_functions_with_laws_rest_on_floats_and_bound_nothing(std: Rules) -> None:
    found = field_verdict(std, std.substitutions["std.exp_of_sum"])
    assert found.answer == "equal" and found.error_bound is None and "float64" in found.reason
    random = field_verdict(std, std.substitutions["std.relu_of_relu"])
    assert random.answer == "equal" and random.error_bound is None and "polynomial" in random.reason


def test_a_counterexample_shows_both_sides_on_small_integers(tmp_path: Path) -> None:
    rules = rules_of(
        tmp_path,
        """
substitution swapped(A: T[*S], B: T[*S]) -> Y {
  Y = relu(sub(A, B))
  =>
  Y = relu(sub(B, A))
}
substitution swapped_linear(A: T[*S], B: T[*S]) -> Y {
  Y = sub(A, B)
  =>
  Y = sub(B, A)
}
""",
    )
    for name in ("own.swapped", "own.swapped_linear"):
        found = field_verdict(rules, rules.substitutions[name])
        assert found.answer == "differs" and found.counterexample is not None
        shown = found.counterexample
        assert shown.output == "Y" and "S" in shown.drawn and shown.left != shown.right
        assert "sub(A, B)" in shown.trace and "sub(B, A)" in shown.trace
    assert int(shown.left) == -int(shown.right)


def test_a_rule_of_large_tensors_alone_is_refuted_without_fractions(tmp_path: Path) -> None:
    # fractions of products of 512 rows took gigabytes
    text = """
substitution exchanged(A: f32[M, K], B: f32[K, K]) -> Y {
  Y = matmul(matmul(A, B), B)
  where M >= 512, K >= 512
  =>
  Y = matmul(A, transpose(matmul(B, B), perm=[1, 0]))
}
"""
    rules = rules_of(tmp_path, text)
    tracemalloc.start()
    found = field_verdict(rules, rules.substitutions["own.exchanged"])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.answer == "differs" and found.counterexample is not None
    assert int(found.counterexample.drawn["K"]) >= 512
    assert peak < 500e6


def test_another_type_on_the_right_is_a_difference(tmp_path: Path) -> None:
    rules = rules_of(
        tmp_path,
        """
substitution transposed(A: T[M, N]) -> Y {
  Y = transpose(A, perm=[1, 0])
  where M != N
  =>
  Y = neg(neg(A))
}
""",
    )
    found = field_verdict(rules, rules.substitutions["own.transposed"])
    assert found.answer == "differs" and found.counterexample is not None
    assert found.counterexample.position == () and found.counterexample.left.startswith("f32[")


def test_a_partial_substitution_is_not_refuted(tmp_path: Path) -> None:
    rules = rules_of(
        tmp_path,
        """
partial substitution nearly(A: T[*S], B: T[*S]) -> Y {
  Y = sub(A, B)
  =>
  Y = add(A, B)
}
""",
    )
    found = field_verdict(rules, rules.substitutions["own.nearly"])
    assert found.answer == "unknown" and "types agree" in found.reason


def test_guards_that_no_shape_meets_leave_a_rule_undecided(tmp_path: Path) -> None:
    rules = rules_of(
        tmp_path,
        """
substitution never(A: T[M, N]) -> Y {
  Y = neg(A)
  where M > N, N > M
  =>
  Y = A
}
""",
    )
    found = field_verdict(rules, rules.substitutions["own.never"])
    assert found.answer == "unknown" and "no instance" in found.reason


def test_polynomials_are_equal_exactly_where_their_coefficients_are(tmp_path: Path) -> None:
    pairs = [(1, 1), (-2, -2), (1, -1), (3, 4), (0, 0), (0, 1)]
    text = "".join(
        f"""
substitution scaled_{k}(A: T[*S], B: T[*S]) -> Y {{
  Y = add(mul(mul(A, A), {a}), mul(B, {b}))
  =>
  Y = add(mul(mul(A, A), {b}), mul(B, {a}))
}}
"""
        for k, (a, b) in enumerate(pairs)
    )
    rules = rules_of(tmp_path, text)
    for k, (a, b) in enumerate(pairs):
        found = field_verdict(rules, rules.substitutions[f"own.scaled_{k}"], seed=k)
        assert found.answer == ("equal" if a == b else "differs"), (a, b)


def test_types_that_only_an_inner_operator_refuses_leave_a_rule_undecided(tmp_path: Path) -> None:
    rules = rules_of(
        tmp_path,
        """
operator twice(X: T[*S]) -> Y: T[*S] {
  Y = add(X, X)
}
substitution halved(X: bool[N]) -> Y {
  Y = twice(X)
  =>
  Y = X
}
""",
    )
    found = field_verdict(rules, rules.substitutions["own.halved"])
    assert found.answer == "unknown" and "T != bool" in found.reason
