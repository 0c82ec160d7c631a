"""`benchmarks.race` and what it shares with `benchmarks.kernels`: rows that are kept, other runtimes, words for what they cannot do."""

from __future__ import annotations

import argparse
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import peers, race, zoo
from benchmarks.openvino_runner import OpenVino
from benchmarks.rows import Rows, markdown
from dslc.cost.process import ModelFile

OPTIONS = argparse.Namespace(budget=0.0, seconds=0.2, threads=1, cache=None)


def small(name: str, folder: Path) -> race.Racer:
    path = folder / f"{name}.onnx"
    zoo.write(name, path, small=True)
    return race.Racer(name, path, zoo.ENTRIES[name].sizes)


def test_rows_are_kept_by_machine(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    Rows(path, "one").put("a", {"ms": 1.0})
    Rows(path, "other").put("a", {"ms": 2.0})
    assert Rows(path, "one").get("a") == {"ms": 1.0}
    assert Rows(path, "one", fresh=True).get("a") is None
    assert Rows(path, "other").get("b") is None


def test_a_row_that_is_known_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    racer, rows = small("nasrnn_gates", tmp_path), Rows(tmp_path / "rows.json", "here")
    monkeypatch.setattr(peers, "PEERS", {})
    row = race.raced(racer, rows, tmp_path, OPTIONS)
    assert row["ms"] > 0 and Path(row["file"]).exists() and len(race.cells(racer.name, row)) == len(race.HEADER)

    def never(*_: Any) -> Any:
        raise AssertionError("it was known")

    monkeypatch.setattr(race, "optimized", never)
    with monkeypatch.context() as patch:
        patch.setattr(race, "timed", never)
        assert race.raced(racer, rows, tmp_path, OPTIONS) == row
    # a runtime that is installed later: only its column is missing
    monkeypatch.setattr(race, "installed", lambda: ["Late"])
    monkeypatch.setattr(race, "timed", lambda racer, row, options: {**row, "peers": {"Late": 2.0}})
    assert race.raced(racer, rows, tmp_path, OPTIONS)["peers"] == {"Late": 2.0}


def test_a_runtime_that_cannot_run_a_model_is_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`onnx` stands for a package that is installed; ONNX Runtime itself for a runtime that runs everything."""
    runners = {
        "onnx": ("Other", "dslc.cost.worker"),
        "numpy": ("None", "benchmarks.no_such_runner"),
        "no_such_package": ("Far", "x"),
    }
    monkeypatch.setattr(peers, "PEERS", runners)
    racer = small("nasrnn_gates", tmp_path)
    feeds = {name: np.ones((1, 32), np.float32) for name in ("x", "state")}
    timings, found = peers.raced_with_peers([ModelFile(str(racer.path))], feeds, 1, 0.2)
    assert len(timings) == 1 and found["None"] == peers.DIED and "Far" not in found
    assert isinstance(found["Other"], float) and 0.1 < found["Other"] < 10


def test_inputs_live_as_long_as_a_runtime_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenVINO's tensors share the memory of arrays, and its requests do not keep these."""
    read: list[Any] = []
    request = SimpleNamespace(set_tensor=lambda name, tensor: read.append(tensor), infer=lambda: None)
    compiled = SimpleNamespace(create_infer_request=lambda: request)
    core = SimpleNamespace(read_model=lambda model: model, compile_model=lambda *_: compiled)
    fake = SimpleNamespace(Core=lambda: core, Tensor=lambda array, shared_memory: weakref.ref(array))
    monkeypatch.setitem(sys.modules, "openvino", fake)
    runner = OpenVino(b"", 1)
    run = runner.bind({"x": np.ones(4)})
    run()
    assert read[0]() is not None


def test_names_mean_models() -> None:
    assert race.chosen(["infogan", "infogan"]) == ["infogan"]
    assert set(race.GOALS) <= set(race.chosen([])) <= set(zoo.NAMES)
    assert "vit_huge" not in race.chosen(["zoo"]) and "minilm" in race.chosen(["real"])
    with pytest.raises(KeyError, match="no model"):
        race.named("no such model", Path())


def test_a_table_has_a_line_below_its_heading() -> None:
    assert markdown([("a", "b"), ("1", "2")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
