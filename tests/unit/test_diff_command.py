"""`dslc diff` at the command line: rules at sizes, calls over common tensors, pictures, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from dslc.cli.main import run
from dslc.reporting.plots import plane, svg, text

DILATED = ["pet.dilated_conv_to_dense", "--shape", "K=3,2,3,3", "--bind", "d=2", "--bind", "p=[2,2,2,2]"]
PADS = "pads=[1, 1, 1, 1]"


def diff(*args: str) -> int:
    return run(["diff", *args])


def test_a_rule_at_given_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert diff(*DILATED, "--shape", "X=1,2,11,13") == 0
    out = capsys.readouterr().out
    assert "d = 2" in out and "30.8 % differs (132 of 429 positions)" in out and "limit of 25.0 %" in out
    assert "[0, 0:3, 0:8, 10:13:2]" in out and "boxes (PET): agree" in out and "proved equal" in out
    picture = [line.strip() for line in out.splitlines() if set(line.strip()) <= {"#", "."}]
    assert picture == ["..........#.#"] * 8 + ["#############", "..........#.#", "#############"]


def test_the_numbers_for_programs_and_a_drawing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plane.svg"
    assert diff(*DILATED, "--shape", "X=1,2,11,13", "--output-format", "json", "--svg", str(file)) == 0
    drawing = ElementTree.fromstring(file.read_text())
    assert len(drawing.findall("{*}rect")) > 4 and drawing.findtext("{*}text") == "Y[0, 0, :, :], 11x13"
    found = json.loads(capsys.readouterr().out)
    assert (
        list(found) == ["format", "share", "boxes", "proved", "agree", "seconds"] and found["proved"] and found["agree"]
    )
    assert found["share"] == 132 / 429 and found["boxes"][0] == {
        "start": [0, 0, 0, 10],
        "stop": [1, 3, 8, 13],
        "step": [1, 1, 1, 2],
    }


def test_one_name_in_both_calls_is_one_tensor(capsys: pytest.CaptureFixture[str]) -> None:
    typed = "X: f32[1, 2, 6, 6], K: f32[2, 2, 3, 3]"
    assert diff(f"conv({typed}, {PADS})", f"conv({typed}, {PADS})", "--output-format", "json") == 0
    assert json.loads(capsys.readouterr().out)["share"] == 0
    # with its type once is enough; and sizes may be given
    assert diff("matmul(A: f32[N, N], B: f32[N, N])", "matmul(B, A)", "--bind", "N=3", "--output-format", "json") == 0
    assert json.loads(capsys.readouterr().out)["share"] == 1


def test_sizes_may_stay_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert diff("relu(neg(X: f32[N, 4]))", "relu(neg(X))") == 0
    assert "Y[N, 4]: equal\n  proved for all sizes and all inputs" in capsys.readouterr().out


def test_operators_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As `dslc derive` takes them: parameters of one name are one tensor."""
    file = tmp_path / "own.rules"
    ends = {"zeros": "X[i, j + 1, other=0]", "turned": "X[i, (j + 1) % M]"}
    text = "".join(
        f"operator {name}(X: f32[N, M]) -> Y: f32[N, M] {{ Y[i, j] = X[i, j] + {end} }}\n" for name, end in ends.items()
    )
    file.write_text("dslc 1\n" + text)
    assert diff(f"{file}::zeros", f"{file}::turned", "--bind", "N=4", "--bind", "M=6", "--output-format", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["share"] == 1 / 6 and found["boxes"] == [{"start": [0, 5], "stop": [4, 6], "step": [1, 1]}]


def test_several_outputs_are_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert diff("split(X: f32[6, 4], sizes=[2, 4])", "split(X, sizes=[2, 4])", "--output-format", "json") == 0
    assert [each["share"] for each in json.loads(capsys.readouterr().out)] == [0, 0]


def test_a_plane_shows_where_the_set_changes() -> None:
    mask = np.zeros((3, 4, 100, 2), dtype=bool)
    mask[:, 1, 60:, :] = True
    shown = plane(mask)
    assert shown.title == "Y[0, :, :, 0], 4x100"
    assert [line.index("+" if "+" in line else "#") for line in text(shown)[1:] if "#" in line] == [36]
    assert plane(np.array(True)).mask.shape == (1, 1) and "<svg" in svg([plane(np.zeros(5, dtype=bool))])


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["relu(X: f32[3, 4])", "relu(X: f32[3, 5])"], ["E0306", "`X` is f32[3, 4] already", "     ^^^^^^^^^^^^"]),
        (["relu(X: f32[3, 4])", "transpose(X, perm=[1, 0])"], ["E0606", "f32[3, 4] and f32[4, 3]", "^^^"]),
        (["relu(X: f32[3, 4])", "relu(X"], ["E0104", "`(` is not closed", "    ^"]),
        (["relu(X: f32[3, 4])", "matmul(X, X)"], ["E0306", "size", "declared as `matmul(A: T["]),
        (["relu(X: f32[3, 4])"], ["E0911", "compared with nothing", "^^^"]),
        (["pet.pear_images"], ["E0909", "did you mean `pet.pair_images`"]),
        (["pet.pair_images", "--shape", "X=4,2,8,8", "--shape", "K=2,3,3,3"], ["E0911", "does not fit", "^^^"]),
        (["pet.pair_images", "--shape", "X=3,2,8,8"], ["E0507", "N % 2 == 0"]),
        ([*DILATED, "--shape", "X=1,2,11,13", "--pieces", "2"], ["E0607", "more than 2", "--pieces N"]),
    ],
)
def test_wrong_use_is_one_clear_error(args: list[str], said: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert diff(*args) != 0
    err = capsys.readouterr().err
    assert err.count("error[") == 1
    for text_ in said:
        assert text_ in err
