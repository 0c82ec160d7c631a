"""Launchers and vendors' calls without a device: every call binds as the real packages declare it, and values come out."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from benchmarks.fake_device import FakeDevice
from dslc.cuda import CudaFailure, Reason, Session, launchers
from dslc.cuda.code import generable, texts
from dslc.cuda.devices import device_named
from dslc.cuda.launchers import CudaCore, PyCuda, launcher, reason_of
from dslc.cuda.planning import planned
from dslc.cuda.runner import Runner
from dslc.interpret.floats import Floats
from dslc.interpret.run import run
from dslc.ir.constants import NUMPY
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, Value, input_value
from dslc.semantics.apply import apply
from dslc.semantics.library import standard
from dslc.semantics.vendor import function_named
from tests.codegen import declared
from tests.codegen.bindings import Illegal, Libcuda, World
from tests.codegen.declared import DECLARED
from tests.codegen.library_bindings import modules
from tests.codegen.test_cuda_session import by_runtime, model, rows
from tests.gpu.checks import CHECKS

BOTH = pytest.mark.parametrize("pycuda", [False, True], ids=["cuda.core", "pycuda"])


@pytest.fixture(autouse=True)
def declared_anew() -> Iterator[None]:
    """What bindings declare is read once: neither are those of other tests these recording ones, nor the other way round."""
    function_named.cache_clear()
    yield
    function_named.cache_clear()


def machine(monkeypatch: pytest.MonkeyPatch, pycuda: bool = False, **given: Any) -> World:
    """A machine with a device that records."""
    world = World(**given)
    for name, module in modules(world, pycuda).items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(launchers, "_compiled", world.compiled)
    monkeypatch.setattr(launchers, "driver", lambda: Libcuda(world))
    return world


def tensor(name: str, *shape: int, dtype: DType = DType.F32) -> Value:
    return input_value(name, TensorType(dtype, shape))


def op(name: str, *args: Value | float, **attrs: Any) -> Value:
    return apply(standard(), f"std.{name}", args, attrs)[0]


def agrees(world: World, value: Value, *inputs: Value, tolerance: float = 2e-4) -> None:
    """Three runs: the second one is recorded where the launcher can, the third one replayed."""
    graph = Graph(inputs, (value,))
    plan = planned(standard(), graph, device_named("h100"), generable=generable(standard()))
    rng = np.random.default_rng(0)
    runner = Runner(standard(), plan, launcher(), texts(standard()))
    for _ in range(3):
        feeds = {
            one: rng.standard_normal([int(str(s)) for s in one.type.shape]).astype(NUMPY[one.type.dtype])
            for one in inputs
        }
        (wanted,) = run(standard(), graph.outputs, feeds, Floats())
        found = runner.run({f"x{k}": feeds[one] for k, one in enumerate(inputs)})["y0"]
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance)
    runner.close()
    assert not world.device._blocks


# ---- the snapshot -----------------------------------------------------------------------------------------------------------


def test_the_snapshot_is_what_the_packages_declare() -> None:
    try:
        found = declared.snapshot()
    except ImportError as missing:
        pytest.skip(f"{missing.name} is not installed: the snapshot stands for it")
    # a newer package may have more of something; what is called must be there as it was
    assert {key: found[key] for key in DECLARED} == DECLARED


def test_real_arguments_of_a_kernel_are_packed_as_they_are_meant() -> None:
    """cuda.core packs arguments without a device: addresses and sizes are 8 bytes each, in order."""
    handler = pytest.importorskip("cuda.core._kernel_arg_handler")
    given = [1 << 40, 12345, np.int64(-7), np.int64(9)]
    packed = handler.ParamHolder(given)
    places = (ctypes.c_void_p * len(given)).from_address(packed.ptr)
    assert [ctypes.c_int64.from_address(place).value for place in places] == [1 << 40, 12345, -7, 9]


# ---- values -----------------------------------------------------------------------------------------------------------------


@BOTH
def test_a_session_on_a_launcher_gives_the_values_of_the_model(monkeypatch: pytest.MonkeyPatch, pycuda: bool) -> None:
    world = machine(monkeypatch, pycuda)
    session = Session(model())
    assert session.launcher is not None
    assert session.launcher.name == ("pycuda" if pycuda else "cuda.core")
    for _ in range(4):
        x = rows(5)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], by_runtime(x), rtol=1e-4)
    assert world.started
    assert ("launch" in world.calls) is not pycuda
    # two streams are recorded as one graph, once; then only the graph is launched
    launched = "cuGraphLaunch" if pycuda else "graph.Graph.launch"
    recorded = "cuStreamEndCapture" if pycuda else "graph.GraphBuilder.end_building"
    assert (world.calls.count(launched), world.calls.count(recorded)) == (3, 1)
    session.close()
    assert not world.device._blocks
    assert world.calls.count("destroy") == world.calls.count("create") > 0


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.F16, DType.BF16])
def test_products_of_every_type(monkeypatch: pytest.MonkeyPatch, dtype: DType) -> None:
    world = machine(monkeypatch)
    A, B, c = tensor("A", 2, 4, 6, dtype=dtype), tensor("B", 5, 6, dtype=dtype), tensor("c", 5, dtype=dtype)
    product = op("matmul", A, op("transpose", B, perm=(1, 0)))
    agrees(world, op("relu", op("add", product, c)), A, B, c, tolerance=3e-2 if dtype.bytes == 2 else 1e-4)
    assert ("matmul" in world.calls) is (dtype is not DType.F64)


@BOTH
def test_convolutions_and_kernels_of_several_launches(monkeypatch: pytest.MonkeyPatch, pycuda: bool) -> None:
    world = machine(monkeypatch, pycuda)
    X, K = tensor("X", 1, 4, 6, 6), tensor("K", 4, 2, 3, 3)
    conv = op("conv", X, K, groups=2, pads=(1, 1, 1, 1), stride=(2, 1))
    agrees(world, op("softmax", conv, axis=1), X, K)
    assert "pygraph.conv_fprop" in world.calls
    # single precision stays single
    assert world.calls.count("pygraph.deselect_numeric_notes") == world.calls.count("pygraph.build_plans") > 0


def test_operands_that_begin_anywhere_are_taken_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library takes addresses for multiples of 256 bytes where nobody says what they are."""
    world = machine(monkeypatch)
    A, B, c = tensor("A", 5, 7), tensor("B", 6, 5), tensor("c", 5)
    piece = op("slice", A, start=(1, 1), size=(4, 6))
    agrees(world, op("add", op("matmul", piece, B), c), A, B, c)
    # and a convolution is copied to where 16 bytes at a time may be moved
    X, K = tensor("X", 3, 2, 5, 5), tensor("K", 4, 2, 3, 3)
    agrees(world, op("conv", op("slice", X, start=(1, 0, 0, 0), size=(2, 2, 5, 5)), K), X, K)


