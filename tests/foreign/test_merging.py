"""Rules and their reverses, which files hold one by one: one rule with `<=>` here, and both again in an export."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dslc.cli.main import run
from dslc.foreign import taso
from dslc.foreign.decisions import Import, ImportedRule
from dslc.foreign.importer import import_rules
from dslc.foreign.reverses import documented, documented_both, in_source_order, merged, numbers_in, reversed_rule
from dslc.foreign.rule import ForeignRule
from dslc.prove.evidence.lock import read_lock
from dslc.prove.verdict import RuleVerdict
from dslc.semantics.library import load
from tests.foreign.files import exported, imported, rule_file, translated
from tests.foreign.shaped import IMAGE, KERNEL, RIGHT, SCALAR, X1, X2, X3, at, conv, matmul, plain, rule, transpose

OUT_OF_RELU = rule([transpose(X1), plain("relu", at(0))], [plain("relu", X1), transpose(at(0))])
#: a scalar moves to the other matrix, and back with the matrices called the other way round
SCALED = (
    rule([plain("mul", X1, SCALAR), transpose(at(0)), matmul(X2, at(1))],
         [plain("mul", X2, SCALAR), transpose(X1), matmul(at(0), at(1))]),
    rule([plain("mul", X1, SCALAR), transpose(X2), matmul(at(0), at(1))],
         [plain("mul", X2, SCALAR), transpose(at(0)), matmul(X1, at(1))]),
)  # fmt: skip
ROTATED = rule(
    [plain("ew_add", X1, X2), plain("ew_add", X3, at(0))], [plain("ew_add", X1, X3), plain("ew_add", X2, at(0))]
)
WIDE = rule([conv(IMAGE, KERNEL, kernel=(1, 3)), plain("relu", at(0))], [conv(IMAGE, KERNEL, acti=2, kernel=(1, 3))])


def outcomes(found: Import) -> list[str]:
    return [each.outcome for each in found.rules]


def text_of(found: Import, number: int) -> str:
    reading = found.rules[number].translation
    assert reading is not None
    return reading.text


def named(*rules: ForeignRule) -> list[ForeignRule]:
    return [replace(each, name=f"rule_{number}") for number, each in enumerate(rules)]


PAIR = named(RIGHT[3], OUT_OF_RELU)


def single(folder: Path) -> list[ImportedRule]:
    """The two of `PAIR` as they are decided when none meets its reverse."""
    alone = [import_rules([each], "taso", folder / "mine.rules", workers=0).rules[0] for each in PAIR]
    return [replace(each, number=number) for number, each in enumerate(alone)]


def test_a_rule_and_its_reverse_are_one_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has the numbers and names of both, one proof in the lock, and no warning that they undo each other."""
    path, source = tmp_path / "mine.rules", tmp_path / "some.pb"
    source.write_bytes(taso.write([RIGHT[3], RIGHT[0], OUT_OF_RELU]))
    assert imported(source, "taso", path) == 0
    shown = capsys.readouterr().out
    assert "proved             2" in shown and "merged             1" in shown
    text = path.read_text()
    assert "Rules 0 and, from right to left, 2 of some.pb" in text
    assert text.count("<=>\n") == 1 and "tags shuffle" not in text
    assert {*read_lock(tmp_path / "dslc.lock").verdicts} == {
        name for name in load(path).substitutions if name.startswith("mine.")
    }
    assert run(["check", str(path)]) == 0
    assert "W0011" not in capsys.readouterr().out


def test_both_come_back_where_they_stood(tmp_path: Path) -> None:
    """With other rules between them, other names for their inputs, and the kernels that each was found on."""
    rules = named(RIGHT[3], SCALED[0], WIDE, RIGHT[0], SCALED[1], reversed_rule(WIDE, ""), OUT_OF_RELU)
    path, out = tmp_path / "mine.rules", tmp_path / "back.pb"
    found = translated(rules, "taso", path)
    assert outcomes(found) == ["proved"] * 4 + ["merged"] * 3
    assert [each.reason for each in found.rules[4:]] == ["rule_1", "rule_2", "rule_0"]
    assert "reverse_rule_4, reverse_inputs_2_1_0" in path.read_text().replace("\n", " ")
    assert exported(path, out) == 0
    assert out.read_bytes() == taso.write(rules)


