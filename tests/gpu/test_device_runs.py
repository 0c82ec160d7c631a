"""Plans on a device, against the interpreter. Without one they are skipped; `tests/codegen/test_cuda_plans.py` runs them without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from dslc.cuda.code import generable, texts
from dslc.cuda.devices import device_named
from dslc.cuda.launch import CudaFailure, Launcher
from dslc.cuda.launchers import launcher
from dslc.cuda.planning import planned
from dslc.cuda.runner import Runner
from dslc.interpret.floats import Floats
from dslc.interpret.run import run
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, Value, input_value
from dslc.semantics.apply import apply
from dslc.semantics.library import standard


@pytest.fixture(scope="module")
def device() -> Iterator[Launcher]:
    try:
        found = launcher()
    except CudaFailure as problem:
        pytest.skip(f"{problem.diagnostics[0].message}")
    yield found
    found.close()


def tensor(name: str, *shape: int) -> Value:
    return input_value(name, TensorType(DType.F32, shape))


def op(name: str, *args: Value | float, **attrs: Any) -> Value:
    return apply(standard(), f"std.{name}", args, attrs)[0]


def agrees(device: Launcher, outputs: tuple[Value, ...], *inputs: Value) -> None:
    graph = Graph(inputs, outputs)
    plan = planned(standard(), graph, device_named("h100"), generable=generable(standard()))
    rng = np.random.default_rng(1)
    feeds = {value: rng.standard_normal([int(str(size)) for size in value.type.shape]).astype(np.float32) for value in inputs}
    wanted = run(standard(), graph.outputs, feeds, Floats())
    runner = Runner(standard(), plan, device, texts(standard()))
    # the second run is recorded, the third one replayed
    for _ in range(3):
        found = runner.run({f"x{k}": feeds[value] for k, value in enumerate(inputs)})
        for k, each in enumerate(wanted):
            np.testing.assert_allclose(found[f"y{k}"], each, rtol=2e-4, atol=2e-5)
    runner.close()


def test_products_of_every_layout(device: Launcher) -> None:
    A, B, C = tensor("A", 2, 1, 4, 5), tensor("B", 3, 5, 6), tensor("C", 6, 5)
    turned = op("transpose", C, perm=(1, 0))
    agrees(device, (op("matmul", A, B),), A, B)
    agrees(device, (op("matmul", A, turned),), A, C)


def test_products_with_what_is_computed_of_them(device: Launcher) -> None:
    A, B, c = tensor("A", 64, 32), tensor("B", 32, 48), tensor("c", 48)
    both = op("add", op("matmul", A, B), c)
    agrees(device, (op("relu", both),), A, B, c)
    agrees(device, (op("gelu_tanh", both),), A, B, c)


@pytest.mark.parametrize("attrs", [{"pads": (1, 1, 1, 1)}, {"stride": (2, 1), "dilation": (1, 2)}])
def test_convolutions(device: Launcher, attrs: dict[str, Any]) -> None:
    X, K = tensor("X", 2, 8, 12, 12), tensor("K", 8, 4, 3, 3)
    agrees(device, (op("conv", X, K, groups=2, **attrs),), X, K)


def test_chains_with_kernels_on_streams(device: Launcher) -> None:
    A, B, C = (tensor(name, 64, 64) for name in "ABC")
    left, right = op("relu", op("matmul", A, B)), op("sigmoid", op("matmul", A, C))
    agrees(device, (op("softmax", op("mul", left, right), axis=-1),), A, B, C)
