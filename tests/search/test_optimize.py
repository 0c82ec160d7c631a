"""The pipeline on small models: what is found, what is kept, what is written, and what is said."""

from __future__ import annotations

import doctest
import json
import math
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import dslc
from dslc.cli.main import run as command_line
from dslc.cost.cache import CostCache
from dslc.cost.compare import compare, outputs_of
from dslc.cost.process import ModelFile
from dslc.search.runs.endings import Ending
from tests.tuned import tuned

F = TensorProto.FLOAT
ANY = "tested,trusted,undecided"


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, list[Any]],
    outputs: dict[str, list[Any]],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, F, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, F, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32) / np.float32(math.sqrt(shape[-1]))


def powers(rows: int | str = 256, columns: int = 1024) -> onnx.ModelProto:
    """A square root written as a general power, which is over ten times slower on any machine."""
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["s"]),
        helper.make_node("Pow", ["s", "half"], ["p"]),
        helper.make_node("Add", ["p", "x"], ["y"]),
    ]
    return model_of(nodes, {"x": [rows, columns]}, {"y": [rows, columns]}, {"half": np.array(0.5, np.float32)})


def chain(count: int, size: int = 160) -> onnx.ModelProto:
    """Products of weights only on the right: (((x a) b) c), which is cheaper as x (a b c)."""
    names = ["x", *(f"t{k}" for k in range(1, count)), "y"]
    nodes = [helper.make_node("MatMul", [names[k], f"w{k}"], [names[k + 1]]) for k in range(count)]
    weights = {f"w{k}": noise(size, size, seed=k) for k in range(count)}
    return model_of(nodes, {"x": [size, size]}, {"y": [size, size]}, weights)


def equal(a: onnx.ModelProto, b: onnx.ModelProto, feeds: dict[str, np.ndarray], tolerance: float = 1e-4) -> bool:
    first, second = (outputs_of(ModelFile(m.SerializeToString()), [feeds], 1) for m in (a, b))
    return compare(first, second, tolerance).same


