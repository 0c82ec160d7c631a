"""Products on tensor cores and with sums that several blocks share: their very text on the CPU, and what compilers say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dslc.codegen.cuda import nvrtc
from dslc.codegen.cuda.choose import Hardware
from dslc.codegen.cuda.generate import generate, variants
from dslc.codegen.cuda.shim import Fault, Shim, Stopped, build
from dslc.codegen.cuda.text import CudaText, CudaVariant, Tile, Units
from dslc.ir.dtype import DType
from dslc.semantics.library import standard
from tests.codegen.groups import Case, M, N, Room, different, group, needs_compiler
from tests.codegen.test_cuda_compiled import needs_nvrtc
from tests.codegen.test_cuda_shim import arrays_and_values, planted

SMALL = Units(32, 16, 32, 1, 2)
SIZES: tuple[Mapping[str, int], ...] = ({"N": 35, "M": 24}, {"N": 16, "M": 17})


def halves(dtype: DType) -> Any:
    """Ragged sides and a ragged sum, and what is computed of the product before it is written."""

    def build(r: Room) -> Any:
        a, b = r.input(2, N, 37, dtype=dtype), r.input(37, M, dtype=dtype)
        return r.op("relu", r.op("add", r.op("matmul", a, b), r.input(M, dtype=dtype)))

    return build


def turned(r: Room) -> Any:
    return r.op(
        "matmul", r.input(N, 40, dtype=DType.F16), r.op("transpose", r.input(M, 40, dtype=DType.F16), perm=(1, 0))
    )


def convolution(r: Room) -> Any:
    return r.op(
        "conv",
        r.input(1, 8, 5, M, dtype=DType.F16),
        r.input(16, 8, 3, 3, dtype=DType.F16),
        pads=(1, 1, 1, 1),
        stride=(2, 1),
    )


def singles(r: Room) -> Any:
    return r.op("matmul", r.input(N, 24), r.input(24, M))


#: what is computed, with which variant, and the forms of its launches
CASES: list[tuple[Case, CudaVariant, tuple[str, ...]]] = [
    (Case("f16", halves(DType.F16), SIZES, tolerance=2e-3), CudaVariant(units=SMALL), ("units",)),
    (Case("bf16", halves(DType.BF16), SIZES[:1], tolerance=2e-2), CudaVariant(units=SMALL), ("units",)),
    (Case("turned f16", turned, SIZES[:1], tolerance=2e-3), CudaVariant(units=replace(SMALL, down=2)), ("units",)),
    (Case("convolution f16", convolution, ({"M": 9},), tolerance=2e-3), CudaVariant(units=SMALL), ("units",)),
    (Case("tf32", singles, SIZES[:1], tolerance=5e-3), CudaVariant(units=replace(SMALL, rounded=True)), ("units",)),
    # single precision stays single where nobody asks for less
    (Case("f32", singles, SIZES[:1]), CudaVariant(units=SMALL, tile=Tile(16, 16, 8, 2, 4)), ("products",)),
    (Case("sums in parts", lambda r: r.op("relu", r.op("matmul", r.input(18, 256), r.input(256, 20))), ({},), tolerance=1e-4),
     CudaVariant(split=4, tile=Tile(16, 16, 8, 2, 4)), ("products", "points")),
    (Case("sums in parts f16", lambda r: r.op("matmul", r.input(18, 256, dtype=DType.F16), r.input(256, 20, dtype=DType.F16)), ({},),
          tolerance=2e-3), CudaVariant(split=4, units=SMALL), ("units", "points")),
]  # fmt: skip
NAMES = [case.name for case, _, _ in CASES]


@pytest.fixture(scope="module")
def texts() -> dict[str, CudaText]:
    return {case.name: generate(standard(), group(case.build), variant) for case, variant, _ in CASES}


@pytest.fixture(scope="module")
def hasty(texts: dict[str, CudaText]) -> CudaText:
    """The first one, with tiles that are read before they are written."""
    return planted(texts[NAMES[0]], lambda text: text.replace(f"k_meet<{SMALL.threads}>();", "", 1), "hasty")


@pytest.fixture(scope="module")
def shim(texts: dict[str, CudaText], hasty: CudaText, tmp_path_factory: pytest.TempPathFactory) -> Shim:
    return build([*texts.values(), hasty], tmp_path_factory.mktemp("units"))


@needs_compiler
@pytest.mark.parametrize("case, variant, forms", CASES, ids=NAMES)
def test_pieces_of_a_warp_are_the_product(
    case: Case, variant: CudaVariant, forms: tuple[str, ...], texts: dict[str, CudaText], shim: Shim
) -> None:
    """Every thread has the parts of the operands that the instruction wants of it; both orders of threads, and few blocks."""
    text = texts[case.name]
    assert tuple(launch.form for launch in text.launches) == forms
    for sizes in case.sizes:
        arrays, expected = arrays_and_values(case, sizes)
        for found in (shim.run(text, arrays), shim.run(text, arrays, reverse=True, grid=2)):
            assert list(different(found, expected, case.tolerance)) == []


@needs_compiler
def test_a_tile_that_is_read_before_it_is_written_is_caught(hasty: CudaText, shim: Shim) -> None:
    case, _, _ = CASES[0]
    arrays, _ = arrays_and_values(case, case.sizes[0])
    with pytest.raises(Stopped) as stopped:
        shim.run(hasty, arrays)
    assert stopped.value.fault is Fault.RACE


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("units", [Units(), Units(128, 128, 32, 4, 4), Units(128, 64, 32, 2, 4)], ids=str)
def test_nothing_is_spilled(units: Units, arch: str) -> None:
    for dtype, variant in (
        (DType.F16, CudaVariant(units=units)), (DType.BF16, CudaVariant(units=units, split=1)),
        (DType.F32, CudaVariant(units=replace(units, depth=16, rounded=True))),
    ):  # fmt: skip

        def build(r: Room, dtype: DType = dtype) -> Any:
            return r.op("relu", r.op("matmul", r.input(N, M, dtype=dtype), r.input(M, 512, dtype=dtype)))

        text = generate(standard(), group(build), variant)
        assert [launch.form for launch in text.launches] == ["units"]
        binary = nvrtc.compile(text.text, arch)
        assert [usage.spills for usage in binary.kernels] == [0]
        # the instruction itself is there
        assert "mma.sync" in text.text


def test_half_precision_goes_to_tensor_cores_and_long_sums_to_several_blocks() -> None:
    """By the roofline, where a device has such cores, and where few tiles would leave most of it idle."""

    def half(r: Room) -> Any:
        return r.op("matmul", r.input(2048, 2048, dtype=DType.F16), r.input(2048, 2048, dtype=DType.F16))

    def long(r: Room) -> Any:
        return r.op("matmul", r.input(64, 16384), r.input(16384, 64))

    def plain(r: Room) -> Any:
        return r.op("matmul", r.input(2048, 2048), r.input(2048, 2048))

    first = [variants(standard(), group(build), Hardware())[0] for build in (half, long, plain)]
    assert [variant.units is not None for variant in first] == [True, False, False]
    assert [variant.split > 1 for variant in first] == [False, True, False]


def test_what_tensor_cores_do_not_have_goes_another_way() -> None:
    """A sum of differences is no sum of products."""

    def distances(r: Room) -> Any:
        a, b = r.input(64, 1, 40, dtype=DType.F16), r.input(1, 64, 40, dtype=DType.F16)
        return r.op("reduce_sum", r.op("abs", r.op("sub", a, b)), axes=(2,))

    text = generate(standard(), group(distances), CudaVariant(units=SMALL))
    assert "units" not in [launch.form for launch in text.launches]
    assert np.prod(text.launches[0].block) >= 32
