"""`dslc check`: the examples of the diagnostics' pages, the standard library, and what must not be reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dslc.checking.files import check_files
from dslc.checking.rule_tests import run_tests
from dslc.diagnostics.registry import pages
from dslc.errors import Diagnostic, DslcError
from dslc.inspection.bounds import BoundsReport, check_operator
from dslc.interpret import check
from dslc.interpret.check import check_all
from dslc.semantics.library import load, standard
from tests.tuned import tuned

EXAMPLES = [
    pytest.param(page.code, kind, text, id=f"{page.code}-{kind}-{number}")
    for page in pages().values()
    for kind, texts in (("wrong", page.wrong), ("right", page.right))
    for number, text in enumerate(texts)
    if not page.code.startswith("E01")
]


def check_text(folder: Path, text: str) -> list[Diagnostic]:
    path = folder / "probe.rules"
    path.write_text(text, encoding="utf-8")
    return check_files([path])


@pytest.mark.parametrize(("code", "kind", "text"), EXAMPLES)
def test_the_examples_of_a_page_are_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, kind: str, text: str
) -> None:
    # examples are not hard to see through
    tuned(monkeypatch, "prove.partial.rules", most=16)
    tuned(monkeypatch, "prove.partial.draws", draws_of_functions=4)
    tuned(monkeypatch, "interpret.special", instances=1)
    codes = {finding.code for finding in check_text(tmp_path, text)}
    if kind == "wrong":
        assert code in codes
    else:
        assert not {found for found in codes if found == code or found.startswith("E")}


def test_nothing_is_wrong_with_the_standard_library(monkeypatch: pytest.MonkeyPatch) -> None:
    # `test_interpret_rules.py` compares the sides of every rule, types included
    tuned(monkeypatch, "interpret.check", instances=1, operators=1, further=20)
    reports = []

    def checked(*args: Any) -> BoundsReport:
        reports.append(check_operator(*args))
        return reports[-1]

    monkeypatch.setattr(check, "check_operator", checked)
    assert [str(finding) for finding in check_all(standard()) if finding.severity == "error"] == []
    # every read is in its bounds, almost always by proof
    assert {report.operator: str(report.findings) for report in reports if report.findings} == {}
    assert sum(report.proved for report in reports) > 2000


def test_several_mistakes_in_one_run(tmp_path: Path) -> None:
    text = """dslc 1
operator f(X: T[N]) -> Y: T[N] {
  \"\"\"Two mistakes.\"\"\"
  attr a: integer
  Y[i] = X[i] + Z[i]
}
operator g(X: T[N]) -> Y: T[N] {
  \"\"\"Out of bounds.\"\"\"
  Y[i] = X[i + 1]
}
"""
    assert [finding.code for finding in check_text(tmp_path, text)] == ["E0305", "E0201", "E0401"]


def test_the_counterexample_of_a_shape_and_both_places(tmp_path: Path) -> None:
    text = """dslc 1
import std.layout (transpose)
import std.activation (relu)
substitution f(X: T[M, N]) -> Y {
  Y = relu(transpose(X))
  =>
  Y = relu(X)
}
"""
    (found,) = check_text(tmp_path, text)
    assert found.code == "E0312" and "M = " in found.counterexample and found.label.startswith("`Y` is f32[")
    assert found.span is not None and found.span.text == "relu(X)"
    assert [label.span.text for label in found.secondary] == ["relu(transpose(X))"]


RIGHT = {
    "numbers as arguments of a pattern": """
import std.activation (clip)
substitution f(X: T[*S]) -> Y {
  Y = clip(clip(X, a, b), a, b)
  where a <= b
  =>
  Y = clip(X, a, b)
}""",
    "a guard binds a list": """
import std.join (pad)
import std.activation (relu)
substitution f(X: T[*S]) -> Y {
  Y = relu(pad(X, before=b, after=a))
  =>
  Y = pad(relu(X), before=b, after=a)
}""",
    "a term for any operator": """
import std.layout (transpose)
substitution f(X: T[*S]) -> Y {
  term f(X)
  where pointwise(f)
  Y = f(transpose(X, perm=p), **a)
  <=>
  Y = transpose(f(X, **a), perm=p)
}""",
    "sets and maps of a derivation": """
derivation f {
  \"\"\"Compute on other iterators.\"\"\"
  index x: X, y: Y
  term  f(x, y)
  map   phi: X -> Z
  where bijective(phi)
  expr  [x] sum[y] f(x, y)
  =>
  expr  [x] {[z: Z] sum[y] f(phi.inverse(z), y)}[phi(x)]
  search phi in affine_bijections(X, factors=divisors(X), rank=4)
}""",
    "coefficients and strides of a lowering": """
