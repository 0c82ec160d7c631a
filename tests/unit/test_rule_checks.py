"""What `dslc check` says of rules that are vacuous, superfluous, overlapping or never end."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslc.inspection.vacuity import vacuous_operator, vacuous_rule
from dslc.semantics.checks.duplicates import check_duplicates
from dslc.semantics.checks.names import CheckReport
from dslc.semantics.checks.overlap import check_covered, overlaps
from dslc.semantics.checks.termination import check_termination
from dslc.semantics.checks.terms import directions
from dslc.semantics.library import Rules, load, load_many

HEADER = """dslc 1
import std.activation (relu, sigmoid)
import std.conv (conv)
import std.join (concat)
import std.pointwise (add, cast, sub, mul, neg)
import std.reduce (reduce_sum)
"""


def rules_of(tmp_path: Path, text: str) -> Rules:
    path = tmp_path / "mine.rules"
    path.write_text(HEADER + text)
    return load(path)


def rule(name: str, params: str, left: str, right: str, where: str = "", arrow: str = "=>") -> str:
    guard = f"  where {where}\n" if where else ""
    return f"substitution {name}({params}) -> Y {{\n  Y = {left}\n{guard}  {arrow}\n  Y = {right}\n}}\n"


def codes(rules: Rules) -> list[tuple[str, str]]:
    """The code and the rule's name, in the order of the checks."""
    modules = frozenset(module for module in rules.modules if module.library == "mine")
    report = CheckReport()
    check_covered(rules, modules, report)
    check_termination(rules, modules, report)
    return [(found.code, found.span.text.split("(")[0].split()[-1]) for found in report.found if found.span is not None]


@pytest.mark.parametrize("library", ["std", "taso", "pet", "einnet", "targets"])
def test_the_libraries_have_no_such_finding(library: str) -> None:
    rules = load(library)
    modules = frozenset(module for module in rules.modules if module.library == library)
    report = CheckReport()
    check_covered(rules, modules, report)
    check_termination(rules, modules, report)
    assert report.found == []
    assert not [sub.name for sub in rules.substitutions.values() if vacuous_rule(sub)]
    assert not [op.name for op in rules.operators.values() if vacuous_operator(op)]


def test_most_rules_are_compared() -> None:
    rules = load_many(["std"])
    assert sum(bool(directions(sub)) for sub in rules.substitutions.values()) > 0.7 * len(rules.substitutions)


def test_a_guard_makes_a_rule_special(tmp_path: Path) -> None:
    general = rule("general", "X: T[M, N]", "relu(relu(X))", "relu(X)", "M > 3")
    special = rule("special", "A: T[P, Q]", "relu(relu(A))", "relu(A)", "Q < 7, P > 3")
    unlike = rule("unlike", "A: T[P, Q]", "relu(relu(A))", "relu(A)", "Q > 3")
    assert codes(rules_of(tmp_path, general + special)) == [("W0002", "special")]
    assert codes(rules_of(tmp_path, special + general)) == [("W0002", "special")]
    assert codes(rules_of(tmp_path, general + unlike)) == []


def test_types_are_part_of_a_pattern(tmp_path: Path) -> None:
    def pair(first: str, second: str) -> list[tuple[str, str]]:
        texts = [rule(name, f"X: {type}", "relu(relu(X))", "relu(X)") for name, type in (("f", first), ("g", second))]
        return codes(rules_of(tmp_path, "".join(texts)))

    assert pair("T[*S]", "T[N, N]") == [("W0002", "g")]
    assert pair("T[N, N]", "T[M, N]") == [("W0002", "f")]
    assert pair("T[M, N]", "T[K, L]") == [("W0004", "g")]
    assert pair("T[M, 3]", "T[3, N]") == []
    assert pair("f32[*S]", "f16[*S]") == []
    assert pair("T[*S]", "f16[*S]") == [("W0002", "g")]
    assert pair("T[*S, 1]", "T[A, B, 1]") == [("W0002", "g")]
    assert pair("T[*S, 1]", "T[1]") == [("W0002", "g")]


def test_shared_sizes_are_not_forgotten(tmp_path: Path) -> None:
    """The general rule wants equal shapes, which the special one does not promise."""
    general = rule("general", "X: T[*S], Z: T[*S]", "relu(add(X, Z))", "add(relu(X), Z)")
    special = rule("special", "X: T[*S], Z: T[*R]", "relu(add(X, Z))", "add(relu(X), Z)")
    assert codes(rules_of(tmp_path, general + special)) == [("W0002", "general")]
    inner = rule("inner", "X: T[*S], Z: T[*S]", "relu(add(neg(X), Z))", "add(relu(neg(X)), Z)")
    assert codes(rules_of(tmp_path, special + inner)) == [("W0002", "inner")]
    assert codes(rules_of(tmp_path, general + inner)) == []


def test_another_result_is_another_rule(tmp_path: Path) -> None:
    first = rule("f", "X: T[*S]", "relu(relu(X))", "relu(X)")
    second = rule("g", "X: T[M, N]", "relu(relu(X))", "relu(sigmoid(X))")
    assert codes(rules_of(tmp_path, first + second)) == []


def test_operands_of_a_difference_keep_their_places(tmp_path: Path) -> None:
    first = rule("f", "A: T[*S], B: T[*R]", "relu(sub(A, B))", "neg(A)")
    second = rule("g", "A: T[*S], B: T[*R]", "relu(sub(B, A))", "neg(A)")
    third = rule("h", "Q: T[*S], P: T[*R]", "relu(sub(Q, P))", "neg(Q)")
    assert codes(rules_of(tmp_path, first + second)) == []
    assert codes(rules_of(tmp_path, first + third)) == [("W0004", "h")]


