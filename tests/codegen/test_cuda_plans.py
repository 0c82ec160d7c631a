"""Plans for CUDA, run by a device that interprets what it is asked: values agree whatever order streams leave open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.fake_device import FakeDevice
from dslc.codegen.cuda.choose import seconds
from dslc.cuda.arguments import patterns_of
from dslc.cuda.code import generable, hardware, priced, texts
from dslc.cuda.devices import DEVICES, device_named
from dslc.cuda.launch import CudaFailure, Reason
from dslc.cuda.patterns import found, summed_of
from dslc.cuda.plan import BadPlan, BufferPlace, CallStep, KernelStep, Plan, Unfit, plan_of, text_of
from dslc.cuda.planning import NotPlanned, Planned, WhyUnplanned, planned
from dslc.cuda.programs import one_scope
from dslc.cuda.runner import Runner
from dslc.cuda.views import plain
from dslc.interpret.floats import Floats
from dslc.interpret.run import run
from dslc.ir.constants import array_value
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, Value, input_value, opaque, scope_value
from dslc.ir.scalar import dimension
from dslc.ir.scopes import inline
from dslc.semantics.apply import apply
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules, load, standard
from tests.codegen.plan_checks import before

H100 = device_named("h100")
GEMM, LT, CONV = "cublasGemmStridedBatchedEx", "cublasLtMatmul", "cudnnConvolutionForward"


def tensor(name: str, *shape: int, dtype: DType = DType.F32) -> Value:
    return input_value(name, TensorType(dtype, shape))


def op(name: str, *args: Value | float, **attrs: Any) -> Value:
    return apply(standard(), f"std.{name}", args, attrs)[0]


def turned(value: Value, *perm: int) -> Value:
    return op("transpose", value, perm=perm)


def agrees(outputs: Value | tuple[Value, ...], *inputs: Value, rules: Rules | None = None) -> list[str]:
    """Plans a graph, compares its values with the interpreter's in three orders, and returns what its steps are."""
    graph = Graph(inputs, outputs if isinstance(outputs, tuple) else (outputs,))
    plan = planned(rules or standard(), graph, H100)
    rng = np.random.default_rng(1)
    feeds = {
        value: rng.standard_normal([int(str(size)) for size in value.type.shape]).astype(np.float32) for value in inputs
    }
    wanted = run(standard(), graph.outputs, feeds, Floats())
    for order in (None, 0, 1):
        results = Runner(standard(), plan, FakeDevice(standard(), order)).run(
            {f"x{k}": feeds[v] for k, v in enumerate(inputs)}
        )
        for k, each in enumerate(wanted):
            np.testing.assert_allclose(results[f"y{k}"], each, rtol=2e-4, atol=2e-5)
    assert plan_of(text_of(plan.plan)) == plan.plan
    return [step.name if isinstance(step, CallStep) else "kernel" for step in plan.plan.steps]


# ---- products -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_transposed_operands_cost_no_copy(left: bool, right: bool) -> None:
    A = tensor("A", 5, 4) if left else tensor("A", 4, 5)
    B = tensor("B", 3, 5) if right else tensor("B", 5, 3)
    product = op("matmul", turned(A, 1, 0) if left else A, turned(B, 1, 0) if right else B)
    assert agrees(product, A, B) == [GEMM]


@pytest.mark.parametrize(
    ("a", "b", "calls"),
    [
        ((2, 3, 4, 5), (2, 3, 5, 6), 1),  # one batch
        ((2, 3, 4, 5), (5, 6), 1),  # all rows at once
        ((4, 5), (2, 3, 5, 6), 1),  # the left operand again and again
        ((2, 1, 4, 5), (3, 5, 6), 2),  # no single stride: a call for each
        ((1, 5), (5, 1), 1),
        ((3, 1, 7), (3, 7, 2), 1),
    ],
)
def test_batches_are_strides(a: tuple[int, ...], b: tuple[int, ...], calls: int) -> None:
    A, B = tensor("A", *a), tensor("B", *b)
    assert agrees(op("matmul", A, B), A, B) == [GEMM] * calls


