"""Operators of TASO's schema beyond its Table 1: each is read, and a rule with it proved, rejected or named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dslc.cli.main import run
from dslc.foreign import taso, tensat
from dslc.foreign.counterparts import KNOWN
from dslc.foreign.decisions import Outcome
from dslc.foreign.importer import import_rules
from dslc.foreign.rule import KINDS, ForeignRule, Operator, RuleTensor
from dslc.foreign.shapes import Clash
from dslc.foreign.translation import translations
from tests.foreign.shaped import IMAGE, KERNEL, X1, X2, X3, at, concat, conv, plain, rule, transpose
from tests.foreign.writers import tensat_text

SCALE, SHIFT, MEAN, VARIANCE = (RuleTensor(-k) for k in range(21, 25))
STATISTICS = (SCALE, SHIFT, MEAN, VARIANCE)


def merge(w: RuleTensor, count: int = 2) -> Operator:
    return Operator("merge_gconv", (w,), (("merge_gconv_count", count),))


def along(kind: str, axes: int | str, x: RuleTensor, keep: int | None = None) -> Operator:
    return Operator(kind, (x,), (("axes", axes), *([("keep_dims", keep)] if keep is not None else [])))


#: TASO's hand-written substitutions that its verifier does not see, as rules (substitution.cc: create_merge_group_convs,
#: create_conv_batch)
MERGE_GROUPS = rule([conv(IMAGE, KERNEL)], [merge(KERNEL), conv(IMAGE, at(0))])
MERGE_GROUPS_STRIDED = rule(
    [conv(IMAGE, KERNEL, acti=2, stride=2)], [merge(KERNEL), conv(IMAGE, at(0), acti=2, stride=2)]
)
FOLD_NORM = rule(
    [conv(IMAGE, KERNEL), plain("batchnorm", at(0), *STATISTICS)],
    [
        plain("fuse_conv_batchnorm_alpha_var", KERNEL, SCALE, VARIANCE),
        conv(IMAGE, at(0)),
        plain("fuse_conv_batchnorm_bias", *STATISTICS),
        plain("broadcast_add", at(1), at(2)),
    ],
)


def first(each: ForeignRule) -> str:
    text = next(translations(each, "r", "doc")).text
    return " ".join(line.strip() for line in text.splitlines() if not line.strip().startswith(('"""', "tags")))


def outcomes(rules: list[ForeignRule], folder: Path, guards: bool = False) -> list[Outcome]:
    return [each.outcome for each in import_rules(rules, "taso", folder / "mine.rules", workers=0, guards=guards).rules]


def test_merged_groups_are_wrong_for_more_groups_than_are_merged(tmp_path: Path) -> None:
    """TASO's own substitution puts filters at the channels of other groups where a convolution has 4 groups or more."""
    for each in (MERGE_GROUPS_STRIDED, MERGE_GROUPS):
        general, narrow = list(translations(each, "r", "doc"))[:2]
        assert "X7: T[N, (G, 2, C), H, W], X10: T[(G, 2, F), C, R, S]" in general.text
        assert "X7: T[N, (2, C), H, W], X10: T[(2, F), C, R, S]" in narrow.text
    # the strided one is proved in `test_what_is_wrong_beyond_a_proved_reading_is_said`
    (found,) = import_rules([MERGE_GROUPS], "taso", tmp_path / "mine.rules", workers=0, guards=False).rules
    assert found.outcome == "proved" and found.translation is not None and found.translation.mode == narrow.mode
    assert found.wider is not None and found.wider.status == "refuted" and found.wider.counterexample is not None


def test_a_batch_norm_folds_into_its_convolution(tmp_path: Path) -> None:
    assert "batch_norm(conv(X7, X10), X21, X22, X23, X24, epsilon=e)" in first(FOLD_NORM)
    assert "fold_shift(X21, X22, X23, X24, epsilon=e)" in first(FOLD_NORM)
    unscaled = rule(
        FOLD_NORM.source[:1] + FOLD_NORM.source[1:], [conv(IMAGE, KERNEL), plain("broadcast_add", at(0), SHIFT)]
    )
    only_target = rule([plain("broadcast_add", X1, SHIFT)], [plain("batchnorm", X1, SHIFT, SHIFT, SHIFT, SHIFT)])
    assert "epsilon=1e-5" in first(only_target)
    assert outcomes([FOLD_NORM, unscaled, only_target], tmp_path) == ["proved", "rejected", "rejected"]


