"""What is said to those who write as other languages do: the hint names the word or the form that is meant."""

from __future__ import annotations

from pathlib import Path

import onnx.parser
import pytest

from dslc.cli.main import run as command_line
from dslc.match import compile_directions
from dslc.match.why_not import why_not
from dslc.onnx.importer import import_model
from dslc.semantics.library import load

OPERATOR = "dslc 1\noperator f(X: T[N]) -> Y: T[N] {{\n  {}\n}}\n"


def said(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    (tmp_path / "f.rules").write_text(text)
    assert command_line(["check", str(tmp_path / "f.rules")]) == 1
    out = capsys.readouterr()
    return out.out + out.err


@pytest.mark.parametrize(
    ("line", "code", "hint"),
    [
        ("Y[i] = X[i] / sum[j] X[j]", "E0101", "stands in parentheses: `(sum[i] ...)`"),
        ("Y[i] = X[i] * max[j: N] X[j]", "E0101", "stands in parentheses: `(max[i] ...)`"),
        ("Y[i] = mean[c] X[c]", "E0101", "`mean` is no reduction; these are: all, any, max, min, prod, sum"),
        ("Y[i] = argmax[c: N] X[c]", "E0101", "`argmax` is no reduction"),
        ("if N > 2\n  Y[i] = X[i]", "E0110", "did you mean `where`?"),
        ("let s = sum[k] X[k]\n  Y[i] = X[i] + s", "E0327", "`let s[] = ...`"),
    ],
)
def test_forms_of_other_languages(
    line: str, code: str, hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = said(OPERATOR.format(line), tmp_path, capsys)
    assert code in found and hint in found


def test_a_missing_operator_between_reads_is_no_reduction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = said(OPERATOR.format("Y[i] = X[i] X[i]"), tmp_path, capsys)
    assert "E0101" in found and "reduction" not in found


@pytest.mark.parametrize(
    ("written", "meant"), [("float32", "f32"), ("double", "f64"), ("long", "int64"), ("u8", "uint8")]
)
def test_element_types_of_other_languages(
    written: str, meant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = said(f"dslc 1\noperator f(X: {written}[N]) -> Y: {written}[N] {{ Y[i] = X[i] }}\n", tmp_path, capsys)
    assert "E0305" in found and f"did you mean `{meant}`?" in found


def test_the_caret_of_a_recurrence_is_at_its_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f.rules").write_text(OPERATOR.format("Y[i] = X[i] + Y[i - 1, other=0]"))
    assert command_line(["check", "--output-format", "concise", str(tmp_path / "f.rules")]) == 1
    place = next(line for line in capsys.readouterr().out.splitlines() if "E0318" in line).partition(" ")[0]
    assert place.endswith(f":3:{3 + len('Y[i] = X[i] + ')}:")


def test_a_reserved_word_in_an_import_leads_to_its_operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = said("dslc 1\nimport std (min)\noperator f(X: T[N]) -> Y: T[N] { Y[i] = X[i] }\n", tmp_path, capsys)
    assert "E0205" in found and "`dslc show min` says which operator is meant" in found
    assert command_line(["show", "min"]) == 2
    assert "`minimum`" in capsys.readouterr().err


def test_a_library_that_is_not_there_is_answered_by_the_likely_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "place" / "acme.filters"
    place.mkdir(parents=True)
    (place / "a.rules").write_text("dslc 1\nlibrary acme.filters 0.1.0\n")
    monkeypatch.setenv("DSLC_PATH", str(place.parent))
    found = said("dslc 1\nimport acme.filter (x)\n", tmp_path, capsys)
    assert "E0203" in found and "did you mean `acme.filters`?" in found
    assert command_line(["verify", "acme.filter"]) == 2
    assert "did you mean `acme.filters`?" in capsys.readouterr().err


def test_calls_of_a_partial_match_are_those_that_the_author_wrote(tmp_path: Path) -> None:
    """`s` is used four times: the pattern has four copies of its call, and the text one."""
    (tmp_path / "f.rules").write_text(
        "dslc 1\nimport std (add, exp, mul, neg)\n"
        "substitution f(X: T[N]) -> Y {\n  let s = neg(exp(X))\n  Y = add(mul(s, s), mul(s, s))\n  =>\n  Y = mul(2, mul(s, s))\n}\n"
    )
    rules = load(tmp_path / "f.rules")
    text = (
        '<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) { a = Exp(x) b = Neg(a) y = Mul(b, b) }'
    )
    (rule,) = [one for one in compile_directions(rules, rules.substitutions["f.f"]) if not one.name.endswith("^-1")]
    found = why_not(rule, import_model(onnx.parser.parse_model(text), rules).graph)
    assert (found.applies, found.total) == (0, 5)
    assert len(found.matched) < 5