def test_operands_that_are_pieces_of_others() -> None:
    A, B = tensor("A", 4, 9), tensor("B", 5, 6)
    assert agrees(op("matmul", op("slice", A, start=(0, 2), size=(4, 5)), B), A, B) == [GEMM]
    # every other column has no leading dimension, and is copied first
    assert agrees(op("matmul", op("slice", A, start=(0, 0), size=(4, 5), step=(1, 2)), B), A, B) == ["kernel", GEMM]
    assert agrees(op("matmul", op("slice", A, start=(3, 7), size=(4, 5), step=(-1, -1)), B), A, B) == ["kernel", GEMM]


def test_what_is_outside_of_a_tensor_may_be_an_argument() -> None:
    """A number, which is no argument of the one scope: those behind it move up."""
    X, Y = tensor("X", 3, 4), tensor("Y", 5, 4)
    outside = array_value(np.float32(2.0))
    value = op("add", op("pad", X, outside, before=(1, 0), after=(1, 0)), op("mul", Y, Y))
    assert agrees(value, X, Y) == ["kernel"]
    found = one_scope(standard(), Graph((X, Y), (value,)))
    assert found is not None
    feeds = {hole: np.random.default_rng(0).standard_normal(hole.type.shape).astype(np.float32) for hole in (X, Y)}
    scope, order = found
    one, several = (run(standard(), (each,), feeds, Floats())[0] for each in (scope_value(scope, order), value))
    np.testing.assert_allclose(one, several)


def test_one_tensor_as_both_operands() -> None:
    A = tensor("A", 3, 4)
    assert agrees(op("matmul", A, turned(A, 1, 0)), A) == [GEMM]


def test_heads_of_attention_are_read_where_they_are() -> None:
    q, k, v = (tensor(name, 2, 5, 3, 4) for name in "qkv")
    scores = op("mul", op("matmul", turned(q, 0, 2, 1, 3), turned(k, 0, 2, 3, 1)), 0.5)
    out = turned(op("matmul", op("softmax", scores, axis=-1), turned(v, 0, 2, 1, 3)), 0, 2, 1, 3)
    assert agrees(op("reshape", out, shape=(2, 5, 12)), q, k, v) == [GEMM, GEMM, "kernel", GEMM, GEMM]


def test_what_is_computed_of_a_product_at_once() -> None:
    A, B, c = tensor("A", 4, 5), tensor("B", 5, 6), tensor("c", 6)
    sum_ = op("add", op("matmul", A, B), c)
    for value, epilogue in (
        (sum_, "BIAS"), (op("relu", sum_), "RELU_BIAS"), (op("gelu_tanh", sum_), "GELU_BIAS"), (op("relu", op("matmul", A, B)), "RELU"),
        (op("gelu_tanh", op("matmul", A, B)), "GELU"), (op("gemm", A, B, c, alpha=0.5), "BIAS"),
    ):  # fmt: skip
        assert agrees(value, A, B, c) == [LT]
        (step,) = planned(standard(), Graph((A, B, c), (value,)), H100).plan.steps
        assert isinstance(step, CallStep)
        assert dict(step.arguments)["epilogue"] == epilogue


def test_what_the_library_does_not_compute_stays_a_kernel() -> None:
    A, B, row = tensor("A", 4, 5), tensor("B", 5, 6), tensor("r", 4, 1)
    product = op("matmul", A, B)
    # its gelu is another function, and its bias is one of columns
    assert agrees(op("gelu", op("add", product, tensor("c", 6))), A, B, tensor("c", 6)) == [LT, "kernel"]
    assert agrees(op("add", product, row), A, B, row) == [GEMM, "kernel"]
    # who else uses the product needs it as it is
    assert agrees((op("relu", product), op("exp", product)), A, B) == [GEMM, "kernel", "kernel"]


def test_a_cut_at_0_that_is_written_twice_is_one() -> None:
    A, B = tensor("A", 4, 5), tensor("B", 5, 6)
    assert agrees(op("relu", op("relu", op("matmul", A, B))), A, B) == [LT]


def test_the_groups_of_a_batched_product_are_no_channels() -> None:
    """By its indices alone it is a convolution of as many groups, too."""
    A, B, Z = tensor("A", 2, 3, 4, 4), tensor("B", 2, 3, 4, 5), tensor("Z", 2, 3, 4, 5)
    assert agrees(op("add", op("matmul", A, B), Z), A, B, Z) == [GEMM, "kernel"]


