"""`dslc show` at the command line."""

from __future__ import annotations

import json

from click.testing import CliRunner

from dslc.cli.show import command
from dslc.errors import DslcError


def test_a_convolution_at_a_given_shape() -> None:
    result = CliRunner().invoke(command, ["conv", "--shape", "X=1,64,56,56", "--shape", "K=64,64,3,3", "pads=1,1,1,1"])
    assert result.exit_code == 0, result.output
    for text in (
        "Y: f32[1, 64, 56, 56]",
        "linear in  X; K",
        "231,211,008",
        "9 (cut i3 at 1, 55; i4 at 1, 55)",
        "Conv, opset 1",
    ):
        assert text in result.output
    assert "\x1b[" not in result.output  # plain where no terminal reads it


def test_json_has_the_same_facts() -> None:
    result = CliRunner().invoke(command, ["add", "--output-format", "json"])
    facts = json.loads(result.output)
    assert facts["linear_in"] == [["A", "B"]] and facts["pointwise"] and facts["bounds"]["status"] == "proved"
    assert {"op": "Add", "since": 7, "until": None, "text": "onnx Add(A, B) since 7"} in facts["onnx"]


def test_wrong_use() -> None:
    assert CliRunner().invoke(command, ["conv", "--shape", "X=a"]).exit_code == 2
    unknown = CliRunner().invoke(command, ["conv", "--shape", "Q=1"]).exception
    assert isinstance(unknown, DslcError) and unknown.exit_code == 2
    assert CliRunner().invoke(command, ["conv", "pads"]).exit_code == 2