lowering gemm(A: T[*B, M, K], C: T[*B, K, N]) on cuda {
  \"\"\"Strides are free.\"\"\"
  expr  Y[*b, m, n] = sum[k] A[*b, m, k] * C[*b, k, alpha * n]
  where T in [f16, f32], stride(A, k) == 1
  let   lda = stride(A, m)
  call  "cublasGemmStridedBatchedEx" {
    transa = "N", transb = "N", m = size(n), n = size(m), k = size(k), alpha = alpha, a = C, lda = lda, stride_a = 0,
    b = A, ldb = stride(A, m), stride_b = 0, c = Y, ldc = stride(Y, m), stride_c = 0, batch_count = 1 }
  cost  flops = 2 * prod(size(b)) * size(m) * size(n) * size(k)
}""",
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_nothing_to_report(tmp_path: Path, text: str) -> None:
    assert [str(finding) for finding in check_text(tmp_path, "dslc 1" + text)] == []


GUARDS = ("X > 0", "X <= X", "not X", "X and N > 1", "f32 > 3", "[X] < 2", "N in T", "1 < X < 3", "all(X > 0)")


@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_that_compares_what_is_no_number_is_a_mistake_at_its_place(tmp_path: Path, guard: str) -> None:
    rule = f"substitution rule(X: T[N]) -> Y {{\n  Y = relu(X)\n  where {guard}\n  =>\n  Y = X\n}}\n"
    text = f"dslc 1\nimport std.activation (relu)\n{rule}"
    errors = [finding for finding in check_text(tmp_path, text) if finding.severity == "error"]
    assert [(finding.code, str(finding.span).rpartition("probe.rules:")[2].split(":")[0]) for finding in errors] == [
        ("E0326", "5")
    ]


@pytest.mark.parametrize(
    ("guard", "finding"),
    [
        ("max(relu(X), 1) > 1", "E0326 relu(X)"),
        ("sum([X, 1]) > 1", "E0326 [X, 1]"),
        ("(max[i: 3] b) > 1", "E0326 b"),
        ("abs(b) == 1", "E0326 b"),
        ("convert(b, f32) == 1", "E0326 b"),
        ('{[i: "s"] 1} == [1]', 'E0326 "s"'),
        ("{[i: 1.5] 1} == [1]", "E0326 1.5"),
        ("(sum[i: X] i) > 1", "E0326 X"),
        ("range(b) == [0]", "E0301 range(b)"),
        ("take([1, 2], b) == [1]", "E0301 take([1, 2], b)"),
        ("len(b) == 1", "E0301 len(b)"),
        ("merge([1], [1, 2], [0]) == [1]", "E0301 merge([1], [1, 2], [0])"),
        ("range(10 ^ 12) == [0]", "E0327 range(10 ^ 12)"),
    ],
)
def test_a_function_of_what_it_does_not_take_is_one_mistake_at_its_place(
    tmp_path: Path, guard: str, finding: str
) -> None:
    text = f"""dslc 1
