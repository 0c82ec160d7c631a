"""Where ONNX Runtime says that a position is outside of a tensor, or that nothing is there, a kernel does not answer."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dslc
from dslc.codegen.cuda.generate import generate as generate_cuda
from dslc.codegen.generate import generate, variants
from dslc.codegen.text import NotGenerated, Reason
from dslc.ir.constants import array_value
from dslc.ir.dtype import DType
from dslc.ir.graph import Value
from dslc.semantics.library import Rules
from tests.caches import apart
from tests.codegen.files import ran, with_kernel
from tests.codegen.groups import Build, M, N, Room, group, needs_compiler
from tests.codegen.native import NotRun, build

HEAD = '<ir_version: 8, opset_import: ["": 17]> g'
#: models from `x` (and `i`) to `y`: by constants, by data in vectors and beside them, by numbers of a small table
OPEN = {
    "constant": "(float[N, 37] x) => (float[37] y) { i = Constant<value = int64 {6}>()  t = Gather(x, i)  y = Exp(t) }",
    "from the end": "(float[N, 37] x) => (float[37] y) { i = Constant<value = int64 {-7}>()  t = Gather(x, i)  y = Exp(t) }",
    "along rows": "(float[37, N] x) => (float[37] y) { i = Constant<value = int64 {6}>()  t = Gather<axis=1>(x, i)  y = Exp(t) }",
    "steps": "(float[N, 5] x) => (float[3, 5] y) { i = Constant<value_ints=[4, 5, 6]>()  t = Gather(x, i)  y = Exp(t) }",
    "some": "(float[N, 5] x) => (float[3, 5] y) { i = Constant<value_ints=[1, 6, 4]>()  t = Gather(x, i)  y = Exp(t) }",
}
DATA = {
    "rows": "(float[N, 37] x, int64[J] i) => (float[J, 37] y) { t = Gather(x, i)  y = Exp(t) }",
    "lanes": "(float[37, N] x, int64[J] i) => (float[37, J] y) { t = Gather<axis=1>(x, i)  y = Exp(t) }",
    "elements": "(float[N, 37] x, int64[J, 37] i) => (float[J, 37] y) { t = GatherElements(x, i)  y = Exp(t) }",
    "table": "(int64[J] i) => (float[J] y) { x = Constant<value = float[6] {0, 1, 2, 3, 4, 5}>()  t = Gather(x, i)  y = Exp(t) }",
    "several axes": "(float[6, 6] x, int64[J, 2] i) => (float[J] y) { t = GatherND(x, i)  y = Exp(t) }",
    "chosen": "(float[N, 37] x, int64[J] i, bool[J, 1] c) => (float[J, 37] y) { t = Gather(x, i)  z = Constant<value = float {0}>() "
    " y = Where(c, t, z) }",
}  # fmt: skip


def answer(run: Any) -> Any:
    try:
        return run()
    except Exception as problem:  # ONNX Runtime raises many kinds, none of them documented
        assert re.search("out of|invalid index", str(problem).lower()), problem
        return None


@needs_compiler
def test_a_session_says_what_the_runtime_says(std: Rules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At sizes and numbers where all is inside, and where one position is not."""
    monkeypatch.setenv("DSLC_CACHE", str(apart(tmp_path / "cache", kernels=True)))
    asked = [(OPEN[name], rows, None) for name in OPEN for rows in (7, 6, 1)]
    asked += [(DATA[name], 6, at) for name in DATA for at in (5, -6, 6, -7, 10**12, -(10**12))]
    sessions: dict[str, Any] = {}
    for text, rows, at in asked:
        inputs = re.findall(r" ([xic])\b", text.split("=>")[0])
        model, written = with_kernel(std, f"{HEAD} {text}", ["y"], inputs)
        if text not in sessions:
            sessions[text] = dslc.session(written, threads=1)
        shapes = {one.name: [n.dim_value or {"N": rows, "J": 19}[n.dim_param] for n in one.type.tensor_type.shape.dim]
                  for one in model.graph.input}  # fmt: skip
        given: dict[str, Any] = {"x": np.ones(shapes["x"], np.float32)} if "x" in shapes else {}
        if "i" in shapes:
            given["i"] = np.arange(np.prod(shapes["i"])).reshape(shapes["i"]) % 6
            given["i"].flat[17] = at
        if "c" in shapes:
            given["c"] = np.arange(19).reshape(19, 1) != 17
        wanted = answer(lambda model=model, given=given: ran(model, given))
        found = answer(lambda text=text, given=given: sessions[text].run(None, given))
        assert (wanted is None) == (found is None), (text, rows, at)
        if wanted is not None:
            np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)


