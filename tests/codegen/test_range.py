"""Kernels give numbers wherever each of their operators does: quotients by denormal numbers, by huge ones, and powers below 0."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dslc
from dslc.codegen.text import Variant
from dslc.ir.dtype import DType
from dslc.ir.graph import Value
from dslc.semantics.library import Rules
from tests.caches import apart
from tests.codegen.files import ran, with_kernel
from tests.codegen.groups import Case, M, N, Room, compare, needs_compiler

#: numbers about 1 by so much: their reciprocals are infinite, at the end of what there is, and denormal
SCALES = {DType.F32: (2.0**-135, 2.0**-126, 2.0**125), DType.F64: (2.0**-1060, 2.0**-1022, 2.0**1021)}
SIZES = ({"N": 3, "M": 19}, {"N": 2, "M": 40})


def scaled(by: float) -> Callable[[np.random.Generator, tuple[int, ...]], Any]:
    return lambda rng, shape: rng.uniform(0.5, 1, shape) * rng.choice([-1, 1], shape) * by


def about(number: float) -> Callable[[np.random.Generator, tuple[int, ...]], Any]:
    return lambda rng, shape: number + rng.uniform(0, 1, shape)


def quotients(dtype: DType) -> Iterator[tuple[str, Callable[[Room], Value]]]:
    """Quotients by what varies less than the dividend."""
    for kind, axis in (("reduce_max", 1), ("reduce_max", 0)):
        yield f"by {kind} over {axis}", lambda r, kind=kind, axis=axis: _by_size(r, dtype, kind, axis)  # type: ignore[misc]
    for name, shape in (("column", (N, 1)), ("row", (M,)), ("number", ())):
        yield (
            f"by a {name}",
            lambda r, shape=shape: r.op("div", r.input(N, M, dtype=dtype), r.input(*shape, dtype=dtype)),
        )  # type: ignore[misc]


def _by_size(r: Room, dtype: DType, kind: str, axis: int) -> Value:
    x = r.input(N, M, dtype=dtype)
    return r.op("div", x, r.op(kind, r.op("abs", x), axes=(axis,), keepdims=True))


def _softmax(r: Room) -> Value:
    e = r.op("exp", r.input(N, M))
    return r.op("div", e, r.op("reduce_sum", e, axes=(1,), keepdims=True))


def cases() -> Iterator[Case]:
    for dtype, scales in SCALES.items():
        for by in scales:
            for name, build in quotients(dtype):
                yield Case(f"{name}, {by}", build, SIZES, draw={0: scaled(by), 1: scaled(by)}, tolerance=1e-5)
    yield Case("a softmax of sums that are denormal", _softmax, SIZES, draw={0: about(-94)}, tolerance=1e-3)


@needs_compiler
def test_a_quotient_by_what_varies_less_is_that() -> None:
    compare(cases(), (Variant(width=8), Variant(width=8, lane=1)), known=False)


@needs_compiler
@pytest.mark.parametrize("power", [-2.0, -3.0])
def test_a_power_below_zero_has_the_range_of_its_results(power: float) -> None:
    """The square of 3e19 is infinite, its reciprocal a denormal number: times a large one it is seen."""

    def build(r: Room) -> Value:
        return r.op("mul", r.op("pow", r.input(N), r.number(power)), r.input(N))

    draw = {0: scaled(2.0 ** (-130 / power)), 1: lambda rng, shape: np.full(shape, 2.0**126)}
    compare([Case("powers", build, ({"N": 40},), draw=draw, tolerance=1e-4)], (Variant(width=8),), known=False)


@needs_compiler
@pytest.mark.parametrize(
    "nodes",
    [
        "p = Constant<value = float {7}>()  t = Div(x, p)  y = Round(t)",
        "p = Constant<value = float {1e30}>()  t = Mul(x, p)  y = Mul(t, p)",
    ],
)
def test_numbers_that_are_put_together_lose_nothing(
    nodes: str, std: Rules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Halves of sevenths are rounded as the nodes round them; 1e30 * 1e30 is no number of the type, and has no kernel."""
    monkeypatch.setenv("DSLC_CACHE", str(apart(tmp_path / "cache", kernels=True)))
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[N, 8] x) => (float[N, 8] y) {{ {nodes} }}'
    model, written = with_kernel(std, text, ["y"], ["x"])
    x = np.array([[1e-30, -1e-30, 3.5, 10.5, 24.5, -3.5, 1e-38, 0]], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = dslc.session(written, threads=1).run(None, {"x": x})
    np.testing.assert_array_equal(found[0], ran(model, {"x": x})[0])
