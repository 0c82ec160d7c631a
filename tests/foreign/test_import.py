"""Foreign rules as substitutions: typed, proved, guarded or rejected; and written back."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from dslc.checking.files import check_files
from dslc.foreign import flexflow, taso
from dslc.foreign.counterparts import permutation
from dslc.foreign.flexflow import undistributed
from dslc.foreign.rule import ForeignRule, Operator
from dslc.foreign.shapes import Clash
from dslc.foreign.translation import definition, operators, translations
from dslc.interpret.check_rule import check_substitution
from tests.foreign.files import exported, imported, rule_file, translated
from tests.foreign.shaped import (
    IMAGE,
    KERNEL,
    RIGHT,
    W4,
    W5,
    WRONG,
    X1,
    X2,
    X3,
    at,
    concat,
    conv,
    matmul,
    plain,
    rule,
    split,
)
from tests.foreign.writers import flexflow_json


def first(each: ForeignRule) -> str:
    """The most general reading, without its name, documentation and tags."""
    text = next(translations(each, "r", "doc")).text
    lines = [line.strip() for line in text.splitlines()]
    return " ".join(line for line in lines if not line.startswith(('"""', "tags")))


def test_a_split_cuts_where_the_tensor_was_joined() -> None:
    assert first(RIGHT[1]) == (
        "substitution r(X1: T[M, K], X4: T[K, N], X5: T[K, N2]) -> Y, Z { Y = matmul(X1, X4) Z = matmul(X1, X5) => "
        "Y, Z = split(matmul(X1, concat(X4, X5, axis=1)), axis=1, sizes=[N, N2]) }"
    )


def test_a_nested_split_cuts_at_the_last_join() -> None:
    each = rule(
        [concat(0, 2, X1, X2), concat(0, 2, at(0), X3), split(0, at(1))],
        [concat(0, 2, X1, X2), plain("relu", X3)],
        (at(2), at(0)),
        (at(2, 1), at(1)),
    )
    assert "split(concat(concat(X1, X2, axis=0), X3, axis=0), axis=0, sizes=[P + P2, P3])" in first(each)


def test_a_split_of_an_input_may_cut_anywhere() -> None:
    each = rule([split(1, X1), plain("ew_add", at(0), at(0, 1))], [split(1, X1), plain("ew_add", at(0, 1), at(0))])
    text = first(each)
    assert text.startswith("substitution r(X1: T[A, P + P, *S]) -> Y { A1, A2 = split(X1, axis=1, sizes=[P, P])")


def test_products_have_any_batch_unless_an_axis_is_named() -> None:
    assert "X1: T[*P, M, K]" in first(RIGHT[0])
    assert "X1: T[M, K]" in first(RIGHT[1])


def test_pointwise_rules_have_any_rank() -> None:
    each = rule([plain("ew_add", X1, X2), plain("relu", at(0))], [plain("ew_add", X2, X1), plain("relu", at(0))])
    assert "(X1: T[*S], X2: T[*S])" in first(each)


def test_kernels_and_groups_are_open_where_they_can_be() -> None:
    assert "(X7: T[N, (G, C), H, W], X10: T[(G, F), C, R, S])" in first(RIGHT[5])
    merged = first(RIGHT[6])
    assert "(X7: T[N, C, H, W], X10: T[F, C, R, S], X11: T[F2, C, R, S])" in merged
    assert "axis=1, sizes=[F, F2]" in merged


def test_an_average_is_a_convolution_for_each_channel() -> None:
    text = first(RIGHT[7])
    assert "X7: T[N, G, H, W]" in text and "C_pool(dtype=T, channels=G, kernel=[R, S])" in text


def test_what_the_target_wants_is_a_guard() -> None:
    text = first(RIGHT[9])
    assert "where R <= 3, (3 - R) % 2 == 0, S <= 3, (3 - S) % 2 == 0 =>" in text


def test_strides_paddings_and_activations() -> None:
    each = rule(
        [conv(IMAGE, KERNEL, acti=3, stride=2, pad=1)], [conv(IMAGE, KERNEL, stride=2, pad=1), plain("tanh", at(0))]
    )
    assert 'Y = tanh(conv(X7, X10, stride=[2, 2], padding="valid"))' in first(each)


