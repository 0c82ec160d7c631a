"""A status is as strong as the weakest thing that it rests on: laws and traits are proved before anything uses them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from dslc.cli.check import command as check
from dslc.cli.verify import command as verify_command
from dslc.prove.evidence.dependencies import proved_traits
from dslc.prove.run.verify import verify
from dslc.prove.verdict import RuleVerdict
from dslc.semantics.library import Rules, load_many
from tests.caches import apart


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests have proved counts for nothing here."""
    monkeypatch.setenv("DSLC_CACHE", str(apart(tmp_path / "cache")))


def library(tmp_path: Path, text: str) -> Rules:
    file = tmp_path / "own.rules"
    file.write_text("dslc 1\n" + text)
    return load_many([file])


def verdicts(tmp_path: Path, text: str) -> dict[str, RuleVerdict]:
    """What `dslc verify` finds of a file, by the names of its rules and laws."""
    rules = library(tmp_path, text)
    names = [name for name in (*rules.substitutions, *rules.laws) if name.startswith("own.")]
    return {one.rule.removeprefix("own."): one for one in verify(rules, names, 0)}


# ---- laws ---------------------------------------------------------------------------------------------------------

#: laws that hold wherever random numbers fall, and not everywhere
UNPROVED = {
    "a remainder of small numbers": ("modulo", "X: int64[*S]", "modulo(X, 1000000)", "X"),
    "a remainder of a remainder": (
        "modulo",
        "X: int64[*S]",
        "modulo(modulo(X, 999999937), 1000003)",
        "modulo(X, 1000003)",
    ),
    "a sine that is forgotten": ("sin", "X: f32[*S]", "sin(sin(X))", "sin(sin(sin(sin(X))))"),
}


@pytest.mark.parametrize("operator, params, left, right", UNPROVED.values(), ids=UNPROVED)
def test_a_law_that_is_not_proved_carries_no_rule(
    tmp_path: Path, operator: str, params: str, left: str, right: str
) -> None:
    found = verdicts(
        tmp_path,
        f"import std ({operator}, neg)\nproperty claim({params}) {{ holds {left} == {right} }}\n"
        f"substitution by_claim({params}) -> Y {{\n  Y = neg({left})\n  =>\n  Y = neg({right})\n}}\n",
    )
    assert found["claim"].status not in {"proved", "bounded"}
    assert found["by_claim"].status not in {"proved", "bounded"}


def test_a_law_is_trusted_where_its_text_says_so(tmp_path: Path) -> None:
    """That the error function is odd no prover knows."""
    law = 'property odd(X: f32[*S]) {\n  holds erf(neg(X)) == neg(erf(X)) trusted "it is an odd function"\n}\n'
    head = "import std (erf, neg)\n"
    assert verdicts(tmp_path, head + law)["odd"].status == "trusted"
    untrusted = verdicts(tmp_path, head + law.replace(' trusted "it is an odd function"', ""))
    assert untrusted["odd"].status in {"tested", "undecided"}


# ---- traits -------------------------------------------------------------------------------------------------------

FALSE = {
    "sub is commutative": "sub",
    "sub is associative": "sub",
    "div is commutative": "div",
    "div is identity 2": "div",
    "pow is associative": "pow",
    "matmul is commutative": "matmul",
    "exp is involution": "exp",
    "mul is idempotent": "mul",
    "add is identity 1": "add",
}


@pytest.mark.parametrize("claim", FALSE)
def test_a_false_trait_is_refuted_and_the_matcher_does_not_use_it(tmp_path: Path, claim: str) -> None:
    operator, trait = FALSE[claim], claim.split()[2]
    twice = "substitution twice(X: T[*S]) -> Y {\n  Y = neg(neg(X))\n  =>\n  Y = X\n}\n"
    text = f"import std ({operator}, neg)\nproperty {claim}\n{twice}"
    found = verdicts(tmp_path, text)
    assert found[f"{operator}.{trait}"].status == "refuted"
    assert found["twice"].status == "proved"
    rules = library(tmp_path, text)
    held = proved_traits(rules, f"std.{operator}")
    assert not (
        held.identity if trait == "identity" and operator == "div" else getattr(held, trait) and trait != "identity"
    )


def test_the_matcher_exchanges_the_operands_of_what_is_proved_to_be_commutative_only(tmp_path: Path) -> None:
    """`from_zero` is right; with a false trait it was also used the wrong way round."""
    rules = library(
        tmp_path,
        "import std (sub, add)\nproperty sub is commutative\n"
        "substitution from_zero(X: T[*S]) -> Y {\n  Y = sub(X, 0)\n  =>\n  Y = X\n}\n"
        "substitution plus_zero(X: T[*S]) -> Y {\n  Y = add(X, 0)\n  =>\n  Y = X\n  verify numerics = nonfinite\n}\n"
        "test from_zero {\n  given X: f32[3]\n  fires { Y = sub(X, 0) }\n  fires { Y = sub(0, X) }\n}\n"
        "test plus_zero {\n  given X: f32[3]\n  fires { Y = add(X, 0) }\n  fires { Y = add(0, X) }\n}\n",
    )
    from dslc.checking.rule_tests import run_tests

    own = [rules.substitutions["own.from_zero"].module]
    passed = {one.name: one.passed for one in run_tests(rules, modules=own, trials=0)}
    assert passed == {"own.from_zero": False, "own.plus_zero": True}


def test_every_trait_of_the_libraries_is_a_law_and_holds() -> None:
    rules = load_many(["std", "taso"])
    laws = [law for law in rules.laws.values() if law.trait is not None]
    assert len(laws) >= 27
    found = {one.rule: one.status for one in verify(rules, [law.name for law in laws], 0)}
    assert not {name: status for name, status in found.items() if status not in {"proved", "bounded"}}


def test_a_false_trait_or_law_is_an_error_of_check_with_a_counterexample(tmp_path: Path) -> None:
    (tmp_path / "own.rules").write_text(
        "dslc 1\nimport std (sub, neg)\nproperty sub is commutative\nproperty odd(X: T[*S]) { holds neg(X) == X }\n"
        "property even(X: T[*S]) { holds neg(neg(X)) == X }\n"
    )
    run = CliRunner().invoke(check, [str(tmp_path / "own.rules")], standalone_mode=False)
    assert run.return_value == 1
    assert (
        "`sub` is not `commutative`" in run.output
        and "`own.odd` differ" in run.output
        and "counterexample" in run.output
    )
    assert "even" not in run.output


def test_an_error_in_one_rule_takes_no_verdict_from_the_others(tmp_path: Path) -> None:
    (tmp_path / "own.rules").write_text(
        "dslc 1\nimport std (sub, neg)\nproperty sub is commutative\n"
        "substitution right(X: T[*S]) -> Y {\n  Y = neg(neg(X))\n  =>\n  Y = X\n}\n"
        "substitution broken(X: T[*S]) -> Y {\n  Y = neg(nothing(X))\n  =>\n  Y = X\n}\n"
    )
    asked = [str(tmp_path / "own.rules"), "--jobs", "0", "--output-format", "concise"]
    run = CliRunner().invoke(verify_command, asked, standalone_mode=False)
    assert run.return_value == 1
    lines = run.output.splitlines()
    assert "own.right: proved" in lines
    assert any(line.startswith("own.broken: undecided: E0201") for line in lines)
    assert "own.sub.commutative: refuted" in lines