def test_f64_has_no_epilogue() -> None:
    A, B, c = (tensor(name, *shape, dtype=DType.F64) for name, shape in (("A", (4, 5)), ("B", (5, 6)), ("c", (6,))))
    plan = planned(standard(), Graph((A, B, c), (op("add", op("matmul", A, B), c),)), H100).plan
    assert plan.steps[0].name == GEMM


# ---- convolutions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "k", "attrs"),
    [
        ((2, 8, 9, 9), (6, 4, 3, 3), {"groups": 2, "stride": (2, 2), "pads": (1, 1, 1, 1)}),
        ((2, 8, 9, 10), (8, 1, 3, 2), {"groups": 8, "dilation": (2, 3), "pads": (1, 2, 0, 1)}),
        ((1, 3, 7, 7), (4, 3, 3, 3), {"stride": (3, 2)}),  # positions that no window sees
        ((2, 8, 9, 9), (6, 8, 1, 1), {"stride": (2, 2)}),
        ((1, 2, 5, 6, 7), (4, 1, 2, 3, 3), {"groups": 2, "pads": (1, 0, 2, 0, 1, 0)}),
        ((1, 1, 4, 4), (1, 1, 4, 4), {}),  # one window
    ],
)
def test_convolutions(x: tuple[int, ...], k: tuple[int, ...], attrs: dict[str, Any]) -> None:
    X, K = tensor("X", *x), tensor("K", *k)
    steps = agrees(op("conv", X, K, **attrs), X, K)
    assert len(steps) == 1
    assert steps[0] in {CONV, GEMM}


def test_what_is_computed_of_a_convolution_at_once() -> None:
    X, K, b = tensor("X", 2, 8, 9, 9), tensor("K", 6, 4, 3, 3), tensor("b", 6)
    conv = op("conv", X, K, groups=2, pads=(1, 1, 1, 1), stride=(2, 1))
    Z = tensor("Z", 2, 6, 5, 9)
    shifted = op("add", conv, op("reshape", b, shape=(6, 1, 1)))
    for value, words in (
        (shifted, {"bias", "IDENTITY"}), (op("relu", conv), {"RELU"}), (op("relu", shifted), {"bias", "RELU"}),
        (op("add", shifted, Z), {"bias", "residual", "IDENTITY"}), (op("relu", op("add", Z, shifted)), {"bias", "residual", "RELU"}),
        (op("add", Z, conv), {"residual", "IDENTITY"}), (op("relu", op("add", conv, Z)), {"residual", "RELU"}),
    ):  # fmt: skip
        assert agrees(value, X, K, b, Z) == [CONV]
        (step,) = planned(standard(), Graph((X, K, b, Z), (value,)), H100).plan.steps
        assert isinstance(step, CallStep)
        given = dict(step.arguments)
        assert {name for name in ("bias", "residual") if name in given} | {given["activation"]} == words
    # a bias of rows is none of channels, and twice the result is another function
    row = tensor("r", 1, 1, 5, 1)
    assert agrees(op("add", conv, row), X, K, row) == [CONV, "kernel"]
    assert agrees(op("add", shifted, shifted), X, K, b) == [CONV, "kernel"]


def test_channels_last() -> None:
    X = tensor("X", 2, 7, 8, 6)
    K = array_value(np.random.default_rng(0).standard_normal((4, 6, 3, 3)).astype(np.float32))
    out = turned(op("conv", turned(X, 0, 3, 1, 2), K, pads=(1, 1, 1, 1)), 0, 2, 3, 1)
    assert agrees(out, X) == [CONV]
    (step,) = planned(standard(), Graph((X,), (out,)), H100).plan.steps
    assert isinstance(step, CallStep)
    arguments = dict(step.arguments)
    # the weight lies as the library wants it, which costs nothing when the model runs
    assert [view.strides[1] for view in (arguments["image"], arguments["weight"], arguments["y"])] == [1, 1, 1]  # type: ignore[union-attr]


