"""Operators that ONNX has no node for at an opset: kernels of their own, and in other words, which need no library."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
import pytest

from dslc.codegen.host.compiler import NAMES
from dslc.search.candidates.candidate import Candidate
from dslc.search.generators import scheduler, standard_nodes
from dslc.search.generators.rules import Rules
from dslc.search.generators.standard_nodes import StandardNodes
from dslc.search.options.settings import Settings
from dslc.search.pipeline import optimize
from tests.tuned import tuned

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.skipif(not any(map(shutil.which, NAMES)), reason="there is no C++ compiler"),
]


def swishes(opset: int, count: int = 2) -> onnx.ModelProto:
    """x relu6(x + 3) / 6, as exporters write it, again and again."""
    steps = "".join(
        f"a{k} = Add(x{k}, three)  c{k} = Clip(a{k}, zero, six)  m{k} = Mul(x{k}, c{k})  d{k} = Div(m{k}, six)  x{k + 1} = Exp(d{k})\n"
        for k in range(count)
    )
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": {opset}]>
    g (float[64,512] x0) => (float[64,512] x{count}) <float three = {{3.0}}, float zero = {{0.0}}, float six = {{6.0}}>
    {{ {steps} }}""")


def test_what_is_a_kernel_of_its_own_is_also_said_in_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "GENERATORS", (Rules(), StandardNodes()))
    # how much faster it is does not matter here
    tuned(monkeypatch, "cost.timing", block=0.01, precise=2.0)
    known: list[Candidate | None] = []
    said = standard_nodes._said

    def kept(*args: object) -> Candidate | None:
        known.append(said(*args))  # type: ignore[arg-type]
        return known[-1]

    monkeypatch.setattr(standard_nodes, "_said", kept)
    model = swishes(11)
    report = optimize(model, Settings(budget=20.0, threads=1, cache=tmp_path)).report
    (asked,) = [one for one in report.asked if one.name == "plain nodes" and one.turns]
    assert asked.done
    found = known[0]
    assert found is not None and found.parent is not None and found.count == 2
    assert {node.op for node in found.graph.nodes() if hasattr(node, "op")} >= {"std.hard_sigmoid", "std.mul"}
    assert any(getattr(node, "op", "") == "std.hard_swish" for node in found.parent.graph.nodes())


def test_what_onnx_has_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "GENERATORS", (Rules(), StandardNodes()))
    report = optimize(swishes(14, 1), Settings(budget=5.0, threads=1, cache=tmp_path)).report
    assert not any(one.turns for one in report.asked if one.name == "plain nodes")