@pytest.mark.parametrize("form", ["taso", "tensat", "flexflow"])
def test_an_export_is_that_of_the_single_rules(form: str, tmp_path: Path) -> None:
    """Each as it was, whatever the format leaves out or numbers anew."""
    rules = [RIGHT[3], SCALED[0], RIGHT[0], SCALED[1], ROTATED, OUT_OF_RELU]
    together, out = tmp_path / "mine.rules", tmp_path / "together"
    found = translated(rules, form, together)
    assert outcomes(found) == ["proved", "proved", "proved", "merged", "proved", "merged"]
    assert exported(together, out) == 0
    assert out.read_bytes() == taso.write(rules)


def test_a_rule_that_is_its_own_reverse_is_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "mine.rules", tmp_path / "back.pb"
    found = translated([ROTATED], "taso", path)
    assert outcomes(found) == ["proved"] and "\n  <=>\n" in text_of(found, 0) and "reverse" not in text_of(found, 0)
    assert run(["check", str(path)]) == 0
    assert "W0011" not in capsys.readouterr().out
    assert exported(path, out) == 0
    assert out.read_bytes() == taso.write([ROTATED])


def test_what_is_no_exact_reverse_stays_for_itself(tmp_path: Path) -> None:
    """Found on other kernels, or a guard that only one of them has: an export would not give both again."""
    other = rule([conv(IMAGE, KERNEL, acti=2)], [conv(IMAGE, KERNEL), plain("relu", at(0))])
    found = translated([WIDE, other], "taso", tmp_path / "mine.rules")
    assert outcomes(found) == ["proved", "proved"]
    assert "<=>" not in (tmp_path / "mine.rules").read_text()
    pair = single(tmp_path)
    assert [each.outcome for each in merged(pair, PAIR)] == ["proved", "merged"]
    assert pair[1].translation is not None
    pair[1] = replace(pair[1], translation=pair[1].translation.guarded("M == 1"))
    assert [each.outcome for each in merged(pair, PAIR)] == ["proved", "proved"]


@pytest.mark.parametrize("weaker", [0, 1])
def test_of_two_proofs_the_weaker_counts(weaker: int, tmp_path: Path) -> None:
    pair = single(tmp_path)
    pair[weaker] = replace(pair[weaker], verdict=RuleVerdict("r", "bounded", (), ""))
    verdict = merged(pair, PAIR)[0].verdict
    assert verdict is not None and verdict.status == "bounded"


def test_numbers_are_read_as_they_are_written() -> None:
    one = f"{documented(3, 'some.file')}: the same."
    assert numbers_in(one) == (3,)
    assert numbers_in(documented_both(one, 17)) == (3, 17)
    assert numbers_in("Rule of thumb") == numbers_in(None) == ()


def test_a_file_that_is_in_another_order_is_written_as_it_stands(tmp_path: Path) -> None:
    """Two imports in one file: their numbers say nothing any more."""
    texts = [f'{name}(X: T[*S]) -> Y {{\n  """Rule {number} of a file."""\n  Y = relu(relu(X))\n  =>\n  Y = relu(X)\n}}'
             for name, number in (("a", 5), ("b", 2))]  # fmt: skip
    rules = load(rule_file(tmp_path / "mine.rules", ["taso.operators (relu)"], *texts))
    both = [(rules.substitutions[f"mine.{name}"], [replace(OUT_OF_RELU, name=name)]) for name in "ab"]
    assert [each.name for each in in_source_order(both)] == ["a", "b"]
    assert [each.name for each in in_source_order(both[::-1])] == ["b", "a"]


def test_processes_find_the_guards_that_this_one_finds(tmp_path: Path) -> None:
    swapped = rule([matmul(X1, X2)], [matmul(X2, X1)])
    texts = [
        text_of(import_rules([swapped], "taso", tmp_path / "mine.rules", workers=workers), 0) for workers in (0, 1)
    ]
    assert texts[0] == texts[1] and "where " in texts[0]
