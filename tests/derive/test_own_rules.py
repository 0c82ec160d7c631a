"""A derivation of one's own, at work beside EinNet's: the one of docs/derive.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dslc.checking.rule_tests import run_tests
from dslc.cli.derive import command
from dslc.errors import DslcError
from dslc.prove.derivations import verify_derivation
from dslc.search.region_rewrites.derivations import derivations_of
from dslc.semantics.check import check
from dslc.semantics.library import load_many, modules_of

PAGE = Path(__file__).parents[2] / "docs" / "derive.md"
CALL = "matmul(A: f32[6, 64], B: f32[64, 5])"


@pytest.fixture
def halves(tmp_path: Path) -> Path:
    (text,) = (
        each for each in re.findall(r"^```rules\n(.*?)^```$", PAGE.read_text(), re.M | re.S) if "library halves" in each
    )
    (tmp_path / "halves.rules").write_text(text)
    return tmp_path / "halves.rules"


def derived(*arguments: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(
        command, [CALL, *arguments, "--max-states", "40", "--output-format", "json"], catch_exceptions=False
    )
    return json.loads(done.output)["programs"]  # type: ignore[no-any-return]


def test_it_is_checked_tested_and_verified(halves: Path) -> None:
    rules = load_many(["std", "einnet", halves])
    assert not check(rules, modules_of(rules, [halves]))
    outcomes = list(run_tests(rules, modules=modules_of(rules, [halves])))
    assert outcomes and not any(each.diagnostics for each in outcomes)
    assert verify_derivation(rules, rules.derivations["halves.sum_in_halves"], most=6).status == "tested"


def test_it_is_used_beside_those_of_einnet(halves: Path) -> None:
    """Two products of half of the sum, and both as a batch of two by EinNet's rule."""
    found = {tuple(each["steps"]): each for each in derived("--rules", str(halves), "--max-depth", "2")}
    assert all(each["proved"] for each in found.values())
    both = found["halves.sum_in_halves", "einnet.pair_stacking"]
    assert [call["operator"] for call in both["calls"]] in (["std.matmul"], ["std.conv"])
    assert any(steps == ("halves.sum_in_halves",) and len(each["calls"]) == 2 for steps, each in found.items())


def test_einnet_s_may_be_left_out(halves: Path) -> None:
    found = derived("--rules", str(halves), "--max-depth", "1", "--no-default-rules")
    assert {step for each in found for step in each["steps"]} == {"halves.sum_in_halves"}
    with pytest.raises(DslcError) as raised:
        CliRunner().invoke(command, [CALL, "--no-default-rules"], catch_exceptions=False)
    assert [problem.code for problem in raised.value.diagnostics] == ["E0909"]


def test_optimize_has_it_beside_those_of_einnet(halves: Path) -> None:
    names = {rule.name for rule in derivations_of(load_many(["std", halves]))}
    assert "halves.sum_in_halves" in names and "einnet.pair_stacking" in names


@pytest.mark.parametrize(
    "statement, code",
    [
        ("derives { Y = {[i: 4] i} => Y = {[i: 4] i} }", "E0326"),
        ("derives { Y = {[i: 4] sum[r: 7] A[i, r]} => Y = {[i: 4] sum[r: 6] A[i, r]} }", "E0401"),
        ("fires { Y = {[i: 4] sum[r: 6] A[i + 1, r]} }", "E0401"),
        ("fires { Y = {[i: 4] sum[r: 6] A[i + 1, r, other=0]} }", None),
        ("derives { Y = {[i: 4] sum[r: 6] A[i, r]} => Y = {[i: 4] sum[r: 6] A[i, r]} }", "E0505"),
    ],
)
def test_a_test_of_it_that_says_something_else_fails(halves: Path, statement: str, code: str | None) -> None:
    file = halves.with_name("tested.rules")
    file.write_text(halves.read_text() + f"test sum_in_halves {{\n  given A: f32[4, 6]\n  {statement}\n}}\n")
    rules = load_many([file])
    found = {
        problem.code for each in run_tests(rules, modules=modules_of(rules, [file])) for problem in each.diagnostics
    }
    assert found == ({code} if code else set())


def test_a_rule_with_a_mistake_is_named(halves: Path) -> None:
    halves.write_text(halves.read_text().replace("sum[y: V] f(x, y)", "sum[y: V] f(y, x)"))
    arguments = [CALL, "--rules", str(halves), "--no-default-rules", "--max-depth", "1", "--output-format", "json"]
    facts = json.loads(CliRunner().invoke(command, arguments, catch_exceptions=False).output)
    (note,) = facts["notes"]
    assert "E0306" in note and not any(each["steps"] for each in facts["programs"])


def test_what_is_the_same_along_an_axis_is_computed_once(tmp_path: Path) -> None:
    """Squares of differences as three sums: those of one operand alone are of its rows, and not of all pairs."""
    file = tmp_path / "distances.rules"
    file.write_text("""dslc 1
library distances 0.1.0
operator distances(A: f32[20, 8], B: f32[12, 8]) -> Y: f32[20, 12] {
  Y[i, j] = sum[k] (A[i, k] - B[j, k]) ^ 2
}
derivation square_of_difference {
  index x: X, y: Y
  term  f(x, y), g(x, y)
  expr  [x] sum[y] (f(x, y) - g(x, y)) ^ 2
  =>
  expr  [x] ({[x] sum[y] f(x, y) ^ 2}[x] - 2 * {[x] sum[y] f(x, y) * g(x, y)}[x]) + {[x] sum[y] g(x, y) ^ 2}[x]
}
""")
    arguments = [f"{file}::distances", "--max-depth", "1", "--max-states", "20", "--output-format", "json"]
    programs = json.loads(CliRunner().invoke(command, arguments, catch_exceptions=False).output)["programs"]
    (product,) = (each for each in programs if [call["operator"] for call in each["calls"]] == ["std.matmul"])
    assert product["proved"]
    sums = [scope for scope in product["generated"] if "sum[" in scope]
    assert sorted(re.findall(r"^\{\[(.*?)\]", scope)[0] for scope in sums) == ["i0: 12", "i0: 20"]