def test_permutations_in_all_forms() -> None:
    def perm(**parameters: int | str) -> tuple[int, ...]:
        return permutation(Operator("transpose", (X1,), tuple(parameters.items())))

    assert perm(numdim=2, perm=2) == (1, 0)
    assert perm(numdim=3, perm=0 * 9 + 2 * 3 + 1) == (0, 2, 1)
    assert perm(perm="2_0_1") == (2, 0, 1)
    assert perm() == (1, 0)
    for wrong in ({"perm": "0_0"}, {"numdim": 2, "perm": 4}, {"numdim": 2, "perm": 0}, {"perm": "?p"}):
        with pytest.raises(Clash):
            perm(**wrong)


@pytest.mark.parametrize(
    ("each", "words"),
    [
        (rule([matmul(X1, W4), plain("ew_add", at(0), IMAGE), conv(IMAGE, at(1))], [plain("relu", X1)]), "dimensions"),
        (rule([concat(0, 2, X1, X1), plain("ew_add", at(0), X1)], [plain("relu", X1)]), "larger than itself"),
        (rule([plain("relu", X1)], [plain("relu", X2)]), "the source does not"),
        (rule([conv(IMAGE, KERNEL, pad=5)], [plain("relu", IMAGE)]), "padding mode"),
        (rule([concat(2, 2, X1, X2)], [plain("relu", X1)]), "axis 2"),
        (rule([plain("matmul", X1)], [plain("relu", X1)]), "1 tensors"),
    ],
)
def test_rules_that_fit_no_sizes(each: ForeignRule, words: str) -> None:
    with pytest.raises(Clash, match=words):
        list(translations(each, "r", "doc"))


def test_each_reading_of_a_right_rule_holds_on_random_instances() -> None:
    rules = operators()
    for each in RIGHT:
        outcome = check_substitution(rules, definition(rules, next(translations(each, "r", "doc"))), trials=2)
        assert outcome.passed, (each, outcome)


def test_operators_that_distribute_are_left_out_and_counted() -> None:
    partition = Operator("partition", (X1,), (("parallel_dim", 2), ("parallel_degree", 2)))
    combine = Operator("combine", (at(2),), (("parallel_dim", 2), ("parallel_degree", 2)))
    plain_rule = rule([plain("ew_add", X1, X2)], [partition, plain("relu", X2), plain("ew_add", at(0), at(1)), combine])
    found, count = undistributed(plain_rule)
    assert (count, found.target) == (2, (plain("relu", X2), plain("ew_add", X1, at(0))))
    assert undistributed(RIGHT[0]) == (RIGHT[0], 0)


def test_a_flexflow_file(tmp_path: Path) -> None:
    """A rule that only distributes, and a dense layer whose activation moves, between operators that distribute."""
    partition, combine = Operator("partition", (X1,), (("parallel_dim", 2),)), Operator("combine", (at(1),))
    replicate = Operator("replicate", (W4,), (("parallel_dim", 0), ("parallel_degree", 2)))
    dense = Operator("linear", (at(0), W4), (("acti", 0),))
    moved = [replicate, Operator("linear", (X1, at(0)), (("acti", 2),)), combine]
    rules = (
        replace(rule([partition], [Operator("combine", (X1,))]), name="taso_rule_0"),
        replace(rule([partition, dense, plain("relu", at(1))], moved), name="taso_rule_1"),
    )
    data = flexflow.read(flexflow_json(rules))
    assert data == rules
    out = tmp_path / "mine.rules"
    found = translated(data, "flexflow", out)
    assert [(each.name, each.outcome, each.left_out) for each in found.rules] == [
        ("taso_rule_0", "distribution", 2),
        ("taso_rule_1", "proved", 3),
    ]
    text = out.read_text()
    assert "3 operators that distribute tensors are left out" in text
    assert 'Y = relu(dense(X1, X4))\n  =>\n  Y = dense(X1, X4, activation="relu")' in text


def test_no_wrong_rule_enters(tmp_path: Path) -> None:
    """Right rules are proved, wrong ones rejected, and everything else is named."""
    others = (
        RIGHT[0],
        rule([matmul(X2, W5), matmul(at(0), W4)], [matmul(W5, W4), matmul(X2, at(0))]),
        rule([plain("relu", X1)], [plain("relu", X1)]),
        rule([plain("resize", X1, X2), plain("cast", at(0))], [plain("relu", X1)]),
        rule([concat(0, 2, X1, X1), plain("ew_add", at(0), X1)], [plain("relu", X1)]),
    )
    out = tmp_path / "mine.rules"
    found = translated((*WRONG, *others), "taso", out)
    outcomes = [each.outcome for each in found.rules]
    assert outcomes[3:] == ["proved", "duplicate", "same", "unknown", "impossible"]
    assert outcomes[:3] == ["rejected"] * 3
    assert found.unknown == {"resize": 1, "cast": 1}
    assert sum(found.counts().values()) == len(found.rules) == 8
    text = out.read_text()
    assert [each for each in check_files([out]) if each.severity == "error"] == []
    live = re.findall(r"^substitution (\w+)", text, re.M)
    assert live == [each.name for each in found.rules if each.outcome == "proved"]
    for each in found.rules:
        if each.outcome == "rejected":
            assert each.verdict is not None and each.verdict.counterexample is not None
            assert f"# {each.name}, rule {each.number}, rejected" in text and "# counterexample:" in text


