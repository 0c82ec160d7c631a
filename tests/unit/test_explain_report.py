"""`dslc explain REPORT.json`: which rule came when, what it gained, and what it made possible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dslc.cli.main import run
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, input_value
from dslc.report import Report, Turn
from dslc.search.candidates.candidate import Candidate
from dslc.search.phases.writing import story_of

ENABLING = (
    Turn("std.turned", 3, 0.4, 0.0),
    Turn("std.dearer", 1, 0.5, -0.1),
    Turn("std.merged", 1, 0.1, 0.4),
    Turn("std.idle", 1, 0.1, 0.0),
)


def told(folder: Path, **about: Any) -> list[str]:
    path = folder / "report.json"
    path.write_text(Report("net.onnx", "here", 1.0, **about).to_json())
    return [str(path)]


def test_a_step_that_saves_nothing_is_told_with_the_one_that_it_makes_possible(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    timed = {"before_ms": 0.4, "after_ms": 0.1, "ratio": 4.0, "kept_original": False}
    assert run(["explain", *told(tmp_path, story=ENABLING, notes=("a note",), **timed)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "net.onnx: 0.4 ms -> 0.1 ms, 4x faster",
        "here",
        "  1. std.turned at 3 places: saves nothing, and makes step 3 possible",
        "  2. std.dearer: costs 0.1 ms, and makes step 3 possible",
        "  3. std.merged: saves 0.4 ms, 0.1 ms are left (predicted)",
        "  4. std.idle: saves nothing, and leads to nothing else",
        "note: a note",
    ]


def test_an_original_that_was_kept_has_no_story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", *told(tmp_path, reason="no rule predicts a gain")]) == 0
    assert capsys.readouterr().out == "net.onnx: the original is kept: no rule predicts a gain\nhere\n"


@pytest.mark.parametrize("text", ["{", "[]", "{}", json.dumps({"story": [1], "model": "m"}), "[" * 100_000])
def test_what_is_no_report_has_a_code(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    assert run(["explain", str(path)]) == 1
    assert "E0914" in capsys.readouterr().err
    assert run(["explain", str(tmp_path / "none.json")]) == 2
    assert "E0902" in capsys.readouterr().err


def test_the_story_of_a_candidate_is_its_path() -> None:
    x = input_value("x", TensorType(DType.F32, (2,)))
    graph = Graph((x,), (x,))
    first = Candidate(graph, 3e-3)
    last = Candidate(graph, 1e-3, Candidate(graph, 3e-3, first, "std.a", 2), "std.b", 1)
    assert story_of(last) == (Turn("std.a", 2, 3.0, 0.0), Turn("std.b", 1, 1.0, 2.0))