def test_what_lies_outside_is_zero_to_the_library() -> None:
    X, K = tensor("X", 1, 2, 5, 5), tensor("K", 3, 2, 3, 3)
    padded = op("pad", X, 1.0, before=(0, 0, 1, 1), after=(0, 0, 1, 1))
    assert agrees(op("conv", padded, K), X, K) == ["kernel", CONV]


def test_a_window_of_one_axis_is_a_kernel() -> None:
    X, K = tensor("X", 1, 4, 9), tensor("K", 4, 2, 3)
    assert agrees(op("conv", X, K, groups=2, pads=(1, 1)), X, K) == ["kernel"]


# ---- whole graphs -------------------------------------------------------------------------------------------------------


def network() -> tuple[tuple[Value, ...], Value]:
    A, B, C, D = tensor("A", 6, 8), tensor("B", 8, 8), tensor("C", 8, 8), tensor("D", 8)
    left = op("relu", op("add", op("matmul", A, B), D))
    right = op("sigmoid", op("matmul", A, C))
    joined = op("add", op("mul", left, right), A)
    return (A, B, C, D), op("softmax", op("matmul", joined, turned(op("exp", left), 1, 0)), axis=-1)


def test_chains_with_kernels_and_branches_on_streams() -> None:
    inputs, out = network()
    steps = agrees(out, *inputs)
    assert {LT, GEMM, "kernel"} == set(steps)
    assert planned(standard(), Graph(inputs, (out,)), H100).plan.streams > 1


def test_outputs_that_only_look_at_inputs() -> None:
    A = tensor("A", 3, 4)
    assert agrees((A, turned(A, 1, 0), op("reshape", A, shape=(2, 6))), A) == ["kernel"]


def test_memory_is_shared_by_what_does_not_live_together() -> None:
    A = tensor("A", 64, 64)
    value: Value = A
    for _ in range(6):
        value = op("softmax", op("matmul", value, A), axis=-1)
    plan = planned(standard(), Graph((A,), (value,)), H100).plan
    shared = [buffer for buffer in plan.buffers if buffer.place is BufferPlace.SHARED]
    assert len(shared) == 12
    assert plan.shared <= 3 * 64 * 64 * 4
    done = before(plan)
    touched = [{view.buffer for view in (*step.reads, *step.writes)} for step in plan.steps]
    users = {k: [at for at, own in enumerate(touched) if k in own] for k in range(len(plan.buffers))}
    for k, one in enumerate(plan.buffers):
        for j, other in enumerate(plan.buffers[:k]):
            over = one.offset < other.offset + other.bytes and other.offset < one.offset + one.bytes
            if one.place is other.place is BufferPlace.SHARED and over:
                apart = [all(done[a, b] for a in users[x] for b in users[y]) for x, y in ((k, j), (j, k))]
                assert any(apart)


def test_a_step_that_waits_for_nothing_is_seen() -> None:
    inputs, out = network()
    whole = planned(standard(), Graph(inputs, (out,)), H100)
    steps = tuple(replace(step, waits=()) for step in whole.plan.steps)
    loose = Planned(replace(whole.plan, steps=steps), whole.programs, whole.weights)
    rng = np.random.default_rng(0)
    feeds = {
        f"x{k}": rng.standard_normal([int(str(s)) for s in v.type.shape]).astype(np.float32)
        for k, v in enumerate(inputs)
    }
    (wanted,) = Runner(standard(), whole, FakeDevice(standard())).run(feeds).values()
    results = [Runner(standard(), loose, FakeDevice(standard(), order)).run(feeds)["y0"] for order in range(6)]
    assert any(not np.allclose(found, wanted, rtol=1e-3) for found in results)


def test_a_wrong_leading_dimension_is_seen() -> None:
    A, B = tensor("A", 4, 5), tensor("B", 5, 6)
    whole = planned(standard(), Graph((A, B), (op("matmul", A, B),)), H100)
    (step,) = whole.plan.steps
    assert isinstance(step, CallStep)
    feeds = {"x0": np.ones((4, 5), np.float32), "x1": np.ones((5, 6), np.float32)}
    for ld in (3, 60):
        arguments = tuple((name, ld if name == "lda" else value) for name, value in step.arguments)
        plan = replace(whole.plan, steps=(replace(step, arguments=arguments),))
        with pytest.raises(CudaFailure) as caught:
            Runner(standard(), Planned(plan, {}, {}), FakeDevice(standard())).run(feeds)
        assert caught.value.reason is Reason.LAUNCH


