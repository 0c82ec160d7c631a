"""`dslc verify` at the command line: files that `dslc check` refuses, and what proofs assume."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dslc.cli.verify import as_dict, command, needs
from dslc.prove.evidence.lock import from_dict, to_dict
from dslc.prove.verdict import RuleVerdict, Verdict

RULE = (
    "import std.activation (relu)\nsubstitution twice(X: T[N]) -> Y {{\n  Y = relu(relu(X))\n  =>\n  Y = {right}\n}}\n"
)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (RULE.format(right="rellu(X)"), "E0201"),
        (RULE.format(right="relu(Z)"), "E0323"),
        ("operator ahead(X: T[N]) -> Y: T[N] {\n  Y[i] = X[i + 1]\n}\n", "E0401"),
    ],
)
def test_a_file_with_mistakes_is_not_proved(tmp_path: Path, text: str, code: str) -> None:
    file = tmp_path / "own.rules"
    file.write_text("dslc 1\n" + text, encoding="utf-8")
    shown = CliRunner().invoke(command, [str(file), "--jobs", "0"], standalone_mode=False)
    assert shown.return_value == 1
    assert f"error[{code}]" in shown.stderr
    assert "nothing to prove" not in shown.output
    concise = CliRunner().invoke(command, [str(file), "--output-format", "concise"], standalone_mode=False)
    assert (concise.return_value, f" {code} " in concise.stdout) == (1, True)
    outcome = json.loads(CliRunner().invoke(command, [str(file), "--output-format", "json"]).stdout)
    assert {one["status"] for one in outcome["rules"]} <= {"undecided"}
    assert [each["code"] for each in outcome["findings"]] == [code]
    assert not (tmp_path / "dslc.lock").exists()


def test_a_rule_whose_right_side_never_fits_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "own.rules"
    text = "dslc 1\nimport std.linalg (matmul)\n" + RULE.format(right="matmul(X, matmul(X, X))")
    file.write_text(text, encoding="utf-8")
    arguments = [str(file), "--jobs", "0", "--no-lock", "--prover", "field", "--prover", "exact"]
    shown = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert shown.return_value == 1
    assert "E0306" in shown.stderr


def test_what_a_proof_assumes_of_the_right_side_is_shown() -> None:
    said = Verdict("exact", "equal", reason="3 symbolic instances", needs=("p0 < k0", "p1 < k1", "p2 < k2"))
    plain = Verdict("exact", "equal", reason="1 symbolic instance")
    verdicts = [RuleVerdict("std.a", "bounded", (said,), ""), RuleVerdict("std.b", "proved", (plain,), "")]
    head = "std.a is used only where its right side has a meaning:"
    assert needs(verdicts) == [head, "  p0 < k0", "  p1 < k1", "  p2 < k2"]
    assert as_dict(verdicts[0])["verdicts"][0]["needs"] == said.needs
    assert from_dict("std.a", to_dict(verdicts[0])) == verdicts[0]
