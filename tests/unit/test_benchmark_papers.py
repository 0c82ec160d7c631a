"""The papers' tables on one harness: rows have names, what fails is said in its cell, and what is known is not measured again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest

from benchmarks import harness, papers
from benchmarks.harness import ARMS, ONE_OPERATOR, Subject, kinds, knows, subject

REPORT: dict[str, Any] = {
    "before_ms": 2.0, "ratio": 1.5, "ratio_low": 1.4, "ratio_high": 1.6, "without_library": None, "seconds": 3.0, "reason": "",
    "kept_original": False, "asked": [{"name": "mutants", "seconds": 1.25}, {"name": "mutants", "seconds": 1.0}],
    "steps": [
        {"rule": "std.winograd(tile=4) of mutant by std.conv, 6.0% computed again"}, {"rule": "kernels"}, {"rule": "std.add_of_neg"},
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSLC_CACHE", str(tmp_path))


def test_every_table_names_models_and_arms_that_there_are() -> None:
    for own in papers.TABLES.values():
        for table in own.values():
            assert table.arms and all(
                knows(name, "seed") or name in ONE_OPERATOR for name in table.models if name != "resnet3d_18"
            )
    assert knows("infogan", "batch") and not knows("bert", "batch") and not knows("nothing", "batch")


@pytest.mark.parametrize("name", ONE_OPERATOR)
def test_models_of_one_operator_are_valid(name: str) -> None:
    with subject(name) as found:
        onnx.checker.check_model(onnx.load(found.path), full_check=True)


def test_files_have_no_options() -> None:
    with pytest.raises(TypeError, match="mish 100000 is a file, and has no batch"), subject("mish 100000", batch=2):
        pass


def test_kinds_of_steps() -> None:
    assert kinds(REPORT) == ["mutant corrected", "kernels", "rules"]
    assert kinds({"steps": [{"rule": "einnet.pair_batching as one kernel"}]}) == ["derivation"]


def test_a_table_is_measured_once_and_what_fails_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, tuple[str, ...]]] = []

    def optimized(
        of: Subject, budget: float, isa: str, threads: int | None, options: Sequence[str] = ()
    ) -> dict[str, Any]:
        asked.append((of.name, tuple(options)))
        if "--no-mutate" in options:
            raise RuntimeError("no time\nat all")
        return REPORT

    monkeypatch.setattr(papers, "optimized", optimized)
    line = ["pet", "operators", "--models", "stride-2 128x28", "--arms", "no-mutate", "all"]
    assert papers.main(line) == 1
    row = "| stride-2 128x28 | own | 2 | RuntimeError: no time | 1.50 [1.40, 1.60] mutant corrected, kernels, rules |"
    assert capsys.readouterr().out.splitlines()[-1] == row
    assert asked == [("stride-2 128x28", (*ARMS["no-mutate"], "--seed", "0")), ("stride-2 128x28", ("--seed", "0"))]
    papers.main(line)
    assert len(asked) == 3, "what failed is tried again, and nothing else"
    papers.main([*line, "--print"])
    assert len(asked) == 3 and "| - | 1.50" in capsys.readouterr().out


def test_a_table_that_there_is_not_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        papers.main(["pet", "nothing"])
    assert "pet has no table 'nothing'; there are: networks, operators, depth" in capsys.readouterr().err
    assert harness.ARMS["all"] == ()
