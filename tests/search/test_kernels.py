"""`dslc optimize` writes kernels where they are measured to be faster, and the file runs anywhere."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import dslc
from benchmarks import neighbours
from dslc.codegen.host import compiler as compilers
from dslc.codegen.host.compiler import NAMES, BuildReason, NotBuilt
from dslc.search.candidates import export
from dslc.search.generators import scheduler
from dslc.search.runs.endings import Ending
from tests.caches import apart
from tests.tuned import tuned

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.skipif(not any(map(shutil.which, NAMES)), reason="there is no C++ compiler"),
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSLC_CACHE", str(apart(tmp_path / "cache", kernels=True)))
    # no test rests on the best of many kernels, or on how much faster it is
    tuned(monkeypatch, "fuse.autotune", variants=2)
    tuned(monkeypatch, "cost.timing", block=0.01, precise=1.6)


def mish(size: int | str) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Softplus", ["x"], ["s"]), helper.make_node("Tanh", ["s"], ["t"]), helper.make_node("Mul", ["x", "t"], ["y"])
    ]  # fmt: skip
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size, 512]) for name in "xy"]
    graph = helper.make_graph(nodes, "mish", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def optimized(model: onnx.ModelProto, **options: Any) -> dslc.Optimized:
    return dslc.optimize(
        model, budget=40, steps=6, threads=1, only="std.relu_of_relu", derive=False, mutate=False, **options
    )


def test_three_operators_become_one_kernel_that_is_faster() -> None:
    found = optimized(mish("n"), bind={"n": 256})
    assert found.report.ratio is not None and found.report.ratio > 2, found.report
    (node,) = found.model.graph.node
    assert node.domain == "dslc"
    assert [step.rule for step in found.report.steps] == ["kernels"]
    x = np.random.default_rng(0).standard_normal((256, 512)).astype(np.float32)
    (want,) = onnxruntime.InferenceSession(mish("n").SerializeToString()).run(None, {"x": x})
    (plain,) = onnxruntime.InferenceSession(found.model.SerializeToString()).run(None, {"x": x})
    (fast,) = dslc.session(found.model).run(None, {"x": x})
    assert np.array_equal(plain, want)
    assert np.allclose(fast, want, rtol=1e-5, atol=1e-6)
    # other sizes than those that were measured
    (other,) = dslc.session(found.model).run(None, {"x": x[:3]})
    assert np.allclose(other, want[:3], rtol=1e-5, atol=1e-6)


def test_an_operator_of_a_user_s_own_is_its_kernel(tmp_path: Path) -> None:
    """docs/kernels.md's example: nobody has a node for it, its equation is compiled."""
    text = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text("utf-8")
    rules = tmp_path / "manhattan.rules"
    rules.write_text(
        next(block for block in re.findall(r"^```rules\n(.*?)^```$", text, re.M | re.S) if "manhattan" in block),
        "utf-8",
    )
    model = neighbours.model(manhattan=True)
    about: dict[str, Any] = {"timing": False, "threads": 1, "derive": False, "mutate": False}
    found = dslc.optimize(model, rules=rules, bind={"n": 256}, budget=120, steps=12, **about)
    # the nodes as they are make the same loops: the two differ by what was measured
    assert {step.rule for step in found.report.steps} & {"manhattan.without_a_cube", "kernels"}, found.report
    # a view may stay beside the kernel
    assert {node.op_type for node in found.model.graph.node if node.domain != "dslc"} <= {"Unsqueeze"}
    assert "dslc" in {node.domain for node in found.model.graph.node}
    x = np.random.default_rng(0).standard_normal((100, 32)).astype(np.float32)
    (want,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    (plain,) = onnxruntime.InferenceSession(found.model.SerializeToString()).run(None, {"x": x})
    (fast,) = dslc.session(found.model).run(None, {"x": x})
    assert np.allclose(plain, want, rtol=1e-5)
    assert np.allclose(fast, want, rtol=1e-5)


def test_without_kernels_the_runtime_s_own_operators_are_left() -> None:
    found = optimized(mish(64), on="ort_cpu")
    assert all(node.domain != "dslc" for node in found.model.graph.node)


def test_kernels_whose_outputs_differ_are_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "checked", lambda *_: None)
    found = optimized(mish(4096))
    assert found.report.kept_original and Ending[found.report.ending.upper()] is Ending.NOT_EQUAL


def test_no_compiler_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Any:
        raise NotBuilt(BuildReason.NO_COMPILER)

    monkeypatch.setattr(export, "compiler", none)
    assert compilers.NAMES
    found = optimized(mish(64))
    assert found.report.kept_original
    assert found.report.warnings.count(f"no kernels: {BuildReason.NO_COMPILER.value}") == 1
