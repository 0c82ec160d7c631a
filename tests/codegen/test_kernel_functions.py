"""Functions of vectors: their errors against float64, and what they make of NaN, infinities and zeros."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dslc.codegen.generate import generate
from dslc.codegen.text import KernelText, Variant
from dslc.interpret.floats import FUNCTIONS
from dslc.ir.dtype import DType
from dslc.ir.graph import Value
from dslc.semantics.library import standard
from tests.codegen.groups import N, Room, group, needs_compiler
from tests.codegen.native import Library, build

#: the largest error in units of the last place that templates/cpp/kernel_math.h states; std's softplus is log(1 + exp(x)), std's
#: sigmoid a quotient
STATED = {
    "exp": 2, "log": 2, "tanh": 6, "erf": 6, "sin": 2, "cos": 2, "sqrt": 0.5, "floor": 0, "ceil": 0, "round": 0, "sign": 0, "abs": 0,
    "tan": 2, "asin": 2, "acos": 2, "atan": 2, "sinh": 3, "cosh": 3, "asinh": 3, "acosh": 3, "atanh": 3, "softplus": 4,
}  # fmt: skip
MEANINGS: dict[str, Callable[[Any], Any]] = {**FUNCTIONS, "softplus": lambda x: np.logaddexp(0, x)}
SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 88.7, 89.0, -103.9, -104.5, 1e-40, -1e-40, 3e38, 8191.0, 8193.0]
)


def points() -> Any:
    """Numbers of every magnitude, dense where functions bend."""
    tiny = 10.0 ** np.linspace(-44, 38, 40001)
    parts = [
        np.linspace(-110, 110, 200001),
        tiny,
        -tiny,
        np.linspace(-1, 1, 40001),
        np.linspace(0.4, 2.5, 60001),
        SPECIAL,
    ]
    return np.concatenate(parts).astype(np.float32)


@pytest.fixture(scope="module")
def library() -> tuple[Library, dict[tuple[str, int], KernelText]]:
    texts = {
        (name, width): generate(standard(), group(lambda r, name=name: r.op(name, r.input(N))), Variant(width=width))
        for name in STATED
        for width in (8, 16)
    }
    return build(list(texts.values()), seconds=300), texts


@needs_compiler
@pytest.mark.parametrize("name", STATED)
def test_errors_are_as_stated(name: str, library: tuple[Library, dict[tuple[str, int], KernelText]]) -> None:
    built, texts = library
    x = points()
    if name in {"sin", "cos", "tan"}:
        x = x[~(np.abs(x) > 1e5)]
    with np.errstate(all="ignore"):
        exact = MEANINGS[name](x.astype(np.float64))
        nearest = exact.astype(np.float32)
        for width in (8, 16):
            (found,) = built.run(texts[name, width].name, [x])
            assert np.array_equal(np.isnan(found), np.isnan(nearest))
            special = ~np.isfinite(nearest)
            assert np.array_equal(found[special], nearest[special], equal_nan=True)
            # below the smallest normal number a processor may round to zero
            spacing = np.maximum(np.spacing(np.abs(nearest)), np.float32(1.2e-38 * 2**-20)).astype(np.float64)
            error = np.abs(found.astype(np.float64) - exact) / spacing
            worst = np.nanargmax(np.where(special, 0, error))
            assert error[worst] <= STATED[name] + 1e-3, (
                f"{name}({x[worst]!r}) is {found[worst]!r}, not {exact[worst]!r}"
            )


@needs_compiler
def test_larger_and_smaller_are_nan_where_either_is() -> None:
    text = generate(
        standard(), group(lambda r: (r.op("maximum", x := r.input(N), y := r.input(N)), r.op("minimum", x, y)))
    )
    special = np.array([np.nan, np.inf, -np.inf, 0.0, 1.0], np.float32)
    x, y = (each.reshape(-1).copy() for each in np.meshgrid(special, special))
    larger, smaller = build([text]).run(text.name, [x, y])
    assert np.array_equal(larger, np.maximum(x, y), equal_nan=True) and np.array_equal(
        smaller, np.minimum(x, y), equal_nan=True
    )


@needs_compiler
@pytest.mark.parametrize("name", ["reduce_max", "reduce_sum", "reduce_min"])
def test_reductions_hand_nan_on(name: str) -> None:
    text = generate(standard(), group(lambda r: r.op(name, r.input(3, N), axes=(1,))))
    library = build([text])
    for place in (0, 17, 98):
        x = np.ones((3, 99), np.float32)
        x[1, place] = np.nan
        (found,) = library.run(text.name, [x])
        assert np.isnan(found[1]).all() and np.isfinite(found[[0, 2]]).all()


@needs_compiler
@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_half_precision_rounds_to_the_nearest(dtype: DType) -> None:
    """Every number of the narrow type survives; numbers between two of them go to the nearer one, ties to the even one."""
    from dslc.ir.constants import NUMPY

    every = np.arange(1 << 16, dtype=np.uint16).view(NUMPY[dtype])
    rng = np.random.default_rng(0)
    wide = np.concatenate([rng.standard_normal(5000) * 10.0 ** rng.integers(-9, 6, 5000), SPECIAL]).astype(np.float32)
    for width in (1, 16):
        there = generate(
            standard(), group(lambda r: r.op("cast", r.input(N, dtype=dtype), to=DType.F32)), Variant(width=width)
        )
        back = generate(standard(), group(lambda r: r.op("cast", r.input(N), to=dtype)), Variant(width=width))
        library = build([there, back])
        (found,) = library.run(there.name, [every])
        with np.errstate(all="ignore"):
            assert np.array_equal(found, every.astype(np.float32), equal_nan=True)
            (narrow,) = library.run(back.name, [wide])
            assert np.array_equal(
                narrow.astype(np.float32), wide.astype(NUMPY[dtype]).astype(np.float32), equal_nan=True
            )


@needs_compiler
@pytest.mark.parametrize("width", [8, 16])
def test_half_numbers_are_converted_as_numpy_does(width: int) -> None:
    """Every half number, and what lies on and beside the middle of two."""

    def doubled(r: Room) -> Value:
        # rounded between two operators
        x = r.input(N, dtype=DType.F16)
        return r.op("mul", r.op("add", x, x), x)

    wide = generate(
        standard(), group(lambda r: r.op("cast", r.input(N, dtype=DType.F16), to=DType.F32)), Variant(width=width)
    )
    narrow = generate(standard(), group(lambda r: r.op("cast", r.input(N), to=DType.F16)), Variant(width=width))
    between = generate(standard(), group(doubled), Variant(width=width))
    library = build([wide, narrow, between])
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    (found,) = library.run(wide.name, [every])
    assert np.array_equal(found, every.astype(np.float32), equal_nan=True)
    exact = every.astype(np.float32)
    exact = exact[np.isfinite(exact)]
    with np.errstate(over="ignore"):
        middle = (exact + np.nextafter(exact.astype(np.float16), np.float16(np.inf)).astype(np.float32)) / 2
    numbers = np.concatenate(
        [exact, middle, np.nextafter(middle, np.float32(0)), np.float32([np.nan, np.inf, -np.inf, 1e9])]
    )
    with np.errstate(over="ignore", invalid="ignore"):
        (found,) = library.run(narrow.name, [numbers.astype(np.float32)])
        assert np.array_equal(found, numbers.astype(np.float16), equal_nan=True)
        (found,) = library.run(between.name, [every])
        assert np.array_equal(found, (every + every) * every, equal_nan=True)