import std.activation (relu)
operator labelled(X: T[N]) -> Y: T[N] {{
  attr b: string = "a"
  Y[i] = X[i]
}}
substitution rule(X: T[N]) -> Y {{
  Y = labelled(relu(X), b=b)
  where {guard}
  =>
  Y = relu(X)
}}
"""
    errors = [one for one in check_text(tmp_path, text) if one.severity == "error"]
    assert [f"{one.code} {one.span.text}" for one in errors if one.span is not None] == [finding]


@pytest.mark.parametrize(
    ("equation", "marked"),
    [
        ("Y[i] = X[i] if i < 2 else X[i - 3] + X[i - k]", "X[i - 3]"),
        ("Y[i] = X[i - k] if i > 0 else X[i + 3] + X[i]", "X[i + 3]"),
        ("Y[i] = sum[j: 2] (X[i] + X[j] if i < 1 else X[i + j] * X[i])", "X[i + j]"),
    ],
)
def test_the_read_that_leaves_its_bounds_is_the_one_that_is_marked(tmp_path: Path, equation: str, marked: str) -> None:
    text = f"dslc 1\noperator reads(X: T[N]) -> Y: T[N] {{\n  where N > 2\n  let k = 1\n  {equation}\n}}\n"
    wrong = [finding for finding in check_text(tmp_path, text) if finding.code == "E0401"]
    assert [finding.span.text for finding in wrong if finding.span is not None] == [marked]


def test_a_tensor_that_the_left_side_does_not_mention_is_an_error_as_for_optimize(tmp_path: Path) -> None:
    text = "dslc 1\nimport std.activation (relu)\nsubstitution rule(X: T[N], Z: T[N]) -> Y {\n  Y = relu(X)\n  =>\n  Y = relu(Z)\n}\n"
    found = check_text(tmp_path, text)
    assert [finding.code for finding in found if finding.severity == "error"] == ["E0323"]
    assert "W0005" not in {finding.code for finding in found}


@pytest.mark.parametrize(("spec", "advice"), [(">=9.0", "a newer version"), (">=0.0,<0.0.1", "an older version")])
def test_a_library_of_another_version_is_to_be_replaced_by_a_newer_or_an_older_one(
    tmp_path: Path, spec: str, advice: str
) -> None:
    text = f"dslc 1\nlibrary mine 1.0.0\nrequires std {spec}\n"
    (finding,) = (one for one in check_text(tmp_path, text) if one.code == "E0211")
    assert finding.hint.startswith(f"install {advice}")


def test_an_error_as_text_has_its_hint() -> None:
    assert (
        str(DslcError([Diagnostic("E0203", "no file x", hint="a file ends in .rules")]))
        == "E0203 no file x (a file ends in .rules)"
    )


@pytest.mark.parametrize(
    ("numerics", "wrong"),
    [
        ("exact", False),
        ("[reassociates, nonfinite]", False),
        ("nonfinite", False),
        ("sloppy", True),
        ("[nonfinite, sloppy]", True),
        ("[exact, cancels]", True),
        ("[nonfinite, nonfinite]", True),
        ("1", True),
        ("cancels, error = 1e-5", False),
        ("cancels, error = 2", True),
        ("cancels, error = cancels", True),
    ],
)
def test_what_a_rule_says_of_floating_point_numbers_is_of_the_vocabulary(
    tmp_path: Path, numerics: str, wrong: bool
) -> None:
    text = f"""dslc 1
import std.activation (relu)
import std.pointwise (neg)
substitution odd(X: T[*S]) -> Y {{
  Y = relu(neg(relu(X)))
  =>
  Y = neg(relu(neg(relu(X))))
  verify numerics = {numerics}
}}
"""
    findings = [finding for finding in check_text(tmp_path, text) if finding.code == "E0326"]
    assert bool(findings) == wrong
    assert all(
        "nonfinite" in finding.hint or "exact" in finding.message or "error" in finding.message for finding in findings
    )


def test_a_tensor_of_rank_0_is_read_with_and_without_brackets(tmp_path: Path) -> None:
    (tmp_path / "own.rules").write_text(
        'dslc 1\noperator both(X: T[], Z: T[N]) -> Y: T[], W: T[N] {\n  """Twice, and times."""\n'
        "  Y[] = X + X[]\n  W[i] = Z[i] * X[]\n  example both(3, [1, 2]).Y == 6\n  example both(3, [1, 2]).W == [3, 6]\n}\n"
    )
    assert check_files([tmp_path / "own.rules"]) == []
    assert all(outcome.passed for outcome in run_tests(load(tmp_path / "own.rules")))
    text = "dslc 1\noperator wrong(X: T[N]) -> Y: T[N] {\n  Y[i] = X[]\n}\n"
    assert [finding.code[:3] for finding in check_text(tmp_path, text) if finding.severity == "error"] == ["E03"]


FREE = """dslc 1
import std (matmul, mul)
substitution hoisted(A: T[M, K], B: T[K, N]) -> Y {{
  where floating(T)
  {left}
  =>
  {right}
  verify numerics = [reassociates, nonfinite]
}}
"""


@pytest.mark.parametrize(
    ("left", "right", "codes"),
    [
        ("Y = mul(matmul(A, B), c)", "Y = matmul(mul(A, c), B)", []),
        ("let p = mul(matmul(A, B), c)\n  Y = p", "let q = mul(A, c)\n  Y = matmul(q, B)", []),
        ("let p = mul(A, c)\n  Y = matmul(p, mul(B, c))", "Y = mul(matmul(A, B), c * c)", []),
        ("Y = matmul(A, B)", "let q = mul(A, c)\n  Y = matmul(q, B)", ["E0323"]),
        ("let p = c + 1\n  Y = mul(matmul(A, B), p)", "Y = matmul(mul(A, p), B)", ["E0201"]),
    ],
)
def test_a_free_number_stands_in_calls_of_operators_with_a_name_or_without(
    tmp_path: Path, left: str, right: str, codes: list[str]
) -> None:
    found = check_text(tmp_path, FREE.format(left=left, right=right))
    assert [each.code for each in found if each.severity == "error"] == codes
