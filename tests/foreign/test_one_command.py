"""`dslc import-rules` as one command on a whole file: what is decided is kept, and nothing is half-written."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from dslc.cli.main import run
from dslc.foreign import taso
from dslc.foreign.decisions import Deciding, Outcome, digest_of
from dslc.foreign.importer import import_rules
from dslc.foreign.rule import Operator
from dslc.foreign.translation import translations
from dslc.prove.evidence.lock import read_lock
from dslc.semantics.library import load_many
from tests.foreign.shaped import RIGHT, WRONG, X1, X2, X3, at, plain, rule

SUMS = (
    rule([plain("ew_add", X1, X2), plain("relu", at(0)), plain("ew_add", at(1), X3)],
         [plain("ew_add", X2, X1), plain("relu", at(0)), plain("ew_add", X3, at(1))]),
    rule([plain("ew_mul", X1, X2), plain("ew_mul", at(0), X3)], [plain("ew_mul", X2, X3), plain("ew_mul", X1, at(0))]),
    rule([plain("ew_mul", X3, X1), plain("ew_mul", X2, at(0))], [plain("ew_mul", X1, X2), plain("ew_mul", at(0), X3)]),
)  # fmt: skip
TEXT = "(relu (relu ?x))=>(relu ?x)\n(matmul ?x ?y)=>(matmul ?y ?x)\n(ewadd ?x ?y)=>(ewadd ?y ?x)\n"


def command(path: Path, out: Path, *more: str, form: str = "tensat") -> int:
    return run(["import-rules", "--from", form, str(path), "-o", str(out), "--workers", "0", *more])


def test_duplicates_up_to_the_order_of_operands_that_commute(tmp_path: Path) -> None:
    found = import_rules(SUMS, "taso", tmp_path / "mine.rules", workers=0, guards=False)
    assert [each.outcome for each in found.rules] == ["same", "proved", "duplicate"]
    assert found.rules[2].reason == found.rules[1].name == "rearrange_ewmul_of_ewmul_1"


def test_a_product_of_matrices_does_not_commute(tmp_path: Path) -> None:
    swapped = rule([plain("matmul", X1, X2)], [plain("matmul", X2, X1)])
    (found,) = import_rules([swapped], "taso", tmp_path / "mine.rules", workers=0, guards=False).rules
    assert found.outcome == "rejected"


def test_what_was_decided_is_not_decided_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither proofs nor refutations; another name and another file change nothing. Without the cache all is decided again."""
    rules, cache = (RIGHT[0], RIGHT[4], WRONG[0]), tmp_path / "cache"
    first = import_rules(rules, "taso", tmp_path / "mine.rules", workers=0, cache=cache)

    def fail(*_: object) -> None:
        raise AssertionError("asked again")

    with monkeypatch.context() as patched:
        patched.setattr("dslc.prove.run.workers.answered", fail)
        again = import_rules(rules[::-1], "taso", tmp_path / "other.rules", workers=0, cache=cache)
        with pytest.raises(AssertionError, match="asked again"):
            import_rules(rules, "taso", tmp_path / "mine.rules", workers=0)
    assert [each.outcome for each in again.rules] == [each.outcome for each in first.rules][::-1]


def test_a_digest_is_of_what_a_rule_says() -> None:
    texts = [next(translations(RIGHT[k], name, doc)) for k, name, doc in ((0, "a", "x"), (0, "b", "y"), (4, "a", "x"))]
    one, same, other = map(digest_of, texts)
    assert one == same != other


def test_an_import_without_time_leaves_rules_open(tmp_path: Path) -> None:
    told: list[tuple[int, int, Counter[Outcome]]] = []
    found = import_rules(
        RIGHT[:3], "taso", tmp_path / "mine.rules", workers=0, budget=0.0, progress=lambda *each: told.append(each)
    )
    assert found.counts()["open"] == len(found.rules) == 3
    assert told[-1][:2] == (3, 3)


def test_ctrl_c_keeps_what_is_decided_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "some.txt", tmp_path / "some.rules"
    path.write_text(TEXT)
    guarded = Deciding._guarded

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Deciding, "_guarded", interrupted)
    assert command(path, out) == 130
    assert "2 of 3 rules are decided; they are kept" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["some.txt"]
    monkeypatch.setattr(Deciding, "_guarded", guarded)
    assert command(path, out) == 0
    assert "guarded" in capsys.readouterr().out


