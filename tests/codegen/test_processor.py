"""Kernels for each processor: what it is, what compilers make of them, and who may run them."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dslc
from dslc import kernels
from dslc.cli.main import run as cli
from dslc.codegen.generate import generate, preamble, variants
from dslc.codegen.host import processor as processors
from dslc.codegen.host.compiler import Compiler, NotBuilt, compiler
from dslc.codegen.host.library import build, opened, source
from dslc.codegen.host.processor import LEVELS, NATIVE, here, of_level, processor, runs, wanted
from dslc.codegen.text import KernelText, Variant
from dslc.cost.machine import this_machine
from dslc.cost.process import ModelFile, Worker
from dslc.errors import DslcError
from dslc.ir.dtype import DType
from dslc.ir.graph import Graph
from dslc.kernels import known, prepared
from dslc.semantics.library import Rules, standard
from tests.caches import apart
from tests.codegen.files import by_hand, feeds, mish, ran
from tests.codegen.groups import Case, M, N, compare, group, needs_compiler
from tests.codegen.kernels import halves
from tests.codegen.test_filtered import conv, tiles
from tests.codegen.test_generate import GROUPS, typed
from tests.tuned import tuned

HERE = [name for name in LEVELS if runs(name)]
x86 = pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="levels are of x86-64")


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A processor of the second level."""
    monkeypatch.setattr(processors, "_features", lambda: LEVELS["x86-64-v2"].needs)
    here.cache_clear()
    yield
    monkeypatch.undo()
    here.cache_clear()


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    """Objects that tests with `file` compiled, by their names: a level's are the same in each."""
    return {}