def test_taso_to_rules_and_back_byte_for_byte(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = [RIGHT[k] for k in (0, 1, 2, 5, 8, 9, 11)]
    data = taso.write(chosen)
    (tmp_path / "graph.pb").write_bytes(data)
    rules, back = tmp_path / "graph.rules", tmp_path / "back.pb"
    assert imported(tmp_path / "graph.pb", "taso", rules) == 0
    assert f"proved       {len(chosen):>7}" in capsys.readouterr().out
    assert exported(rules, back) == 0
    assert taso.read(back.read_bytes()) == tuple(chosen)
    assert back.read_bytes() == data


def test_report_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "some.txt"
    path.write_text("(matmul ?x ?y)=>(matmul ?y ?x)\n(relu (relu ?x))=>(relu ?x)\n(mystery 3 ?x)=>(relu ?x)\n")
    assert imported(path, "tensat", tmp_path / "some.rules", "--output-format", "json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["unknown_operators"] == {"mystery": 1}
    assert [each["outcome"] for each in report["rules"]] == ["guarded", "proved", "unknown"]
    text = (tmp_path / "some.rules").read_text()
    assert "x: T[" in text and f"where {report['rules'][0]['reason']}" in text


@pytest.mark.parametrize("form", ["taso", "tensat", "flexflow"])
def test_damaged_files_leave_nothing_behind(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "damaged"
    path.write_bytes(taso.write(RIGHT)[:-3] if form == "taso" else b"{]")
    assert imported(path, form, tmp_path / "out.rules") == 1
    assert "E1001" in capsys.readouterr().err
    assert not (tmp_path / "out.rules").exists()


def test_a_rule_that_needs_its_guard_is_not_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "mine.pb"
    path = rule_file(
        tmp_path / "mine.rules",
        ["taso.operators (matmul, relu)"],
        "square(A: T[M, M], B: T[M, M]) -> Y {\n  Y = matmul(A, B)\n  where M == 1\n  =>\n  Y = matmul(B, A)\n}",
        "twice(A: T[*S]) -> Y {\n  Y = relu(relu(A))\n  =>\n  Y = relu(A)\n}",
    )
    assert exported(path, out) == 1
    errors = capsys.readouterr().err
    assert "E1002" in errors and "mine.square" in errors and not out.exists()
    assert exported(path, out, "--skip") == 0
    (found,) = taso.read(out.read_bytes())
    assert list(found.kinds()) == ["relu", "relu", "relu"]


def test_what_the_other_formats_lack_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = rule_file(
        tmp_path / "mine.rules",
        ["taso.operators (conv, relu)", "std.pointwise (abs)"],
        "one(A: T[*S]) -> Y {\n  Y = relu(abs(A))\n  =>\n  Y = abs(A)\n}",
        "two(X: T[N, C, H, W], K: T[F, C, R, S]) -> Y {\n"
        '  Y = relu(conv(X, K, stride=s))\n  =>\n  Y = conv(X, K, stride=s, activation="relu")\n}',
    )
    assert exported(path, tmp_path / "out.pb") == 1
    errors = capsys.readouterr().err
    assert "TASO has no operator `abs`" in errors and "an attribute is not a number" in errors


def test_two_way_rules_are_two_rules_there(tmp_path: Path) -> None:
    out = tmp_path / "out.pb"
    path = rule_file(
        tmp_path / "mine.rules",
        ["taso.operators (transpose, ewadd)"],
        "sums(X1: T[M, N], X2: T[M, N]) -> Y {\n  Y = transpose(ewadd(X1, X2))\n  <=>\n"
        "  Y = ewadd(transpose(X1), transpose(X2))\n}",
    )
    assert exported(path, out) == 0
    forth, back = taso.read(out.read_bytes())
    assert (forth.source, forth.target) == (back.target, back.source)
