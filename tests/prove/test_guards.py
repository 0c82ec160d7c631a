"""Guards that are found for rules which hold only under a condition."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.edited import edited
from dslc.prove.guards import STEPS, find_guards, guard_diagnostics, guarded
from dslc.prove.verdict import Verdict
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.library import Rules, load

RULES = """dslc 1
import std.conv (conv)
import std.join (concat, split, slice)
import std.layout (transpose)
import std.pool (avg_pool, avg_pool_valid)
import std.pointwise (mul)
import std.reduce (reduce_sum, reduce_mean)
substitution merged(X: T[N, C, *D], K: T[F, P, *R], L: T[E, P, *R]) -> Y, Z {
  Y = conv(X, K, **a)
  Z = conv(X, L, **a)
  =>
  Y, Z = split(conv(X, concat(K, L, axis=0), **a), axis=1, sizes=[F, E])
}
substitution pooled(X: T[N, C, *D]) -> Y {
  Y = avg_pool_valid(X, kernel=k, pads=p)
  =>
  Y = avg_pool(X, kernel=k, pads=p)
}
substitution square(X: T[M, N]) -> Y {
  Y = mul(reduce_sum(X, axes=[0, 1]), 1 / (M * M))
  =>
  Y = reduce_mean(X, axes=[0, 1])
}
substitution slices(X: T[S]) -> Y {
  Y = concat(slice(X, start=[u], size=[n]), slice(X, start=[v], size=[m]), axis=0)
  =>
  Y = slice(X, start=[u], size=[n + m])
}
substitution twice(X: T[M, N]) -> Y {
  Y = transpose(transpose(X, perm=[1, 0]), perm=[1, 0])
  =>
  Y = X
}
"""


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Rules:
    file = tmp_path_factory.mktemp("guards") / "own.rules"
    file.write_text(RULES, encoding="utf-8")
    return load(file)


# a quarter of what a rule has by default: each of these guards is found within an eighth or a quarter
FEW = STEPS / 4


def exact(rules: Rules, sub: SubstitutionDef) -> Verdict:
    from dslc.prove.run.provers import exact_verdict

    return exact_verdict(rules, sub)


@pytest.mark.parametrize(
    ("name", "guard"),
    [("merged", "a.groups == 1"), ("square", "M == N"), ("slices", "v == n + u"), ("pooled", "all(p == 0)")],
)
def test_the_guard_that_is_missing_is_found(rules: Rules, name: str, guard: str) -> None:
    found = find_guards(rules, rules.substitutions[f"own.{name}"], steps=FEW)
    assert guard in {each.text for each in found}


def test_a_rule_that_holds_needs_none(rules: Rules) -> None:
    assert find_guards(rules, rules.substitutions["own.twice"], seconds=1) == ()


def test_the_guard_is_proved_and_the_fix_makes_the_rule_right(rules: Rules, tmp_path: Path) -> None:
    sub = rules.substitutions["own.square"]
    found = find_guards(rules, sub, prover=exact, steps=FEW)
    assert found[0].verdict is not None
    assert found[0].verdict.answer == "equal"
    (diagnostic,) = guard_diagnostics(sub, found)
    assert diagnostic.code == "E0511"
    assert "where M == N" in diagnostic.hint
    assert "proved" in diagnostic.hint
    assert diagnostic.fix is not None
    span, text = diagnostic.fix.span, diagnostic.fix.text
    fixed = tmp_path / "own.rules"
    fixed.write_text(span.source.text[: span.start] + text + span.source.text[span.end :], encoding="utf-8")
    again = load(fixed)
    assert find_guards(again, again.substitutions["own.square"], seconds=1) == ()
    assert exact(again, again.substitutions["own.square"]).answer == "equal"
    assert exact(rules, guarded(sub, ["M == N"])).answer == "equal"


@pytest.mark.parametrize(
    ("name", "dropped", "found"),
    [
        ("clip_of_clip", "max(a, c) <= min(b, d)", "c <= b"),
        ("transpose_of_nothing", "p == range(rank(S))", "p == range(rank(S))"),
        (
            "transpose_to_reshape",
            "!= 1] k}",
            "{[k: rank(S) where S[k] != 1] k} == {[k: rank(S) where S[p[k]] != 1] p[k]}",
        ),
        ("transpose_through_unary", "pointwise(f)", "pointwise(f)"),
        ("select_same", "broadcast(P, S) == S", "broadcast(P, S) == S"),
        ("sum_of_size_one", "only(S, a)", "all(only(S, a) == 1)"),
    ],
)
def test_guards_of_the_standard_library_are_found_again_and_proved(
    std: Rules, name: str, dropped: str, found: str
) -> None:
    sub = std.substitutions[f"std.{name}"]
    (wrong,) = (one for one in edited(std, sub) if one.kind == "guard dropped" and dropped in one.edit)
    best = find_guards(std, wrong.sub, prover=exact, steps=FEW)[0]
    assert best.text == found
    assert best.verdict is not None
    assert best.verdict.answer == "equal"


def test_what_the_prover_refutes_is_not_proposed(rules: Rules) -> None:
    def refuting(_: Rules, sub: SubstitutionDef) -> Verdict:
        return Verdict("exact", "differs")

    assert find_guards(rules, rules.substitutions["own.square"], prover=refuting, steps=FEW) == ()
