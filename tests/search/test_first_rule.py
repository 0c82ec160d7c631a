"""The rule that docs/howto/operator.md teaches, and README's example in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dslc
from benchmarks import neighbours
from benchmarks.blocks import blocks
from benchmarks.modules import totals
from tests.caches import apart
from tests.unit.test_intro import named

ROOT = Path(__file__).parents[2]


def test_the_first_rule_makes_one_node_of_a_nearest_neighbour_model(tmp_path: Path) -> None:
    rules = tmp_path / "distances.rules"
    rules.write_text(named(ROOT / "docs" / "howto" / "operator.md", rules.name), "utf-8")
    # costs are measured: on a busy machine one run may be misled
    for attempt in range(3):
        result = dslc.optimize(
            neighbours.model(),
            rules=rules,
            bind={"n": 256},
            budget=120,
            steps=300,
            timing=False,
            cache=tmp_path / f"cache{attempt}",
            threads=1,
            # the two rules that make one node: what else is predicted to gain depends on how busy the machine is
            only=["distances.at_once", "std.pow_two"],
        )
        if [node.op_type for node in result.model.graph.node] == ["CDist"]:
            break
    assert [node.op_type for node in result.model.graph.node] == ["CDist"], result.report
    assert {step.rule for step in result.report.steps} >= {"distances.at_once"}
    assert not result.report.kept_original
    assert result.report.max_rel_error is not None and result.report.max_rel_error < 1e-5
    # The size stays symbolic.
    assert result.model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"


def test_the_python_example_runs_on_the_model_that_the_shell_example_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = ROOT / "README.md"
    (example,) = (block.text for block in blocks(page) if block.language == "python")
    (tmp_path / "totals.rules").write_text(named(page, "totals.rules"), "utf-8")
    onnx.save(totals(), tmp_path / "totals.onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSLC_CACHE", str(apart(tmp_path / "cache")))
    names: dict[str, Any] = {}
    assert 'budget="20s"' in example
    exec(example.replace('budget="20s"', 'budget="2s"'), names)
    given = {"x": np.ones((256, 512), np.float32), "w": np.ones((512, 1024), np.float32)}
    assert np.array_equal(names["session"].run(None, given)[0], np.full(256, 512 * 1024))
    assert "totals.onnx" in capsys.readouterr().out