@pytest.mark.parametrize("fused", [True, False])
def test_what_is_computed_of_a_convolution(monkeypatch: pytest.MonkeyPatch, fused: bool) -> None:
    """At once, or where no engine does that, by a kernel that changes the result where it is."""
    world = machine(monkeypatch, fused=fused)
    # the third run is a graph that was recorded in the second one
    X, K, b, Z = tensor("X", 2, 4, 6, 6), tensor("K", 8, 2, 3, 3), tensor("b", 8), tensor("Z", 2, 8, 6, 6)
    conv = op("conv", X, K, groups=2, pads=(1, 1, 1, 1))
    whole = op("relu", op("add", op("add", conv, op("reshape", b, shape=(8, 1, 1))), Z))
    agrees(world, whole, X, K, b, Z)
    assert ("launch" in world.calls) is not fused
    # nobody asks again for an engine that there is not
    assert world.calls.count("pygraph.execute") == 2 and world.calls.count("pygraph.check_support") == (
        1 if fused else 2
    )


#: all of them on one launcher, and what differs on the other one
RUN = [
    *((name, False) for name in CHECKS),
    ("chains with kernels on streams", True),
    ("products on tensor cores", True),
]


@pytest.mark.parametrize(("name", "pycuda"), RUN)
def test_what_will_be_run_first_on_a_device(monkeypatch: pytest.MonkeyPatch, name: str, pycuda: bool) -> None:
    """`tests/gpu` on bindings that record: what is checked on the first machine with a device was run before."""
    world = machine(monkeypatch, pycuda)
    found = launcher()
    CHECKS[name](found)
    found.close()
    assert not world.device._blocks


def test_another_thread_makes_the_device_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    world = machine(monkeypatch)
    session = Session(model())
    x, found = rows(3), []
    session.run(None, {"x": x})
    before = world.calls.count("Device.set_current")
    thread = threading.Thread(target=lambda: found.append(session.run(None, {"x": x})[0]))
    thread.start()
    thread.join()
    np.testing.assert_allclose(found[0], by_runtime(x), rtol=1e-4)
    assert world.calls.count("Device.set_current") == before + 1


# ---- graphs -----------------------------------------------------------------------------------------------------------------


@BOTH
def test_what_may_not_be_recorded_is_run_as_before(monkeypatch: pytest.MonkeyPatch, pycuda: bool) -> None:
    """A library that cannot be recorded costs the graph, not the run."""
    world = machine(monkeypatch, pycuda)
    begin, end = ("cuStreamBeginCapture_v2", "cuStreamEndCapture") if pycuda else ("begin_building", "end_building")
    session = Session(model())
    x = rows(5)
    session.run(None, {"x": x})
    refused = Illegal("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: it was not to be")
    world.broken[end if pycuda else f"graph.GraphBuilder.{end}"] = refused
    for _ in range(2):
        np.testing.assert_allclose(session.run(None, {"x": x})[0], by_runtime(x), rtol=1e-4)
    assert sum(name.endswith(begin) for name in world.calls) == 1


