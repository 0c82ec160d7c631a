"""Rule files as tests of pytest."""

from __future__ import annotations

import subprocess
import sys

# after a run inside this process its new modules are forgotten, and this one may not be loaded twice
import islpy
import pytest

from dslc.checking import rule_tests, verification
from dslc.semantics.library import standard

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other plugin is loaded."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


LIBRARY = """dslc 1
import std (add, relu)
operator twice(X: T[*S]) -> Y: T[*S] {
  Y[*i] = 2 * X[*i]
  example twice([1, 2]) == [2, 4]
  example twice([1, 2]) == [2, 5]
}
property doubled(X: T[*S]) { holds twice(X) == add(X, X) }
substitution good(X: T[*S]) -> Y { Y = add(X, X) => Y = twice(X) }
substitution bad(X: T[*S]) -> Y { Y = relu(X) => Y = X }
test good { given X: f32[2, 3]  fires { Y = add(X, X) } }
test twice { expect twice([1]) == [4] }
"""


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    """A run inside this process, which has std and what checks and proves it: they are not what this is about."""
    assert standard() and rule_tests and verification and islpy
    return pytester.runpytest_inprocess("-p", "dslc.testing", *args)


def write(pytester: pytest.Pytester, path: str, text: str) -> None:
    place = pytester.path / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, "utf-8")


def test_every_piece_is_an_item_with_its_own_failure(pytester: pytest.Pytester) -> None:
    write(pytester, "tests/mine.rules", LIBRARY)
    found = pytester.runpytest_subprocess("-p", "dslc.testing", "-v")
    found.assert_outcomes(passed=4, failed=3)
    found.stdout.fnmatch_lines([
        "*tests/mine.rules::example:twice?1? PASSED*",
        "*tests/mine.rules::example:twice?2? FAILED*",
        "*tests/mine.rules::property:doubled PASSED*",
        "*tests/mine.rules::substitution:good PASSED*",
        "*tests/mine.rules::substitution:bad FAILED*",
        "*tests/mine.rules::test:good PASSED*",
        "*tests/mine.rules::test:twice FAILED*",
        "error?E0503?: this example does not hold",
        " --> tests/mine.rules:6:11",
        "6 |   example twice([[]1, 2[]]) == [[]2, 5[]]",
        "  |           ^^^^^*",
        "error?E0501?: the sides of `mine.bad` differ",
        "error?E0504?: this expectation does not hold",
    ])  # fmt: skip
    assert "Traceback" not in found.stdout.str()


def test_a_part_of_the_items_is_chosen_as_pytest_chooses(pytester: pytest.Pytester) -> None:
    write(pytester, "mine_test.rules", LIBRARY)
    run(pytester, "-k", "good").assert_outcomes(passed=2, deselected=5)
    run(pytester, "mine_test.rules::test:good").assert_outcomes(passed=1)
    run(pytester, "--dslc-trials", "0").assert_outcomes(passed=2, failed=2)


def test_rules_and_laws_are_proved_where_that_is_asked_for(pytester: pytest.Pytester) -> None:
    write(pytester, "tests/mine.rules", LIBRARY)
    found = run(pytester, "--dslc-verify", "-k", "verify", "-v")
    found.assert_outcomes(passed=2, failed=1, deselected=7)
    found.stdout.fnmatch_lines([
        "*::verify:doubled PASSED*", "*::verify:good PASSED*", "*::verify:bad FAILED*", "*--> tests/mine.rules:10:1",
        "*X: f32[[][]] = -1",
    ])  # fmt: skip
    assert not (pytester.path / "tests" / "dslc.lock").exists()


def test_less_than_is_required_fails(pytester: pytest.Pytester) -> None:
    text = """dslc 1
derivation sum_of_sums {
  index x: X, y: Y
  term  f(x, y), g(x, y)
  expr  [x] sum[y] (f(x, y) + g(x, y))
  =>
  expr  [x] (sum[y] f(x, y)) + (sum[y] g(x, y))
}
"""
    write(pytester, "tests/sums.rules", text)
    run(pytester, "--dslc-verify").assert_outcomes(passed=1)
    found = run(pytester, "--dslc-require", "proved")
    found.assert_outcomes(failed=1)
    found.stdout.fnmatch_lines(["tests/sums.rules:2:1: `sums.sum_of_sums` is tested, less than proved (*"])


def test_a_file_that_cannot_be_read_is_an_error_of_its_own(pytester: pytest.Pytester) -> None:
    write(pytester, "open_test.rules", "dslc 1\nimport std (add\n")
    write(pytester, "import_test.rules", "dslc 1\nimport nowhere (add)\ntest t { expect add([1], [2]) == [3] }\n")
    found = run(pytester, "--continue-on-collection-errors")
    found.assert_outcomes(failed=1, errors=1)
    found.stdout.fnmatch_lines(
        ["error?E0103?: this `(` is never closed", "error?E0203?: no library `nowhere` is installed"]
    )


def test_a_library_with_a_mistake_fails_its_proofs(pytester: pytest.Pytester) -> None:
    text = """dslc 1
import std (add)
operator shifted(X: T[N]) -> Y: T[N] { Y[i] = X[i + 1] }
substitution with_it(X: T[N]) -> Y { Y = add(shifted(X), shifted(X)) => Y = shifted(add(X, X)) }
"""
    write(pytester, "tests/mine.rules", text)
    found = run(pytester, "--dslc-verify", "--dslc-trials", "0")
    found.assert_outcomes(failed=1)
    found.stdout.fnmatch_lines([" --> tests/mine.rules:3:*"])


def test_files_of_other_programs_and_other_folders_are_left_alone(pytester: pytest.Pytester) -> None:
    write(pytester, "tests/99-usb.rules", 'SUBSYSTEM=="usb", MODE="0666"\n')
    write(pytester, "rules/mine.rules", LIBRARY)
    write(pytester, "tests/binary.rules", "\x00\x01")
    write(pytester, "test_python.py", "def test_it(): pass\n")
    run(pytester).assert_outcomes(passed=1)
    # what is named is meant, and so is what the settings name
    run(pytester, "rules/mine.rules", "-k", "good").assert_outcomes(passed=2, deselected=5)
    pytester.makeini("[pytest]\ndslc_files = rules/*.rules\n")
    run(pytester, "-k", "good or test_it").assert_outcomes(passed=3, deselected=5)


@pytest.mark.parametrize("module", ["dslc", "dslc.api"])
def test_pytest_is_no_part_of_dslc(module: str) -> None:
    code = f"import sys, {module}; print([name for name in sys.modules if name.split('.')[0] in ('pytest', '_pytest')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_plugin_costs_projects_without_rule_files_nothing() -> None:
    code = """
import sys, pytest
before = set(sys.modules)
import dslc.testing
print(sorted(set(sys.modules) - before))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "['dslc', 'dslc.testing', 'dslc.version']\n"
