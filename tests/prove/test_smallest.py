"""Counterexamples are the smallest sizes, attributes and inputs that still differ, with nothing of them left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslc.interpret.check_rule import check_substitution
from dslc.prove.field.prover import field_verdict
from dslc.prove.verdict import Counterexample, RuleVerdict, Verdict
from dslc.semantics.library import Rules, load

CONVOLUTION = (
    "rule(X: T[N, C, H, W], K: T[F, C, R, S]) -> Y {\n"
    "  Y = relu(conv(X, K, stride=s, pads=p))\n  =>\n  Y = conv(relu(X), K, stride=s, pads=p)\n}"
)
SHORT = "rule(X: T[N]) -> Y {\n  Y = add(short(X), 0)\n  =>\n  Y = X\n}\n"
SHORT += "operator short(X: T[N]) -> Y: T[N] { Y[i] = X[i] if i < 3 else 2 * X[i] }"


def rules_of(folder: Path, rule: str) -> Rules:
    file = folder / "own.rules"
    file.write_text(f"dslc 1\nimport std (relu, conv, add)\nsubstitution {rule}\n")
    return load(file)


@pytest.mark.parametrize(
    ("rule", "drawn"),
    [
        (CONVOLUTION, {"N": "1", "C": "1", "H": "1", "W": "1", "F": "1", "R": "1", "S": "1"}),
        (SHORT, {"N": "4"}),
    ],
)
def test_the_field_prover_s_counterexample_is_the_smallest(tmp_path: Path, rule: str, drawn: dict[str, str]) -> None:
    rules = rules_of(tmp_path, rule)
    found = field_verdict(rules, rules.substitutions["own.rule"]).counterexample
    assert found is not None
    assert {name: found.drawn[name] for name in drawn} == drawn
    assert "elements)" not in found.trace and "more lines" not in found.trace


def test_dslc_test_shows_every_input_of_the_smallest_counterexample(tmp_path: Path) -> None:
    rules = rules_of(tmp_path, SHORT)
    (finding,) = check_substitution(rules, rules.substitutions["own.rule"]).diagnostics
    assert "N = 4" in finding.counterexample
    assert "X = [0.0, 0.0, 0.0, 1.0]" in finding.counterexample
    assert "Y[3] is 2 on the left and 1 on the right" in finding.counterexample


def test_attributes_are_part_of_it(tmp_path: Path) -> None:
    rule = "rule(X: T[*S]) -> Y {\n  Y = leaky_relu(X, **a)\n  =>\n  Y = relu(X)\n}\nimport std (leaky_relu)"
    file = tmp_path / "own.rules"
    file.write_text(f"dslc 1\nimport std (relu, leaky_relu)\nsubstitution {rule.partition('import')[0]}\n")
    rules = load(file)
    (finding,) = check_substitution(rules, rules.substitutions["own.rule"]).diagnostics
    assert "a = {alpha = " in finding.counterexample


def test_the_exact_prover_s_is_preferred() -> None:
    one, other = (Counterexample({}, name, (), "1", "2") for name in ("field", "exact"))
    verdicts = (Verdict("field", "differs", counterexample=one), Verdict("exact", "differs", counterexample=other))
    assert RuleVerdict("own.rule", "refuted", verdicts, "").counterexample is other
