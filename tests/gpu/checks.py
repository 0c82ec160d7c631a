"""What must be right on a device: each takes a launcher, and compares with the interpreter. They run without a device as well, on the
bindings that record (`tests/codegen/test_cuda_launchers.py`), so that what is run first where there is one has been run before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime

from dslc.codegen.cuda.generate import generate
from dslc.codegen.cuda.text import CudaVariant, Tile, Units
from dslc.cuda import Session
from dslc.cuda.code import generable, texts
from dslc.cuda.devices import device_named
from dslc.cuda.launch import Code, Launcher, Tensor
from dslc.cuda.planning import planned
from dslc.cuda.runner import Runner
from dslc.interpret.floats import Floats
from dslc.interpret.run import run
from dslc.ir.constants import NUMPY
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, Value, input_value
from dslc.semantics.apply import apply
from dslc.semantics.library import standard
from tests.codegen.groups import Case, different, drawn, group

CHECKS: dict[str, Callable[[Launcher], None]] = {}


def check(act: Callable[[Launcher], None]) -> Callable[[Launcher], None]:
    CHECKS[act.__name__.replace("_", " ")] = act
    return act


def tensor(name: str, *shape: int, dtype: DType = DType.F32) -> Value:
    return input_value(name, TensorType(dtype, shape))


def op(name: str, *args: Value | float, **attrs: Any) -> Value:
    return apply(standard(), f"std.{name}", args, attrs)[0]


def agrees(device: Launcher, outputs: tuple[Value, ...], *inputs: Value, tolerance: float = 2e-4) -> None:
    """Plans, runs and compares; the second run is recorded where the launcher can, the third one replayed."""
    graph = Graph(inputs, outputs)
    plan = planned(standard(), graph, device_named("h100"), generable=generable(standard()))
    rng = np.random.default_rng(1)
    runner = Runner(standard(), plan, device, texts(standard()))
    for _ in range(3):
        feeds = {
            one: rng.standard_normal([int(str(size)) for size in one.type.shape]).astype(NUMPY[one.type.dtype])
            for one in inputs
        }
        wanted = run(standard(), graph.outputs, feeds, Floats())
        found = runner.run({f"x{k}": feeds[value] for k, value in enumerate(inputs)})
        for k, each in enumerate(wanted):
            np.testing.assert_allclose(found[f"y{k}"].astype(float), each.astype(float), rtol=tolerance, atol=tolerance)
    assert runner.seconds(2) > 0
    runner.close()


def computes(device: Launcher, case: Case, variant: CudaVariant | None = None) -> None:
    """One kernel by itself, at the first of a case's sizes."""
    program = group(case.build, case.sizes[0] if case.sizes else {})
    rng = np.random.default_rng(0)
    arrays = [drawn(rng, value.type, (case.draw or {}).get(k)) for k, value in enumerate(program.inputs)]
    wanted = tuple(run(standard(), program.outputs, dict(zip(program.inputs, arrays, strict=True)), Floats()))
    text = generate(standard(), program, variant)
    loaded = device.load(Code(text.name, case.name, program, text))
    pointers: list[int] = []

    def placed(type: TensorType) -> Tensor:
        shape = tuple(int(str(size)) for size in type.shape)
        pointers.append(device.allocate(max(1, type.bytes)))
        strides = [int(np.prod(shape[k + 1 :])) for k in range(len(shape))]
        return Tensor(pointers[-1], type.dtype, shape, tuple(strides))

    reads, writes = ([placed(value.type) for value in values] for values in (program.inputs, program.outputs))
    for one, array in zip(reads, arrays, strict=True):
        device.upload(one.pointer, np.ascontiguousarray(array, NUMPY[one.dtype]).tobytes())
    scratch = []
    for size in text.scratch:
        assert isinstance(size, int)
        pointers.append(device.allocate(max(1, size)))
        scratch.append(pointers[-1])
    device.kernel(loaded, reads, writes, scratch, 0)
    found = []
    for one, value in zip(writes, program.outputs, strict=True):
        found.append(np.frombuffer(device.download(one.pointer, value.type.bytes), NUMPY[one.dtype]).reshape(one.shape))
    assert list(different(tuple(found), wanted, case.tolerance)) == []
    for pointer in pointers:
        device.free(pointer)


# ---- vendors' calls ---------------------------------------------------------------------------------------------------------


@check
def products_of_every_layout(device: Launcher) -> None:
    A, B, C = tensor("A", 2, 1, 4, 5), tensor("B", 3, 5, 6), tensor("C", 6, 5)
    agrees(device, (op("matmul", A, B),), A, B)
    agrees(device, (op("matmul", A, op("transpose", C, perm=(1, 0))),), A, C)
    agrees(
        device,
        (op("matmul", op("slice", C, start=(1, 1), size=(4, 4)), op("slice", B, start=(0, 0, 0), size=(3, 4, 6))),),
        B,
        C,
    )


