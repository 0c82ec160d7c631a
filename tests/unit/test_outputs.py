"""What cannot be written is said before anything else is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import TensorProto, helper, save

from dslc.cli.main import run


def relu(path: Path, shape: list[int | str]) -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    relu(tmp_path / "m.onnx", [2])
    return tmp_path / "m.onnx"


CALLS = (
    "optimize {model} -o {missing}",
    "optimize {model} -o {model}.fast --report {missing}.html",
    "report {model} -o {missing}",
    "bench {model} {model} --html {missing}",
    "derive relu(X:f32[2]) --html {missing}",
    "derive relu(X:f32[2]) -o {missing}",
    "diff relu(X:f32[2]) relu(X) --html {missing}",
    "export-rules taso --to taso -o {missing}",
    "import-rules {model} --from taso -o {missing}.rules",
)


@pytest.mark.parametrize("call", CALLS)
def test_a_folder_that_is_not_there(call: str, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = model.parent / "nowhere" / "out"
    assert run(call.format(model=model, missing=missing).split()) == 2
    said = capsys.readouterr().err
    assert "error[E0903]: there is no folder" in said and "mkdir -p" in said
    assert sorted(one.name for one in model.parent.iterdir()) == ["m.onnx"]


def test_a_page_is_not_written_over_what_is_compared(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = model.read_bytes()
    assert run(["bench", str(model), str(model), "--html", str(model)]) == 2
    assert "E0908" in capsys.readouterr().err and model.read_bytes() == before


WRONG_USE = """
optimize absent.onnx --dry-run | optimize m.onnx --dry-run --bind K=3 | optimize m.onnx --dry-run --rules absent
optimize m.onnx --dry-run --only absent --budget 0 | optimize m.onnx --dry-run --inputs absent.npz --budget 0
optimize m.onnx --dry-run --simulations 4 | optimize m.onnx | report absent.json -o r.html | explain absent.json
check absent | check absent.rules | fmt absent.rules | test absent | test absent.rules | test std -k absent
verify absent | verify std --rule absent | list rules --library absent | list operators --operator absent
show absent | explain absent | explain E9999 | new Bad-Name | new m.onnx/name | export-rules absent --to taso -o o.pb
import-rules absent.txt --from taso -o o.rules | generate absent | generate relu --inputs count | extract absent.json
bench m.onnx absent.onnx | bench m.onnx m.onnx --bind K=3 | build absent.onnx | build m.onnx -o m.onnx
why-not absent m.onnx | why-not pow_two absent.onnx | derive relu(X:f32[2]) --rules absent | doctor --absent
check --watch absent.rules | optimize m.onnx --dry-run --on gpu
mutants m.onnx --node absent | mutants relu(X:f32[2]) --budget 0 | diff absent | lsp --absent | absent
"""


@pytest.mark.parametrize("call", [one.strip() for line in WRONG_USE.strip().splitlines() for one in line.split(" | ")])
def test_what_a_command_line_names_and_is_not_there_is_wrong_use(
    call: str, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One error, exit code 2, and nothing is written; mistakes inside files are findings, and have 1."""
    monkeypatch.chdir(model.parent)
    assert run(call.split()) == 2
    said = capsys.readouterr().err
    assert said.count("error[") + said.count("Error: ") == 1 and "Traceback" not in said
    assert [one.name for one in model.parent.iterdir()] == ["m.onnx"]


def test_a_file_that_is_not_there_is_named_once(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["optimize", "absent.onnx", "--dry-run", "--quiet"]) == 2
    assert capsys.readouterr().err == "error[E0902]: cannot read absent.onnx: No such file or directory\n"


@pytest.mark.parametrize(
    ("shape", "other", "said"),
    [
        ([4, 8], [5, 8], "[4, 8], not [5, 8]"),
        (["N", 8], ["M", 9], "[1, 8], not [?, 9]"),
        ([4, 8], [4], "[4, 8], not [4]"),
        ([4, 8], ["N", 8], ""),
        ([], [], ""),
    ],
)
def test_models_of_other_shapes_are_refused_before_either_runs(
    tmp_path: Path, shape: list[int | str], other: list[int | str], said: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for name, sizes in (("m.onnx", shape), ("other.onnx", other)):
        relu(tmp_path / name, sizes)
    assert run(["bench", "m.onnx", "other.onnx", "--budget", "1s"]) == (1 if said else 0)
    err = capsys.readouterr().err
    assert err.startswith(f"error[E0810]: the input `x` has shape {said}\n --> other.onnx\n") if said else not err
    assert ("both models run on the same inputs, which are those of m.onnx" in err) is bool(said)


def test_a_folder_named_as_a_library_of_dslc_takes_nothing_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "std").mkdir()
    assert run(["test", "std", "-k", "double_neg"]) == 0
    assert run(["new", "std"]) == 2
    assert "there is a library `std` already" in capsys.readouterr().err
    for command in ("check", "fmt", "test"):
        assert run([command, "./std"]) == 2
        assert ".rules" in capsys.readouterr().err
    assert [*(tmp_path / "std").iterdir()] == []
