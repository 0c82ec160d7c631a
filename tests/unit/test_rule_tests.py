"""`dslc test`: what passes, what fails, and what it says then."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from dslc.checking.rule_tests import newest_opset, run_tests
from dslc.cli.test import command
from dslc.interpret.check_rule import CaseOutcome
from dslc.semantics.library import load, modules_of, standard
from tests.tuned import tuned

HEADER = """dslc 1
import std.pointwise (add, mul, exp)
import std.linalg (matmul)
import std.activation (relu)
import std.join (concat, split)
"""


def outcomes(tmp_path: Path, text: str, trials: int = 2) -> list[CaseOutcome]:
    path = tmp_path / "mine.rules"
    path.write_text(HEADER + text)
    rules = load(path)
    return run_tests(rules, modules=modules_of(rules, [str(path)]), trials=trials)


def test_the_standard_library_passes_its_examples_and_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    # `test_special.py` draws special numbers for every rule
    tuned(monkeypatch, "interpret.special", draws=3)
    found = run_tests(standard(), trials=0)
    failed = [(o.name, [str(d) for d in o.diagnostics]) for o in found if not o.passed]
    assert not failed
    assert sum(o.status == "example" for o in found) >= 90
    assert sum(o.status == "test" for o in found) >= 100


def test_a_file_with_an_operator_a_rule_and_its_test(tmp_path: Path) -> None:
    found = outcomes(
        tmp_path,
        """
operator twice(X: T[*S]) -> Y: T[*S] {
  Y[*i] = 2 * X[*i]
  example twice([1, 2]) == [2, 4]
  example twice([[0.5]]) == [[1.0]]
}
substitution twice_is_sum(X: T[*S]) -> Y {
  Y = twice(X)
  =>
  Y = add(X, X)
}
test twice_is_sum {
  given  X: f32[2, 3]
  fires  { Y = relu(twice(X)) }
  silent { Y = relu(X) }
}
""",
    )
    assert [(o.name, o.status, o.passed) for o in found] == [
        ("mine.twice", "example", True),
        ("mine.twice_is_sum", "field", True),
        ("mine.twice_is_sum", "test", True),
    ]


def test_generators_and_operators_of_onnx(tmp_path: Path) -> None:
    (found,) = outcomes(
        tmp_path,
        """
test sums {
  given  A = randn(2, 3), B = rand(3), C = iota(2, 3), D: int64[2, 3], z = zeros(2, 3), o = ones(3)
  expect add(A, B) ~= onnx.Add(A, B)
  expect add(C, D) == onnx.Add(C, D)
  expect add(C, 1) == [[1, 2, 3], [4, 5, 6]]
  expect add(A, z) == A
  expect mul(A, o) == A
  expect split(A, axis=1, sizes=[1, 2]) == onnx.Split(A, [1, 2], axis=1)
  expect exp(A) ~= onnx.Exp(A)
}
""",
    )
    assert found.passed, found.diagnostics
    assert newest_opset() >= 20


@pytest.mark.parametrize(
    ("statement", "code", "said"),
    [
        ("expect add([1, 2], [3, 4]) == [4, 7]", "E0504", "1 of 2 elements differ"),
        ("expect add([1, 2], [3, 4]) == [4, 6, 8]", "E0504", "shapes"),
        ("expect add([1.0], [2.0]) == [3.0000005]", "E0504", "3.0"),
        ("expect len([1, 2]) == 3", "E0504", "2 on the left"),
        ("expect add([1], [2]) == nothing", "E0201", ""),
        ("expect onnx.NoSuchThing([1]) == [1]", "E0201", ""),
        ("given X: f32[2] fires { Y = relu(X) }", "E0214", ""),
        ("expect add([[1, 2], [3]], [1]) == [1]", "E0306", ""),
        ('expect add(["a"], [1]) == [1]', "E0306", ""),
        ("expect add([100000000000000000000], [1]) == [1]", "E0306", ""),
    ],
)
def test_failures_say_what_differs(tmp_path: Path, statement: str, code: str, said: str) -> None:
    (found,) = outcomes(tmp_path, f"test broken {{ {statement} }}")
    assert not found.passed
    diagnostic = found.diagnostics[0]
    assert diagnostic.code == code
    assert diagnostic.span is not None and diagnostic.span.source.path.endswith("mine.rules")
    assert said in diagnostic.counterexample


def test_rules_that_fire_wrongly(tmp_path: Path) -> None:
    text = """
substitution wrong(X: T[*S]) -> Y {
  Y = relu(X)
  =>
  Y = X
}
test wrong {
  given  X: f32[3]
  fires  { Y = relu(X) }
  fires  { Y = exp(X) }
  silent { Y = relu(exp(X)) }
}
"""
    check, test = outcomes(tmp_path, text)
    assert check.status == "differs"
    assert "X = " in check.diagnostics[0].counterexample
    assert [d.code for d in test.diagnostics] == ["E0501", "E0505", "E0506"]


def test_the_command_prints_a_summary_and_exits_with_1_on_failures(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.rules", tmp_path / "bad.rules"
    good.write_text(HEADER + "test fine { expect add([1], [2]) == [3] }")
    bad.write_text(HEADER + "test broken { expect add([1], [2]) == [4] }")
    passed = CliRunner().invoke(command, [str(good)], standalone_mode=False)
    assert passed.return_value == 0 and passed.output.startswith("1 passed, 0 failed")
    failed = CliRunner().invoke(command, [str(bad)], standalone_mode=False)
    assert failed.return_value == 1 and "0 passed, 1 failed" in failed.output and "E0504" in failed.output
    chosen = CliRunner().invoke(command, [str(good), str(bad), "-k", "fin*"], standalone_mode=False)
    assert chosen.output.startswith("1 passed, 0 failed")


def test_a_rule_that_divides_by_zero_ends_nothing_but_itself(tmp_path: Path) -> None:
    found = outcomes(
        tmp_path,
        """
import std (pow)
substitution twice(X: T[*S]) -> Y { Y = pow(pow(X, -1), -1) => Y = X }
test twice { given X = [3, 0, 7]  fires { Y = pow(pow(X, -1), -1) } }
operator after(X: T[N]) -> Y: T[N] { Y[i] = X[i] + 1  example after([1, 2]) == [2, 3] }
""",
    )
    assert [(o.name, o.passed) for o in found if o.status in {"test", "example"}] == [
        ("mine.after", True),
        ("mine.twice", False),
    ]
    (reason,) = next(o for o in found if o.status == "test").diagnostics
    assert "division by zero" in (reason.counterexample or reason.message)


def test_an_operator_may_use_itself_where_an_attribute_ends_it(tmp_path: Path) -> None:
    text = """operator doubled(X: T[*S]) -> Y: T[*S] {
      attr times: int = 1
      Y = doubled(add(X, X), times=times - 1) if times > 0 else X
      example doubled([1, 2], times=3) == [8, 16]
      example doubled([1, 2], times=-1) == [1, 2]
    }"""
    (found,) = outcomes(tmp_path, text)
    assert found.passed, found.diagnostics


def test_one_that_never_ends_is_told(tmp_path: Path) -> None:
    text = """operator doubled(X: T[*S]) -> Y: T[*S] {
      attr times: int = 1
      Y = doubled(add(X, X), times=times + 1) if times > 0 else X
      example doubled([1, 2]) == [8, 16]
    }"""
    (found,) = outcomes(tmp_path, text)
    assert not found.passed
    assert [finding.code for finding in found.diagnostics] == ["E0317"]