@check
def products_of_every_type(device: Launcher) -> None:
    for dtype, tolerance in ((DType.F64, 1e-9), (DType.F16, 2e-2), (DType.BF16, 1e-1)):
        A, B, c = tensor("A", 32, 48, dtype=dtype), tensor("B", 48, 24, dtype=dtype), tensor("c", 24, dtype=dtype)
        agrees(device, (op("relu", op("add", op("matmul", A, B), c)),), A, B, c, tolerance=tolerance)


@check
def products_with_what_is_computed_of_them(device: Launcher) -> None:
    A, B, c = tensor("A", 64, 32), tensor("B", 32, 48), tensor("c", 48)
    both = op("add", op("matmul", A, B), c)
    agrees(device, (op("relu", both),), A, B, c)
    agrees(device, (op("gelu_tanh", both),), A, B, c)


@check
def convolutions(device: Launcher) -> None:
    X, K = tensor("X", 2, 8, 12, 12), tensor("K", 8, 4, 3, 3)
    for attrs in ({"pads": (1, 1, 1, 1)}, {"stride": (2, 1), "dilation": (1, 2)}):
        agrees(device, (op("conv", X, K, groups=2, **attrs),), X, K)


@check
def convolutions_with_what_is_computed_of_them(device: Launcher) -> None:
    X, K, b, Z = tensor("X", 2, 8, 12, 12), tensor("K", 16, 8, 3, 3), tensor("b", 16, 1, 1), tensor("Z", 2, 16, 12, 12)
    whole = op("relu", op("add", op("add", op("conv", X, K, pads=(1, 1, 1, 1)), b), Z))
    agrees(device, (whole,), X, K, b, Z)


@check
def convolutions_with_each_part_of_it(device: Launcher) -> None:
    """What cuDNN computes at once differs by what it is: whatever that is, values are right."""
    for dtype, tolerance in ((DType.F32, 2e-4), (DType.F16, 3e-2)):
        X, K = tensor("X", 1, 8, 12, 12, dtype=dtype), tensor("K", 16, 4, 3, 3, dtype=dtype)
        b, Z = tensor("b", 16, 1, 1, dtype=dtype), tensor("Z", 1, 16, 12, 12, dtype=dtype)
        conv = op("conv", X, K, groups=2, dilation=(2, 2), pads=(2, 2, 2, 2))
        agrees(device, (op("relu", conv),), X, K, tolerance=tolerance)
        agrees(device, (op("add", conv, Z),), X, K, Z, tolerance=tolerance)
        agrees(device, (op("add", op("add", conv, b), Z),), X, K, b, Z, tolerance=tolerance)
        agrees(device, (op("relu", op("add", conv, Z)),), X, K, Z, tolerance=tolerance)


@check
def chains_with_kernels_on_streams(device: Launcher) -> None:
    A, B, C = (tensor(name, 64, 64) for name in "ABC")
    left, right = op("relu", op("matmul", A, B)), op("sigmoid", op("matmul", A, C))
    agrees(device, (op("softmax", op("mul", left, right), axis=-1),), A, B, C)


# ---- kernels ----------------------------------------------------------------------------------------------------------------


@check
def kernels_of_every_form(device: Launcher) -> None:
    from tests.codegen.test_cuda_shim import CASES

    for case, _, variant in CASES:
        computes(device, case, variant)


@check
def products_on_tensor_cores(device: Launcher) -> None:
    from tests.codegen.test_cuda_units import CASES

    for case, variant, _ in CASES:
        computes(device, case, variant)
    F16 = DType.F16
    half = Case(
        "half", lambda r: r.op("matmul", r.input(70, 96, dtype=F16), r.input(96, 130, dtype=F16)), (), None, 1e-2
    )
    for units in (Units(), Units(128, 128, 32, 4, 4)):
        computes(device, half, CudaVariant(units=units))


@check
def products_in_tiles_of_every_size(device: Launcher) -> None:
    for tile in (Tile(), Tile(128, 128, 8, 8, 8), Tile(32, 32, 16, 2, 2)):
        computes(
            device,
            Case("plain", lambda r: r.op("matmul", r.input(70, 100), r.input(100, 90)), ()),
            CudaVariant(tile=tile),
        )


# ---- whole models -----------------------------------------------------------------------------------------------------------


@check
def a_model_with_parts_for_the_cpu(device: Launcher) -> None:
    from tests.codegen.test_cuda_hosted import QUANTIZED, model, rows

    proto = model(QUANTIZED, "N", 12)
    plain = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    session = Session(proto, launcher=device, texts=texts(standard()))
    for count in (5, 3, 5):
        x = rows(count)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], plain.run(None, {"x": x})[0], rtol=1e-2, atol=1e-3)
    session.close()
