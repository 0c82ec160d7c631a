"""Kernels for AArch64 give what the interpreter gives, in an emulator of its instructions; and what is made for it here."""

from __future__ import annotations

import platform
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dslc.cli.main import run as cli
from dslc.codegen.host import processor as processors
from dslc.codegen.host.compiler import BuildReason, Compiler, NotBuilt, compiler
from dslc.codegen.host.library import build, opened
from dslc.codegen.host.processor import LEVELS, Processor, foreign, here, of_level, processor
from dslc.codegen.text import Variant
from dslc.ir.dtype import DType
from dslc.kernels import texts_of
from dslc.semantics.library import Rules
from tests.caches import apart
from tests.codegen import groups, test_filtered, test_generate, test_kernel_functions, test_panels
from tests.codegen.aarch64 import LEVEL, Emulated, built, missing
from tests.codegen.files import ran, with_kernel
from tests.codegen.groups import Case, compare
from tests.codegen.kernels import halves
from tests.codegen.test_generated import CASES, feeds

needs_both = pytest.mark.skipif(bool(missing()), reason=f"kernels for AArch64 are not made and run here: {missing()}")
#: a level of another architecture
OTHER = next(name for name, level in LEVELS.items() if foreign(level))
BEST = Variant(width=of_level(LEVEL).lanes)
BLOCKED = replace(BEST, vectors=2, block=of_level(LEVEL).sums // 2)


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of kernels build for AArch64, and run there."""
    for module in (groups, test_filtered, test_kernel_functions):
        monkeypatch.setattr(module, "build", built)


# ---- against the interpreter ----------------------------------------------------------------------------------------------


@needs_both
@pytest.mark.parametrize("part", range(4))
def test_groups(emulated: None, part: int) -> None:
    """Pointwise, reductions, softmax, norms, masks, transposes, paddings: vectors of a register, and pairs of them."""
    cases = [case for case in test_generate.GROUPS if "long" not in case.name][part::4]
    compare(cases, (BEST,), known=False)
    compare(cases[::4], (replace(BEST, width=2 * BEST.width, vectors=1),))


@needs_both
@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F64, DType.U8, DType.I16, DType.I64], ids=str)
def test_types(emulated: None, dtype: DType) -> None:
    compare([*test_generate.typed(dtype)], (BEST,), known=False)
    pairs = [(dtype, DType.F32), (DType.F32, dtype), (dtype, DType.I64), (DType.BOOL, dtype), (dtype, DType.BOOL)]
    compare(
        [cast(one, other) for one, other in pairs if one is not other], (BEST, replace(BEST, width=16)), known=False
    )


def cast(one: DType, other: DType) -> Case:
    draw = {0: lambda rng, shape: rng.integers(0, 6, shape)}  # of a negative number u8 has none
    return Case(
        f"{one} to {other}",
        lambda r: r.op("cast", r.input(groups.N, groups.M, dtype=one), to=other),
        groups.SIZES[2:],
        draw,
    )


@needs_both
def test_products(emulated: None) -> None:
    compare(test_panels.CASES, (replace(BLOCKED, panels=True),), known=False)
    compare(test_filtered.CASES, (replace(BLOCKED, filtered=True),), known=False)


@needs_both
@pytest.mark.parametrize("name", test_kernel_functions.STATED)
def test_functions(emulated: None, name: str, functions: Any) -> None:
    """Their errors are those that are stated for all processors."""
    test_kernel_functions.test_errors_are_as_stated(name, functions)


@pytest.fixture(scope="module")
def functions() -> Any:
    texts = {
        (name, width): test_kernel_functions.generate(
            test_kernel_functions.standard(), groups.group(lambda r, name=name: r.op(name, r.input(groups.N))), Variant(width=width)
        )
        for name in test_kernel_functions.STATED
        for width in (8, 16)
    }  # fmt: skip
    return built(list(texts.values())), texts


@needs_both
def test_numbers_that_are_none(emulated: None) -> None:
    test_kernel_functions.test_larger_and_smaller_are_nan_where_either_is()
    for name in ("reduce_max", "reduce_sum"):
        test_kernel_functions.test_reductions_hand_nan_on(name)


@needs_both
@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=str)
def test_half_numbers(emulated: None, dtype: DType) -> None:
    test_kernel_functions.test_half_precision_rounds_to_the_nearest(dtype)
    if dtype is DType.F16:
        test_kernel_functions.test_half_numbers_are_converted_as_numpy_does(8)


# ---- building for another machine -------------------------------------------------------------------------------------------


@needs_both
@pytest.mark.parametrize("case", CASES)
def test_a_library_for_another_machine(
    std: Rules, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `dslc build` writes computes there what the nodes do, at sizes that the file leaves open."""
    monkeypatch.setenv("DSLC_CACHE", str(apart(tmp_path / "cache")))
    model, written = with_kernel(std, *CASES[case][:3])
    path, library, text = tmp_path / "m.onnx", tmp_path / "fast.so", tmp_path / "text"
    path.write_bytes(written.SerializeToString())
    assert cli(["build", str(path), "--isa", LEVEL, "-o", str(library), "--emit", str(text)]) == 0
    assert f"-march={LEVEL}" in (text / "build.sh").read_text("utf-8")
    # 183 is AArch64's number in ELF
    assert struct.unpack_from("<H", library.read_bytes(), 18) == (183,)
    assert opened(library, any_machine=True) is not None
    if foreign(LEVELS[LEVEL]):
        assert opened(library) is None
        assert cli(["build", str(path), "--isa", LEVEL]) == 1 and "E0817" in capsys.readouterr().err
    texts, _ = texts_of(written, processor=of_level(LEVEL))
    ((name, _),) = texts.items()
    for size in (3, 1, 17):
        given = feeds(case, size)
        found = Emulated(library, texts).run(name, [given[one] for one in CASES[case][2]])
        expected = dict(zip([one.name for one in model.graph.output], ran(model, given), strict=True))
        assert not list(groups.different(found, [expected[one] for one in CASES[case][1]], 2e-5))


def stand_in(path: Path, machine: str, does: str = "") -> str:
    """A compiler that says what it compiles for."""
    path.write_text(
        f'#!/bin/sh\ncase "$*" in *-dumpmachine) echo {machine}; exit;; *--version) echo 1.0; exit;; esac\n{does}\n'
    )
    path.chmod(0o755)
    return str(path)


def test_a_compiler_for_another_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What `CXX` names is asked what it compiles for; without it there is one usual name."""
    other = of_level(OTHER)
    cross = stand_in(tmp_path / "cross", f"{other.architecture}-unknown-linux")
    monkeypatch.setenv("CXX", f"{cross} -g")
    assert compiler(other).command == (cross, "-g")
    monkeypatch.setenv("CXX", stand_in(tmp_path / "own", f"{here().architecture}-linux-gnu"))
    with pytest.raises(
        NotBuilt, match=f"compiles for {here().architecture}-linux-gnu, not for {other.architecture}"
    ) as problem:
        compiler(other)
    assert problem.value.reason is BuildReason.NO_COMPILER
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotBuilt, match=f"there is no {other.architecture}-linux-gnu-g"):
        compiler(other)


def test_without_a_cross_compiler(
    std: Rules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DSLC_CACHE", str(apart(tmp_path / "cache")))
    monkeypatch.setenv("PATH", str(tmp_path))
    path = tmp_path / "m.onnx"
    path.write_bytes(with_kernel(std, *CASES["mish"][:3])[1].SerializeToString())
    assert (
        cli(["build", str(path), "--isa", OTHER, "-o", str(tmp_path / "fast.so"), "--emit", str(tmp_path / "text")])
        == 1
    )
    said = capsys.readouterr().err
    assert "E0815" in said and f"{of_level(OTHER).architecture}-linux-gnu-g++" in said and "CXX" in said
    # the text can be taken there
    assert f"-march={OTHER}" in (tmp_path / "text" / "build.sh").read_text("utf-8")
    assert not (tmp_path / "fast.so").exists()


def test_what_another_compiler_makes_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be loaded here; that it has the functions is read in it."""
    does = 'for a; do [ "$l" = -o ] && echo no library > "$a"; l=$a; done'
    monkeypatch.setenv("CXX", stand_in(tmp_path / "cross", f"{of_level(OTHER).architecture}-linux", does))
    with pytest.raises(NotBuilt) as problem:
        build([halves()], tmp_path, processor=of_level(OTHER))
    assert problem.value.reason is BuildReason.UNLOADABLE


# ---- processors that are not at hand ------------------------------------------------------------------------------------------


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A processor with NEON, of macOS: it has no /proc/cpuinfo."""
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(processors, "_cpuinfo", dict)
    cached = (here, processors._features)
    for one in cached:
        one.cache_clear()
    yield
    monkeypatch.undo()
    for one in cached:
        one.cache_clear()


def test_a_processor_with_neon(arm: None) -> None:
    found = here()
    assert (found.architecture, found.level, found.lanes, found.registers, found.sums) == ("aarch64", LEVEL, 4, 32, 24)
    assert found.fma and found.half and not found.masks and not found.gather
    assert "FMA, f16" in str(found) and processors.runs(LEVEL) and not processors.runs("x86-64-v2")
    assert processors.identities() == {found.identity, of_level(LEVEL).identity}


def test_flags_of_a_processor(arm: None) -> None:
    def flags(of: Processor) -> tuple[str, ...]:
        return Compiler(("c++",), "", of).flags

    assert "-mcpu=native" in flags(here()) and "-march=armv8-a" in flags(of_level(LEVEL))
    assert "-march=x86-64-v3" in flags(processor("x86-64-v3"))


def test_compilers_of_macos(arm: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One compiler knows both architectures there."""
    from dslc.codegen.host import compiler as compilers

    monkeypatch.setattr(compilers, "_MACOS", True)
    (tmp_path / "c++").write_text("#!/bin/sh\necho Apple clang version 15.0.0\n")
    (tmp_path / "c++").chmod(0o755)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert compiler(here()).command == (str(tmp_path / "c++"),)
    assert compiler(of_level("x86-64-v3")).command == (str(tmp_path / "c++"), "-arch", "x86_64")
