"""`dslc show` at the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dslc.api.operators import bounds_text
from dslc.cli.show import command
from dslc.errors import DslcError


def test_a_convolution_at_a_given_shape() -> None:
    result = CliRunner().invoke(command, ["conv", "--shape", "X=1,64,56,56", "--shape", "K=64,64,3,3", "pads=1,1,1,1"])
    assert result.exit_code == 0, result.output
    for text in (
        "Y: f32[1, 64, 56, 56]",
        "linear in  X; K",
        "231,211,008",
        "9 (cut o0 at 1, 55; o1 at 1, 55)",
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


NAMED = """dslc 1
import std (matmul, softmax)

operator gqa(Q: T[B, H, D], K: T[B, G, S, D], V: T[B, S, D]) -> Y: T[B, H, D] {
  attr scale: float = 1 / sqrt(D)
  where H % G == 0, floating(T)
  let R = H // G
  let score[b: B, g: G, r: R, s: S] = scale * (sum[d: D] Q[b, g * R + r, d] * K[b, g, s, d]) + 0.1
  let top[b: B, h: H] = max[s: S] score[b, h // R, h % R, s]
  Y[b, h, d] = top[b, h] * V[b, 0, d] / sqrt(D)
}
operator rows(i0: T[N]) -> Y: T[N] {
  let t0[r0: N] = 3 * i0[r0 // 2 * 2 + r0 % 2]
  Y[r0] = 1 - i0[r0] - (sum[i1: N] t0[i1])
}
operator windowed(X: T[N]) -> Y: T[O] {
  attr size: int[1] = 3
  let O = N - size[0] + 1
  Y[n] = sum[*tap: size] X[*([n] + tap)]
}
operator attended(X: T[M, N]) -> Y: T[M, N] { Y = softmax(X, axis=-1) }
"""


def shown(tmp_path: Path, *arguments: str) -> str:
    (tmp_path / "named.rules").write_text(NAMED)
    libraries = ("--rules", str(tmp_path / "named.rules"), "--rules", "std")
    result = CliRunner().invoke(command, [*arguments, *libraries], catch_exceptions=False)
    return result.output


def test_names_and_numbers_of_the_text_are_kept(tmp_path: Path) -> None:
    text = shown(tmp_path, "gqa", "--shape", "Q=2,4,3", "--shape", "K=2,2,5,3", "--shape", "V=2,5,3")
    for line in (
        "score[b: 2, g: 2, r: 2, s: 5] = scale * (sum[d: 3] (Q[b, 2 * g + r, d] * K[b, g, s, d])) + 0.1",
        "top[b: 2, h: 4] = max[s: 5] score[b, h // 2, h % 2, s]",
        "Y[b: 2, h: 4, d: 3] = (top[b, h] * V[b, 0, d]) / sqrt(D)",
        "sizes      B = 2, H = 4, D = 3, G = 2, S = 5",
        "V[0 to 1, 0, 0 to 2]",
    ):
        assert line in text, text


def test_iterators_of_merged_dimensions_and_windows_have_their_names_too(tmp_path: Path) -> None:
    assert "Y[n: 4] = sum[tap: 3] X[n + tap]" in shown(tmp_path, "windowed", "--shape", "X=6")
    assert "Y[n: 2, (g: 1, f: 5), o: 1] = sum[c: 4, r: 5] (X[n, 4 * g + c, o + r, other=0] *" in shown(tmp_path, "conv")


def test_a_name_may_be_any_and_indices_are_short(tmp_path: Path) -> None:
    text = shown(tmp_path, "rows", "--shape", "i0=4")
    assert "t0[r0: 4] = 3 * i0[r0]" in text and "Y[r0: 4] = 1 - i0[r0] - (sum[i1: 4] t0[i1])" in text, text


def test_what_an_operator_inside_computes_runs_along_the_same_dimensions(tmp_path: Path) -> None:
    text = shown(tmp_path, "attended", "--shape", "X=2,3")
    assert (
        "part[m: 2] = max[n: 3] X[m, n]" in text and "Y[m: 2, n: 3] = part_2[m, n] / (sum[i: 3] part_2[m, i])" in text
    )


@pytest.mark.parametrize(
    ("proved", "bounded", "assumed", "text"),
    [
        (0, 0, 0, "nothing to prove"),
        (1, 0, 0, "proved (1 read for all sizes)"),
        (0, 2, 1, "proved (2 reads at sampled attributes, 1 read at positions that are data: assumed)"),
    ],
)
def test_bounds_in_words(proved: int, bounded: int, assumed: int, text: str) -> None:
    assert bounds_text({"status": "proved", "proved": proved, "bounded": bounded, "assumed": assumed}) == text