RESHAPED: tuple[tuple[ForeignRule, Outcome], ...] = (
    # to any shape: the rest of the rule says which
    (rule([plain("reshape", X1), plain("relu", at(0))], [plain("relu", X1), plain("reshape", at(0))]), "proved"),
    (rule([plain("reshape", X1), plain("reshape", at(0))], [plain("reshape", X1)]), "proved"),
    (rule([plain("reshape", X1), plain("ew_add", at(0), X2)], [plain("reshape", X2), plain("ew_add", X1, at(0)),
                                                               plain("reshape", at(1))]), "proved"),
    # elements change their places
    (rule([transpose(X1), plain("reshape", at(0))], [plain("reshape", X1)]), "rejected"),
    (rule([along("squeeze", 1, X1), plain("relu", at(0))], [plain("relu", X1), along("squeeze", 1, at(0))]), "proved"),
    (rule([along("unsqueeze", 0, X1), along("squeeze", 0, at(0))], [plain("dropout", X1)]), "proved"),
    (rule([along("unsqueeze", 0, X1), along("squeeze", 1, at(0))], [plain("dropout", X1)]), "proved"),  # where axis 0 has size 1
    (rule([along("reduce_sum", 0, X1, 0), plain("ew_add", at(0), at(0))],
          [plain("ew_add", X1, X1), along("reduce_sum", 0, at(0), 0)]), "proved"),
    (rule([along("reduce_max", 1, X1), plain("relu", at(0))], [plain("relu", X1), along("reduce_max", 1, at(0))]), "proved"),
    (rule([along("reduce_sum", 1, X1), plain("relu", at(0))], [plain("relu", X1), along("reduce_sum", 1, at(0))]), "rejected"),
    # padding and cuts are any, the same on both sides
    (rule([plain("pad", X1), plain("relu", at(0))], [plain("relu", X1), plain("pad", at(0))]), "proved"),
    (rule([plain("pad", X1), plain("exp", at(0))], [plain("exp", X1), plain("pad", at(0))]), "rejected"),
    (rule([plain("slice", X1), plain("slice", X2), plain("ew_add", at(0), at(1))],
          [plain("ew_add", X1, X2), plain("slice", at(0))]), "proved"),
    # truth values are no numbers
    (rule([plain("where", X1, X2, X3), plain("relu", at(0))],
          [plain("relu", X2), plain("relu", X3), plain("where", X1, at(0), at(1))]), "proved"),
    (rule([plain("ew_less", X1, X2), plain("where", at(0), X1, X2)], [plain("ew_min", X1, X2)]), "proved"),
    (rule([plain("ew_less", X1, X2), plain("where", at(0), X2, X1)], [plain("ew_min", X1, X2)]), "rejected"),
    (rule([plain("logical_not", X1), plain("relu", at(0))], [plain("logical_not", X1)]), "impossible"),
    (rule([plain("leakyrelu", X1), plain("ew_mul", at(0), at(0))], [plain("leakyrelu", X1), plain("ew_mul", at(0), X1)]), "rejected"),
    (rule([plain("prelu", X1, X2), plain("mul", at(0), X3)], [plain("mul", X1, X3), plain("prelu", at(0), X2)]), "rejected"),
    (rule([plain("relu", X1), plain("prelu", at(0), X2)], [plain("relu", X1)]), "proved"),
)  # fmt: skip


@pytest.mark.parametrize("chosen", range(len(RESHAPED)))
def test_each_rule_has_the_right_outcome(chosen: int, tmp_path: Path) -> None:
    each, outcome = RESHAPED[chosen]
    assert outcomes([each], tmp_path) == [outcome], first(each)


def test_every_number_of_the_schema_has_a_counterpart_or_is_named() -> None:
    assert set(KINDS) - KNOWN == {"input", "weight", "any", "shape", "size", "cast", "resize"}
    numbered = {kind for kind in KNOWN if kind not in KINDS}
    assert numbered == {"replicate", "reduce"}  # FlexFlow's