@needs_compiler
def test_a_library_says_so(std: Rules) -> None:
    """The kernel itself gives an error, in each thread: no other element is read in its place unseen."""

    def build_group(r: Room) -> Value:
        return r.op("gather", r.input(N, M), r.input(100, dtype=DType.I64), axis=0)

    texts = [generate(std, group(build_group), variant) for variant in variants(std, group(build_group))]
    library = build(list({text.name: text for text in texts}.values()))
    x, places = np.ones((5, 33), np.float32), np.zeros(100, np.int64)
    for text in texts:
        for threads in (1, 2):
            library.run(text.name, [x, places], threads)
            for at in (0, 50, 99):
                wrong = places.copy()
                wrong[at] = 5
                with pytest.raises(NotRun, match="outside of a tensor"):
                    library.run(text.name, [x, wrong], threads)


def refused(rules: Rules, build: Build) -> bool:
    for made in (lambda: generate(rules, group(build)), lambda: generate_cuda(rules, group(build))):
        with pytest.raises(NotGenerated) as problem:
            made()
        assert problem.value.reason is Reason.FORM
    return True


def test_what_is_known_to_be_outside_has_no_kernel(std: Rules) -> None:
    def gather(rows: int, at: int) -> Build:
        return lambda r: r.op("gather", r.input(rows, 5), array_value(np.array(at, np.int64)), axis=0)

    generate(std, group(gather(6, 5)))
    generate(std, group(gather(6, -6)))
    assert refused(std, gather(6, 6)) and refused(std, gather(6, -7))


@pytest.mark.parametrize("how", ["reduce_mean", "reduce_max", "reduce_sum"])
def test_what_has_no_elements_has_no_kernel(std: Rules, how: str) -> None:
    """A mean of nothing, its largest element, and what is looked up in it."""
    assert refused(std, lambda r: r.op(how, r.input(3, 0), axes=(1,)))
    assert refused(std, lambda r: r.op("relu", r.input(N, 0)))
    assert refused(std, lambda r: r.op("gather", r.input(0, 5), r.input(2, dtype=DType.I64), axis=0))


@needs_compiler
def test_sizes_have_64_bits(std: Rules) -> None:
    """The tasks of stages whose sizes are just below 2^31: counting them takes no memory."""
    edge = 1 << 31
    builds: list[Build] = [
        lambda r, n=n: r.op("neg", r.input(n, dtype=DType.I8)) for n in (edge - 1, edge - 648, edge, edge + 5)
    ]
    builds += [lambda r, n=n: r.op("softmax", r.input(n, 8), axis=1) for n in (edge - 1, edge + 1)]
    builds += [lambda r, n=n: r.op("matmul", r.input(n, 16), r.input(16, 64)) for n in (edge - 1, edge + 1)]
    texts = [text for one in builds for text in [generate(std, group(one))]]
    library = build(texts)
    loaded = ctypes.CDLL(str(library.path))
    for text in texts:
        tasks = loaded[f"{text.name}_tasks"]
        tasks.restype = ctypes.c_int64
        sizes = (ctypes.c_int64 * 1)()
        found = [tasks(sizes, stage) for stage in range(loaded[f"{text.name}_stages"]())]
        assert all(1000 < count < edge for count in found), (text.name, found)
