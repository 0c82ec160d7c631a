"""Model files on CUDA devices: `--on cuda`, sessions, what fails and how it is said; and calls against their bindings."""

from __future__ import annotations

import re
import sys
import warnings
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import dslc
from benchmarks.fake_device import FakeDevice
from dslc.codegen.cuda import shim
from dslc.codegen.host.compiler import NotBuilt, compiler
from dslc.cuda import CudaFailure, Reason, Session
from dslc.cuda.code import texts
from dslc.cuda.launch import Code, Tensor
from dslc.cuda.launchers import LoadedModule
from dslc.cuda.plan import plan_of
from dslc.errors import SourceText
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, input_value
from dslc.onnx.metadata import PLAN, metadata, set_metadata
from dslc.semantics.apply import apply
from dslc.semantics.library import standard
from dslc.semantics.vendor import functions, installed, wrong
from dslc.syntax import tree as t
from dslc.syntax.parser import parse


def model() -> onnx.ModelProto:
    """Two products of one input, one with a bias and a relu, and a softmax of what both give."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / 4, name)

    nodes = [
        helper.make_node("MatMul", ["x", "A"], ["a"]), helper.make_node("Add", ["a", "bias"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]), helper.make_node("MatMul", ["x", "B"], ["d"]),
        helper.make_node("Mul", ["c", "d"], ["e"]),
        helper.make_node("Softmax", ["e"], ["y"], axis=-1),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "two", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 8])], [weight("A", 12, 8), weight("B", 12, 8), weight("bias", 8)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def rows(count: int) -> Any:
    return np.random.default_rng(count).standard_normal((count, 12)).astype(np.float32)


def by_runtime(x: Any) -> Any:
    return onnxruntime.InferenceSession(model().SerializeToString()).run(None, {"x": x})[0]


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[onnx.ModelProto, Any]:
    """The model with a plan for an A100, and the report."""
    cache = tmp_path_factory.mktemp("cache")
    done = dslc.optimize(
        model(),
        on="cuda",
        device="a100",
        only=["std.double_neg"],
        bind={"N": 5},
        budget=60,
        steps=2,
        cache=cache,
        threads=1,
        derive=False,
    )
    return done.model, done.report


# ---- dslc optimize --on cuda -------------------------------------------------------------------------------------------


def test_the_file_stays_what_it_was_and_has_a_plan(planned: tuple[onnx.ModelProto, Any]) -> None:
    written, _ = planned
    plan = plan_of(metadata(written)[PLAN])
    assert plan.device == "a100"
    assert [name for name, _ in plan.inputs] == ["x"]
    assert plan.inputs[0][1].shape == (5, 12)
    assert [step.name for step in plan.steps][:2] == ["cublasLtMatmul", "cublasGemmStridedBatchedEx"]
    x = rows(5)
    runs = onnxruntime.InferenceSession(written.SerializeToString()).run(None, {"x": x})[0]
    np.testing.assert_allclose(runs, by_runtime(x), rtol=1e-5)


def test_the_report_says_that_nothing_was_measured(planned: tuple[onnx.ModelProto, Any]) -> None:
    _, report = planned
    assert "nothing measured" in report.target
    assert any("nothing was measured" in note for note in report.notes)
    assert any("cublasLtMatmul (targets.cublaslt_bias_relu" in note for note in report.notes)
    assert report.before_ms is None


# ---- sessions ----------------------------------------------------------------------------------------------------------


def test_a_session_runs_the_plan_at_every_size(planned: tuple[onnx.ModelProto, Any]) -> None:
    device = FakeDevice(standard(), order=1)
    session = Session(planned[0], launcher=device)
    for count in (5, 3, 5):
        x = rows(count)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], by_runtime(x), rtol=1e-4)
    assert session.notes == []
    assert session.device.name == "a100"
    assert [one.name for one in device.recorded][:2] == ["cublasLtMatmul", "cublasGemmStridedBatchedEx"]
    assert len(session.run(["y"], {"x": rows(5)})) == 1


def test_weights_are_on_the_device_once_whatever_sizes_there_are(planned: tuple[onnx.ModelProto, Any]) -> None:
    """Eight plans of one model are kept, not eight times its weights; nothing is left when the session is closed."""
    device = FakeDevice(standard())
    session = Session(planned[0], launcher=device)
    held = []
    for count in (5, 3, 4, 5):
        np.testing.assert_allclose(session.run(None, {"x": rows(count)})[0], by_runtime(rows(count)), rtol=1e-4)
        held.append(set(session._weights.values()))
    assert held[0] == held[-1] and len(held[0]) == 3
    assert all(len(device._blocks[pointer]) in {12 * 8 * 4, 8 * 4} for pointer in held[0])
    session.close()
    assert not device._blocks


def test_the_very_text_of_kernels_gives_the_same(planned: tuple[onnx.ModelProto, Any]) -> None:
    try:
        compiler()
    except NotBuilt as problem:
        pytest.skip(f"no C++ compiler: {problem.reason.value}")
    text = texts(standard())

    def on_the_cpu(found: Any, arrays: Any) -> Any:
        return shim.build([found]).run(found, arrays)

    session = Session(planned[0], launcher=FakeDevice(standard(), kernels=on_the_cpu), texts=text)
    np.testing.assert_allclose(session.run(None, {"x": rows(5)})[0], by_runtime(rows(5)), rtol=1e-4)


def test_launches_have_their_arguments_in_order() -> None:
    X = input_value("h0", TensorType(DType.F32, (4, 6)))
    program = Graph((X,), apply(standard(), "std.softmax", (X,), {"axis": 1}))
    found = texts(standard())(program)
    loaded = LoadedModule(
        Code("k", "rule", program, found), {launch.symbol: launch.symbol for launch in found.launches}
    )
    tensors = [Tensor(at, DType.F32, (4, 6), (6, 1)) for at in (1000, 2000)]
    started = list(loaded.launches(tensors[:1], tensors[1:], [3000 + k for k in range(len(found.scratch))]))
    assert [one[0] for one in started] == [launch.symbol for launch in found.launches]
    assert {address for one in started for address in one[4]} >= {1000, 2000}
    with pytest.raises(CudaFailure) as caught:
        list(loaded.launches([Tensor(1000, DType.F32, (4, 7), (7, 1))], tensors[1:], []))
    assert caught.value.reason is Reason.LAUNCH


def test_wrong_inputs_are_named(planned: tuple[onnx.ModelProto, Any]) -> None:
    session = Session(planned[0], launcher=FakeDevice(standard()))
    for feeds, word in (
        ({}, "x is missing"),
        ({"x": rows(5)[:, :3]}, "is wanted"),
        ({"x": rows(5).astype(np.float64)}, "float64"),
    ):
        with pytest.raises(ValueError, match=word):
            session.run(None, feeds)
    with pytest.raises(ValueError, match="no output z"):
        session.run(["z"], {"x": rows(5)})


@pytest.mark.parametrize("text", ["", "{}", "[" * 9999, '{"version": 1}'])
def test_a_plan_that_is_none_is_not_used(planned: tuple[onnx.ModelProto, Any], text: str) -> None:
    changed = onnx.ModelProto()
    changed.CopyFrom(planned[0])
    set_metadata(changed, PLAN, text)
    session = Session(changed, launcher=FakeDevice(standard()))
    assert [note.partition(":")[0] for note in session.notes] == ["the plan in the file is not used"]
    np.testing.assert_allclose(session.run(None, {"x": rows(5)})[0], by_runtime(rows(5)), rtol=1e-4)


def test_a_plan_that_dslc_would_not_make_is_not_used(planned: tuple[onnx.ModelProto, Any]) -> None:
    changed = onnx.ModelProto()
    changed.CopyFrom(planned[0])
    # another function of the same arguments, which only a stranger would have written
    set_metadata(changed, PLAN, metadata(changed)[PLAN].replace('"RELU_BIAS"', '"GELU_BIAS"'))
    session = Session(changed, launcher=FakeDevice(standard()))
    np.testing.assert_allclose(session.run(None, {"x": rows(5)})[0], by_runtime(rows(5)), rtol=1e-4)
    assert any("in another way" in note for note in session.notes)


# ---- what fails --------------------------------------------------------------------------------------------------------


def failure(device: FakeDevice) -> CudaFailure:
    with pytest.raises(CudaFailure) as caught:
        Session(model(), launcher=device).run(None, {"x": rows(5)})
    assert [one.code for one in caught.value.diagnostics] == ["E0816"]
    return caught.value


def test_failures_have_a_reason_and_say_which_rule() -> None:
    assert failure(FakeDevice(standard(), memory=1000)).reason is Reason.MEMORY
    assert failure(FakeDevice(standard(), capability=(7, 5))).reason is Reason.TOO_OLD
    found = failure(FakeDevice(standard(), broken={"cublasLtMatmul": Reason.LAUNCH}))
    assert (found.reason, found.kernel) == (Reason.LAUNCH, "cublasLtMatmul")
    assert found.rule == "targets.cublaslt_bias_relu: matmul + add + relu"
    assert found.rule in str(found)


@pytest.mark.parametrize("reason", [Reason.COMPILE, Reason.LOAD, Reason.LAUNCH])
def test_a_kernel_that_fails_is_named(reason: Reason) -> None:
    device = FakeDevice(standard())
    Session(model(), launcher=device).run(None, {"x": rows(5)})
    kernel = next(one.name for one in device.recorded if one.name.startswith("k_"))
    found = failure(FakeDevice(standard(), broken={kernel: reason}))
    assert (found.reason, found.kernel) == (reason, kernel)
    assert found.rule == "kernel: mul + softmax"


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({"memory": 1000}, "too little memory"), ({"capability": (7, 5)}, "capability 7.5, and 8.0 is wanted"),
        ({"broken": {"cublasLtMatmul": Reason.BINDING}}, "`cublasLtMatmul` (targets.cublaslt_bias_relu"),
        ({"broken": {"cublasLtMatmul": Reason.MEMORY}}, "too little memory"),
    ],
)  # fmt: skip
def test_the_cpu_serves_only_where_it_may_and_where_that_helps(what: dict[str, Any], words: str) -> None:
    """What is in the way is said once, however often it is run; it is an error where the CPU may not serve."""
    x = rows(5)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        session = Session(model(), launcher=FakeDevice(standard(), **what), cpu=True)
        for _ in range(2):
            np.testing.assert_allclose(session.run(None, {"x": x})[0], by_runtime(x), rtol=1e-5)
    assert [words in str(one.message) for one in said if "runs on the CPU" in str(one.message)] == [True]
    with pytest.raises(CudaFailure, match=re.escape(words)):
        Session(model(), launcher=FakeDevice(standard(), **what)).run(None, {"x": x})


def test_a_kernel_or_a_call_that_is_wrong_is_never_hidden() -> None:
    x = rows(5)
    broken = Session(model(), launcher=FakeDevice(standard(), broken={"cublasLtMatmul": Reason.LAUNCH}), cpu=True)
    with pytest.raises(CudaFailure):
        broken.run(None, {"x": x})


def test_without_a_device_it_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pycuda", "pycuda.driver", "cuda", "cuda.core"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(CudaFailure) as caught:
        Session(model())
    assert caught.value.reason is Reason.NO_LAUNCHER
    assert "dslc[cuda]" in str(caught.value)


# ---- calls and their bindings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(functions()))
def test_the_snapshot_is_what_the_binding_declares(name: str) -> None:
    known = functions()[name]
    found = installed(known)
    if found is None:
        pytest.skip(f"{known.module} is not installed: the snapshot stands for it")
    assert found == known


CONV = """dslc 1
lowering own(X: T[N, C, *D], K: T[F, C, *R]) on cuda {
  \"\"\"A convolution.\"\"\"
  expr  Y[n, f, *o] = sum[c, *r] X[n, c, *(o * u + r * v - w), other=0] * K[f, c, *r]
  let   mode = "N"
  call "cudnnConvolutionForward" {
    image = X, weight = K, pre_padding = w, post_padding = [0, 0], stride = u, dilation = v, y = Y }
}
"""


@pytest.mark.parametrize(
    ("old", "new", "codes"),
    [
        ("stride = u", "stride = u", []),
        ("cudnnConvolutionForward", "cudnnConvolutionBackward", ["E0704"]),
        ("pre_padding = w", "padding = w", ["E0705", "E0705"]),
        ("pre_padding = w, ", "", ["E0705"]),
        ("image = X, weight = K", "image = X, image = X, weight = K", ["E0705"]),
        ("weight = K", "weight = 1", ["E0706"]),
        ("stride = u", "stride = X", ["E0706"]),
        ("stride = u", 'stride = "N"', ["E0706"]),
        ("stride = u", 'stride = u if rank(D) == 2 else "N"', ["E0706"]),
        ("stride = u", "stride = 2", ["E0706"]),
    ],
)
def test_a_wrong_call_is_found(old: str, new: str, codes: list[str]) -> None:
    (lowering,) = parse(SourceText("own", CONV.replace(old, new, 1))).items
    call = next(one for one in lowering.statements if isinstance(one, t.CallVendor))  # type: ignore[union-attr]
    assert [one.code for one in wrong(call, frozenset("XKY"))] == codes


def test_words_are_those_of_the_function() -> None:
    epilogue = functions()["cublasLtMatmul"].parameter("epilogue")
    assert epilogue is not None
    assert {"RELU_BIAS", "GELU_BIAS"} <= set(epilogue.words)
    assert functions()["cublasLtMatmul"].parameter("pads") is None
