"""The attack on rules that are called proved or bounded (`benchmarks/attack.py`): it breaks wrong ones, and no right one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.attack import main
from benchmarks.attacking import Attack
from dslc.interpret.adversary import smaller_names
from dslc.semantics.library import Rules, load_many, standard

#: what is wrong, and how it shows: the head of the file, then the rule
WRONG = {
    "a type's arithmetic wraps around": (
        "import std (add, cast)",
        "rule(X: int16[*S], Z: int16[*S]) -> Y { Y = cast(add(X, Z), to=int64) => Y = add(cast(X, to=int64), cast(Z, to=int64)) }",
        "values",
    ),
    "division of integers cuts": (
        "import std (mul)",
        "rule(X: T[*S]) -> Y { Y = mul(third(X), 3) => Y = X }\noperator third(X: T[*S]) -> Y: T[*S] { Y[*i] = X[*i] / 3 }",
        "values",
    ),
    "unsigned differences are never negative": (
        "import std (less, sub)",
        "rule(A: T[*S], B: T[*S]) -> Y { Y = less(sub(A, B), 0) where integer(T) => Y = less(A, B) }",
        "values",
    ),
    "floats of 32 bits do not hold every integer": (
        "import std (cast)",
        "rule(X: int32[*S]) -> Y { Y = cast(cast(X, to=f32), to=int32) => Y = X }",
        "values",
    ),
    "a guard's edge": (
        "import std (mul, relu)",
        "rule(X: T[*S]) -> Y { Y = relu(mul(X, c)) where c >= -1/16, floating(T) => Y = mul(relu(X), c) }",
        "values",
    ),
    "from rank 6 on": (
        "import std (relu)",
        "rule(X: T[*S]) -> Y { Y = low(X) => Y = X }\n"
        "operator low(X: T[*S]) -> Y: T[*S] { attr k: int = rank(S)  Y[*i] = X[*i] if k < 6 else 2 * X[*i] }",
        "values",
    ),
    "sizes above 40": (
        "import std (relu)",
        "rule(X: T[N]) -> Y { Y = short(X) => Y = X }\n"
        "operator short(X: T[N]) -> Y: T[N] { Y[i] = X[i] if i < 41 else 2 * X[i] }",
        "values",
    ),
    "data that is a position": (
        "import std (gather, slice)",
        "rule(X: T[A], I: int64[J]) -> Y { Y = gather(X, I, axis=0) where A > 2\n"
        "=> Y = gather(slice(X, start=[0], size=[2]), I, axis=0) }",
        "bounds values",
    ),
    "attributes of two uses": (
        "import std (leaky_relu)",
        "rule(X: T[*S]) -> Y { term f(X) where pointwise(f) Y = f(f(X, **a), **b) => Y = f(f(X, **b), **a) }",
        "values",
    ),
    "other shapes at rank 4": (
        "import std (transpose)",
        "rule(X: T[*S]) -> Y { Y = transpose(transpose(transpose(transpose(transpose(transpose(X, perm=p), perm=p), perm=p), perm=p), "
        "perm=p), perm=p) => Y = X }",
        "types",
    ),
    "no result where the left side has one": (
        "import std (div, mul)",
        "rule(X: T[*S], Z: T[*S]) -> Y { Y = mul(X, 0) where floating(T) => Y = div(mul(X, 0), Z) }",
        "undefined",
    ),
}  # fmt: skip


def _rules(folder: Path, head: str, rule: str) -> Rules:
    file = folder / "wrong.rules"
    file.write_text(f"dslc 1\n{head}\nsubstitution {rule}\n", "utf-8")
    return load_many([file])


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_rule_breaks(what: str, tmp_path: Path) -> None:
    head, rule, way = WRONG[what]
    rules = _rules(tmp_path, head, rule)
    broken = Attack(rules, rules.substitutions["wrong.rule"]).run(trials=300, seconds=60)
    assert broken is not None
    assert broken.way in way.split()


def test_a_trait_that_does_not_hold_is_not_used(tmp_path: Path) -> None:
    """`sub(X, 0)` is `X`, and so `sub(0, X)` would be, were the trait believed."""
    rules = _rules(
        tmp_path, "import std (sub)", "rule(X: T[*S]) -> Y { Y = sub(X, 0) => Y = X }\nproperty sub is commutative"
    )
    attack = Attack(rules, rules.substitutions["wrong.rule"])
    assert attack.run(trials=100, seconds=60) is None
    assert attack.instances > 0


def test_the_counterexample_is_small_and_nothing_is_left_out(tmp_path: Path) -> None:
    head, rule, _ = WRONG["a guard's edge"]
    rules = _rules(tmp_path, head, rule)
    broken = Attack(rules, rules.substitutions["wrong.rule"]).run(trials=300, seconds=60)
    assert broken is not None
    assert "S = []" in broken.text
    assert "elements)" not in broken.text


def test_smaller_names_end_at_the_smallest_that_still_differ() -> None:
    differs = lambda names: names if names["N"] >= 5 and 3 in names["S"] else None  # noqa: E731
    found = smaller_names({"N": 64, "S": (7, 3, 9)}, lambda one: one, differs)
    assert found == {"N": 5, "S": (3,)}


def test_what_only_rounding_tells_apart_is_not_broken(tmp_path: Path) -> None:
    rules = _rules(
        tmp_path, "import std (add, sub, mul)",
        "rule(X: T[*S], Z: T[*S]) -> Y { Y = mul(sub(add(X, Z), Z), 1/3) where floating(T) => Y = mul(X, 1/3) }",
    )  # fmt: skip
    assert Attack(rules, rules.substitutions["wrong.rule"]).run(trials=10, seconds=30) is None


def test_what_has_no_meaning_on_the_left_is_not_broken(tmp_path: Path) -> None:
    rules = _rules(
        tmp_path, "import std (modulo, slice)",
        "rule(X: T[A], Z: T[A]) -> Y { Y = slice(modulo(X, Z), start=[0], size=[1]) where integer(T)\n"
        "=> Y = modulo(slice(X, start=[0], size=[1]), slice(Z, start=[0], size=[1])) }",
    )  # fmt: skip
    attack = Attack(rules, rules.substitutions["wrong.rule"])
    assert attack.run(trials=10, seconds=30) is None
    assert attack.instances > 0


def test_a_sample_of_the_standard_library_holds() -> None:
    rules = standard()
    for name in (
        "std.relu_of_relu",
        "std.merge_convs",
        "std.transpose_of_transpose",
        "std.slice_through_binary",
        "std.abs_of_abs",
    ):
        broken = Attack(rules, rules.substitutions[name]).run(trials=10, seconds=20)
        assert broken is None, broken


def test_the_command_says_what_breaks_and_goes_on_from_what_it_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head, rule, _ = WRONG["a guard's edge"]
    _rules(tmp_path, head, rule)
    given = [
        str(tmp_path / "wrong.rules"),
        "--all",
        "--runtime",
        "0",
        "--kept",
        str(tmp_path / "kept"),
        "--trials",
        "40",
    ]
    assert main(given) == 1
    first = capsys.readouterr().out
    assert "| wrong.rule |" in first and "1 broken" in first
    size = os.path.getsize(tmp_path / "kept")
    assert main(given) == 1
    assert capsys.readouterr().out == first
    assert os.path.getsize(tmp_path / "kept") == size


def test_a_rule_is_attacked_where_it_is_claimed_only(tmp_path: Path) -> None:
    head, rule, _ = WRONG["division of integers cuts"]
    rules = _rules(tmp_path, head, rule)
    sub = rules.substitutions["wrong.rule"]
    assert Attack(rules, sub, claimed=lambda names: names["T"].is_float).run(trials=30, seconds=20) is None
    assert Attack(rules, sub, claimed=lambda names: names["T"].is_integer).run(trials=300, seconds=60) is not None
