"""Models of which a device cannot run everything: the rest runs on the CPU in the middle of the plan, and its copies have a price."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import dslc
from benchmarks.fake_device import FakeDevice
from dslc.cuda import CudaFailure, Reason, Session
from dslc.cuda.plan import HostStep, plan_of, text_of
from dslc.cuda.planning import Wants
from dslc.ir.graph import Graph
from dslc.onnx.metadata import PLAN, metadata
from dslc.semantics.library import standard
from tests.codegen.plan_checks import faults
from tests.codegen.test_cuda_launchers import machine
from tests.tuned import tuned

#: nodes that the language has no words for, between others that it has: a product of integers whose operands are quantized on the way
QUANTIZED = [
    helper.make_node("MatMul", ["x", "A"], ["a"]), helper.make_node("DynamicQuantizeLinear", ["a"], ["q", "scale", "zero"]),
    helper.make_node("Transpose", ["B"], ["b"], perm=[1, 0]), helper.make_node("MatMulInteger", ["q", "b", "zero"], ["i"]),
    helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT), helper.make_node("Mul", ["f", "scale"], ["g"]),
    helper.make_node("Softmax", ["g"], ["y"], axis=-1),
]  # fmt: skip
#: how many of them there are depends on values
CHOSEN = [
    helper.make_node("Relu", ["x"], ["r"]), helper.make_node("NonZero", ["r"], ["n"]),
    helper.make_node("Cast", ["n"], ["f"], to=TensorProto.FLOAT), helper.make_node("Exp", ["f"], ["y"]),
]  # fmt: skip


def model(nodes: list[Any], *dims: Any) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((12, 8)).astype(np.float32), "A"),
        numpy_helper.from_array(rng.integers(-20, 20, (6, 8)).astype(np.int8), "B"),
    ]
    used = {name for node in nodes for name in node.input}
    y = onnx.ValueInfoProto(name="y")
    y.type.tensor_type.elem_type = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "parts",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [y],
        [one for one in weights if one.name in used],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def rows(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((count, 12)).astype(np.float32)


def by_runtime(proto: onnx.ModelProto, x: Any) -> Any:
    return onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]


def test_what_no_device_runs_is_run_by_the_cpu_in_the_middle() -> None:
    proto = model(QUANTIZED, "N", 12)
    for order in (None, 0, 1):
        session = Session(proto, launcher=FakeDevice(standard(), order))
        for count in (5, 3, 5):
            np.testing.assert_allclose(
                session.run(None, {"x": rows(count)})[0], by_runtime(proto, rows(count)), rtol=1e-4, atol=1e-6
            )
    plan = session.runner({"x": rows(40_000)}).plan
    # both nodes, with what is only looked at between them, are one part: nothing goes back to the device in between
    (host,) = (step for step in plan.steps if isinstance(step, HostStep))
    assert host.rule == "ONNX Runtime: DynamicQuantizeLinear + MatMulInteger"
    assert [view.shape for view in host.writes] == [(), (40_000, 6)]
    assert plan_of(text_of(plan)) == plan
    assert faults(plan) == []


def test_the_cpu_goes_on_where_copies_would_take_longer() -> None:
    """Of a few rows everything is computed where the numbers are already; of many only what must be."""
    session = Session(model(QUANTIZED, "N", 12), launcher=FakeDevice(standard()))
    few, many = (session.runner({"x": rows(count)}).plan for count in (3, 40_000))
    assert [type(step) for step in few.steps] == [HostStep]
    assert [type(step) for step in many.steps].count(HostStep) == 1 and len(many.steps) > 2
    assert few.seconds < many.seconds


def test_copies_have_a_price() -> None:
    small, large = (
        next(step.seconds for step in Session(model(QUANTIZED, count, 12), launcher=FakeDevice(standard())).runner({"x": rows(count)})
             .plan.steps if isinstance(step, HostStep))
        for count in (4, 4096)
    )  # fmt: skip
    assert 1e-5 < small < large


def test_a_size_that_depends_on_values_is_refused_where_it_differs() -> None:
    proto = model(CHOSEN, 2, 3)
    x = np.array([[1, -1, 2], [0, 3, -2]], np.float32)
    session = Session(proto, launcher=FakeDevice(standard()))
    np.testing.assert_allclose(session.run(None, {"x": x})[0], by_runtime(proto, x), rtol=1e-5)
    with pytest.raises(CudaFailure) as caught:
        session.run(None, {"x": np.ones((2, 3), np.float32)})
    assert caught.value.reason is Reason.PLAN
    assert "depends on values" in str(caught.value)
    with pytest.warns(UserWarning, match="runs on the CPU"):
        allowed = Session(proto, launcher=FakeDevice(standard()), cpu=True)
        allowed.run(None, {"x": x})
        np.testing.assert_allclose(allowed.run(None, {"x": -x})[0], by_runtime(proto, -x), rtol=1e-5)


def test_a_group_without_a_kernel_is_run_by_the_cpu() -> None:
    """Where nothing can be generated for a node that is known, ONNX Runtime has a kernel for it."""
    proto = model([helper.make_node("Sin", ["x"], ["s"]), helper.make_node("MatMul", ["s", "A"], ["y"])], 5, 12)

    def some(program: Graph) -> Wants | None:
        return None if any("sin" in getattr(node, "op", "") for node in program.nodes()) else Wants()

    session = Session(proto, launcher=FakeDevice(standard()), generable=some)
    np.testing.assert_allclose(session.run(None, {"x": rows(5)})[0], by_runtime(proto, rows(5)), rtol=1e-4, atol=1e-5)
    assert [type(step).__name__ for step in session.runner({"x": rows(5)}).plan.steps] == ["HostStep", "CallStep"]


def test_a_type_that_no_device_has_is_refused_or_left_to_the_cpu() -> None:
    words = helper.make_tensor_value_info("words", TensorProto.STRING, ["N"])
    proto = model([helper.make_node("Relu", ["x"], ["y"])], "N", 12)
    proto.graph.input.append(words)
    proto.graph.output.append(words)
    feeds = {"x": rows(2), "words": np.array(["one", "two"], object)}
    with pytest.raises(CudaFailure) as caught:
        Session(proto, launcher=FakeDevice(standard())).run(None, feeds)
    assert caught.value.reason is Reason.PLAN
    assert "(words)" in str(caught.value)
    with pytest.warns(UserWarning, match="runs on the CPU"):
        found = Session(proto, launcher=FakeDevice(standard()), cpu=True).run(None, feeds)
    assert list(found[1]) == ["one", "two"]


def test_nothing_of_it_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph has no place for the CPU: every run starts its steps again."""
    world = machine(monkeypatch)
    proto = model(QUANTIZED, 5, 12)
    session = Session(proto)
    for seed in range(3):
        x = rows(5, seed)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], by_runtime(proto, x), rtol=1e-4, atol=1e-6)
    assert not any(call.startswith("graph.") for call in world.calls)


def test_the_report_says_what_the_cpu_does(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned(monkeypatch, "cost.measure", longest=0.02, again=0.01, shortest=0.01)
    done = dslc.optimize(
        model(QUANTIZED, "N", 12), on="cuda", device="h200", only=["std.double_neg"], bind={"N": 4}, budget=20, steps=1, cache=tmp_path,
        threads=1,
    )  # fmt: skip
    assert any(note.startswith("CPU host") and "MatMulInteger" in note for note in done.report.notes)
    plan = plan_of(metadata(done.model)[PLAN])
    session = Session(done.model, launcher=FakeDevice(standard(), order=2))
    wanted = by_runtime(model(QUANTIZED, "N", 12), rows(4))
    np.testing.assert_allclose(session.run(None, {"x": rows(4)})[0], wanted, rtol=1e-4, atol=1e-6)
    assert session.notes == []
    assert plan.device == "h200"