def test_the_proofs_are_in_the_lock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "some.txt", tmp_path / "some.rules"
    path.write_text(TEXT)
    assert command(path, out, "--no-guards") == 0
    assert list(read_lock(tmp_path / "dslc.lock").verdicts) == ["some.relu_of_relu_to_relu_0"]
    capsys.readouterr()
    assert run(["verify", str(out), "--output-format", "concise", "--jobs", "0"]) == 0
    assert "some.relu_of_relu_to_relu_0: proved" in capsys.readouterr().out


def test_only_an_unchanged_import_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "some.txt", tmp_path / "some.rules"
    path.write_text(TEXT)
    out.write_text("dslc 1\n")
    assert command(path, out, "--no-guards") == 2
    error = capsys.readouterr().err
    assert "E0910" in error and "--force" in error and out.read_text() == "dslc 1\n"
    assert command(path, out, "--no-guards", "--force") == 0
    assert command(path, out, "--no-guards") == 0
    out.write_text(out.read_text().replace("relu(relu(x))", "relu(relu( x ))"))
    assert command(path, out, "--no-guards") == 2


@pytest.mark.parametrize(
    ("form", "data", "words"),
    [
        ("taso", b"", "holds no rules"),
        ("tensat", b"\n\n", "holds no rules"),
        ("flexflow", b"", "E1001"),
        ("flexflow", b"[" * 10_000 + b"]" * 10_000, "nested too deep"),
        ("flexflow", b'{"rule":' * 10_000 + b"1" + b"}" * 10_000, "nested too deep"),
        ("taso", taso.write(RIGHT)[:-5], "E1001"),
        ("taso", TEXT.encode(), "--from tensat"),
        ("flexflow", TEXT.encode(), "--from tensat"),
        ("tensat", b'{"_t": "RuleCollection", "rule": []}', "--from flexflow"),
        ("tensat", taso.write(RIGHT), "--from taso"),
        ("tensat", b"# a comment\ndslc 1\n", "a rule file of dslc already"),
    ],
)
def test_what_cannot_be_read_is_one_error(
    form: str, data: bytes, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "some", tmp_path / "some.rules"
    path.write_bytes(data)
    assert command(path, out, form=form) == 1
    error = capsys.readouterr().err
    assert words in error and error.count("error[") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["some"]


def test_an_output_that_cannot_be_written_is_said_before_anything_is_proved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "some.txt"
    path.write_text(TEXT)
    (tmp_path / "folder.rules").mkdir()
    for out, words in (("folder.rules", "is a folder"), ("gone/x.rules", "there is no folder")):
        assert command(path, tmp_path / out) == 2
        error = capsys.readouterr().err
        assert "E0903" in error and words in error
    assert command(tmp_path / "gone.txt", tmp_path / "x.rules") == 2
    assert "E0902" in capsys.readouterr().err


def test_names_do_without_operators_that_distribute(tmp_path: Path) -> None:
    partition = Operator("partition", (X1,), (("parallel_dim", 2), ("parallel_degree", 2)))
    each = rule([partition, plain("relu", at(0)), plain("relu", at(1))], [plain("relu", X1)])
    (found,) = import_rules([each], "taso", tmp_path / "mine.rules", workers=0, guards=False).rules
    assert (found.name, found.outcome) == ("relu_of_relu_to_relu_0", "proved")


def test_an_export_onto_a_folder_leaves_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, rules = tmp_path / "some.txt", tmp_path / "some.rules"
    path.write_text(TEXT)
    assert command(path, rules, "--no-guards") == 0
    (tmp_path / "folder.pb").mkdir()
    before = sorted(tmp_path.iterdir())
    assert run(["export-rules", "--to", "taso", str(rules), "-o", str(tmp_path / "folder.pb")]) == 2
    assert "E0903" in capsys.readouterr().err and sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(("file", "options", "library"), [
    ("taso", (), "taso_imported"), ("mine", (), "mine"), ("mine", ("--library", "theirs"), "theirs"),
])  # fmt: skip
def test_the_library_s_name_is_chosen_apart_from_the_file_s(
    tmp_path: Path, file: str, options: tuple[str, ...], library: str
) -> None:
    path, out = tmp_path / "rules.txt", tmp_path / f"{file}.rules"
    path.write_text(TEXT)
    assert command(path, out, "--no-guards", *options) == 0
    rules = load_many(["std", "taso", out])
    assert any(name.startswith(f"{library}.") for name in rules.substitutions)
    assert all(name.startswith(f"{library}.") for name in read_lock(tmp_path / "dslc.lock").verdicts)
