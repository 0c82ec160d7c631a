"""Rules shaped like those of FlexFlow's published files: parallel operators as what they compute, both numberings, hostile files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dslc.cli.main import run
from dslc.errors import DslcError
from dslc.foreign import flexflow, taso
from dslc.foreign.decisions import Outcome
from dslc.foreign.flexflow import AxisOrder, axis_order, undistributed
from dslc.foreign.importer import import_rules, read_rules
from dslc.foreign.rule import ForeignRule, Operator, RuleTensor
from dslc.foreign.translation import translations
from tests.foreign.shaped import IMAGE, KERNEL, RIGHT, W4, W5, X1, X2, X3, at, concat, plain, pool, rule, split
from tests.foreign.writers import flexflow_json, flexflow_protobuf


def parallel(kind: str, dimension: int, x: RuleTensor, degree: int = 2) -> Operator:
    return Operator(kind, (x,), (("parallel_dim", dimension), ("parallel_degree", degree)))


def linear(x: RuleTensor, w: RuleTensor, acti: int = 0) -> Operator:
    return Operator("linear", (x, w), (("acti", acti),))


#: rules of graph_subst_3_v2 (the copies are along dimension 0): what each becomes
OUTER: tuple[tuple[ForeignRule, Outcome], ...] = (
    # the sum of two joined arrays is the sum of two arrays
    (rule([plain("ew_add", X1, X2)], [concat(0, 3, X1, X2), parallel("reduce", 0, at(0))]), "proved"),
    # twice an array
    (
        rule(
            [parallel("replicate", 0, X1), parallel("reduce", 0, at(0)), plain("ew_add", X2, at(1))],
            [plain("ew_add", X1, X2), plain("ew_add", X1, at(0))],
        ),
        "proved",
    ),
    # weights have a row for each output
    (
        rule([linear(X1, W4), linear(X1, W5), concat(2, 3, at(0), at(1))], [concat(1, 3, W4, W5), linear(X1, at(0))]),
        "proved",
    ),
    (rule([parallel("reduce", 1, X1), linear(at(0), W4)], [linear(X1, W4), parallel("reduce", 1, at(0))]), "proved"),
    # each part of the rows meets its own copy of the weights
    (
        rule(
            [parallel("partition", 1, X1), parallel("replicate", 0, W4), linear(at(0), at(1))],
            [linear(X1, W4), parallel("partition", 1, at(0))],
        ),
        "distribution",
    ),
    # blocks of one array against blocks of two
    (
        rule(
            [parallel("reduce", 1, X1), parallel("reduce", 1, X2), concat(1, 3, at(0), at(1))],
            [concat(1, 3, X1, X2), parallel("reduce", 1, at(0))],
        ),
        "rejected",
    ),
    # gathered copies are twice as much
    (
        rule(
            [parallel("replicate", 0, X1), parallel("combine", 0, at(0)), linear(at(1), W4, 2)],
            [linear(X1, W4), plain("relu", at(0))],
        ),
        "rejected",
    ),
    (rule([linear(X1, W4), plain("relu", at(0))], [concat(0, 3, W4, W5), linear(X1, at(0), 2)]), "unbound"),
    (rule([concat(0, 3, W4, W5), linear(at(0), W4)], [concat(0, 3, W4, W5), linear(at(0), W5)]), "impossible"),
    # nothing is left to find
    (
        rule(
            [parallel("partition", 2, X1), parallel("partition", 2, X2)],
            [concat(1, 3, X1, X2), parallel("partition", 2, at(0)), split(1, at(1))],
            (at(0), at(2)),
            (at(1), at(2, 1)),
        ),
        "distribution",
    ),
)

#: rules of graph_subst (dimension 0 is the innermost, copies are the last)
INNER: tuple[tuple[ForeignRule, Outcome], ...] = (
    # the partial sums of a product whose inner axis is cut
    (
        rule(
            [parallel("partition", 0, X1), linear(at(0), W4), parallel("reduce", 2, at(1))],
            [parallel("replicate", 2, X1), linear(at(0), W4), parallel("combine", 0, at(1))],
        ),
        "distribution",
    ),
    # strides and padding that the file leaves open are any, the same on both sides
    (
        rule(
            [plain("ew_add", IMAGE, IMAGE), Operator("conv2d", (at(0), KERNEL), (("acti", 0),))],
            [Operator("conv2d", (IMAGE, KERNEL), (("acti", 0),)), plain("ew_add", at(0), at(0))],
        ),
        "proved",
    ),
    (
        rule(
            [pool(IMAGE, "pool2d_max"), parallel("replicate", 2, at(0))],
            [parallel("replicate", 2, IMAGE), pool(at(0), "pool2d_max")],
        ),
        "proved",
    ),
    # relu of a sum of parts is not the sum of their relus
    (
        rule([parallel("reduce", 0, X1), plain("relu", at(0))], [plain("relu", X1), parallel("reduce", 0, at(0))]),
        "rejected",
    ),
)


@pytest.mark.parametrize(("cases", "order"), [(OUTER, "outer"), (INNER, "inner")])
def test_each_rule_has_the_right_outcome(
    cases: tuple[tuple[ForeignRule, Outcome], ...], order: AxisOrder, tmp_path: Path
) -> None:
    rules = [each for each, _ in cases]
    found = import_rules(rules, "flexflow", tmp_path / "mine.rules", workers=0, guards=False, axes=order)
    assert [each.outcome for each in found.rules] == [outcome for _, outcome in cases]
    for each in found.rules:
        if each.outcome == "rejected":
            assert each.reason or (each.verdict is not None and each.verdict.counterexample is not None)


def test_sides_without_common_shapes_are_shown_at_sizes(tmp_path: Path) -> None:
    found = import_rules([OUTER[6][0]], "flexflow", tmp_path / "mine.rules", workers=0, guards=False, axes="outer")
    reason = "with X1: 2x4x6, X4: 4x10x6 the source gives 4x4x10; the target does not fit there: a size is both 4 and 2"
    assert found.rules[0].reason == reason


def test_how_dimensions_are_counted_is_seen_from_joined_copies() -> None:
    joined = rule(
        [parallel("replicate", 0, X1), parallel("replicate", 0, X2), concat(2, 3, at(0), at(1))],
        [concat(2, 3, X1, X2), parallel("replicate", 0, at(0))],
    )
    copies = rule(
        [parallel("replicate", 0, X1), concat(2, 3, X1, at(0))], [parallel("replicate", 0, X1), concat(2, 3, at(0), X1)]
    )
    assert axis_order([joined]) == "outer"
    assert axis_order([copies]) == "inner"
    first, second = (next(translations(undistributed(joined, order)[0], "r", "")).text for order in ("outer", "inner"))
    assert "replicate(X1, axis=0, degree=2)" in first and "replicate(X1, axis=2, degree=2)" in second


def test_a_reverse_and_renamings_are_proved_once(tmp_path: Path) -> None:
    there = OUTER[0][0]
    back = ForeignRule(
        "", there.target, there.source, tuple(replace(o, source=o.target, target=o.source) for o in there.outputs)
    )
    renamed = rule([plain("ew_add", X2, X3)], [concat(0, 3, X2, X3), parallel("reduce", 0, at(0))])
    found = import_rules([there, back, renamed], "flexflow", tmp_path / "mine.rules", workers=0, axes="outer")
    assert [each.outcome for each in found.rules] == ["proved", "merged", "duplicate"]


def test_protobuf_in_either_numbering() -> None:
    """The first rule of graph_subst_3_v2.pb, and TASO's squeeze, which has the number of FlexFlow's OP_PARTITION."""
    negative = bytes.fromhex("ffffffffffffffffff01")
    tensor = b"\x12\x0d\x08" + negative + b"\x10\x00"
    partition = b"\x08\x1a" + tensor + bytes.fromhex("1a04080f1001") + bytes.fromhex("1a0408101002")
    sides = b"".join(field + bytes([len(partition)]) + partition for field in (b"\x0a", b"\x12"))
    first = sides + bytes.fromhex("1a080800100018002000")
    data = b"\x0a" + bytes([len(first)]) + first
    (found,) = taso.read(data)
    assert found.source == (parallel("partition", 1, X1),)
    assert flexflow_protobuf([found]) == data
    (as_taso,) = taso.read(data, numbering="taso")
    assert as_taso.source == (Operator("squeeze", (X1,), (("axes", 1), ("keep_dims", 2))),)
    squeeze = rule([Operator("squeeze", (X1,), (("axes", 1),))], [plain("relu", X1)])
    assert taso.read(taso.write([squeeze]))[0].source[0].kind == "squeeze"
    assert taso.read(taso.write([squeeze]), numbering="flexflow")[0].source[0].kind == "partition"


def test_both_forms_of_one_rule_set_agree(tmp_path: Path) -> None:
    rules = [each for each, _ in OUTER]
    (tmp_path / "a.pb").write_bytes(flexflow_protobuf(rules))
    (tmp_path / "a.json").write_bytes(flexflow_json(rules))
    binary, named = (read_rules("flexflow", tmp_path / name) for name in ("a.pb", "a.json"))
    assert binary == read_rules("taso", tmp_path / "a.pb")
    assert [replace(each, name="") for each in named] == list(binary)


def test_any_damage_of_a_file_is_one_error_or_rules() -> None:
    for data, read in ((taso.write(RIGHT), taso.read), (flexflow_json([each for each, _ in OUTER]), flexflow.read)):
        for cut in range(0, len(data), max(1, len(data) // 97)):
            flipped = bytearray(data)
            flipped[cut] ^= 1 << (cut % 8)
            for hostile in (data[:cut], bytes(flipped)):
                try:
                    read(hostile, "x")
                except DslcError as failure:
                    assert [each.code for each in failure.diagnostics] == ["E1001"]


def test_a_file_name_that_is_no_name_comes_with_one_that_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_bytes(flexflow_json([OUTER[0][0]]))
    out = tmp_path / "graph.3.rules"
    assert run(["import-rules", "--from", "flexflow", str(tmp_path / "a.json"), "-o", str(out)]) == 2
    assert "graph_3.rules` works" in capsys.readouterr().err.replace("\n", "")


def test_operators_with_too_few_or_too_many_tensors_fit_nothing(tmp_path: Path) -> None:
    """A parallel operator without a tensor, an enlarge without one, a relu of two; a sum that is shared 60 times over."""
    cut = Operator("partition", (), (("parallel_dim", 0), ("parallel_degree", 2)))
    doubled = [plain("ew_add", X1, X1), *(plain("ew_add", at(k), at(k)) for k in range(60))]
    rules = [
        rule([cut, linear(at(0), W4), parallel("reduce", 2, at(1))], [linear(X1, W4)]),
        rule([plain("relu", X1)], [Operator("enlarge", ())]),
        rule([plain("relu", X1, X2)], [plain("relu", X1)]),
        rule([plain("relu", X1), Operator("replicate", (at(0),))], [plain("relu", X1)]),
        rule([*doubled, parallel("partition", 0, at(60))], doubled),
    ]
    found = import_rules(rules, "flexflow", tmp_path / "mine.rules", workers=0, guards=False, axes="inner")
    assert [each.outcome for each in found.rules] == ["unknown", "rejected", "impossible", "impossible", "distribution"]
