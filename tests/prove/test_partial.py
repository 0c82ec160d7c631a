"""Partial substitutions as they are checked and verified: what differs at which sizes, and corrections of the author's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslc.api.differences import diff
from dslc.checking.files import check_files
from dslc.checking.rule_tests import run_tests
from dslc.errors import DslcError
from dslc.prove.field.prover import field_verdict
from dslc.prove.partial.rules import percent
from dslc.prove.run.conclusion import diagnostic_of
from dslc.prove.run.verify import verify_rule
from dslc.search.runs.selection import chosen_partial
from dslc.semantics.library import Rules, load_many

HEAD = "dslc 1\nimport std.pointwise (neg)\n"
RULE = """
partial substitution {name}(X: T[N, M]) -> Y {{
  Y = neg(X)
  =>
  Y = {right}
  correct {correct}
}}
"""
LAST = "{[i: N, j: M] 0 - X[i, j] if j < M - 2 else X[i, j]}"
RULES = {
    "auto": (LAST, "auto limit 1 / 2"),
    "own": (LAST, "Y = {[i: N, j: M] -1 * X[i, j]} limit 1 / 2"),
    # right where nothing is to be corrected, and in one column more
    "elsewhere": (LAST, "Y = {[i: N, j: M] 0 - X[i, j] if j < M - 1 else 2 * X[i, j]}"),
    # wrong where the sides are equal, which is of no account
    "on_the_set": (LAST, "Y = {[i: N, j: M] 3 if j < M - 2 else 0 - X[i, j]}"),
    "other_type": (LAST, "Y = {[i: N + 1, j: M] 0 - X[0, j]}"),
    "nowhere": ("X", "auto"),
    "everywhere": ("{[i: N, j: M] 0 - X[i, j]}", "auto"),
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("partial") / "own.rules"
    path.write_text(
        HEAD + "".join(RULE.format(name=name, right=right, correct=correct) for name, (right, correct) in RULES.items())
    )
    return path


@pytest.fixture(scope="module")
def rules(file: Path) -> Rules:
    return load_many([file])


def test_a_verdict_says_what_share_differs_at_which_sizes(rules: Rules) -> None:
    found = field_verdict(rules, rules.substitutions["own.auto"])
    assert found.answer == "unknown" and found.reason.startswith("partial: the types agree at 4 sizes; ")
    for part in found.reason.split("; ")[1:]:
        share, _, sizes = part.partition(" differs, the rest is proved at ")
        columns = int(sizes.partition("M = ")[2])
        assert share == percent(min(2, columns) / columns)


def test_a_correction_of_ones_own_is_proved_on_the_set(rules: Rules) -> None:
    for name in ("own", "on_the_set"):
        found = field_verdict(rules, rules.substitutions[f"own.{name}"])
        assert found.answer == "unknown" and found.reason.count("its correction is proved") == 4


def test_a_wrong_correction_is_refuted_with_the_position(rules: Rules) -> None:
    sub = rules.substitutions["own.elsewhere"]
    verdict = verify_rule(rules, sub)
    found = verdict.counterexample
    assert verdict.status == "refuted" and found is not None
    # the last column alone
    assert found.output == "Y" and found.position[1] == int(found.drawn["M"]) - 1 and found.left != found.right
    finding = diagnostic_of(sub, verdict)
    assert (
        finding is not None
        and finding.code == "E0605"
        and f"Y[{found.position[0]}, {found.position[1]}]" in finding.counterexample
    )


def test_a_correction_of_another_type_is_refuted(rules: Rules) -> None:
    found = field_verdict(rules, rules.substitutions["own.other_type"])
    assert found.answer == "differs" and found.counterexample is not None and found.counterexample.position == ()


def test_check_warns_of_rules_that_are_equal_nowhere_or_everywhere_and_refuses_corrections_of_another_type(
    file: Path,
) -> None:
    found = {(finding.code, finding.message.split("`")[1]) for finding in check_files([file])}
    assert found == {("W0012", "everywhere"), ("W0013", "nowhere"), ("E0605", "Y")}


@pytest.mark.parametrize("limit", ["0", "0.0", "-1", "1.5", "3 / 2", "2 - 2", '"half"', "true"])
def test_a_limit_is_more_than_0_and_at_most_1(tmp_path: Path, limit: str) -> None:
    path = tmp_path / "own.rules"
    path.write_text(HEAD + RULE.format(name="f", right=LAST, correct=f"auto limit {limit}"))
    assert [finding.code for finding in check_files([path])] == ["E0603"]


@pytest.mark.parametrize("limit", ["1", "1.0", "1 / 3", "0.001", "2 / M"])
def test_other_limits_are_right(tmp_path: Path, limit: str) -> None:
    path = tmp_path / "own.rules"
    path.write_text(HEAD + RULE.format(name="f", right=LAST, correct=f"auto limit {limit}"))
    assert check_files([path]) == []


@pytest.mark.parametrize(
    ("correct", "code"),
    [("Z = neg(X)", "E0604"), ("somehow", "E0604"), ("Y = neg(Q)", "E0323"), ("Y = negg(X)", "E0201")],
)
def test_mistakes_in_a_correction(tmp_path: Path, correct: str, code: str) -> None:
    path = tmp_path / "own.rules"
    path.write_text(HEAD + RULE.format(name="f", right=LAST, correct=correct))
    assert [finding.code for finding in check_files([path])] == [code]


def test_a_split_that_does_not_divide_is_refused_where_it_is_checked(tmp_path: Path) -> None:
    """Two neighbouring rows in one: a matrix of an odd number of rows loses one, so the types differ."""
    path = tmp_path / "own.rules"
    paired = "{[(n: N // 2, k: 2), j: M] 0 - X[2 * n + k, j]}"
    path.write_text(HEAD + RULE.format(name="f", right=paired, correct="auto"))
    (finding,) = check_files([path])
    assert finding.code == "E0312" and "N = " in finding.counterexample


@pytest.mark.parametrize(("correct", "code"), [("Y = Y", "E0609"), ("Y = negg(X)", "E0201")])
def test_what_check_refuses_passes_no_test(tmp_path: Path, correct: str, code: str) -> None:
    path = tmp_path / "own.rules"
    path.write_text(HEAD + RULE.format(name="f", right=LAST, correct=correct))
    rules = load_many([path])
    (outcome,) = run_tests(rules, modules=[rules.substitutions["own.f"].module])
    assert [one.code for one in outcome.diagnostics] == [code]


def test_a_side_that_gives_no_result_passes_no_test(tmp_path: Path) -> None:
    path = tmp_path / "own.rules"
    path.write_text((HEAD + RULE.format(name="f", right=LAST, correct="auto")).replace("  Y = {[", "  Z = {["))
    rules = load_many([path])
    (outcome,) = run_tests(rules, modules=[rules.substitutions["own.f"].module])
    assert [one.code for one in outcome.diagnostics] == ["E0313"]
    # nor is it compared, or used for a model
    with pytest.raises(DslcError, match="does not bind `Y`"):
        diff(f"{path}::f")
    with pytest.raises(DslcError, match="does not bind `Y`"):
        chosen_partial(rules)


@pytest.mark.parametrize(("wrong", "axis", "at"), [("j == 50", 1, 50), ("i + j == 53", 0, 53), ("i > 40", 0, 41)])
def test_a_correction_that_is_wrong_only_at_large_sizes_is_refuted(
    tmp_path: Path, wrong: str, axis: int, at: int
) -> None:
    """Sizes above the numbers that a correction is written with are drawn, too: nothing is wrong at small ones."""
    path = tmp_path / "own.rules"
    right = f"Y = {{[i: N, j: M] 3 * X[i, j] if {wrong} else 0 - X[i, j]}}"
    path.write_text(HEAD + RULE.format(name="f", right="X", correct=right))
    rules = load_many([path])
    sub = rules.substitutions["own.f"]
    verdict = verify_rule(rules, sub)
    assert verdict.status == "refuted" and verdict.counterexample is not None
    position = verdict.counterexample.position
    assert (position[0] + position[1] if "+" in wrong else position[axis]) == at
    (outcome,) = run_tests(rules, modules=[sub.module])
    assert [one.code for one in outcome.diagnostics] == ["E0605"]