@pytest.fixture(autouse=True)
def short_races(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test rests on how exactly a gain is known."""
    tuned(monkeypatch, "cost.timing", block=0.01, precise=1.5)


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of these tests: an operator is measured once, and a run is kept by its model and options."""
    return tmp_path_factory.mktemp("prices")


@pytest.fixture
def quick(prices: Path) -> dict[str, Any]:
    """Options for runs that take a second; rules of every status, since the square root of a power is only tested."""
    return {"allow": ["tested", "trusted", "undecided"], "budget": 30.0, "threads": 1, "cache": prices}


def test_budget_0_rewrites_and_measures_nothing(tmp_path: Path) -> None:
    result = dslc.optimize(chain(3), budget=0, cache=tmp_path / "none")
    assert not (tmp_path / "none").exists()
    assert not result.report.kept_original and result.report.before_ms is None
    assert [node.op_type for node in result.model.graph.node] == ["MatMul"] * 3
    assert equal(chain(3), result.model, {"x": noise(160, 160)})


def test_weights_are_multiplied_now_and_the_gain_is_measured(quick: dict[str, Any]) -> None:
    original = chain(4)
    result = dslc.optimize(original, **quick, only=["std.reassociate_matmul"])
    report = result.report
    assert not report.kept_original, report.reason
    assert len(result.model.graph.node) == 1
    assert report.ratio is not None and report.ratio_low is not None and report.ratio_low > 1 and report.ratio > 1.5
    assert report.predicted_ratio is not None and report.predicted_ratio > 1.5
    assert [step.rule for step in report.steps] == ["std.reassociate_matmul"]
    assert sum(step.count for step in report.steps) >= 2
    assert report.max_rel_error is not None and report.max_rel_error < 1e-4
    assert report.before is not None and report.after is not None
    assert (report.before.operators, report.after.operators) == (4, 1)
    assert (report.before.parameters, report.after.parameters) == (4 * 160 * 160, 160 * 160)
    assert equal(original, result.model, {"x": noise(160, 160, seed=9)})
    metadata = {entry.key: entry.value for entry in result.model.metadata_props}
    assert metadata["dslc.target"] == report.target and "1 thread" in report.target


def test_a_second_run_writes_the_same_bytes_and_measures_nothing(quick: dict[str, Any]) -> None:
    first = dslc.optimize(powers(), **quick)
    second = dslc.optimize(powers(), **quick)
    assert second.model.SerializeToString(deterministic=True) == first.model.SerializeToString(deterministic=True)
    assert second.report.measured == 0
    assert second.report.steps_done == first.report.steps_done
    assert second.report.before_ms == first.report.before_ms


def test_a_run_goes_on_from_where_the_clock_had_cut_an_earlier_one_short(quick: dict[str, Any], tmp_path: Path) -> None:
    """What an earlier run kept is written as one would have that ended after its first step."""
    quick = {**quick, "cache": tmp_path, "timing": False}
    first = dslc.optimize(powers(), **quick)
    assert first.report.steps_done > 1
    with closing(sqlite3.connect(tmp_path / "costs.sqlite3")) as db:
        ((key, text),) = db.execute("SELECT key, verdict FROM verdicts WHERE key LIKE 'searches:%'").fetchall()
    kept = json.loads(text)
    assert kept["steps"]["rules"][0] == first.report.steps_done and not kept["late"]
    for steps, late, said in (
        ({"rules": [1]}, False, "stopped after step 1,"), ({"rules": [1]}, True, "went on from step 1,"), ({}, False, ""),
    ):  # fmt: skip
        with CostCache(tmp_path) as cache:
            cache.put_verdict(key, {"steps": steps, "late": late})
        again = dslc.optimize(powers(), **quick)
        assert any(note.startswith(said) for note in again.report.notes), again.report.notes
        # one that had nothing to search says nothing of where this one stops
        assert (again.report.steps_done > 1) is (late or not steps)


def test_the_step_count_repeats_a_search(quick: dict[str, Any]) -> None:
    quick = {**quick, "timing": False}
    first = dslc.optimize(powers(), **quick)
    again = dslc.optimize(powers(), **{**quick, "budget": 100.0}, steps=first.report.steps_done)
    assert again.report.steps == first.report.steps
    assert dslc.optimize(powers(), **quick, steps=0).report.kept_original


def test_a_rule_that_is_disabled_is_not_used(quick: dict[str, Any]) -> None:
    quick = {**quick, "timing": False}
    with_it = dslc.optimize(powers(), **quick)
    assert "std.pow_half" in [step.rule for step in with_it.report.steps]
    without = dslc.optimize(powers(), **quick, disable=["pow_half"])
    assert "std.pow_half" not in [step.rule for step in without.report.steps]
    with pytest.raises(dslc.DslcError, match="E0909"):
        dslc.optimize(powers(), **quick, disable=["pow_hal"])
    with pytest.raises(dslc.DslcError, match="E0909"):
        dslc.optimize(powers(), **quick, only=["nothing"])


WRONG = """dslc 1
import std.pointwise (pow)
import std.activation (relu)
substitution lie(X: T[*S]) -> Y {
  Y = pow(X, 1/2)
  =>
  Y = relu(X)
}
"""


def test_a_rule_that_changes_the_outputs_is_named_and_left_out(quick: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "wrong.rules").write_text(WRONG)
    result = dslc.optimize(powers(), **{**quick, "timing": False}, rules=tmp_path / "wrong.rules", disable=["pow_half"])
    assert "wrong.lie" not in [step.rule for step in result.report.steps]
    assert any("wrong.lie was left out" in text and "output y is off" in text for text in result.report.warnings)
    assert equal(powers(), result.model, {"x": noise(256, 1024)})


def test_a_model_that_is_kept_as_rules_were_left_out_says_which(quick: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "wrong.rules").write_text(WRONG)
    report = dslc.optimize(powers(), **quick, rules=tmp_path / "wrong.rules", only=["wrong.lie"]).report
    assert report.kept_original and Ending[report.ending.upper()] is Ending.LEFT_OUT
    assert report.reason.startswith("wrong.lie was left out: with it, output y is off")


def test_a_model_without_gain_is_kept_word_for_word(quick: dict[str, Any]) -> None:
    original = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": [4, 4]}, {"y": [4, 4]})
    result = dslc.optimize(original, **quick)
    assert result.report.kept_original and result.report.ending == "no_gain"
    assert result.model.SerializeToString() == original.SerializeToString()


def test_a_model_that_differs_from_itself_is_kept(quick: dict[str, Any]) -> None:
    nodes = [helper.make_node("RandomNormalLike", ["x"], ["r"]), helper.make_node("Add", ["x", "r"], ["y"])]
    result = dslc.optimize(model_of(nodes, {"x": [64, 64]}, {"y": [64, 64]}), **quick)
    assert result.report.kept_original and result.report.ending == "random"


def test_symbolic_sizes_stay_symbolic_unless_specialized(quick: dict[str, Any]) -> None:
    original = powers("N", 512)
    quick = {**quick, "timing": False}
    result = dslc.optimize(original, **quick, bind={"N": [256, 8]})
    assert not result.report.kept_original
    assert result.model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert equal(original, result.model, {"x": noise(77, 512)})
    special = dslc.optimize(original, **quick, bind={"N": 256}, specialize=True)
    assert special.model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 256
    with pytest.raises(dslc.DslcError, match="no dimension `M`"):
        dslc.optimize(original, **quick, bind={"M": 3})


def test_each_of_several_sizes_is_timed(quick: dict[str, Any]) -> None:
    original = powers("N", 512)
    report = dslc.optimize(original, **quick, bind={"N": [512, 64]}).report
    assert [dict(one.bind) for one in report.sizes] == [{"N": 512}, {"N": 64}]
    assert report.kept_original or all(one.high >= 1 for one in report.sizes)


def test_a_corrupt_cache_is_a_warning_and_no_failure(quick: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "costs.sqlite3").write_bytes(b"rubbish" * 999)
    report = dslc.optimize(powers(), **{**quick, "timing": False, "cache": tmp_path}).report
    assert any("set aside" in text for text in report.warnings)
    assert report.steps


# ---- the command line -------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path, prices: Path) -> tuple[Path, Path, list[str]]:
    source, target = tmp_path / "model.onnx", tmp_path / "fast.onnx"
    onnx.save(powers(), source)
    return (
        source,
        target,
        ["--allow", ANY, "--budget", "60s", "--threads", "1", "--cache", str(prices), "--no-timing"],
    )


def test_it_writes_the_model_and_the_report(
    files: tuple[Path, Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    source, target, options = files
    report_file = target.with_suffix(".json")
    assert command_line(["optimize", str(source), "-o", str(target), "--report", str(report_file), *options]) == 0
    out = capsys.readouterr().out
    assert "std.pow_half" in out and "written:" in out
    report = json.loads(report_file.read_text())
    names = "model target seconds before_ms after_ms ratio predicted_ratio max_rel_error kept_original steps"
    assert set(names.split()) <= report.keys()
    assert set(report["steps"][0]) == {"rule", "count", "gain_ms", "status", "validated", "places", "text"}
    assert equal(onnx.load(source), onnx.load(target), {"x": noise(256, 1024)})
    assert not list(source.parent.glob(".*"))


def test_quiet_prints_nothing_and_dry_run_writes_nothing(
    files: tuple[Path, Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    source, _, options = files
    assert command_line(["optimize", str(source), "--dry-run", "-q", *options]) == 0
    assert capsys.readouterr().out == ""
    assert sorted(p.name for p in source.parent.iterdir()) == ["model.onnx"]


def test_it_writes_over_its_input_only_when_told(
    files: tuple[Path, Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    source, _, options = files
    before = source.read_bytes()
    assert command_line(["optimize", str(source), "-o", str(source), *options]) == 2
    assert "E0908" in capsys.readouterr().err
    assert source.read_bytes() == before
    assert command_line(["optimize", str(source), "--in-place", *options]) == 0
    assert source.read_bytes() != before


@pytest.mark.parametrize(
    ("more", "code", "says"),
    [
        ([], 2, "say where to write"),
        (["-o", "out.onnx", "--in-place"], 2, "either"),
        (["-o", "/nowhere/out.onnx"], 2, "E0903"),
        (["-o", "out.onnx", "--bind", "N"], 2, "no NAME=N"),
        (["-o", "out.onnx", "--bind", "N=3"], 2, "no dimension"),
        (["-o", "out.onnx", "--budget", "soon"], 2, "no time"),
        (["-o", "out.onnx", "--disable", "std.nothing"], 2, "E0909"),
        (["-o", "out.onnx", "--rules", "nothing"], 2, "E0203"),
        (["-o", "out.onnx", "--alpha", "0.5"], 2, "alpha"),
        (["-o", "out.onnx", "--inputs", "missing.npz"], 2, "E0902"),
        (["-o", "out.onnx", "--inputs", "missing.npz", "--budget", "0"], 2, "E0902"),
    ],
)
def test_wrong_use_is_one_clear_error_and_nothing_is_written(
    files: tuple[Path, Path, list[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    more: list[str],
    code: int,
    says: str,
) -> None:
    source, _, _ = files
    monkeypatch.chdir(source.parent)
    monkeypatch.setenv("DSLC_CACHE", str(source.parent / "cache"))
    assert command_line(["optimize", str(source), *more]) == code
    err = capsys.readouterr().err
    assert says in err and "Traceback" not in err
    assert not (source.parent / "out.onnx").exists()


def test_given_inputs_are_used_and_checked(
    files: tuple[Path, Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    source, target, options = files
    good, bad = source.parent / "good.npz", source.parent / "bad.npz"
    np.savez(good, x=noise(256, 1024))
    np.savez(bad, x=noise(256, 1000), z=noise(3))
    assert command_line(["optimize", str(source), "-o", str(target), "--inputs", str(good), *options]) == 0
    assert command_line(["optimize", str(source), "-o", str(target), "--inputs", str(bad), *options]) == 1
    err = capsys.readouterr().err
    assert "shape [256, 1000], not [256, 1024]" in err and "no input `z`" in err


def test_interrupting_the_search_writes_the_best_so_far(files: tuple[Path, Path, list[str]]) -> None:
    source, target, _ = files
    onnx.save(chain(6), source)
    options = [
        "--allow",
        ANY,
        "--budget",
        "1000s",
        "--threads",
        "1",
        "--cache",
        str(source.parent / "cache"),
        "--no-timing",
        "-v",
    ]
    command = [sys.executable, "-m", "dslc", "optimize", str(source), "-o", str(target), *options]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "predicted" in line:
                process.send_signal(signal.SIGINT)
                break
        process.communicate(timeout=120)
    # a search that was already over when the signal came is done, not interrupted
    assert process.returncode in (130, 0)
    assert len(onnx.load(target).graph.node) < 6


def test_doctor_and_bench_say_what_they_should(
    files: tuple[Path, Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    source, _, _ = files
    assert command_line(["doctor", "--cache", str(source.parent / "cache")]) == 0
    assert "onnxruntime" in capsys.readouterr().out
    assert command_line(["bench", str(source), str(source), "--budget", "1s", "--threads", "1"]) == 0
    out = capsys.readouterr().out
    assert "both files are the same" in out
    assert "typical" in out and ("95 % interval" in out or "too few pairs for an interval" in out)


def test_bench_says_which_inputs_two_models_do_not_share(
    files: tuple[Path, Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    source, other, _ = files
    renamed = onnx.load(source)
    renamed.graph.input[0].name = "image"
    for node in renamed.graph.node:
        node.input[:] = ["image" if name == "x" else name for name in node.input]
    onnx.save(renamed, other)
    assert command_line(["bench", str(source), str(other)]) == 1
    err = capsys.readouterr().err
    assert "the input `image` is missing" in err and "the model has no input `x`" in err
    assert f"which are those of {source}" in err


def test_examples_of_the_python_interface_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from dslc.api import calls, derivations, differences, models, mutants, operators, rules

    # the mutant of the example is among the first
    tuned(monkeypatch, "api.mutants", searching=0.25)
    modules = (calls, derivations, differences, models, mutants, operators, rules)
    found = [doctest.testmod(module) for module in modules]
    assert sum(one.attempted for one in found) >= 30 and sum(one.failed for one in found) == 0


def test_help_lists_every_option() -> None:
    from dslc.cli.optimize import command

    text = CliRunner().invoke(command, ["--help"]).output
    for option in (
        "--rules",
        "--budget",
        "--alpha",
        "--seed",
        "--tolerance",
        "--bind",
        "--report",
        "--steps",
        "--inputs",
    ):
        assert option in text
