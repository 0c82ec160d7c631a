"""`dslc derive -o FILE.onnx` and `--measure`: programs as models, and what they take here."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner

from dslc.cli.derive import command
from dslc.errors import DslcError

CALL = "conv_transpose(X: f32[1, 4, 5, 5], y0: f32[4, 3, 4, 4], stride=[2, 2], pads=[1, 1, 1, 1])"
OPTIONS = ["--max-states", "300", "--output-format", "json"]


@pytest.mark.parametrize("number", [1, 2])
def test_a_written_program_computes_what_the_call_does_on_any_runtime(tmp_path: Path, number: int) -> None:
    """Its generated operators are functions of the file, which plain ONNX Runtime runs; inputs have the names of the call."""
    file = tmp_path / "derived.onnx"
    done = CliRunner().invoke(
        command, [CALL, *OPTIONS, "-o", str(file), "--program", str(number)], catch_exceptions=False
    )
    assert done.exit_code == 0
    model = onnx.load(file)
    onnx.checker.check_model(model)
    assert [value.name for value in model.graph.input] == ["X", "y0"] and model.functions
    assert "ConvTranspose" not in {node.op_type for node in model.graph.node}
    drawn = np.random.default_rng(0)
    feeds = {
        "X": drawn.standard_normal((1, 4, 5, 5), np.float32),
        "y0": drawn.standard_normal((4, 3, 4, 4), np.float32),
    }
    (got,) = onnxruntime.InferenceSession(file).run(None, feeds)
    node = onnx.helper.make_node("ConvTranspose", ["X", "y0"], ["Y"], strides=[2, 2], pads=[1, 1, 1, 1])
    graph = onnx.helper.make_graph([node], "call", list(model.graph.input), list(model.graph.output))
    plain = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=8)
    (want,) = onnxruntime.InferenceSession(plain.SerializeToString()).run(None, feeds)
    assert np.allclose(got, want, atol=1e-5)


def test_there_is_no_program_of_a_number_beyond_those_that_are_proved(tmp_path: Path) -> None:
    arguments = [CALL, *OPTIONS, "-o", str(tmp_path / "derived.onnx"), "--program", "99"]
    with pytest.raises(DslcError) as raised:
        CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert [problem.code for problem in raised.value.diagnostics] == ["E0909"]
    assert not (tmp_path / "derived.onnx").exists()


def test_measured_programs_are_in_the_order_of_their_times() -> None:
    facts = json.loads(CliRunner().invoke(command, [CALL, *OPTIONS, "--measure"], catch_exceptions=False).output)
    times = [program["measured_ms"] for program in facts["programs"]]
    assert len(times) > 1 and times == sorted(times) and min(times) > 0 < facts["call_ms"]