@pytest.fixture
def file(std: Rules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, objects: dict[str, bytes]) -> Iterator[Path]:
    """A model with a kernel that is written by hand, and a cache of its own, without libraries."""
    place = apart(tmp_path / "cache", kernels=True) / "kernels" / "objects"
    monkeypatch.setenv("DSLC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kernels, "_own", by_hand)
    for name, content in objects.items():
        (place / name).write_bytes(content)
    path = tmp_path / "fast.onnx"
    onnx.save(mish(std)[1], path)
    yield path
    objects.update({one.name: one.read_bytes() for one in place.glob("*.o")})


def code_of(problem: pytest.ExceptionInfo[DslcError]) -> str:
    return problem.value.diagnostics[0].code


# ---- what a processor is -----------------------------------------------------------------------------------------------


def test_the_processor_at_hand_is_described() -> None:
    found = here()
    assert found.native and found.isa == NATIVE and found.threads >= 1 and found.vector_bytes in {16, 32, 64}
    assert found.level == (HERE[-1] if HERE else "") and found.lanes * 4 == found.vector_bytes
    assert NATIVE in str(found) and f"{found.vector_bytes} bytes" in str(found)


def test_levels_hold_what_those_below_them_do() -> None:
    for _, each in groupby(LEVELS.values(), key=lambda level: level.architecture):
        assert all(low.needs < high.needs and low.vector_bytes < high.vector_bytes for low, high in pairwise(each))
    assert {name: of_level(name).sums for name in LEVELS} == {
        "x86-64-v2": 12,
        "x86-64-v3": 12,
        "x86-64-v4": 24,
        "armv8-a": 24,
    }
    assert len({of_level(name).identity for name in LEVELS} | {here().identity}) == len(LEVELS) + 1


def test_a_level_is_wanted_inside() -> None:
    with wanted("x86-64-v2"):
        assert processor().level == "x86-64-v2" and this_machine().isa == "x86-64-v2"
        assert "kernels for x86-64-v2" in str(this_machine())
        with wanted(None):
            assert processor().level == "x86-64-v2"
    with wanted(NATIVE):
        assert "kernels" not in str(this_machine()) and this_machine().processor == here()


def test_the_environment_names_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSLC_ISA", "x86-64-v3")
    assert processor() == of_level("x86-64-v3")
    monkeypatch.setenv("DSLC_ISA", "avx2")
    with pytest.raises(DslcError) as problem:
        processor()
    assert code_of(problem) == "E0906" and "x86-64-v3" in (problem.value.diagnostics[0].hint or "")


def test_variants_have_the_vectors_and_registers_of_the_processor() -> None:
    product = group(lambda r: r.op("relu", r.op("matmul", r.input(64, 64), r.input(64, 64))))
    for name, width, sums in (("x86-64-v2", 4, 12), ("x86-64-v3", 8, 12), ("x86-64-v4", 16, 24), ("armv8-a", 4, 24)):
        found = variants(standard(), product, of_level(name))
        assert {one.width for one in found} == {width}
        assert max(one.vectors * one.block for one in found) == sums


# ---- what compilers make of kernels -------------------------------------------------------------------------------------


def forms() -> Iterator[tuple[str, Graph]]:
    """Everything that is written otherwise for other vectors."""
    for case in GROUPS:
        yield case.name, group(case.build)
    for dtype in (DType.F16, DType.BF16, DType.F64, DType.U8, DType.I16, DType.I64, DType.BOOL):
        for case in typed(dtype) if dtype is not DType.BOOL else ():
            if "f32" not in case.name:
                yield case.name, group(case.build)
        for one, other in ((dtype, DType.F32), (DType.F32, dtype), (dtype, DType.I64), (DType.I64, dtype)):
            if one is not other:
                yield (
                    f"{one} to {other}",
                    group(lambda r, one=one, other=other: r.op("cast", r.input(N, dtype=one), to=other)),
                )  # type: ignore[misc]
    yield "filtered", group(tiles((2, 19, 11, 6), 37, True, m=4, pads=(1, 1, 1, 1)))
    yield "in few channels", group(conv((1, 32, 20, 20), 32, groups=8, pads=(1, 1, 1, 1)))
    yield "gathered", group(lambda r: r.op("gather", r.input(N, M), r.input(9, dtype=DType.I64), axis=1))
    yield "reciprocal of a root", group(lambda r: r.op("reciprocal", r.op("sqrt", r.input(N))))


def expressions(text: KernelText) -> set[str]:
    """What a kernel computes with vectors: types, functions and operators, without variables and places."""
    found = set[str]()
    for line in text.text.removeprefix(preamble()).splitlines():
        line = re.sub(r"\bk_[0-9a-f]{12}\w*", "", line)
        called = re.findall(r"\bk_[a-z]\w*(?:<[^<>;]*>)?", line)
        if re.search(r"\b(?:in|out|scratch)\d*\b|\[", line):
            found.update(called)
        elif "V<" in line or "<" in "".join(called):
            found.add(" ".join(re.findall(r"V<[^>]*>|\bk_[a-z]\w*(?:<[^<>;]*>)?|[-+*/<>=!&|?^%~:]+", line)))
    return found


@pytest.fixture(scope="module")
def different() -> list[tuple[Graph, int]]:
    """Groups, and numbers of their variants, each with an expression that none before has."""
    found, seen = list[tuple[Graph, int]](), set[str]()
    of = of_level("x86-64-v3")
    for name, one in forms():
        # those of products are many; of another type than f32 they are the same but for their elements
        every = variants(standard(), one, of)[: 8 if "with bias" in name else 1]
        for k, variant in enumerate(every):
            if new := expressions(generate(standard(), one, variant)) - seen:
                seen |= new
                found.append((one, k))
    assert len(found) > 40 and len(seen) > 150
    return found


@pytest.mark.parametrize("level", LEVELS)
def test_vectors_are_those_of_the_processor(level: str, different: list[tuple[Graph, int]], tmp_path: Path) -> None:
    """GCC tells where it takes a vector element by element: nowhere, in any form. Of another architecture a cross compiler tells."""
    found = of_level(level)
    try:
        used = compiler(found)
    except NotBuilt as problem:
        pytest.skip(str(problem))
    if "clang" in used.version:
        pytest.skip("clang has no such warning")
    texts = {}
    for one, number in different:
        text = generate(standard(), one, variants(standard(), one, found)[number])
        # what all begin with is there once
        own = text.text.removeprefix(preamble()) if texts else text.text
        texts[text.name] = replace(text, text=own)
    # one that the processor does not have shows that the compiler tells
    wide = f"typedef float Wide __attribute__((vector_size({2 * found.vector_bytes})));\n"
    planted = f"{wide}Wide square(const Wide& a) {{ return a * a; }}\n"
    assert "Wvector-operation-performance" in told(used, planted, tmp_path)
    said = told(used, source(texts), tmp_path)
    assert "Wvector-operation-performance" not in said, said[:4000]


def told(used: Compiler, text: str, folder: Path) -> str:
    """What GCC says of vectors: they are taken apart before anything is optimized."""
    code = folder / "kernels.cpp"
    code.write_text(text, "utf-8")
    flags = [flag for flag in used.flags if flag not in {"-O3", "-shared"}]
    command = [*used.command, *flags, "-O0", "-Wvector-operation-performance", "-S", "-o", os.devnull, str(code)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert said.returncode == 0, said.stderr[:2000]
    return said.stderr


@needs_compiler
@pytest.mark.parametrize("level", HERE)
def test_kernels_of_each_level_compute_the_same(level: str) -> None:
    """Also where a vector is wider than the processor's, or narrower."""
    found = of_level(level)
    cases = [case for case in GROUPS if "long" not in case.name]
    best = (Variant(width=found.lanes), Variant(width=2 * found.lanes, vectors=1))
    with wanted(level):
        compare(cases[::2], best[:1], known=False)
        compare(cases[::5], best[1:], known=False)
        blocked = Variant(width=found.lanes, vectors=2, block=found.sums // 2)
        compare([Case("filtered", tiles((2, 19, 11, 6), 37, True, m=4, pads=(1, 1, 1, 1)), ({},), tolerance=1e-4)],
                (replace(blocked, filtered=True),), known=False)  # fmt: skip


# ---- libraries ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which what is built for several levels is kept."""
    return apart(tmp_path_factory.mktemp("levels"), kernels=True)


@needs_compiler
def test_each_level_has_libraries_of_its_own(folder: Path) -> None:
    names = {*HERE[:1], *HERE[-1:], NATIVE}
    paths = {build([halves()], folder, processor=processor(name)).path for name in names}
    assert len(paths) == len(names)
    # whoever runs a level may open what was built for it
    assert all(opened(path) is not None for path in paths)


@x86
@needs_compiler
def test_another_machine_s_library_is_not_opened(folder: Path, old: None) -> None:
    path = build([halves()], folder, processor=of_level("x86-64-v4")).path
    assert opened(path) is None and opened(path, any_machine=True) is not None
    assert opened(build([halves()], folder, processor=of_level("x86-64-v2")).path) is not None


@needs_compiler
@pytest.mark.parametrize("level", HERE)
def test_workers_run_the_kernels_of_the_level(level: str, file: Path) -> None:
    with wanted(level):
        with Worker(1) as worker:
            worker.load(ModelFile(str(file)))
            found = worker.ask({"do": "run", "feeds": feeds()})["arrays"]
        assert np.allclose(found[0], 1000 * ran(onnx.load(file), feeds())[0], rtol=1e-4)
        own = known(file)
    assert own is not None and own.library is not None and own == known(file, processor=of_level(level))
    native = prepared(file)
    assert native.library is not None and native.library != own.library


@needs_compiler
@pytest.mark.parametrize("level", HERE)
def test_a_session_of_a_level(level: str, file: Path) -> None:
    (found, *_) = dslc.session(file, isa=level).run(None, feeds())
    assert np.allclose(found, 1000 * ran(onnx.load(file), feeds())[0], rtol=1e-4)
    assert known(file, processor=of_level(level)) is not None and known(file) is None


# ---- what this machine cannot run ---------------------------------------------------------------------------------------


@x86
def test_kernels_for_a_better_processor_are_not_run(old: None, file: Path) -> None:
    assert here().level == "x86-64-v2" and here().vector_bytes == 16
    with pytest.raises(DslcError) as problem:
        dslc.session(file, isa="x86-64-v3")
    assert code_of(problem) == "E0817"
    for call in (lambda: dslc.optimize(onnx.load(file), isa="x86-64-v4"), lambda: dslc.session(file, isa="x86-64-v4")):
        with pytest.raises(DslcError) as problem:
            call()
        assert code_of(problem) == "E0817"
    with pytest.raises(DslcError) as problem:
        dslc.optimize(onnx.load(file), isa="avx512")  # type: ignore[arg-type]
    assert code_of(problem) == "E0906"


@x86
@needs_compiler
def test_building_for_another_machine(
    old: None, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(["build", str(file), "--isa", "x86-64-v4"]) == 1 and "E0817" in capsys.readouterr().err
    library, text = tmp_path / "fast.so", tmp_path / "text"
    assert cli(["build", str(file), "--isa", "x86-64-v4", "-o", str(library), "--emit", str(text)]) == 0
    assert library.is_file() and opened(library) is None
    assert "-march=x86-64-v4" in (text / "build.sh").read_text("utf-8")
    with pytest.warns(UserWarning, match="no library of kernels for this machine"):
        import onnxruntime

        dslc.register(onnxruntime.SessionOptions(), file, library=library)


@x86
def test_the_doctor_tells_the_level(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from dslc.cli.doctor import facts

    monkeypatch.setenv("DSLC_ISA", HERE[0])
    told = {name: text for name, text, _ in facts(tmp_path)}
    assert told["instructions"] == str(here()) and told["kernels for"].startswith(HERE[0])


@needs_compiler
@pytest.mark.parametrize("level", HERE[:1])
def test_a_report_says_the_level(level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSLC_CACHE", str(apart(tmp_path / "cache", kernels=True)))
    tuned(monkeypatch, "cost.measure", longest=0.02, again=0.01, shortest=0.01)
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[20000] x) => (float[20000] y) {
      s = Softplus(x)  t = Tanh(s)  y = Mul(x, t)
    }"""
    only: dict[str, Any] = {"derive": False, "mutate": False}
    found = dslc.optimize(onnx.parser.parse_model(text), isa=level, threads=1, budget=30, steps=1, timing=False, **only)  # type: ignore[arg-type]
    assert f"kernels for {level}" in json.dumps(json.loads(found.report.to_json()))
    assert not found.report.kept_original and known(found.model, processor=of_level(level)) is not None
