"""Rules through a .rules file and back: FlexFlow's copies and sums, and the operators beyond TASO's Table 1."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dslc.foreign import flexflow, taso, tensat
from dslc.foreign.formats import read_rules
from dslc.foreign.parallel import AxisOrder
from dslc.foreign.rule import ForeignRule, Operator
from dslc.search.runs.selection import chosen_rules
from dslc.semantics.library import load_many
from tests.foreign.files import exported, imported, rule_file, translated
from tests.foreign.shaped import IMAGE, KERNEL, W4, W5, X1, X2, at, concat, plain, pool, rule
from tests.foreign.test_counterparts import FOLD_NORM, MERGE_GROUPS, along
from tests.foreign.test_flexflow_rules import linear, parallel

#: rules that copy and sum, as FlexFlow's files have them
COPIES: dict[AxisOrder, tuple[ForeignRule, ...]] = {
    "outer": (
        rule([plain("ew_add", X1, X2)], [concat(0, 3, X1, X2), parallel("reduce", 0, at(0))]),
        rule([parallel("reduce", 1, X1), linear(at(0), W4)], [linear(X1, W4), parallel("reduce", 1, at(0))]),
        rule(
            [plain("relu", X1), parallel("replicate", 2, at(0))], [parallel("replicate", 2, X1), plain("relu", at(0))]
        ),
    ),
    "inner": (
        rule([pool(IMAGE), parallel("replicate", 3, at(0))], [parallel("replicate", 3, IMAGE), pool(at(0))]),
        rule(
            [plain("relu", X1), parallel("replicate", 2, at(0))], [parallel("replicate", 2, X1), plain("relu", at(0))]
        ),
    ),
}


@pytest.mark.parametrize("suffix", ["json", "pb"])
@pytest.mark.parametrize("order", ["outer", "inner"])
def test_copies_and_sums_come_back_to_flexflow(order: AxisOrder, suffix: str, tmp_path: Path) -> None:
    rules = [replace(each, name=f"flexflow_{k}") for k, each in enumerate(COPIES[order])]
    mine = tmp_path / "mine.rules"
    found = translated(rules, "flexflow", mine, axes=order)
    assert [each.outcome for each in found.rules] == ["proved"] * len(rules)
    out = tmp_path / f"back.{suffix}"
    assert exported(mine, "flexflow", out, "--axes", order) == 0
    assert out.read_bytes() == (flexflow.write(rules) if suffix == "json" else taso.write(rules))
    again = translated(read_rules("flexflow", out), "flexflow", mine, axes=order)
    texts = [
        [each.translation.text.split("\n")[2:] for each in which.rules if each.translation] for which in (found, again)
    ]
    assert texts[0] == texts[1]


def test_a_convolution_of_any_strides_is_flexflows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened = Operator("conv2d", (IMAGE, KERNEL), (("acti", 0),))
    fused = Operator("conv2d", (IMAGE, KERNEL), (("acti", 2),))
    each = replace(rule([opened, plain("relu", at(0))], [fused]), name="flexflow_0")
    mine, out = tmp_path / "mine.rules", tmp_path / "back.json"
    translated([each], "flexflow", mine)
    assert exported(mine, "flexflow", out) == 0
    assert flexflow.read(out.read_bytes()) == (each,)
    assert exported(mine, "taso", tmp_path / "back.pb") == 1
    assert "strides and padding that are any" in capsys.readouterr().err
    assert not (tmp_path / "back.pb").exists()
    # an optimizer can look for it, with either padding
    assert len(chosen_rules(load_many([mine]), only=["mine.*"])) == 2


def test_copies_that_a_product_reads_would_be_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """FlexFlow's own reading of copies along the replica axis in front of a product: each device has one."""
    out = tmp_path / "back.json"
    mine = rule_file(
        tmp_path / "mine.rules",
        ["taso.foreign (dense, replicate)", "taso.operators (relu)"],
        "copies(X: T[D, M, K], W: T[(2, D), N, K]) -> Y {\n"
        "  Y = relu(dense(replicate(X, axis=0, degree=2), W))\n  =>\n"
        '  Y = dense(replicate(X, axis=0, degree=2), W, activation="relu")\n}',
    )
    assert exported(mine, "flexflow", out) == 1
    assert "would be read" in capsys.readouterr().err and not out.exists()
    assert exported(mine, "taso", tmp_path / "back.pb") == 1
    assert "which only FlexFlow has" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["taso", "tensat", "flexflow"])
