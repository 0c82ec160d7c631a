"""Kernels that dslc generates, from a model's functions to a session: what `dslc.session` runs is what the nodes compute."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dslc
from dslc.codegen.empty import reducible_at_zero
from dslc.codegen.generate import generate, unknown_sizes, variants
from dslc.codegen.group import parts_of
from dslc.codegen.host.compiler import NAMES, compiler
from dslc.codegen.host.library import source
from dslc.codegen.host.processor import of_level
from dslc.codegen.text import KernelText
from dslc.ir.graph import Graph, Kernel
from dslc.kernels import prepared
from dslc.onnx.exporter import function_of
from dslc.onnx.importer import import_model
from dslc.semantics.library import Rules
from tests.caches import apart
from tests.codegen.files import ran, with_kernel
from tests.codegen.groups import M, N, group

pytestmark = pytest.mark.skipif(not any(map(shutil.which, NAMES)), reason="there is no C++ compiler")

MISH = """<ir_version: 8, opset_import: ["": 17]> g (float[N, M] x, float[M] w) => (float[N, M] y, float[N] s) {
  a = Add(x, w)  b = Softplus(a)  c = Tanh(b)  y = Mul(a, c)  axis = Constant<value_ints=[1]>()  s = ReduceSum<keepdims=0>(y, axis)
}"""
SOFTMAX = """<ir_version: 8, opset_import: ["": 17]> g (float[B, S, T] x, float[B, 1, T] mask) => (float[B, S, T] y) {
  k = Constant<value = float {0.125}>()  z = Mul(x, k)  m = Add(z, mask)  y = Softmax<axis=-1>(m)
}"""
MOVED = """<ir_version: 8, opset_import: ["": 17]> g (float[N, C, 6] x) => (float[6, N, C] y) {
  t = Transpose<perm=[2, 0, 1]>(x)  y = Relu(t)
}"""
PADDED = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 5] x) => (float[N, 8] y) {
  p = Constant<value_ints=[0, 1, 0, 2]>()  q = Pad(x, p)  y = Exp(q)
}"""
COMPARED = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 5] x, float[N, 1] z) => (bool[N, 5] y, int64[N, 5] n) {
  y = Greater(x, z)  n = Cast<to=7>(y)
}"""
#: model, outputs and inputs of the kernel, shapes of the inputs for a size of the first axis
CASES: dict[str, Any] = {
    "mish": (MISH, ["y", "s"], ["x", "w"], lambda n: {"x": (n, 7), "w": (7,)}),
    "softmax": (SOFTMAX, ["y"], ["x", "mask"], lambda n: {"x": (n, 3, 9), "mask": (n, 1, 9)}),
    "moved": (MOVED, ["y"], ["x"], lambda n: {"x": (n, 5, 6)}),
    "padded": (PADDED, ["y"], ["x"], lambda n: {"x": (n, 5)}),
    "compared": (COMPARED, ["y", "n"], ["x", "z"], lambda n: {"x": (n, 5), "z": (n, 1)}),
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DSLC_CACHE", str(apart(tmp_path / "cache", kernels=True)))
    return tmp_path / "cache"


def feeds(case: str, size: int) -> dict[str, Any]:
    random = np.random.default_rng(size)
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in CASES[case][3](size).items()}


@pytest.mark.parametrize("case", CASES)
def test_sessions_compute_what_the_nodes_compute(std: Rules, cache: Path, case: str) -> None:
    """At sizes that the file leaves open, 0 and 1 among them."""
    model, written = with_kernel(std, *CASES[case][:3])
    found = prepared(written)
    assert len(found.names) == 1 and not found.missing
    session = dslc.session(written, threads=2)
    for size in (3, 1, 0, 17, 400):
        given = feeds(case, size)
        for wanted, got in zip(ran(model, given), session.run(None, given), strict=True):
            assert wanted.shape == got.shape and wanted.dtype == got.dtype
            np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)


def test_sizes_that_contradict_each_other_are_an_error(std: Rules, cache: Path) -> None:
    """A file says that two sizes are one; a caller gives two: nothing is read beyond its end."""
    _, written = with_kernel(std, *CASES["softmax"][:3])
    session = dslc.session(written)
    with pytest.raises(Exception, match="Add"):  # the kernel refuses, and its body, too
        session.run(None, {"x": np.ones((2, 3, 9), np.float32), "mask": np.ones((5, 1, 9), np.float32)})


def pooled(hows: list[str], dtype: str) -> str:
    """Features of edges, put together: a graph may have no edges."""
    outputs = ", ".join(f"{dtype}[M] y{k}, {dtype}[N] z{k}" for k in range(len(hows)))
    nodes = " ".join(
        f"y{k} = {how}<keepdims=0>(b, first)  z{k} = {how}<keepdims=0>(b, last)" for k, how in enumerate(hows)
    )
    return f"""<ir_version: 8, opset_import: ["": 18]> g ({dtype}[N, M] x, {dtype}[M] w) => ({outputs}) {{
      a = Add(x, w)  b = Mul(a, x)  first = Constant<value_ints=[0]>()  last = Constant<value_ints=[1]>()
      {nodes}
    }}"""


_EXACT = ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceSumSquare"]


@pytest.mark.parametrize(
    ("hows", "dtype"),
    [
        (hows, dtype)
        for dtype in ("float", "float16")
        for hows in ([*_EXACT, "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"], ["ReduceMean"])
    ]
    + [(_EXACT, "int64")],
)
def test_what_is_reduced_may_be_empty(std: Rules, cache: Path, hows: list[str], dtype: str) -> None:
    """A kernel gives what ONNX Runtime gives for nothing: 0, 1, an infinity; or the nodes run (a mean divides by what is 0)."""
    outputs = [f"{name}{k}" for k in range(len(hows)) for name in "yz"]
    model, written = with_kernel(std, pooled(hows, dtype), outputs, ["x", "w"])
    (node,) = [node for node in import_model(written, std).graph.nodes() if isinstance(node, Kernel)]
    parts = parts_of(std, node.group)
    # of many reductions none makes the nodes run
    assert len(reducible_at_zero(parts, unknown_sizes(parts))) == (0 if hows == ["ReduceMean"] else 2)
    session = dslc.session(written)
    kind = {"float": np.float32, "int64": np.int64, "float16": np.float16}[dtype]
    for rows, columns in ((2, 3), (0, 3), (2, 0), (0, 0), (3, 2), (0, 40)):
        given = {"x": np.ones((rows, columns), kind), "w": np.ones(columns, kind)}
        for wanted, got in zip(ran(model, given), session.run(None, given), strict=True):
            assert wanted.shape == got.shape and wanted.dtype == got.dtype
            np.testing.assert_allclose(got, wanted, rtol=1e-2)


def test_which_sizes_may_be_zero(std: Rules) -> None:
    """Extents alone may name such a size; with it in a divisor, a position or a value nothing is certain."""

    def named(build: Any) -> set[str]:
        found = parts_of(std, group(build))
        return {str(size) for size in reducible_at_zero(found, unknown_sizes(found))}

    def over(how: str, *axes: int) -> Any:
        return lambda room: room.op(how, room.input(M, N), axes=axes, keepdims=False)

    assert named(over("reduce_sum", 1)) == named(over("reduce_max", 0, 1)) == {"M", "N"}
    assert named(over("reduce_mean", 1)) == {"M"}
    # the first column: it is read where there is none
    assert named(lambda room: room.op("slice", room.input(M, N), start=(0, 0), size=(M, 1))) == {"M"}
    assert named(lambda room: room.op("relu", room.input(M, N))) == {"M", "N"}


def texts(rules: Rules, case: str, level: str | None = "x86-64-v2") -> tuple[Graph, list[KernelText]]:
    """Every variant of a case's kernel, for a processor's level or (None) for the one at hand."""
    of = of_level(level) if level else None
    _, written = with_kernel(rules, *CASES[case][:3])
    (node,) = [node for node in import_model(written, rules).graph.nodes() if isinstance(node, Kernel)]
    group = function_of(rules, node.group, 17).group
    return group, list(
        {
            text.name: text for variant in variants(rules, group, of) for text in [generate(rules, group, variant)]
        }.values()
    )


#: runs a kernel on memory of just its size that begins where it likes, its tasks in threads
MAIN = """
#include <cstdio>
#include <thread>
#include <vector>
struct Tensor { std::vector<char> memory; void* at; };
static Tensor tensor(int64_t bytes, int shift) {
    Tensor out{std::vector<char>(bytes + shift), nullptr};
    out.at = out.memory.data() + shift;
    for (int64_t k = 0; k < bytes; k++) out.memory[shift + k] = (char)(k % 4 == 3 ? 0x3f : k * 37 % 64);
    return out;
}
template <class Scratch, class Stages, class Tasks, class Run>
static void all(const int64_t* sizes, const void* const* in, void* const* out, Scratch scratch, Stages stages, Tasks tasks, Run run) {
    std::vector<char> room(scratch(sizes) + 64);
    void* memory = (void*)(((uintptr_t)room.data() + 63) / 64 * 64);
    for (int stage = 0; stage < stages(); stage++) {
        const int64_t count = tasks(sizes, stage);
        std::vector<std::thread> threads;
        for (int64_t t = 0; t < 3; t++)
            threads.emplace_back([=] { run(sizes, in, out, memory, stage, count * t / 3, count * (t + 1) / 3); });
        for (auto& one : threads) one.join();
    }
}
"""


def main_of(named: list[tuple[str, KernelText]]) -> str:
    """A program that runs every kernel at several sizes."""
    out = [MAIN]
    calls = []
    for case, text in named:
        for size in (1, 2, 19):
            shapes = list(CASES[case][3](size).values())
            dims = ", ".join(f"d{k}" for k in range(len(shapes)))
            lines = [
                f"static const int64_t d{k}[] = {{{', '.join(map(str, shape))}}};" for k, shape in enumerate(shapes)
            ]
            lines.append(f"const int64_t* dims[] = {{{dims}}}; int64_t sizes[64], shape[16];")
            lines.append(f"if (!{text.name}_sizes(dims, sizes)) return 1;")
            widths = [int(np.prod(shape)) * 4 for shape in shapes]
            lines += [f"Tensor i{k} = tensor({width}, {4 * k + 4});" for k, width in enumerate(widths)]
            lines.append(f"const void* in[] = {{{', '.join(f'i{k}.at' for k in range(len(shapes)))}}};")
            for k, type in enumerate(text.outputs):
                lines.append(f"{text.name}_shape(sizes, {k}, shape); int64_t n{k} = {type.dtype.bytes};")
                lines.append(f"for (int a = 0; a < {type.rank}; a++) n{k} *= shape[a];")
                lines.append(f"Tensor o{k} = tensor(n{k}, {type.dtype.bytes});")
            lines.append(f"void* out[] = {{{', '.join(f'o{k}.at' for k in range(len(text.outputs)))}}};")
            called = ", ".join(f"{text.name}_{part}" for part in ("scratch", "stages", "tasks", "run"))
            lines.append(f"all(sizes, in, out, {called});")
            body = "\n".join(lines)
            out.append(f"static int case{len(calls)}() {{\n{body}\nreturn 0; }}")
            calls.append(f"case{len(calls)}()")
    out.append(f"int main() {{ return {' || '.join(calls)}; }}")
    return "\n".join(out)


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_sanitizers_find_nothing(std: Rules, tmp_path: Path, sanitizer: str) -> None:
    """No access outside of tensors, no undefined behaviour, no two threads at one place: the first and the last variant, on unaligned
    memory. Vectors are those that any processor has: what a sanitizer does not know, it does not see; wider ones, which take a compiler
    five times as long, are those of one case."""
    every = [(case, texts(std, case)[1]) for case in CASES]
    named = [(case, text) for case, own in every for text in dict.fromkeys((own[0], own[-1]))]
    named.extend(("padded", text) for text in texts(std, "padded", None)[1][:1] if ("padded", text) not in named)
    code, program = tmp_path / "kernels.cpp", tmp_path / "kernels"
    code.write_text(source({text.name: text for _, text in named}) + main_of(named))
    flags = ["-std=c++17", "-O0", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-pthread"]
    made = subprocess.run([*compiler().command, *flags, "-o", str(program), str(code)], capture_output=True, text=True)
    if made.returncode and "cannot find" in made.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert made.returncode == 0, made.stderr[-2000:]
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=300)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("the system's memory layout is none that the sanitizer knows")
    assert done.returncode == 0, done.stderr[-3000:]


#: mistakes that are planted in a kernel's text: what is replaced, by what, and what the sanitizer says of it
PLANTED = {
    "a read behind the end": ("address", "in[0]", "((const char*)in[0] + 4)", "ERROR: AddressSanitizer"),
    "a race": ("thread", "begin * per, k_min64(end * per, rows)", "0, rows", "data race"),
    "an overflow": (
        "undefined",
        "int64_t per = 1, rows = 0;",
        "int64_t per = INT64_MAX, rows = 0; per += 1;",
        "overflow",
    ),
}


@pytest.mark.parametrize("mistake", PLANTED)
def test_the_sanitizers_find_what_is_planted(std: Rules, tmp_path: Path, mistake: str) -> None:
    """One element too many is read; every thread does all tasks; a signed number grows too large."""
    sanitizer, right, instead, says = PLANTED[mistake]
    _, (text, *_) = texts(std, "padded")
    assert right in text.text
    wrong = KernelText(text.name, text.inputs, text.outputs, text.sizes, text.text.replace(right, instead))
    code, program = tmp_path / "kernels.cpp", tmp_path / "kernels"
    code.write_text(source({text.name: wrong}) + main_of([("padded", wrong)]))
    flags = ["-std=c++17", "-O0", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-pthread"]
    made = subprocess.run([*compiler().command, *flags, "-o", str(program), str(code)], capture_output=True, text=True)
    if made.returncode and "cannot find" in made.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert made.returncode == 0, made.stderr[-2000:]
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=300)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("the system's memory layout is none that the sanitizer knows")
    assert done.returncode != 0 and says in done.stderr


def test_openvino_runs_the_file_without_functions(std: Rules) -> None:
    """A runtime that knows no functions."""
    openvino = pytest.importorskip("openvino")
    from dslc.onnx.functions import inlined

    model, written = with_kernel(std, *CASES["mish"][:3])
    compiled = openvino.Core().compile_model(onnx.ModelProto(inlined(written)).SerializeToString(), "CPU")
    given = feeds("mish", 3)
    for wanted, got in zip(ran(model, given), compiled(given).values(), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
