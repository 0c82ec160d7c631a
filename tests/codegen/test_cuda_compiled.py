"""CUDA kernels through NVRTC, where it is installed: every form compiles for old and new devices, and nothing is spilled."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from dslc.cli.main import run as cli
from dslc.codegen.cuda import nvrtc
from dslc.codegen.cuda.choose import Hardware, occupancy
from dslc.codegen.cuda.compiled import available
from dslc.codegen.cuda.generate import generate, variants
from dslc.codegen.cuda.text import CudaText, CudaVariant
from dslc.codegen.text import NotGenerated, Reason
from dslc.ir.constants import array_value
from dslc.ir.dtype import DType
from dslc.semantics.library import Rules, standard
from tests.codegen.files import with_kernel
from tests.codegen.groups import Case, M, N, Room, group
from tests.codegen.random_cuda import compiled_by_nvcc
from tests.codegen.test_cuda_shim import CASES, NAMES
from tests.codegen.test_generated import CASES as MODELS

needs_nvrtc = pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed (pip install dslc[cuda])")


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("case", [case for case, _, _ in CASES], ids=NAMES)
def test_texts_compile_and_nothing_is_spilled(case: Case, arch: str) -> None:
    """In the variant that is taken where nothing is said."""
    text = generate(standard(), group(case.build))
    binary = nvrtc.compile(text.text, arch)
    assert binary.cubin[:4] == b"\x7fELF"
    found = {usage.symbol: usage for usage in binary.kernels}
    assert set(found) == {launch.symbol for launch in text.launches}
    for launch in text.launches:
        usage = found[launch.symbol]
        assert usage.spills == 0
        assert launch.static_shared <= usage.shared <= 48 << 10
        assert 0 < occupancy(launch, Hardware(), usage) <= occupancy(launch, Hardware())


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_nvcc_takes_the_same_texts(tmp_path: Path) -> None:
    """All forms in one file, as what they stand on is guarded."""
    forms = {"mish", "softmax", "transpose", "product"}
    texts = [generate(standard(), group(case.build), variant) for case, _, variant in CASES if case.name in forms]
    assert list(compiled_by_nvcc(texts, tmp_path)) == []
    broken = replace(texts[0], text=f"{texts[0].text} k_nothing();")
    assert [line for line in compiled_by_nvcc([broken], tmp_path) if "k_nothing" in line]


@needs_nvrtc
def test_a_text_that_is_refused_is_named() -> None:
    with pytest.raises(nvrtc.NotCompiled) as problem:
        nvrtc.compile('extern "C" __global__ void f() { nothing(); }')
    assert problem.value.reason is nvrtc.NvrtcReason.ERROR
    assert "nothing" in problem.value.detail


def best(case: str, sizes: dict[str, int]) -> tuple[CudaVariant, CudaText]:
    (found,) = (case_ for case_, _, _ in CASES if case_.name == case)
    built = group(found.build, sizes)
    variant = variants(standard(), built)[0]
    return variant, generate(standard(), built, variant)


def test_large_products_take_larger_tiles_than_small_ones() -> None:
    """A small result would leave most of a device idle; a large one is better read less often."""
    small, large = (best("product", {"N": size, "M": size})[0].tile for size in (256, 4096))
    assert small is not None and large is not None
    assert small.rows * small.columns < large.rows * large.columns


def test_a_few_rows_are_shared_by_many_threads() -> None:
    _, few = best("layer norm", {"N": 128, "M": 4096})
    assert [launch.form for launch in few.launches] == ["rows"]
    assert few.launches[0].block[0] >= 256


def test_memory_has_what_is_read_and_written_once() -> None:
    """What a block keeps of a row is not moved, and of a table only what is looked up."""
    rows = generate(standard(), group(lambda r: r.op("softmax", r.input(64, 256), axis=1)))
    assert [launch.bytes for launch in rows.launches] == [2 * 64 * 256 * 4]
    table = generate(standard(), group(lambda r: r.op("gather", r.input(5000, 8), r.input(3, dtype=DType.I64), axis=0)))
    # places, the rows that they name, and the same rows again
    assert sum(int(str(launch.bytes)) for launch in table.launches) <= 3 * 8 * 8 + 2 * 3 * 8 * 4


def test_what_has_no_kernel_says_why() -> None:
    def weight(r: Room) -> object:
        return r.op("add", r.input(100), array_value(np.arange(100, dtype=np.float32)))

    with pytest.raises(NotGenerated) as problem:
        generate(standard(), group(weight))  # type: ignore[arg-type]
    assert problem.value.reason is Reason.WEIGHT


def test_names_say_what_is_computed_and_how() -> None:
    def twice(r: Room) -> object:
        return r.op("mul", r.input(N, M), r.number(2.0))

    texts = [
        generate(standard(), group(twice), variant)
        for variant in (CudaVariant(), CudaVariant(), CudaVariant(block=128))
    ]  # type: ignore[arg-type]
    assert texts[0] == texts[1]
    assert texts[0].name != texts[2].name
    assert texts[2].launches[0].block == (128, 1, 1)


# ---- the command line ------------------------------------------------------------------------------------------------------


def test_build_shows_the_kernels_of_a_model(std: Rules, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`dslc build --on cuda` writes the text of each kernel, and says what it takes where a compiler can tell."""
    _, written = with_kernel(std, *MODELS["softmax"][:3])
    file, folder = tmp_path / "fast.onnx", tmp_path / "cuda"
    onnx.save(written, file)
    assert cli(["build", str(file), "--on", "cuda", "--emit", str(folder)]) == 0
    said = capsys.readouterr().out
    (text,) = folder.iterdir()
    assert f'extern "C" __global__ void __launch_bounds__(256, 2) {text.stem}_0(' in text.read_text()
    assert f"{written.functions[0].name}  {text.stem}" in said
    assert f"{text.stem}_0  rows, " in said
    assert "us by the roofline of h100 (sm_90, 3.35 TB/s), not measured" in said
    assert (
        ("sm_90: " in said and " 0 bytes spilled" in said)
        if available()
        else "nvcc is installed: nothing was compiled" in said
    )
    assert cli(["build", str(file), "--on", "cuda", "--device", "a100"]) == 0
    said = capsys.readouterr().out
    assert "roofline of a100" in said and "h100" not in said and "sm_90" not in said


def test_build_has_no_library_for_cuda(std: Rules, tmp_path: Path) -> None:
    _, written = with_kernel(std, *MODELS["mish"][:3])
    onnx.save(written, tmp_path / "fast.onnx")
    assert cli(["build", str(tmp_path / "fast.onnx"), "--on", "cuda", "-o", str(tmp_path / "library.so")]) == 2
