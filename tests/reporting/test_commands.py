"""What commands write as pages, and what a run keeps for them."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

from benchmarks.neighbours import model as neighbours
from dslc.cli.main import run
from dslc.cost.clock import Clock
from dslc.cost.confidence_sequence import Rounds, TimedPair
from dslc.prove.verdict import RuleVerdict, Verdict
from dslc.reporting.plots import bars, by_layer, times
from dslc.semantics.library import Rules

MODEL = """<ir_version: 10, opset_import: ["": 17]> g (float[8, 8] x) => (float[8, 8] y) {
  a = Relu(x)  b = Relu(a)  c = Neg(b)  d = Neg(c)  y = Exp(d)
}"""


def test_optimize_writes_a_page_of_what_it_did(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    arguments = [str(tmp_path / "m.onnx"), "--apply", "-q", "-o", str(tmp_path / "out.onnx")]
    assert run(["optimize", *arguments, "--report", str(tmp_path / "r.html")]) == 0
    assert run(["optimize", *arguments, "--report", str(tmp_path / "r.json")]) == 0
    page, data = (tmp_path / "r.html").read_text("utf-8"), json.loads((tmp_path / "r.json").read_text("utf-8"))
    before, after = data["details"]["before"]["nodes"], data["details"]["after"]["nodes"]
    assert len(before) == 5 and len(after) < 5
    changed = [one for one in before if one["changed"]]
    assert changed and all(rule in page for one in changed for rule in one["rules"])
    texts = {step["rule"]: step["text"] for step in data["steps"]}
    assert texts and all(text.startswith("substitution") for text in texts.values())
    assert data["details"]["versions"]["onnx"] == onnx.__version__ and data["details"]["processor"]
    assert [span["phase"] for span in data["timeline"]]


SQUARES = """dslc 1
import std (sub, mul, pow, unsqueeze, reduce_sum)
operator distances(A: T[M, D], B: T[N, D]) -> Y: T[M, N] {
  Y[m, n] = sum[d] (A[m, d] - B[n, d]) ^ 2
  onnx com.microsoft.CDist(A, B) since 1 { metric = "sqeuclidean" }
}
substitution squared(X: T[*S]) -> Y {
  Y = pow(X, 2)
  =>
  Y = mul(X, X)
}
substitution at_once(A: T[M, D], B: T[N, D]) -> Y {
  let S = sub(unsqueeze(A, axes=[1]), unsqueeze(B, axes=[0]))
  Y = reduce_sum(mul(S, S), axes=[2], keepdims=false)
  =>
  Y = distances(A, B)
}
"""


def test_a_node_has_the_rule_that_left_none_of_it(tmp_path: Path) -> None:
    # `squared` replaces Pow alone: the nodes above it go with `at_once`, which takes the product that it made
    onnx.save(neighbours(), tmp_path / "m.onnx")
    (tmp_path / "squares.rules").write_text(SQUARES)
    rules = ["--rules", str(tmp_path / "squares.rules"), "--apply=squares.squared,squares.at_once"]
    out = ["-o", str(tmp_path / "out.onnx"), "--report", str(tmp_path / "r.json")]
    assert run(["optimize", str(tmp_path / "m.onnx"), "--bind", "n=4", "-q", *rules, *out]) == 0
    details = json.loads((tmp_path / "r.json").read_text("utf-8"))["details"]
    colours = {one["name"]: one["rules"][:1] for one in details["before"]["nodes"]}
    assert colours.pop("square") == ["squares.squared"]
    assert colours == {name: ["squares.at_once"] for name in ("a", "b", "difference", "y")}
    assert [one["rules"] for one in details["after"]["nodes"]] == [["squares.at_once"]]


def test_what_is_printed_has_no_details(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    report = ["--report", str(tmp_path / "r.json"), "--output-format", "json"]
    assert run(["optimize", str(tmp_path / "m.onnx"), "--dry-run", "--apply", *report]) == 0
    assert json.loads(capsys.readouterr().out)["details"] is None


def test_diff_writes_a_page(tmp_path: Path) -> None:
    file = str(tmp_path / "a.html")
    calls = [
        "conv(X: f32[1, 2, 9, 9], K: f32[2, 2, 3, 3], pads=[1, 1, 1, 1])",
        "conv(X, K, pads=[2, 2, 2, 2], dilation=[2, 2])",
    ]
    assert run(["diff", *calls, "--html", file]) == 0
    assert "Y differs everywhere" in Path(file).read_text("utf-8")


def test_derive_writes_a_page(tmp_path: Path) -> None:
    file = tmp_path / "a.html"
    assert (
        run(["derive", "matmul(A: f32[6, 8], B: f32[8, 4])", "--budget", "4", "--max-states", "6", "--html", str(file)])
        == 0
    )
    text = file.read_text("utf-8")
    assert re.search(r"\d+ programs? for this call", text) and "the call itself" in text


def test_a_clock_keeps_its_phases_in_order() -> None:
    moments = iter([0.0, 0.0, 1.0, 3.0, 3.5, 3.5])
    clock = Clock(10.0, lambda: next(moments, 4.0))
    clock.enter("reading")
    clock.enter("searching")
    clock.enter("timing")
    clock.enter("searching")
    assert clock.timeline() == (("reading", 0.0, 1.0), ("searching", 1.0, 3.0), ("timing", 3.0, 3.5))


def test_phases_that_alternate_fast_are_few_slices() -> None:
    time = [0.0]
    clock = Clock(10.0, lambda: time[0])
    for k in range(5000):
        clock.enter("measuring" if k % 2 else "searching")
        time[0] += 0.0004 if k % 2 else 0.0016
    found = clock.timeline(100)
    assert len(found) <= 100 and found[0][1] == 0.0 and found[-1][2] == pytest.approx(time[0])
    assert all(end == begin for (_, _, end), (_, begin, _) in pairwise(found))
    assert {name for name, _, _ in found} == {"searching"}


def test_rounds_give_every_pair() -> None:
    rounds = Rounds()
    rounds.begin()
    rounds.add({0: [2.0], 1: [1.0]})
    rounds.add({1: [1.5], 0: [3.0], 2: [9.0]})
    rounds.begin()
    rounds.add({2: [1.0], 0: [4.0]})
    assert rounds.pairs(1) == (TimedPair(2.0, 1.0, 0, True), TimedPair(3.0, 1.5, 0, False))
    assert rounds.pairs(2) == (TimedPair(3.0, 9.0, 0, True), TimedPair(4.0, 1.0, 1, False))
    assert rounds.timing(1).pairs == rounds.pairs(1)


def test_layers_are_taken_apart_where_time_goes() -> None:
    names = [f"/layer{k // 4}/conv{k % 4}/Conv" for k in range(16)]
    timed: list[dict[str, Any]] = [
        {"name": one, "operator": "Conv", "milliseconds": 9.0 if "layer1" in one else 1.0} for one in names
    ]
    before, after = by_layer(timed, timed[:4])
    assert sum(before.values()) == sum(one["milliseconds"] for one in timed)
    assert "layer1/conv0" in before and set(after) <= set(before)
    assert [one.label for one in bars(before, after, 2)][-1] == f"{len(before) - 2} others"
    assert times({"pairs": []}) is None


def test_definitions_and_verdicts_show_themselves(std: Rules) -> None:
    assert "relu" in std.operators["std.relu"]._repr_html_()
    rule = next(iter(std.substitutions.values()))
    assert rule.syntax.name in rule._repr_html_()
    assert "substitutions" in std._repr_html_()
    shown = RuleVerdict("a.<b>", "proved", (Verdict("exact", "equal"),), "")._repr_html_()
    assert "a.&lt;b&gt;: proved" in shown and "every shape" in shown
