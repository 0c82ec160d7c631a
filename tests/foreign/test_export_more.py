"""Rules through a .rules file and back: the operators beyond TASO's Table 1, and what has no form there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dslc.foreign import taso
from dslc.foreign.importer import read_rules
from dslc.foreign.rule import Operator
from dslc.search.runs.selection import chosen_rules
from dslc.semantics.library import load_many
from tests.foreign.files import exported, rule_file, translated
from tests.foreign.shaped import IMAGE, KERNEL, W5, X1, X2, at, plain, rule
from tests.foreign.test_counterparts import FOLD_NORM, MERGE_GROUPS_STRIDED, along
from tests.foreign.test_flexflow_rules import linear


def test_a_convolution_of_any_strides_is_flexflows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened = Operator("conv2d", (IMAGE, KERNEL), (("acti", 0),))
    fused = Operator("conv2d", (IMAGE, KERNEL), (("acti", 2),))
    each = replace(rule([opened, plain("relu", at(0))], [fused]), name="flexflow_0")
    mine = tmp_path / "mine.rules"
    translated([each], "flexflow", mine)
    assert exported(mine, tmp_path / "back.pb") == 1
    assert "stride and padding are free variables" in capsys.readouterr().err
    assert not (tmp_path / "back.pb").exists()
    # an optimizer can look for it, with either padding
    assert len(chosen_rules(load_many([mine]), only=["mine.*"])) == 2


def test_copies_have_no_operator_in_taso(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = rule_file(
        tmp_path / "mine.rules",
        ["taso.foreign (dense, replicate)", "taso.operators (relu)"],
        "copies(X: T[D, M, K], W: T[(2, D), N, K]) -> Y {\n"
        "  Y = relu(dense(replicate(X, axis=0, degree=2), W))\n  =>\n"
        '  Y = dense(replicate(X, axis=0, degree=2), W, activation="relu")\n}',
    )
    assert exported(mine, tmp_path / "back.pb") == 1
    assert "TASO has no operator `replicate`" in capsys.readouterr().err


def test_the_operators_beyond_table_1_come_back(tmp_path: Path) -> None:
    rules = [
        MERGE_GROUPS_STRIDED,
        FOLD_NORM,
        rule([plain("reshape", X1), plain("relu", at(0))], [plain("relu", X1), plain("reshape", at(0))]),
        rule([along("squeeze", 1, X1), plain("relu", at(0))], [plain("relu", X1), along("squeeze", 1, at(0))]),
        rule(
            [along("reduce_max", 1, X1, 1), plain("relu", at(0))], [plain("relu", X1), along("reduce_max", 1, at(0), 1)]
        ),
        rule([plain("pad", X1), plain("relu", at(0))], [plain("relu", X1), plain("pad", at(0))]),
        rule([plain("ew_less", X1, X2), plain("where", at(0), X1, X2)], [plain("ew_min", X1, X2)]),
    ]
    mine, out = tmp_path / "mine.rules", tmp_path / "back.pb"
    assert {each.outcome for each in translated(rules, "taso", mine).rules} == {"proved"}
    assert exported(mine, out) == 0
    back = read_rules("taso", out)
    assert list(back) == [replace(each, names=back[k].names) for k, each in enumerate(rules)]


def test_what_the_other_project_would_misuse_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = rule_file(
        tmp_path / "mine.rules",
        ["taso.operators (conv)", "taso.foreign (merge_gconv)"],
        "two_groups(X: T[N, (2, C), H, W], K: T[(2, F), C, R, S]) -> Y {\n  Y = conv(X, K)\n  =>\n"
        "  Y = conv(X, merge_gconv(K, count=2))\n}",
    )
    assert exported(mine, tmp_path / "out.pb") == 0
    assert "warning: two_groups is exported without its types" in capsys.readouterr().err


def test_an_epsilon_of_its_own_has_no_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = rule_file(
        tmp_path / "mine.rules",
        ["taso.operators (relu)", "std.norm as norm"],
        "one(X: T[N, C, H, W], s: T[C]) -> Y {\n  Y = relu(relu(norm.batch_norm(X, s, s, s, s, epsilon=0.5)))\n"
        "  =>\n  Y = relu(norm.batch_norm(X, s, s, s, s, epsilon=0.5))\n}",
    )
    assert exported(mine, tmp_path / "out.pb") == 1
    assert "the format has no epsilon" in capsys.readouterr().err


def test_linear_layers_keep_their_activation(tmp_path: Path) -> None:
    each = replace(rule([linear(X1, W5), plain("relu", at(0))], [linear(X1, W5, 2)]), name="flexflow_0")
    mine, out = tmp_path / "mine.rules", tmp_path / "back.pb"
    translated([each], "flexflow", mine, guards=True)
    assert exported(mine, out) == 0
    assert out.read_bytes() == taso.write([each])


def test_rules_that_are_left_out_are_counted_by_cause(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not one block of errors for each, which nobody reads; `-v` shows them."""
    names = ("neg", "abs", "floor", "reciprocal", "sign")
    rules = "".join(
        f"substitution drop_{name}(X: T[*S]) -> Y {{ Y = {name}(relu(X)) => Y = {name}(relu(X)) }}\n" for name in names
    )
    mine = tmp_path / "mine.rules"
    mine.write_text(
        "dslc 1\nimport taso (relu, ewadd)\nimport std.pointwise (neg, abs, floor, reciprocal, sign)\n" + rules
        + "substitution swap(X: T[*S], Z: T[*S]) -> Y { Y = ewadd(X, Z) => Y = ewadd(Z, X) }\n"
    )  # fmt: skip
    out = tmp_path / "out.pb"
    assert exported(mine, out) == 1 and not out.exists()
    said = capsys.readouterr().err
    assert said.count("error[E1002]: `mine.drop_") == 3 and "nothing was written; --skip writes the others" in said
    assert exported(mine, out, "--skip") == 0
    told = capsys.readouterr()
    assert told.err == "5 of 6 rules cannot be exported (5: TASO has no operator); -v shows each\n"
    assert told.out == f"{out}: 1 rule\n"
    assert exported(mine, out, "--skip", "-v") == 0
    assert capsys.readouterr().err.count("error[E1002]: `mine.drop_") == 5
