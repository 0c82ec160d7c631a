"""`dslc doctor`: what it finds here, and what it advises about."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from dslc.cli import doctor
from dslc.cli.main import run
from dslc.codegen.host import compiler
from dslc.semantics.installed import BUILTIN


def advised(cache: Path) -> list[str]:
    return [f"{one.do}: {one.why}" for one in doctor.advice(cache)]


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two processors, nothing else running, a compiler and no device."""
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr("dslc.cost.machine.allowed_cpus", lambda: {0, 1})
    monkeypatch.setattr(compiler, "compiler", lambda: SimpleNamespace(command=("c++",), version="1"))
    monkeypatch.setattr(doctor, "devices", list)
    monkeypatch.setattr(doctor, "_outdated", lambda: iter(()))


def test_nothing_is_advised_where_all_is_well(idle: None, tmp_path: Path) -> None:
    assert advised(tmp_path / "cache") == []


def test_no_compiler(idle: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise compiler.NotBuilt(next(iter(compiler.BuildReason)))

    monkeypatch.setattr(compiler, "compiler", missing)
    assert [one.partition(" (")[0] for one in advised(tmp_path)] == ["install a C++ compiler"]


def test_a_cache_that_cannot_be_written(idle: None, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (found,) = advised(tmp_path / "file" / "cache")
    assert found.startswith("set DSLC_CACHE") and str(tmp_path) in found


def test_few_and_busy_processors(idle: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dslc.cost.machine.allowed_cpus", lambda: {0})
    monkeypatch.setattr(os, "getloadavg", lambda: (3.5, 0.0, 0.0))
    one, other = advised(tmp_path)
    assert "second processor" in one and "load 3.5 on 1 processor:" in other


def test_a_device_without_what_runs_plans_on_it(idle: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "devices", lambda: ["A device, 80 GiB"])
    monkeypatch.setattr(doctor, "bindings", list)
    assert "pip install 'dslc[cuda]'" in advised(tmp_path)[0]
    assert ("GPU", "A device, 80 GiB", True) in doctor.facts(tmp_path)


def test_packages_that_are_older_than_dslc_asks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs = ["onnx>=99", "numpy>=1", "no-such-package>=1", "torch>=1; extra == 'other'"]
    monkeypatch.setattr(metadata, "requires", lambda name: needs)
    old, absent = doctor._outdated()
    assert old.do == "pip install 'onnx>=99'" and metadata.version("onnx") in old.why
    assert (absent.do, absent.why) == ("pip install 'no-such-package>=1'", "it is not installed")


def test_devices_are_those_that_the_driver_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA H100, 81559 MiB, 550.1'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.devices() == ["NVIDIA H100, 81559 MiB, 550.1"]
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert doctor.devices() == []
    tool.unlink()
    assert doctor.devices() == []


def test_libraries_are_listed_and_a_broken_one_is_not_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "a.rules").write_text("dslc 1\noperator (((\n")
    monkeypatch.setenv("DSLC_PATH", str(tmp_path))
    shown = [(text, fine) for name, text, fine in doctor.facts(tmp_path / "cache") if name == "library"]
    found = {text.partition(" ")[0].rstrip(":"): fine for text, fine in shown}
    assert found == {**dict.fromkeys(BUILTIN, True), "broken": False}


def test_optimize_says_first_that_the_machine_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (99.5, 0.0, 0.0))
    missing = str(tmp_path / "missing.onnx")
    assert run(["optimize", missing, "--dry-run"]) == 2
    first, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith("warning: load 99.5 on ") and first.endswith("run it again when less is running")
    assert run(["optimize", missing, "--dry-run", "--quiet"]) == 2
    assert "load" not in capsys.readouterr().err
