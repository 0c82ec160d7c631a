"""Kernels that nobody would wait for, and sizes that 32 bits do not count."""

from __future__ import annotations

import ctypes
import re
import shutil
import sys
import threading
import time
from contextlib import suppress
from math import prod
from pathlib import Path

import numpy as np
import pytest

import dslc
from dslc.codegen import limits as limited
from dslc.codegen.generate import generate, variants
from dslc.codegen.host.compiler import NAMES
from dslc.codegen.host.library import build
from dslc.codegen.limits import TooLong, within
from dslc.codegen.render import preamble
from dslc.ir.graph import Kernel
from dslc.kernels import WhyMissing, prepared
from dslc.onnx.exporter import function_of
from dslc.onnx.importer import import_model
from dslc.semantics.library import Rules
from tests.codegen.files import ran, with_kernel

compiles = pytest.mark.skipif(not any(map(shutil.which, NAMES)), reason="there is no C++ compiler")


def endless() -> None:
    while True:
        pass


def test_work_that_loses_its_end_is_ended_again() -> None:
    """As in a callback of the garbage collector, where exceptions are printed and forgotten."""
    ended = threading.Event()

    def deaf() -> None:
        with suppress(BaseException):
            endless()
        try:
            endless()
        finally:
            ended.set()

    with pytest.raises(TooLong):
        within(0.1, deaf)
    assert ended.wait(30)


def test_an_end_that_is_lost_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, printed = threading.Event(), list[object]()
    monkeypatch.setattr(sys, "unraisablehook", printed.append)

    class Last:
        def __del__(self) -> None:
            # Python prints what is raised here, and goes on
            endless()

    def work() -> None:
        one = Last()
        del one
        try:
            endless()
        finally:
            ended.set()

    with pytest.raises(TooLong):
        within(0.1, work)
    assert ended.wait(30)
    assert not printed


def test_work_ends_in_its_time() -> None:
    assert within(5, lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        within(5, lambda: 1 // 0)
    before = threading.active_count()
    with pytest.raises(TooLong):
        within(0.1, endless)
    with pytest.raises(TooLong):
        within(0, lambda: 3)
    end = time.monotonic() + 30
    while threading.active_count() > before:
        assert time.monotonic() < end, "the thread goes on"
        time.sleep(0.01)


def test_a_file_with_a_kernel_that_takes_too_long_runs_without_it(
    std: Rules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty squares of squares: a product of 2^40 factors."""
    monkeypatch.setenv("DSLC_CACHE", str(tmp_path))
    monkeypatch.setattr(limited, "SECONDS", 1.0)
    squares = " ".join(f"v{k + 1} = Mul(v{k}, v{k})" for k in range(40))
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[N] y) {{ v0 = Relu(x) {squares} y = Neg(v40) }}'
    model, written = with_kernel(std, text, ["y"], ["x"])
    began = time.monotonic()
    assert [one.why for one in prepared(written).missing] == [WhyMissing.TIME]
    assert time.monotonic() - began < 30
    given = {"x": np.array([0.5, 1.0, -2.0], np.float32)}
    # that it takes long is found out once
    monkeypatch.setattr("dslc.kernels._own", None)
    with pytest.warns(UserWarning, match="took too long"):
        assert np.array_equal(dslc.session(written).run(None, given)[0], ran(model, given)[0])


#: reads forwards, moved and behind an edge, a reduction, and what is kept between stages
MANY = """<ir_version: 8, opset_import: ["": 17]> g (int8[N, 3] x, int8[N, M] w) => (int8[3, N] y, int8[N, 7] z, float[N, M] s) {
  t = Transpose<perm=[1, 0]>(x)  y = Abs(t)
  pads = Constant<value_ints=[0, 1, 0, 3]>()  z = Pad(x, pads)
  f = Cast<to=1>(w)  s = Softmax<axis=0>(f)
}"""


@compiles
def test_positions_have_64_bits(std: Rules, tmp_path: Path) -> None:
    """Of tensors of more than 2^31 and 2^32 elements; `python -m benchmarks.full` runs such kernels."""
    _, written = with_kernel(std, MANY, ["y", "z", "s"], ["x", "w"])
    (node,) = [node for node in import_model(written, std).graph.nodes() if isinstance(node, Kernel)]
    group = function_of(std, node.group, 17).group
    texts = list(
        {text.name: text for variant in variants(std, group) for text in [generate(std, group, variant)]}.values()
    )
    for text in texts:
        body = text.text.removeprefix(preamble())
        assert len(body) < len(text.text)
        # what is left of a vector is counted in 32 bits, positions never are
        for declared in re.findall(r"\b(?:int|unsigned|int32_t|uint32_t|long) (\w+) = ", body):
            assert re.search(rf"const int {declared} = \(int\)\(\w+_end - \w+\);", body), declared
        loops = re.findall(r"for \((\w+) ", body)
        assert loops and set(loops) == {"int64_t"}
    loaded = ctypes.CDLL(str(build(texts[:1], tmp_path).path))
    name, n, m = texts[0].name, 3_000_000_019, 5
    for part in ("scratch", "tasks"):
        loaded[f"{name}_{part}"].restype = ctypes.c_int64
    dims = (ctypes.POINTER(ctypes.c_int64) * 2)((ctypes.c_int64 * 2)(n, 3), (ctypes.c_int64 * 2)(n, m))
    sizes, shape = (ctypes.c_int64 * 8)(), (ctypes.c_int64 * 4)()
    assert loaded[f"{name}_sizes"](dims, sizes) == 1
    for k, wanted in enumerate([(3, n), (n, 7), (n, m)]):
        loaded[f"{name}_shape"](sizes, k, shape)
        assert tuple(shape)[:2] == wanted
    assert loaded[f"{name}_scratch"](sizes) >= 0
    tasks = [loaded[f"{name}_tasks"](sizes, stage) for stage in range(loaded[f"{name}_stages"]())]
    assert all(0 < count <= prod((n, 7)) for count in tasks), tasks
