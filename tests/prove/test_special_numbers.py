"""Rules that are wrong at one ordinary number, or for one pair of element types only: refuted with every seed; right ones are not."""

from __future__ import annotations

import pytest

from dslc.prove.run.verify import verify_rule
from dslc.prove.verdict import RELIABLE, RuleVerdict
from dslc.semantics.library import Rules, load_many

HEAD = """dslc 1
import std (abs, add, argmax, cast, div_int, equal, leaky_relu, less, maximum, mul, reduce_l2, sign, sub)
operator beyond(X: T[*S]) -> Y: bool[*S] {
  \"\"\"Whether 200, which wraps in int8, is below 100.\"\"\"
  where integer(T)
  Y[*i] = X[*i] * 0 + 200 < 100
}
operator mixed(A: T[*S], B: U[*S]) -> Y: T[*S] {
  \"\"\"A sum of two integer types.\"\"\"
  where integer(T), integer(U)
  Y[*i] = A[*i] + B[*i]
}
"""

#: left side, guards, right side
WRONG = {
    "norm_at_zero(X: T[A])": (
        "reduce_l2(mul(X, c), axes=[0])", "c >= 0, floating(T)", "mul(reduce_l2(X, axes=[0]), max(c, 1/1000))"),
    "slope_above_one(X: T[*S])": ("leaky_relu(X, alpha=p)", "p >= 0, floating(T)", "maximum(X, mul(X, p))"),
    "sign_at_zero(X: T[*S])": ("sign(mul(X, c))", "c >= 0, floating(T)", "sign(X)"),
    "ties_of_singles(X: int64[N])": ("argmax(cast(X, to=f32), axis=0)", "", "argmax(X, axis=0)"),
    "ties_of_halves(X: int32[N])": ("argmax(cast(X, to=f16), axis=0)", "", "argmax(X, axis=0)"),
    "unsigned_as_signed(X: uint64[*S])": ("cast(cast(X, to=int64), to=f64)", "", "cast(X, to=f64)"),
    "multiple_of_the_prime(X: f32[*S])": ("mul(X, 4611686014132420609)", "", "mul(X, 0)"),
    "narrow_and_wide(X: T[*S])": ("cast(cast(X, to=u), to=T)", "T in [int8, int16], u in [int8, int16, int32]", "X"),
    "one_pair(X: T[*S])": ("cast(cast(X, to=u), to=T)", "T == int16, u == int8", "X"),
    "wraps_in_bytes(X: T[*S])": ("beyond(X)", "", "less(X, X)"),
    "product_wraps(X: T[*S])": ("div_int(mul(add(mul(X, 0), 100), 3), 3)", "integer(T)", "add(mul(X, 0), 100)"),
    "end_of_bytes(X: T[*S])": ("maximum(X, mul(add(mul(X, 0), -64), 2))", "T in [int8, int64]", "X"),
    "narrower_operand(A: T[*S], B: U[*S])": ("mixed(mixed(A, B), B)", "T in [int8, int64], U in [int8, int64]", "mixed(A, add(B, B))"),
}  # fmt: skip
RIGHT = {
    "slope_below_one(X: T[*S])": ("leaky_relu(X, alpha=p)", "p >= 0, p <= 1, floating(T)", "maximum(X, mul(X, p))"),
    "bytes_as_singles(X: int16[N])": ("argmax(cast(X, to=f32), axis=0)", "", "argmax(X, axis=0)"),
    "large_and_back(X: f32[*S])": ("sub(add(X, 100000000000000000000), 100000000000000000000)", "", "X"),
    "wider_pair(X: T[*S])": ("cast(cast(X, to=u), to=T)", "T == int16, u == int32", "X"),
    "a_number(X: T[*S])": ("mul(mul(X, p), 2)", "p * p * 400 == 9, floating(T)", "mul(X, 3/10)"),
}  # fmt: skip
PROVED = {"large_and_back", "wider_pair", "a_number", "slope_below_one"}


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Rules:
    file = tmp_path_factory.mktemp("special") / "special.rules"
    texts = []
    for head, (left, guards, right) in {**WRONG, **RIGHT}.items():
        where = f"  where {guards}\n" if guards else ""
        texts.append(f"substitution {head} -> Y {{\n  Y = {left}\n{where}  =>\n  Y = {right}\n}}\n")
    file.write_text(HEAD + "".join(texts), "utf-8")
    return load_many([file])


def verdict(rules: Rules, head: str, seed: int = 0) -> RuleVerdict:
    return verify_rule(rules, rules.substitutions[f"special.{head.partition('(')[0]}"], ("field", "exact"), seed=seed)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("head", WRONG)
def test_wrong_at_one_number(rules: Rules, head: str, seed: int) -> None:
    """No luck is needed: the refuter begins with what the exact prover left open."""
    assert verdict(rules, head, seed).status == "refuted"


@pytest.mark.parametrize("head", RIGHT)
def test_right(rules: Rules, head: str) -> None:
    found = verdict(rules, head)
    assert found.status != "refuted"
    assert (found.status in RELIABLE) == (head.partition("(")[0] in PROVED), found.reason


def test_every_pair_has_a_verdict(rules: Rules) -> None:
    """Those that a guard names are looked at, and only the narrow one is wrong."""
    found = verdict(rules, "narrow_and_wide")
    wrong = [str(types) for types, one in found.by_type.items() if one.status == "refuted"]
    assert wrong == ["T: int16, u: int8"] and len(found.by_type) == 6
    assert "(int16, int32)" in found.types_text