def test_the_same_operators_in_a_file_of_tensat(tmp_path: Path) -> None:
    """Its `merge` and `reshape`: a shape is numbers, or a name that stands for one shape; the fifth rule fits where ?a is ?b."""
    text = (
        "(conv2d 1 1 0 0 ?x ?w)=>(conv2d 1 1 0 0 ?x (merge ?w 2))\n"
        "(reshape (relu ?x) 2_3)=>(relu (reshape ?x 2_3))\n"
        "(reshape (reshape ?x 3_2) 2_3)=>(reshape ?x 2_3)\n"
        "(reshape (reshape ?x ?a) ?b)=>(reshape ?x ?b)\n"
        "(reshape (reshape ?x ?a) ?b)=>(reshape ?x ?a)\n"
        "(batchnorm ?x ?s ?b ?m ?v)=>(batchnorm ?x ?s ?m ?b ?v)\n"
    )
    rules = tensat.read(text.encode(), pairs=False)
    # the first is one of TASO's, which are proved above
    assert first(rules[0]) == first(MERGE_GROUPS).replace("X7", "x").replace("X10", "w")
    found = import_rules(rules[1:], "tensat", tmp_path / "mine.rules", workers=0, guards=False).rules
    assert [each.outcome for each in found] == ["proved", "proved", "proved", "proved", "rejected"]
    assert tensat_text(rules).decode() == text
    assert taso.read(taso.write(rules[:1])) == (replace(rules[0], names=()),)


@pytest.mark.parametrize(
    ("op", "words"),
    [
        (Operator("squeeze", (X1,)), "axes that the file does not name"),
        (along("squeeze", -1, X1), "along axes -1"),
        (along("squeeze", "0_0", X1), "along axes 0_0"),
        (along("squeeze", "9", X1), "along axes 9"),
        (along("reduce_sum", 0, X1, 7), "keep_dims 7"),
        (along("reduce_argmax", "0_1", X1), "both numbers and positions"),
        (merge(X1, 0), "0 groups"),
        (merge(X1, 1 << 30), "groups"),
        (Operator("merge_gconv", (X1,)), "None groups"),
        (Operator("reshape", (X1,), (("shape", "0_2"),)), "to the shape 0_2"),
        (Operator("reshape", (X1,), (("shape", "9" * 40),)), "to the shape"),
        (Operator("batchnorm", (X1, X1, X1, X1, X1), (("epsilon", 1),)), "parameters are integers"),
        (plain("where", X1, X1, X2), "both"),
        (plain("where", X1, X2), "2 tensors"),
    ],
)
def test_parameters_without_a_meaning_fit_nothing(op: Operator, words: str) -> None:
    with pytest.raises(Clash, match=words):
        list(translations(rule([op], [plain("relu", X1)]), "r", "doc"))


def test_what_is_wrong_beyond_a_proved_reading_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "some.pb", tmp_path / "some.rules"
    path.write_bytes(taso.write([MERGE_GROUPS_STRIDED]))
    arguments = ["import-rules", "--from", "taso", str(path), "-o", str(out), "--jobs", "0", "--no-guards"]
    assert run(arguments) == 0
    assert (
        "conv_to_conv_of_merge_gconv_0: proved, but wrong for kernels or groups that its types leave out"
        in capsys.readouterr().out
    )
    text = out.read_text()
    assert (
        "# conv_to_conv_of_merge_gconv_0, rule 0, holds for the types above; it is wrong for others that it fits\n"
        in text
    )
    assert "# counterexample:" in text
    assert "1 are wrong for kernels or groups that their types leave out" in text
    assert run([*arguments, "--output-format", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["rules"]
    assert found["outcome"] == "proved" and "G = " in found["counterexample"]


def test_a_missing_folder_is_an_error_before_anything_is_proved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "some.pb"
    path.write_bytes(taso.write([MERGE_GROUPS_STRIDED]))
    assert run(["import-rules", "--from", "taso", str(path), "-o", str(tmp_path / "no" / "some.rules")]) == 2
    assert "there is no folder" in capsys.readouterr().err


BIG = (1 << 31) - 1


@pytest.mark.parametrize(
    ("each", "outcome"),
    [
        (rule([conv(IMAGE, KERNEL, stride=BIG), plain("relu", at(0))], [conv(IMAGE, KERNEL, stride=BIG, acti=2)]), "proved"),
        (rule([merge(KERNEL, BIG)], [merge(KERNEL, BIG), plain("dropout", at(0))]), "impossible"),
        (rule([concat(7, 8, X1, X2), plain("relu", at(0))],
              [plain("relu", X1), plain("relu", X2), concat(7, 8, at(0), at(1))]), "proved"),
        (rule([Operator("transpose", (X1,), (("numdim", 8), ("perm", BIG)))], [plain("relu", X1)]), "impossible"),
        (rule([along("squeeze", BIG, X1)], [plain("relu", X1)]), "impossible"),
    ],
)  # fmt: skip
def test_hostile_numbers(each: ForeignRule, outcome: Outcome, tmp_path: Path) -> None:
    assert outcomes([each], tmp_path) == [outcome]