def test_words_of_the_language_are_no_names_that_may_differ(tmp_path: Path) -> None:
    """`true` and `false`, and element types, are written like names; two rules that differ in them are two rules."""

    def same(*texts: str) -> list[str]:
        rules, report = rules_of(tmp_path, "".join(texts)), CheckReport()
        check_duplicates(rules, frozenset(module for module in rules.modules if module.library == "mine"), report)
        return [found.message for found in report.found]

    small = rule("f", "X: int32[*S]", "cast(cast(X, to=int8), to=bool)", "cast(X, to=bool)")
    half = rule("g", "X: int32[*S]", "cast(cast(X, to=f16), to=f32)", "cast(X, to=f32)")
    renamed = rule("h", "Z: int32[*R]", "cast(cast(Z, to=f16), to=f32)", "cast(Z, to=f32)")
    assert same(small, half, renamed) == ["`h` is `mine.g` up to names"]
    kept = rule("f", "X: T[*S]", "relu(reduce_sum(X, keepdims=true))", "reduce_sum(X, keepdims=true)")
    dropped = rule("g", "X: T[*S]", "relu(reduce_sum(X, keepdims=false))", "reduce_sum(X, keepdims=false)")
    assert same(kept, dropped) == []


def test_growth_under_a_guard_is_left_to_the_guard(tmp_path: Path) -> None:
    grows = rule("f", "X: T[*S]", "relu(X)", "relu(relu(X))")
    guarded = rule("f", "X: T[M, N]", "relu(X)", "relu(concat(X, X, axis=0))")
    assert codes(rules_of(tmp_path, grows)) == [("W0003", "f")]
    assert codes(rules_of(tmp_path, guarded)) == []


def test_what_is_computed_from_constants_is_gone(tmp_path: Path) -> None:
    """After the first rule, `neg(C)` is a constant: the second one does not see how it was computed."""
    first = rule("f", "X: T[*S], C: T[*R]", "sub(X, C)", "add(X, neg(C))", "constant(C)")
    second = rule("g", "X: T[*S], Z: T[*R]", "add(X, neg(Z))", "sub(X, Z)")
    assert codes(rules_of(tmp_path, first + second)) == []
    assert codes(rules_of(tmp_path, first.replace("  where constant(C)\n", "") + second)) == [("W0011", "f")]


def test_two_way_rules_are_meant_to_be_undone(tmp_path: Path) -> None:
    two_way = rule("f", "X: T[*S], Z: T[*R]", "sub(X, Z)", "add(X, neg(Z))", arrow="<=>")
    assert codes(rules_of(tmp_path, two_way)) == []


def test_overlaps_are_listed_when_asked_for(tmp_path: Path) -> None:
    text = (
        rule("f", "X: T[*S], Z: T[*S]", "relu(add(X, Z))", "neg(X)")
        + rule("g", "X: T[*S], Z: T[*S]", "relu(add(neg(X), Z))", "X")
        + rule("h", "X: T[*S]", "relu(mul(X, X))", "X")
        + rule("i", "X: T[N, C, H, W], K: T[F, C, R, S]", "relu(conv(X, K, stride=[1, 1]))", "conv(X, K)")
        + rule(
            "j", "X: T[N, C, H, W], K: T[F, C, R, S]", "relu(conv(X, K, stride=[2, 2]))", "conv(X, K, stride=[2, 2])"
        )
    )
    rules = rules_of(tmp_path, text)
    found = overlaps(rules, frozenset(module for module in rules.modules if module.library == "mine"))
    assert [(each.code, each.severity) for each in found] == [("W0010", "note")]
    assert "`f` and `g`" in found[0].message


@pytest.mark.parametrize(
    ("guard", "vacuous"),
    [
        ("M < N, N < M", True),
        ("M > 3, M < 5, M != 4", True),
        ("M > 3, M < 6, M != 4", False),
        ("M % 4 == 1, M % 2 == 0", True),
        ("M % 4 == 1, M % 3 == 0", False),
        ("M in [1, 2], M in [3, 4]", True),
        ("M in [1, 2], M in [2, 3]", False),
        ("M < 0", True),
        ("M == 0", False),
        ("rank(S) > 3, rank(S) < 3", True),
        ("M * N == 7, M > 1, N > 1", True),
        ("M < N or N < M, M == N", True),
        ("not M < N, not N < M, M != N", True),
        ("T == f32, T == f16", True),
        ("T in [f32, f16], T == f16", False),
        # what is not arithmetic is left open
        ("constant(X), floating(T)", False),
        ("prod(S) > 3, prod(S) < 3", False),
    ],
)
def test_vacuity(tmp_path: Path, guard: str, vacuous: bool) -> None:
    text = rule("f", "X: T[M, N], Z: T[*S]", "add(relu(relu(X)), Z)", "add(relu(X), Z)", guard)
    sub = rules_of(tmp_path, text).substitutions["mine.f"]
    assert (vacuous_rule(sub) is not None) == vacuous


def test_a_real_attribute_may_lie_between_two_whole_numbers(tmp_path: Path) -> None:
    text = (
        'operator scaled(X: T[N]) -> Y: T[N] {\n  """A real number."""\n  attr a: float = 0.5\n  where a > 0, a < 1\n'
        "  Y[i] = X[i] * a\n}\n"
        'operator repeated(X: T[N]) -> Y: T[N] {\n  """A whole one."""\n  attr a: int = 1\n  where a > 0, a < 1\n'
        "  Y[i] = X[i] * a\n}\n"
    )
    rules = rules_of(tmp_path, text)
    assert vacuous_operator(rules.operators["mine.scaled"]) is None
    found = vacuous_operator(rules.operators["mine.repeated"])
    assert found is not None and len(found.conditions) == 2
