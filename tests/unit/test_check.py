"""`dslc check`: the examples of the diagnostics' pages, the standard library, and what must not be reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslc.cli.check import check_files
from dslc.diagnostics.registry import pages
from dslc.errors import Diagnostic
from dslc.interpret.check import check_all
from dslc.semantics.library import standard

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
def test_the_examples_of_a_page_are_what_they_say(tmp_path: Path, code: str, kind: str, text: str) -> None:
    codes = {finding.code for finding in check_text(tmp_path, text)}
    if kind == "wrong":
        assert code in codes
    else:
        assert not {found for found in codes if found == code or found.startswith("E")}


def test_nothing_is_wrong_with_the_standard_library() -> None:
    assert [str(finding) for finding in check_all(standard()) if finding.severity == "error"] == []


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
  call  "gemm" { m = size(n), lda = lda, alpha = alpha }
  cost  flops = 2 * prod(size(b)) * size(m) * size(n) * size(k)
}""",
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_nothing_to_report(tmp_path: Path, text: str) -> None:
    assert [str(finding) for finding in check_text(tmp_path, "dslc 1" + text)] == []


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
    ],
)
def test_what_a_rule_says_of_floating_point_numbers_is_of_the_vocabulary(tmp_path: Path, numerics: str, wrong: bool) -> None:
    text = f"""dslc 1
import std (relu, neg)
substitution odd(X: T[*S]) -> Y {{
  Y = relu(neg(relu(X)))
  =>
  Y = neg(relu(neg(relu(X))))
  verify numerics = {numerics}
}}
"""
    findings = [finding for finding in check_text(tmp_path, text) if finding.code == "E0326"]
    assert bool(findings) == wrong
    assert all("nonfinite" in finding.hint or "exact" in finding.message for finding in findings)
