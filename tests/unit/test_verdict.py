"""The verdict of a run in three lines: what it says, and that its numbers agree with each other."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dslc
from dslc.cli.main import run
from dslc.cost.confidence_sequence import Rounds
from dslc.report import KERNELS, Counts, Report, Sizes, Step, Without, faster

RULES = (Step("own.once", 2, 0.3, "proved", "exact"), Step("std.pow_two", 1, 0.1, "proved", "exact"))
TIMED: dict[str, Any] = {"before_ms": 1.44, "after_ms": 0.12, "ratio": 12.0, "ratio_low": 9.257, "kept_original": False}


def report(**about: Any) -> Report:
    return Report("net.onnx", "a machine, 2 threads", 1.0, **about)


@pytest.mark.parametrize(("steps", "said"), [
    (RULES, "by 2 rules, both proved"),
    (RULES[:1], "by 1 rule, proved"),
    ((*RULES, Step(KERNELS, 3, 0.1, "proved")), "by 2 rules and 3 kernels, all proved"),
    ((RULES[0], Step("own.b", 1, 0.1, "bounded"), Step("own.c", 1, 0.1, "proved")), "by 3 rules, 2 proved, 1 bounded"),
    ((Step(KERNELS, 1, 0.1, "proved"),), "by 1 kernel, proved"),
])  # fmt: skip
def test_the_first_line_is_the_verdict(steps: tuple[Step, ...], said: str) -> None:
    found = report(steps=steps, max_rel_error=2.31e-7, **TIMED)
    assert (
        found.summary()
        == f"net.onnx: 1.44 ms -> 0.12 ms, 12x faster (at least 9.25x), {said}; outputs agree to 2.3e-07"
    )


def test_equal_outputs_a_busy_machine_and_a_model_that_was_not_timed() -> None:
    assert report(max_rel_error=0.0, **TIMED).summary().endswith("(at least 9.25x); outputs are the same")
    busy = report(busy="load 8.4 on 2 processors", **TIMED)
    assert busy.summary().endswith("(busy machine: load 8.4 on 2 processors)")
    sizes = {"before": Counts(9, 0, 0), "after": Counts(6, 0, 0)}
    applied = report(
        kept_original=False, reason="rules applied, not timed", steps=RULES[:1], max_rel_error=0.0, **sizes
    )
    assert (
        applied.summary()
        == "net.onnx: 9 -> 6 operators, rules applied, not timed, by 1 rule, proved; outputs are the same"
    )


def test_an_original_that_is_kept_says_why_and_what_it_takes() -> None:
    kept = report(reason="no rewrite is predicted to be faster")
    assert kept.summary() == "net.onnx: the original is kept: no rewrite is predicted to be faster"
    open_ = report(
        reason="the budget ended before timing could decide: 1.66x", before_ms=1.44, busy="load 8.4 on 2 processors"
    )
    assert open_.summary() == (
        "net.onnx (1.44 ms): the original is kept: the budget ended before timing could decide: 1.66x "
        "(busy machine: load 8.4 on 2 processors)"
    )


def test_the_second_line_is_what_it_depends_on() -> None:
    assert report(**TIMED).terms() == "a machine, 2 threads"
    at = (Sizes({"N": 4, "x.0": 2}, 1.0, 0.5, 2.0, 1.5, 3.0),)
    found = report(
        sizes=at, without_library=Without(0.9, 1.1, 0.95, 1.3), timed_at="2026-11-27 08:12", finite_only=True, **TIMED
    )
    assert found.terms().split("; ") == [
        "a machine, 2 threads",
        "at N=4, x.0=2",
        "with its library of kernels, without it 1.1x faster (at least 0.95x)",
        "NaN, infinities and overflows may differ (not with --strict-floats)",
        "timed in an earlier run (2026-11-27 08:12)",
    ]


@given(st.floats(1.0, 1e6), st.floats(0.5, 1.0))
def test_the_least_gain_is_never_rounded_up(ratio: float, part: float) -> None:
    low = ratio * part
    said = float(faster(ratio, low).partition("at least ")[2].removesuffix("x)"))
    assert low - 0.0101 <= said <= low


def test_a_ratio_next_to_one_is_not_called_faster_and_unknown_ends_are_not_said() -> None:
    assert faster(1.004, None) == "1x as fast" and faster(0.5, 0.0) == "0.5x as fast"
    assert faster(2.0, math.inf) == "2x faster"


@given(st.lists(st.tuples(st.floats(1e-4, 1e-2), st.floats(1e-4, 1e-2)), min_size=1, max_size=9))
def test_the_ratio_is_that_of_the_times_beside_it(rounds: list[tuple[float, float]]) -> None:
    """Whatever load came and went: the medians of both models may say the opposite of their pairs."""
    found = Rounds()
    found.begin()
    for before, after in rounds:
        found.add({0: [before], 1: [after]})
    first, second = found.timing(0), found.timing(1)
    assert first.typical / second.typical == pytest.approx(second.ratio.ratio)


def test_a_model_that_never_ran_has_no_time() -> None:
    found = Rounds()
    found.begin()
    found.add({0: [1e-3]})
    assert found.timing(0).typical == 1e-3 and found.timing(1).typical == math.inf


def test_by_default_a_run_prints_the_table_and_three_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [onnx.helper.make_node("Neg", [a], [b]) for a, b in ("xs", "st", "ty")]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 4]) for name in "xy"]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:])
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    command = ["optimize", str(path), "-o", str(out), "--apply"]
    assert run(command) == 0
    *_, verdict, terms, written = capsys.readouterr().out.splitlines()
    assert verdict.startswith(f"{path}: 3 -> 1 operators, rules applied, not timed, by 1 rule, proved")
    assert "thread" in terms and written.startswith(f"written: {out}")
    assert run([*command, "-v"]) == 0
    full = capsys.readouterr().out
    assert "operators 3 -> 1" in full and full.splitlines()[-3:] == [verdict, terms, f"written: {out}"]
    assert dslc.optimize(path, apply=True).report.summary().partition(": ")[2] == verdict.partition(": ")[2]
