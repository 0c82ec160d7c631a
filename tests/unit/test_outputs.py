"""What cannot be written is said before anything else is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import TensorProto, helper, save

from dslc.cli.main import run


@pytest.fixture
def model(tmp_path: Path) -> Path:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


CALLS = (
    "optimize {model} -o {missing}",
    "optimize {model} -o {model}.fast --report {missing}.html",
    "report {model} -o {missing}",
    "bench {model} {model} --html {missing}",
    "derive relu(X:f32[2]) --html {missing}",
    "derive relu(X:f32[2]) -o {missing}",
    "diff relu(X:f32[2]) relu(X) --html {missing}",
)


@pytest.mark.parametrize("call", CALLS)
def test_a_folder_that_is_not_there(call: str, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = model.parent / "nowhere" / "out"
    assert run(call.format(model=model, missing=missing).split()) == 1
    said = capsys.readouterr().err
    assert "error[E0903]: there is no folder" in said and "nothing was done" in said
    assert sorted(one.name for one in model.parent.iterdir()) == ["m.onnx"]


def test_a_page_is_not_written_over_what_is_compared(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = model.read_bytes()
    assert run(["bench", str(model), str(model), "--html", str(model)]) == 1
    assert "E0908" in capsys.readouterr().err and model.read_bytes() == before