def test_a_driver_without_graphs_runs_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is too old for them, or not where it is looked for."""
    world = machine(monkeypatch, pycuda=True)
    monkeypatch.setattr(launchers, "driver", lambda: None)
    session = Session(model())
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"x": rows(5)})[0], by_runtime(rows(5)), rtol=1e-4)
    assert not any(name.startswith("cuGraph") for name in world.calls)


def test_the_recorder_refuses_what_a_driver_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory, waiting, and streams that nobody waited for."""
    machine(monkeypatch)
    device = CudaCore()
    pointer = device.allocate(64)
    device.begin()
    for act in (lambda: device.allocate(8), lambda: device.download(pointer, 8), device.synchronize):
        with pytest.raises(CudaFailure) as caught:
            act()
        assert "STREAM_CAPTURE" in str(caught.value)
    assert device.end() is not None
    device.begin()
    device.wait(1, device.record(0))
    device.wait(2, device.record(1))
    with pytest.raises(CudaFailure, match="UNJOINED"):
        device.end()


# ---- what fails ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("CUDA_ERROR_OUT_OF_MEMORY: no", Reason.MEMORY), ("CUDA_ERROR_NO_DEVICE: none", Reason.NO_DEVICE),
        ("CUDA_ERROR_NO_BINARY_FOR_GPU: older", Reason.LOAD), ("CUDA_ERROR_ILLEGAL_ADDRESS: there", Reason.LAUNCH),
        ("CUDA_ERROR_INSUFFICIENT_DRIVER: old", Reason.NO_DEVICE), ("something else", Reason.LAUNCH),
    ],
)  # fmt: skip
def test_a_status_of_the_driver_is_a_reason(words: str, reason: Reason) -> None:
    assert reason_of(RuntimeError(words), Reason.LAUNCH) is reason


@BOTH
def test_too_little_memory_is_said_by_either(monkeypatch: pytest.MonkeyPatch, pycuda: bool) -> None:
    world = machine(monkeypatch, pycuda, device=FakeDevice(standard(), memory=1000))
    with pytest.raises(CudaFailure) as caught:
        Session(model()).run(None, {"x": rows(5)})
    assert caught.value.reason is Reason.MEMORY
    assert not world.device._blocks


def test_what_fails_later_is_named_where_it_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device says that an address was wrong only when somebody waits: in the first run somebody does, after each step."""
    world = machine(monkeypatch)
    session = Session(model())
    kernel = Runner.run

    def broken_from_now(self: Runner, feeds: Any) -> Any:
        calls = [step.name for step in self.plan.steps]
        left = 2 + len(calls)  # the uploads wait as well

        def synchronize() -> None:
            nonlocal left
            left -= 1
            if "launch" in world.calls:
                raise Illegal("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered")

        monkeypatch.setattr(world.device.__class__, "synchronize", lambda _: synchronize())
        return kernel(self, feeds)

    monkeypatch.setattr(Runner, "run", broken_from_now)
    with pytest.raises(CudaFailure) as caught:
        session.run(None, {"x": rows(5)})
    assert caught.value.reason is Reason.LAUNCH
    assert caught.value.rule == "kernel: mul + softmax"
    assert "ILLEGAL_ADDRESS" in str(caught.value)


def test_a_library_that_is_not_there_is_a_missing_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    world = machine(monkeypatch)
    world.broken["create"] = RuntimeError("libcublas.so.13: cannot open shared object file")
    with pytest.raises(CudaFailure) as caught:
        Session(model()).run(None, {"x": rows(5)})
    assert (caught.value.reason, caught.value.kernel) == (Reason.BINDING, "cublasLtMatmul")
    monkeypatch.setitem(sys.modules, "nvmath.bindings.cublasLt", None)
    with pytest.raises(CudaFailure) as caught:
        Session(model()).run(None, {"x": rows(5)})
    assert caught.value.reason is Reason.BINDING


def test_a_status_of_a_library_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    world = machine(monkeypatch)
    refused = RuntimeError("ALLOC_FAILED")
    refused.status = 3  # type: ignore[attr-defined]
    world.broken["matmul"] = refused
    with pytest.raises(CudaFailure) as caught:
        Session(model()).run(None, {"x": rows(5)})
    assert (caught.value.reason, caught.value.kernel) == (Reason.MEMORY, "cublasLtMatmul")
    assert caught.value.rule.startswith("targets.cublaslt_bias_relu")


@pytest.mark.parametrize("pycuda", [False, True])
def test_no_device_is_said_once_and_the_cpu_serves_where_it_may(monkeypatch: pytest.MonkeyPatch, pycuda: bool) -> None:
    world = machine(monkeypatch, pycuda)
    world.broken["init" if pycuda else "Device"] = RuntimeError(
        "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"
    )
    with pytest.raises(CudaFailure) as caught:
        (PyCuda if pycuda else CudaCore)()
    assert caught.value.reason is Reason.NO_DEVICE
    with pytest.warns(UserWarning, match="runs on the CPU") as said:
        session = Session(model(), cpu=True)
        for _ in range(2):
            np.testing.assert_allclose(session.run(None, {"x": rows(4)})[0], by_runtime(rows(4)), rtol=1e-5)
    assert len(said) == 1