def test_the_operators_beyond_table_1_come_back(form: str, tmp_path: Path) -> None:
    rules = [
        MERGE_GROUPS,
        FOLD_NORM,
        rule([plain("reshape", X1), plain("relu", at(0))], [plain("relu", X1), plain("reshape", at(0))]),
        rule([along("squeeze", 1, X1), plain("relu", at(0))], [plain("relu", X1), along("squeeze", 1, at(0))]),
        rule(
            [along("reduce_max", 1, X1, 1), plain("relu", at(0))], [plain("relu", X1), along("reduce_max", 1, at(0), 1)]
        ),
        rule([plain("pad", X1), plain("relu", at(0))], [plain("relu", X1), plain("pad", at(0))]),
        rule([plain("ew_less", X1, X2), plain("where", at(0), X1, X2)], [plain("ew_min", X1, X2)]),
    ]
    if form == "tensat":
        text = "(conv2d 1 1 0 0 ?x ?w)=>(conv2d 1 1 0 0 ?x (merge ?w 2))\n(reshape (relu ?x) 2_3)=>(relu (reshape ?x 2_3))\n"
        rules = list(tensat.read(text.encode()))
    mine = tmp_path / "mine.rules"
    assert {each.outcome for each in translated(rules, form, mine).rules} == {"proved"}
    out = tmp_path / f"back.{'json' if form == 'flexflow' else 'pb'}"
    assert exported(mine, form, out) == 0
    back = [replace(each, name="") for each in read_rules(form, out)]
    assert back == [replace(each, names=back[k].names) for k, each in enumerate(rules)]


def test_what_the_other_project_would_misuse_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = rule_file(
        tmp_path / "mine.rules",
        ["taso.operators (conv)", "taso.foreign (merge_gconv)"],
        "two_groups(X: T[N, (2, C), H, W], K: T[(2, F), C, R, S]) -> Y {\n  Y = conv(X, K)\n  =>\n"
        "  Y = conv(X, merge_gconv(K, count=2))\n}",
    )
    assert exported(mine, "taso", tmp_path / "out.pb") == 0
    assert "warning: two_groups: taso's format has no place for its types" in capsys.readouterr().err


def test_a_shape_has_a_name_in_tensat(tmp_path: Path) -> None:
    out = tmp_path / "back.txt"
    mine = rule_file(
        tmp_path / "mine.rules",
        ["taso.operators (relu)", "std.layout as layout"],
        "one(x: T[*S]) -> Y {\n  Y = relu(layout.reshape(x, shape=[*P]))\n  =>\n  Y = layout.reshape(relu(x), shape=[*P])\n}",
    )
    assert exported(mine, "tensat", out) == 0
    assert out.read_text() == "(relu (reshape ?x ?shape_P))=>(reshape (relu ?x) ?shape_P)\n"
    assert imported(out, "tensat", tmp_path / "b.rules") == 0


def test_an_epsilon_of_its_own_has_no_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = rule_file(
        tmp_path / "mine.rules",
        ["taso.operators (relu)", "std.norm as norm"],
        "one(X: T[N, C, H, W], s: T[C]) -> Y {\n  Y = relu(relu(norm.batch_norm(X, s, s, s, s, epsilon=0.5)))\n"
        "  =>\n  Y = relu(norm.batch_norm(X, s, s, s, s, epsilon=0.5))\n}",
    )
    assert exported(mine, "taso", tmp_path / "out.pb") == 1
    assert "an epsilon" in capsys.readouterr().err


def test_linear_layers_keep_their_activation(tmp_path: Path) -> None:
    each = replace(rule([linear(X1, W5), plain("relu", at(0))], [linear(X1, W5, 2)]), name="flexflow_0")
    mine, out = tmp_path / "mine.rules", tmp_path / "back.json"
    translated([each], "flexflow", mine, guards=True)
    assert exported(mine, "flexflow", out) == 0
    assert flexflow.read(out.read_bytes()) == (each,)