def test_what_has_no_plan_says_why() -> None:
    unknown = input_value("X", TensorType(DType.F32, (dimension("N"), 4)))
    with pytest.raises(NotPlanned) as caught:
        planned(standard(), Graph((unknown,), (op("relu", unknown),)), H100)
    assert caught.value.why is WhyUnplanned.SIZES
    X = tensor("X", 3)
    (kept,) = opaque("some", "Some", None, (X,), (X.type,))
    with pytest.raises(NotPlanned) as caught:
        planned(standard(), Graph((X,), (kept,)), H100)
    assert caught.value.why is WhyUnplanned.OPAQUE
    with pytest.raises(NotPlanned) as caught:
        planned(standard(), Graph((X,), (op("relu", X),)), H100, generable=lambda _: None)
    assert caught.value.why is WhyUnplanned.KERNEL


def test_faster_devices_take_less() -> None:
    A, B = tensor("A", 512, 512), tensor("B", 512, 512)
    devices = sorted(DEVICES.values(), key=lambda device: device.bandwidth)
    seconds = [planned(standard(), Graph((A, B), (op("matmul", A, B),)), device).plan.seconds for device in devices]
    assert seconds == sorted(seconds, reverse=True)
    assert all(1e-6 < one < 1e-3 for one in seconds)


@pytest.mark.parametrize(("dtype", "dilation", "counted"), [
    (DType.F32, 1, ", priced with Winograd"), (DType.F32, 2, ""), (DType.F16, 1, ", priced with tensor cores"),
])  # fmt: skip
def test_a_step_says_what_its_price_counts_on(dtype: DType, dilation: int, counted: str) -> None:
    X, K = tensor("X", 2, 8, 9, 9, dtype=dtype), tensor("K", 8, 8, 3, 3, dtype=dtype)
    conv = op("conv", X, K, dilation=(dilation, dilation), pads=(0, 0, 0, 0))
    (step,) = planned(standard(), Graph((X, K), (conv,)), H100).plan.steps
    assert step.rule == f"targets.cudnn_conv: conv{counted}"


# ---- lowerings of others ------------------------------------------------------------------------------------------------

DOUBLED = """dslc 1
lowering doubled(A: T[M, K], C: T[N, K]) on cuda {
  \"\"\"Rows of both, and twice what is summed.\"\"\"
  expr  Z[m, n] = 2 * (sum[k] A[m, k] * C[n, k])
  where stride(A, k) == 1, stride(C, k) == 1, stride(Z, n) == 1
  call "cublasGemmStridedBatchedEx" {
    transa = "T", transb = "N", m = size(n), n = size(m), k = size(k), alpha = 2, a = C, lda = stride(C, n), stride_a = 0,
    b = A, ldb = stride(A, m), stride_b = 0, c = Z, ldc = stride(Z, m), stride_c = 0, batch_count = 1 }
}
"""


def test_the_text_of_a_lowering_decides(tmp_path: Path) -> None:
    (tmp_path / "own.rules").write_text(DOUBLED, encoding="utf-8")
    rules = load(tmp_path / "own.rules")
    (lowering,) = rules.lowerings.values()
    (pattern,) = patterns_of(rules, lowering)
    A, C = tensor("A", 4, 5), tensor("C", 6, 5)
    product = op("matmul", A, turned(C, 1, 0))

    def matches(value: Value) -> int:
        (scoped,) = expand(standard(), (value,))
        while any(arg not in (A, C) for arg in scoped.node.args):
            scoped = inline(scoped, next(k for k, arg in enumerate(scoped.node.args) if arg not in (A, C)))
        views = [plain(k, DType.F32, (4, 5) if arg is A else (6, 5)) for k, arg in enumerate(scoped.node.args)]
        target = summed_of(scoped.node.scope, views, plain(9, DType.F32, (4, 6)))  # type: ignore[attr-defined]
        assert target is not None
        return len(list(found(pattern, target)))

    # the product alone is another function, and so is three times it
    assert matches(product) == 0
    assert matches(op("add", product, product)) == 1


