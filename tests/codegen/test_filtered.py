"""Products between transforms by constant tables, and convolutions in that form: what becomes one, and that it gives the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, numpy_helper

from dslc.codegen.generate import generate, variants
from dslc.codegen.group import parts_of
from dslc.codegen.host.library import DOMAIN
from dslc.codegen.host.processor import processor
from dslc.codegen.split_reductions import separated
from dslc.codegen.text import NotGenerated, Variant
from dslc.codegen.winograd import filtered
from dslc.interpret.floats import Floats
from dslc.interpret.run import run
from dslc.ir.dtype import Dim, DType, TensorType
from dslc.ir.graph import Graph, Value, input_value
from dslc.kernels import _own
from dslc.match.forms import forms, generated, tells_nonfinite, ways
from dslc.onnx.microbenchmarks import kernel_model
from dslc.semantics.apply import apply
from dslc.semantics.library import load, standard
from tests.codegen.groups import Case, M, N, Room, compare, group, needs_compiler
from tests.codegen.native import build

WIDE = Variant(vectors=2, block=12, filtered=True)
NARROW = Variant(width=8, vectors=1, block=3, filtered=True)


def tiles(x: tuple[Dim, ...], filters: int, behind: bool = False, **attrs: Any) -> Callable[[Room], Value]:
    """A convolution by tiles, and what networks compute behind it."""

    def build(r: Room) -> Value:
        found = r.op("winograd_conv", r.input(*x), r.input(filters, x[1], 3, 3), **attrs)
        if not behind:
            return found
        return r.op("relu", r.op("add", r.op("add", found, r.input(filters, 1, 1)), r.input(*found.type.shape)))

    return build


def row(x: tuple[Dim, ...], filters: int, **attrs: Any) -> Callable[[Room], Value]:
    return lambda r: r.op("relu", r.op("winograd_row", r.input(*x), r.input(filters, x[1], 3), **attrs))


def conv(x: tuple[Dim, ...], filters: int, kernel: int = 3, **attrs: Any) -> Callable[[Room], Value]:
    def build(r: Room) -> Value:
        channels = x[1] if not attrs.get("groups") else int(str(x[1])) // attrs["groups"]
        return r.op("relu", r.op("conv", r.input(*x), r.input(filters, channels, kernel, kernel), **attrs))

    return build


CASES = (
    Case("rests of everything", tiles((2, 19, 11, 6), 37, True, m=4, pads=(1, 1, 1, 1)), ({},), tolerance=1e-4),
    Case("unknown sizes", tiles((N, 12, M, 6), 33, m=2, pads=(0, 2, 3, 1)), ({"N": 1, "M": 1}, {"N": 3, "M": 8})),
    Case("one axis", row((2, 9, M), 20, m=4, pads=(4, 4), dilation=(4,)), ({"M": 1}, {"M": 30})),
    Case("dilated", tiles((1, 9, 9, 14), 16, m=2, pads=(2, 0, 2, 4), dilation=(2, 3)), ({},)),
)


@needs_compiler
def test_as_the_interpreter_says() -> None:
    compare(CASES[:2], (WIDE,), known=False)
    compare(CASES[2:], (NARROW,), known=False)


def found_in(build: Callable[[Room], Value]) -> int:
    parts = separated(parts_of(standard(), group(build)))
    return len(filtered(parts, 16, 32)[1])


def test_what_is_one_stage() -> None:
    for case in CASES:
        assert found_in(case.build) == 1
        assert [one.filtered for one in variants(standard(), group(case.build))] == [True]
    # a product of few terms, no product, no tables
    assert found_in(tiles((1, 4, 8, 8), 16, m=4)) == 0
    assert found_in(lambda r: r.op("avg_pool", r.input(1, 16, 8, 8), kernel=(3, 3))) == 0
    assert found_in(lambda r: r.op("matmul", r.input(64, 64), r.input(64, 64))) == 0


LINE = """dslc 1
let A(m) = [[1, 1, 1, 0], [0, 1, -1, -1]]
let B(m) = [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]
let W(m) = [[1, 0, 0], [1/2, 1/2, 1/2], [1/2, -1/2, 1/2], [0, 0, 1]]
operator along(S: T[B0, L, C], R: T[3, C, O]) -> Z: T[B0, L - 2, O] {
  where floating(T)
  let U[o: O, c: C, e: 4] = sum[k: 3] W(2)[e, k] * R[k, c, o]
  let V[b: B0, t: ceildiv(L - 2, 2), c: C, e: 4] = sum[i: 4] B(2)[e, i] * S[b, 2 * t + i, c, other=0]
  let P[b: B0, t: ceildiv(L - 2, 2), o: O, e: 4] = sum[c: C] V[b, t, c, e] * U[o, c, e]
  Z[b, l, o] = sum[e: 4] A(2)[l % 2, e] * P[b, l // 2, o, e]
}
"""


@needs_compiler
def test_the_form_alone_decides(tmp_path: Path) -> None:
    """One spatial axis, channels last, weights in another order, other names: an operator that somebody wrote just now."""
    file = tmp_path / "line.rules"
    file.write_text(LINE, encoding="utf-8")
    rules = load(file)
    x, k = (input_value(name, TensorType(DType.F32, shape)) for name, shape in (("x", (2, 13, 24)), ("k", (3, 24, 40))))
    own = Graph((x, k), apply(rules, "line.along", (x, k), {}))
    (variant,) = variants(rules, own)
    assert variant.filtered
    text = generate(rules, own, variant)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(value.type.shape).astype(np.float32) for value in (x, k)]
    (expected,) = run(rules, own.outputs, dict(zip((x, k), arrays, strict=True)), Floats())
    (got,) = build([text]).run(text.name, arrays)
    assert np.allclose(got, expected, atol=1e-4)


# ---- forms of groups -------------------------------------------------------------------------------------------------------


def test_a_convolution_has_proved_forms() -> None:
    rules = standard()
    plain = group(conv((1, 16, 8, 8), 16, pads=(1, 1, 1, 1)))
    names = [name for name, _ in forms(rules, plain)]
    assert names == ["std.winograd(tile=4)", "std.winograd(tile=2)"]
    assert [name for name, _ in forms(rules, group(conv((1, 16, 8, 8), 16, dilation=(2, 2))))] == [
        "std.winograd_dilated(tile=4)", "std.winograd_dilated(tile=2)",
    ]  # fmt: skip
    others: tuple[dict[str, Any], ...] = ({"stride": (2, 2)}, {"groups": 2}, {"kernel": 5}, {"dilation": (1, 2)})
    for attrs in others:
        assert not list(forms(rules, group(conv((1, 16, 9, 9), 16, **attrs))))
    every = ways(rules, plain)
    assert [variant.form for _, variant in every][:2] == names and not every[-1][1].form
    assert all(graph == plain for graph, variant in every if not variant.form)
    # a sum with an infinity in it is not one: such numbers are not compared
    assert not tells_nonfinite(rules, names[0]) and tells_nonfinite(rules, "")


def test_a_kernel_is_found_again_by_its_name() -> None:
    """Another machine has the nodes and the name of the variant."""
    rules, plain = standard(), group(conv((1, 16, 8, 8), 16, pads=(1, 1, 1, 1)))
    every = [variant for _, variant in ways(rules, plain)]
    # the first, one of another form, and the last of all
    assert every[0].form != every[1].form and every[1].form and not every[-1].form
    for variant in (every[0], every[1], every[-1]):
        text = generated(rules, plain, variant)
        assert _own(rules, plain, text.name).text == text.text
    # noted with its form on a processor with other vectors
    wide, narrow = (processor(name) for name in ("x86-64-v4", "x86-64-v3"))
    graph, variant = ways(rules, plain, processor=wide)[1]
    noted = generate(rules, graph, variant)
    found = _own(rules, plain, f"{noted.name} {noted.form}", narrow)
    assert found.form == noted.form == "std.winograd(tile=2)" and found.name != noted.name
    assert found == generated(rules, plain, ways(rules, plain, processor=narrow)[1][1])
    # of a name that another version gave nobody knows whether such a form was wanted
    with pytest.raises(NotGenerated):
        _own(rules, plain, "k_0123456789ab")


@needs_compiler
@pytest.mark.parametrize("fixed", [True, False])
def test_weights_are_transformed_once_for_a_session(fixed: bool) -> None:
    """Where they are constants; where they come with each run, they are those of the run."""
    rules, whole = standard(), group(conv((1, 9, 6, 7), 33, pads=(1, 1, 1, 1)))
    form, variant = ways(rules, whole)[0]
    text = generate(rules, form, variant)
    library = build([text])
    rng = np.random.default_rng(0)
    x, k = (rng.standard_normal(value.type.shape).astype(np.float32) for value in whole.inputs)
    model = kernel_model(
        DOMAIN, text.name, [value.type for value in whole.inputs], [value.type for value in whole.outputs], ""
    )
    proto = ModelProto.FromString(model)
    names = [one.name for one in proto.graph.input]
    if fixed:
        del proto.graph.input[1]
        proto.graph.initializer.append(numpy_helper.from_array(k, names[1]))
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(library.path))
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    for turn in range(3):
        other, weights = x + turn, k if fixed else k * (turn + 1)
        feeds = {names[0]: other} if fixed else {names[0]: other, names[1]: weights}
        (got,) = session.run(None, feeds)
        (expected,) = run(rules, whole.outputs, dict(zip(whole.inputs, (other, weights), strict=True)), Floats())
        assert np.allclose(got, expected, atol=1e-3)
