"""The benchmark of devices, without one: its rows are made, kept and printed by the same code."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import gpu
from benchmarks.gpu import Row, known, line, main, priced
from benchmarks.gpu_cases import Case, attention, cases


def test_a_dry_run_makes_rows_once_and_goes_on_where_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "rows.jsonl"
    wanted = ["--fake", "--budget", "1.5", "--results", str(results), "--row", "dense 512"]
    assert main(wanted) == 0
    (row,) = known(results).values()
    assert row.device == "h100 sm_90 by fake"
    assert row.note == "kept"
    assert row.before is not None and row.after is not None and row.torch is None
    assert row.apart is not None and row.apart < 1e-4
    first = capsys.readouterr().out
    assert "the times say nothing" in first
    # a line that was cut short is made again, one that is there is not
    with results.open("a") as file:
        file.write('{"case": "mi')
    assert main(wanted) == 0
    assert [one for one in capsys.readouterr().out.splitlines() if one.startswith("| dense")] == [
        one for one in first.splitlines() if one.startswith("| dense")
    ]
    assert len(known(results)) == 1


def test_every_model_is_what_onnx_runtime_takes() -> None:
    import numpy as np
    import onnxruntime

    names = [case.label for case in cases()]
    assert len(set(names)) == len(names) >= 18
    for case in cases():
        model, shapes = case.model(fake=True)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        found = session.run(None, {name: np.ones(shape, np.float32) for name, shape in shapes.items()})
        assert all(np.isfinite(one).all() for one in found)


def test_without_a_device_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("pycuda", "pycuda.driver", "cuda", "cuda.core"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["--results", str(tmp_path / "rows")]) == 0
    assert capsys.readouterr().out.startswith("nothing is measured: ")
    assert not (tmp_path / "rows").exists()


def test_networks_have_a_price_and_values_without_a_device(tmp_path: Path) -> None:
    """Both plans by the data sheet, what they consist of, and values by the runtime and by the device that records."""
    row = priced(Case("attention", attention, (2, 6, 4), (2, 6, 4)), "a100", 2.0, tmp_path)
    assert row.device == "a100 by its data sheet" and row.before is None
    assert row.priced_before is not None and row.priced_after is not None and 0 < row.priced_after <= row.priced_before
    assert row.apart is not None and row.apart < 1e-4
    assert " calls" in row.note and "recorded" in row.note and "not recorded" not in row.note


def test_a_row_says_what_failed() -> None:
    done = Row("mish 10", "h100", 3e-6, 2e-6, 4e-6, 3e-6, 1e-6, 1e-7)
    assert line(done) == "| mish 10 | 3.00 | 2.00 | 1.50 | 4.00 | 2.00 | 3.00 -> 1.00 (3.00) | 1.0e-07 |  |"
    assert line(Row("mish 10", "h100", note="no device")).endswith("| - | no device |")
    assert json.loads(json.dumps(vars(done)))["case"] == "mish 10"


def test_packages_come_from_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment beside the machine's own, from files only, then the tests, then the table: one command."""
    commands: list[list[str]] = []

    class Done:
        returncode = 0

    def run(command: list[str], **_: object) -> Done:
        commands.append(command)
        return Done()

    monkeypatch.setattr(gpu.subprocess, "run", run)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--wheels", str(tmp_path), "--device", "h200"])
    assert main(sys.argv[1:]) == 0
    python = str(tmp_path / "environment" / "bin" / "python")
    assert [command[:4] for command in commands[1:]] == [
        *[[python, "-m", "pip", "install"]] * 2, [python, "-m", "pytest", "-q"], [python, "-m", "benchmarks.gpu", "--device"],
    ]  # fmt: skip
    assert all("--no-index" in command for command in commands[1:3])
    # what was installed before may be of the same version, and of another tree
    assert "--force-reinstall" in commands[1] and commands[1][-1] == "dslc"
    commands.clear()
    assert main(["--carry", str(tmp_path / "wheels")]) == 0
    assert commands[0][1:4] == ["-m", "pip", "wheel"]