# ---- text ---------------------------------------------------------------------------------------------------------------


def some_plan() -> Plan:
    inputs, out = network()
    return planned(standard(), Graph(inputs, (out,)), H100).plan


def test_a_plan_is_equal_to_itself_read_again_and_to_no_other() -> None:
    plan = some_plan()
    assert plan_of(text_of(plan)).same(plan)
    other = replace(plan, steps=(replace(plan.steps[0], seconds=1.0), *plan.steps[1:]))
    assert other != plan
    assert other.same(plan)
    assert not replace(plan, shared=plan.shared + 1).same(plan)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"version":1', '"version":2', Unfit.VERSION),
        ('"streams":', '"rivers":', Unfit.FIELD),
        ('"shared":', '"shared":-', Unfit.RANGE),
        ('"f32"', '"f33"', Unfit.FIELD),
        ('"waits":[]', '"waits":[99]', Unfit.RANGE),
        ("[6,8]", "[6000,8]", Unfit.RANGE),
        ("[8,1]", "[-8,1]", Unfit.RANGE),
        ('"seconds":', '"seconds":true,"x":', Unfit.FIELD),
        ('"kernel":"', '"kernel":"x', Unfit.FIELD),
        ("{", "[" * 5000 + "{", Unfit.TEXT),
        ('"shared":', '"shared":NaN,"x":', Unfit.TEXT),
    ],
)
def test_hostile_text_is_refused(old: str, new: str, reason: Unfit) -> None:
    text = text_of(some_plan())
    assert old in text
    with pytest.raises(BadPlan) as caught:
        plan_of(text.replace(old, new, 1))
    assert caught.value.reason is reason


def test_any_field_that_is_missing_or_another_is_refused_or_read() -> None:
    """No change of a text makes the reader fail in a way of its own."""
    text = text_of(some_plan())
    rng = np.random.default_rng(0)
    for at in rng.integers(0, len(text), 300):
        for change in ("", "9", '"', "null", "["):
            try:
                plan = plan_of(text[:at] + change + text[at + 1 :])
            except BadPlan:
                continue
            assert isinstance(plan, Plan)


def test_steps_may_not_write_inputs() -> None:
    plan = some_plan()
    step = next(one for one in plan.steps if isinstance(one, KernelStep))
    inputs = dict(plan.inputs)
    bad = replace(step, writes=(inputs["x0"],))
    with pytest.raises(BadPlan):
        plan_of(text_of(replace(plan, steps=tuple(bad if one is step else one for one in plan.steps))))


def test_what_has_no_elements_takes_no_step() -> None:
    """A window that fits nowhere: the group around it is taken apart, and what is left runs."""
    X = tensor("X", 1, 4, 1, 6)
    pool = op("max_pool", op("relu", X), kernel=(2, 2), stride=(2, 2))
    assert [int(str(size)) for size in pool.type.shape] == [1, 4, 0, 3]
    graph = Graph((X,), (op("exp", pool), op("exp", op("relu", X))))
    plan = planned(standard(), graph, H100, generable=generable(standard()))
    results = Runner(standard(), plan, FakeDevice(standard())).run({"x0": np.full((1, 4, 1, 6), -1, np.float32)})
    assert results["y0"].shape == (1, 4, 0, 3)
    np.testing.assert_array_equal(results["y1"], np.ones((1, 4, 1, 6), np.float32))


def test_a_kernels_price_is_that_of_the_way_it_is_written() -> None:
    """Few columns of many rows keep few threads busy, unless their sums are cut in pieces: a plan and the search know it."""
    rules = standard()
    X = tensor("X", 2048, 40)
    graph = Graph((X,), (op("reduce_sum", X, axes=(0,)),))
    usual = seconds(texts(rules)(graph), hardware(H100, graph))
    best = generable(rules, H100)(graph)
    assert best is not None and best.seconds is not None and best.seconds < 0.5 * usual
    assert priced(rules, H100)(graph) == best
    (step,) = planned(rules, graph, H100, generable=generable(rules, H100)).plan.steps
    assert step.seconds == best.seconds
