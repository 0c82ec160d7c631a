"""Generated kernels against the interpreter: every kind of group, unknown and known sizes, each variant, every element type."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from dslc.codegen.generate import generate, variants
from dslc.codegen.host.processor import LEVELS, processor, runs
from dslc.codegen.text import NotGenerated, Reason, Variant
from dslc.ir.constants import array_value
from dslc.ir.dtype import DType
from dslc.ir.graph import Value
from dslc.ir.scalar import dimension
from dslc.semantics.library import standard
from tests.codegen.groups import SIZES, Case, M, N, Room, compare, group, needs_compiler

BEST = (Variant(),)
#: reductions that are done in pieces
LONG = ({"N": 700, "M": 131}, {"N": 5, "M": 3})


def chain(r: Room) -> Value:
    x, y, z = r.input(N, M), r.input(M), r.input(N, 1)
    return r.op("sub", r.op("mul", r.op("relu", r.op("add", r.op("mul", x, r.number(1.25)), y)), z), x)


def softmax(axis: int) -> Case:
    def build(r: Room) -> Value:
        x, mask = r.input(2, N, M), r.input(N, M)
        return r.op("softmax", r.op("add", r.op("mul", x, r.number(0.5)), mask), axis=axis)

    return Case(f"softmax over {axis}", build)


def layer_norm(r: Room) -> Value:
    x, scale, shift = r.input(2, N, M), r.input(M), r.input(M)
    return r.op("layer_norm", x, scale, shift)


def norm_of_primitives(r: Room) -> Value:
    """As exporters write it: mean, difference, square, mean, square root, quotient."""
    x, scale = r.input(N, M), r.input(M)
    centred = r.op("sub", x, r.op("reduce_mean", x, axes=(1,)))
    variance = r.op("reduce_mean", r.op("mul", centred, centred), axes=(1,))
    return r.op("mul", r.op("div", centred, r.op("sqrt", r.op("add", variance, r.number(1e-5)))), scale)


def norm_over_channels(r: Room) -> Value:
    """A norm over the middle axis: lanes are neighbouring positions, each with a norm of its own."""
    x = r.input(2, 5, M)
    mean = r.op("reduce_mean", x, axes=(1,))
    centred = r.op("sub", x, mean)
    return r.op("div", centred, r.op("sqrt", r.op("reduce_mean", r.op("mul", centred, centred), axes=(1,))))


def cell(r: Room) -> tuple[Value, Value]:
    """An LSTM's cell: gates side by side, two outputs."""
    gates, c = r.input(N, 4 * 24), r.input(N, 24)
    i, f, o, g = r.ops("split", gates, sizes=(24, 24, 24, 24), axis=1)
    new = r.op("add", r.op("mul", r.op("sigmoid", f), c), r.op("mul", r.op("sigmoid", i), r.op("tanh", g)))
    return r.op("mul", r.op("sigmoid", o), r.op("tanh", new)), new


def rotary(r: Room) -> Value:
    x, cos, sin = r.input(1, N, 3, 32), r.input(N, 1, 32), r.input(N, 1, 32)
    left, right = r.ops("split", x, sizes=(16, 16), axis=3)
    turned = r.op("concat", r.op("neg", right), left, axis=3)
    return r.op("transpose", r.op("add", r.op("mul", x, cos), r.op("mul", turned, sin)), perm=(0, 2, 1, 3))


def geglu(r: Room) -> Value:
    left, right = r.ops("split", r.input(N, 2 * 40), sizes=(40, 40), axis=1)
    return r.op("mul", left, r.op("gelu", right))


def product(r: Room) -> Value:
    a, b, bias = r.input(N, 20), r.input(20, M), r.input(M)
    return r.op("relu", r.op("add", r.op("matmul", a, b), bias))


def convolution(r: Room) -> Value:
    x, k, bias = r.input(1, 3, 9, M), r.input(4, 3, 3, 3), r.input(4, 1, 1)
    return r.op("relu", r.op("add", r.op("conv", x, k, pads=(1, 1, 1, 1)), bias))


def statistics(r: Room) -> tuple[Value, ...]:
    return r.ops("layer_norm_statistics", r.input(2, N, M), r.input(M), r.input(M))


def sum_and_norm(r: Room) -> tuple[Value, ...]:
    """Both outputs need the sum: in one variant the norm reads what was written."""
    total = r.op("add", r.input(N, M), r.input(N, M))
    mean = r.op("reduce_mean", r.op("mul", total, total), axes=(1,), keepdims=True)
    return r.op("div", total, r.op("sqrt", r.op("add", mean, r.number(1e-6)))), total


def padded(r: Room) -> Value:
    return r.op("pad", r.op("relu", r.input(N, M)), r.number(2.0), before=(1, 2), after=(0, 3))


def joined(r: Room) -> Value:
    x = r.input(N, M)
    return r.op("tanh", r.op("concat", x, r.op("neg", x), r.input(N, 5), axis=1))


def reversed_part(r: Room) -> Value:
    return r.op("slice", r.op("reverse", r.input(N, 12), axis=1), start=(0, 9), size=(r.size(N), 4), step=(1, -2))


GROUPS = [
    Case("chain", chain),
    softmax(2),
    softmax(1),
    softmax(0),
    Case("layer norm", layer_norm, tolerance=1e-4),
    Case("layer norm and its statistics", statistics, tolerance=1e-3),
    Case("sum and its norm", sum_and_norm, tolerance=1e-4),
    Case("norm as exporters write it", norm_of_primitives, tolerance=1e-4),
    Case("norm over channels", norm_over_channels),
    Case("RMS norm of a sum", lambda r: r.op("rms_norm", r.op("add", r.input(N, M), r.input(N, M)), r.input(M))),
    Case("LSTM cell", cell),
    Case("rotary", rotary),
    Case("GeGLU", geglu),
    Case("product with bias", product),
    Case("convolution with bias", convolution),
    Case("mish", lambda r: r.op("mish", r.input(N, M))),
    Case("PReLU", lambda r: r.op("prelu", r.input(2, N, 3, M), r.input(N, 1, 1))),
    Case("pad", padded),
    Case("pad at the edge", lambda r: r.op("pad_edge", r.input(N, M), before=(1, 2), after=(0, 3))),
    Case("concat", joined),
    Case("slice backwards", reversed_part),
    Case("transpose", lambda r: r.op("transpose", r.input(3, N, M), perm=(2, 0, 1))),
    Case("transpose of the last axes", lambda r: r.op("transpose", r.input(2, N, M), perm=(0, 2, 1))),
    Case("transpose of many rows", lambda r: r.op("relu", r.op("transpose", r.input(N, M), perm=(1, 0))), sizes=({"N": 50, "M": 83},)),
    Case("depth to space", lambda r: r.op("depth_to_space", r.input(1, 8, N, M), block=2)),
    Case("space to depth", lambda r: r.op("space_to_depth", r.input(1, 2, 4, 6), block=2), sizes=({},)),
    Case("reshape", lambda r: r.op("exp", r.op("reshape", r.input(4, 6, 5), shape=(8, 15))), sizes=({},)),
    Case("max pool", lambda r: r.op("max_pool", r.input(1, 2, 9, M), kernel=(3, 1), stride=(2, 1), pads=(1, 0, 1, 0))),
    Case("average pool", lambda r: r.op("avg_pool", r.input(1, 3, 8, 8), kernel=(3, 3), pads=(1, 1, 1, 1)), sizes=({},)),
    Case("conv_transpose", lambda r: r.op("conv_transpose", r.input(1, 3, 4, 4), r.input(3, 2, 4, 4), stride=(2, 2)), sizes=({},)),
    Case("sum over the first axis", lambda r: r.op("reduce_sum", r.input(N, M), axes=(0,))),
    Case("sum over the last axis", lambda r: r.op("reduce_sum", r.input(N, M), axes=(1,))),
    Case("sum over everything", lambda r: r.op("reduce_sum", r.input(N, 3, M), axes=(0, 1, 2)), tolerance=1e-4),
    Case("long sum", lambda r: r.op("reduce_sum", r.op("mul", x := r.input(N, M), x), axes=(0, 1)), sizes=LONG, tolerance=1e-4),
    Case("long row", lambda r: r.op("softmax", r.input(1, N), axis=1), sizes=({"N": 70001},), tolerance=1e-4),
    Case("long norm", lambda r: r.op("layer_norm", r.input(3, N), r.input(N), r.input(N)), sizes=({"N": 70001},), tolerance=1e-3),
    Case("product over an axis", lambda r: r.op("reduce_prod", r.input(N, 4, M), axes=(1,))),
    Case("log of a sum of exponentials", lambda r: r.op("reduce_log_sum_exp", r.input(N, M), axes=(1,))),
    Case("largest and its place", lambda r: (r.op("argmax", x := r.input(N, M), axis=1), r.op("reduce_max", x, axes=(1,)))),
    Case("running sum", lambda r: r.op("cumsum", r.input(N, M), axis=1), tolerance=1e-4),
    Case(
        "gather of rows", lambda r: r.op("mul", r.op("gather", r.input(10, M), r.input(N, dtype=DType.I64), axis=0), r.input(M)),
        draw={1: lambda rng, shape: rng.integers(-10, 10, shape)},
    ),
    Case(
        "gather along lanes", lambda r: r.op("gather", r.input(N, 10), r.input(M, dtype=DType.I32), axis=1),
        draw={1: lambda rng, shape: rng.integers(0, 10, shape)},
    ),
    Case("upper triangle", lambda r: r.op("upper_triangle", r.input(5, M), k=1)),
    Case("an input handed on", lambda r: (x := r.input(N, M), r.op("relu", x), x)),
    Case("numbers only", lambda r: r.op("add", r.number(1.5), r.input()), sizes=({},)),
    Case("attention", lambda r: r.op("attention", r.input(1, 2, N, 8), r.input(1, 2, 6, 8), r.input(1, 2, 6, 4)), tolerance=1e-4),
]  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("half", [0, 1, 2, 3])
def test_groups_compute_what_their_equations_say(half: int) -> None:
    compare(GROUPS[half::4], BEST)


VARIED = [
    "sum and its norm", "softmax over 2", "softmax over 1", "layer norm", "LSTM cell", "product with bias", "convolution with bias",
    "pad", "rotary",
]  # fmt: skip


@needs_compiler
@pytest.mark.parametrize(
    "variant",
    [
        Variant(width=1), Variant(width=8), Variant(fuse=False), Variant(width=4, lane=1), Variant(vectors=4, block=6, unroll=2),
        Variant(vectors=1, block=1), Variant(read_outputs=True),
    ],
    ids=str,
)  # fmt: skip
def test_variants_compute_the_same(variant: Variant) -> None:
    # lanes over rows make a cell of split gates ten seconds' work for a compiler: rotary has its splits
    names = [name for name in VARIED if name != "LSTM cell" or variant.lane is None]
    compare([case for case in GROUPS if case.name in names], [variant], known=False)


def typed(dtype: DType) -> list[Case]:
    """Arithmetic, comparisons, a reduction and a product in one element type."""

    def arithmetic(r: Room) -> Value:
        x, y = r.input(N, M, dtype=dtype), r.input(M, dtype=dtype)
        return r.op("maximum", r.op("add", r.op("mul", x, y), x), r.op("sub", y, x))

    def chosen(r: Room) -> Value:
        x, y = r.input(N, M, dtype=dtype), r.input(N, 1, dtype=dtype)
        return r.op("select", r.op("less", x, y), x, y)

    loose = {DType.F16: 4e-3, DType.BF16: 3e-2}.get(dtype, 2e-5)
    small = SIZES[1:3]
    return [
        Case(f"{dtype} arithmetic", arithmetic, small, tolerance=loose),
        Case(f"{dtype} selection", chosen, small, tolerance=loose),
        Case(f"{dtype} sum", lambda r: r.op("reduce_sum", r.input(N, M, dtype=dtype), axes=(1,)), small, tolerance=loose),
        Case(f"{dtype} largest", lambda r: r.op("reduce_max", r.input(N, M, dtype=dtype), axes=(0,)), small, tolerance=loose),
        Case(f"{dtype} product", lambda r: r.op("matmul", r.input(N, 9, dtype=dtype), r.input(9, M, dtype=dtype)), small,
             tolerance=loose),
        Case(f"{dtype} to f32", lambda r: r.op("cast", r.input(N, M, dtype=dtype), to=DType.F32), small, tolerance=loose),
        Case(f"{dtype} to int32", lambda r: r.op("cast", r.input(N, M, dtype=dtype), to=DType.I32), small),
        Case(f"{dtype} to bool", lambda r: r.op("cast", r.input(N, M, dtype=dtype), to=DType.BOOL), small),
        Case(f"{dtype} of f32", lambda r: r.op("cast", r.input(N, M), to=dtype), small, tolerance=loose,
             draw={0: lambda rng, shape: rng.integers(0, 100, shape)}),
    ]  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("dtypes", ["f16 bf16 f64", "int8 int16 int32", "int64 uint8", "uint16 uint32"])
def test_element_types(dtypes: str) -> None:
    compare([case for name in dtypes.split() for case in typed(DType(name))], BEST, known=False)


@needs_compiler
def test_booleans_and_integer_quotients() -> None:
    def logic(r: Room) -> Value:
        x, y = r.input(N, M, dtype=DType.BOOL), r.input(M, dtype=DType.BOOL)
        return r.op("either", r.op("both", x, y), r.op("invert", x))

    def whole(name: str) -> Case:
        def build(r: Room) -> Value:
            return r.op(name, r.input(N, M, dtype=DType.I32), r.input(M, dtype=DType.I32))

        nonzero = {1: lambda rng, shape: rng.integers(1, 5, shape) * rng.choice([-1, 1], shape)}
        return Case(name, build, draw=nonzero)

    compare([Case("logic", logic), whole("div_int"), whole("modulo"), whole("fmod_int")], BEST, known=False)


# ---- random groups ---------------------------------------------------------------------------------------------------------

UNARY = "relu sigmoid tanh neg abs exp gelu hard_swish softplus floor sign square_plus".split()
BINARY = "add sub mul maximum minimum".split()


def random_group(seed: int) -> Case:
    """A random program over a few inputs. What is not allowed at some point is drawn again, the same way at all sizes."""

    def build(r: Room) -> list[Value]:
        rng = np.random.default_rng(seed)
        pool = [r.input(N, M), r.input(M), r.input(N, 1), r.input(N, M)]
        wide = [pool[0], pool[3]]
        for _ in range(int(rng.integers(2, 7))):
            kind = rng.choice(["unary", "binary", "reduce", "softmax", "norm", "join", "pad", "turn", "part"])
            x = wide[int(rng.integers(len(wide)))]
            if kind == "unary":
                y = r.op(str(rng.choice(UNARY)), r.op("clip", x, r.number(-8.0), r.number(8.0)))
            elif kind == "binary":
                other = pool[int(rng.integers(3))] if x.type.shape == wide[0].type.shape else x
                y = r.op(str(rng.choice(BINARY)), x, other)
            elif kind == "reduce":
                name = str(rng.choice(["reduce_sum", "reduce_max", "reduce_mean", "reduce_min"]))
                y = r.op("sub", x, r.op(name, x, axes=(int(rng.integers(2)),)))
            elif kind == "softmax":
                y = r.op("softmax", x, axis=int(rng.integers(2)))
            elif kind == "norm":
                y = r.op("l2_normalize", x, axis=int(rng.integers(2)))
            elif kind == "join":
                y = r.op("concat", x, r.op("neg", x), axis=int(rng.integers(2)))
            elif kind == "pad":
                before, after = rng.integers(0, 3, 2), rng.integers(0, 3, 2)
                y = r.op("pad", x, before=tuple(map(int, before)), after=tuple(map(int, after)))
            elif kind == "part":
                y = r.op("slice", x, start=(0, 0), size=(1, x.type.shape[1]))
            else:
                y = r.op("transpose", x, perm=(1, 0))
            wide.append(y)
        return [wide[-1], wide[len(wide) // 2]]

    # sizes that differ: a transpose is told from what it transposes
    return Case(f"random group {seed}", build, sizes=SIZES[1:], tolerance=2e-4)


@needs_compiler
@pytest.mark.parametrize("first", [0, 1000])
def test_random_groups(first: int) -> None:
    compare([random_group(first + k) for k in range(12)], BEST, known=first == 0)


# ---- what kernels are --------------------------------------------------------------------------------------------------------


def test_names_are_by_content() -> None:
    one, same = (generate(standard(), group(chain)) for _ in range(2))
    assert one.name == same.name and one.text == same.text and re.fullmatch(r"k_[0-9a-f]{12}", one.name)
    others = {
        generate(standard(), group(chain), Variant(width=8)).name,
        generate(standard(), group(chain, {"N": 2, "M": 3})).name,
        generate(standard(), group(geglu)).name,
    }
    assert len(others) == 3 and one.name not in others


def test_unknown_sizes_are_in_the_order_of_the_inputs() -> None:
    text = generate(standard(), group(lambda r: r.op("add", r.input(M), r.input(N, M))))
    assert text.sizes == (M, N) and text.inputs[1].shape == (N, M)


def test_the_best_guess_comes_first() -> None:
    for case in GROUPS[:6]:
        found = variants(standard(), group(case.build))
        assert 2 <= len(found) <= 6 and found[0] == Variant(width=processor().lanes)


def test_what_needs_an_output_may_read_it() -> None:
    shared = Variant(width=processor().lanes, read_outputs=True)
    assert shared in variants(standard(), group(sum_and_norm)) and shared not in variants(standard(), group(layer_norm))


def test_weights_are_arguments() -> None:
    def build(r: Room) -> Value:
        return r.op("add", r.input(300), array_value(np.arange(300, dtype=np.float32)))

    with pytest.raises(NotGenerated) as found:
        generate(standard(), group(build))
    assert found.value.reason is Reason.WEIGHT


def test_long_reductions_have_many_tasks() -> None:
    """A sum of a million numbers is not the work of one thread, a sum of a thousand is."""
    texts = [
        generate(standard(), group(lambda r, n=n: r.op("reduce_sum", r.input(n), axes=(0,)))).text
        for n in (1_000_000, 1000)
    ]
    stages = ["_stage1(" in text for text in texts]
    assert stages == [True, False]


def test_what_is_too_large_is_refused() -> None:
    def deep(r: Room) -> Value:
        x = r.input(N)
        for _ in range(1500):
            x = r.op("tanh", x)
        return x

    with pytest.raises(NotGenerated) as found:
        generate(standard(), group(deep))
    assert found.value.reason is Reason.TOO_LARGE


def test_sizes_that_no_input_has_are_refused() -> None:
    with pytest.raises(NotGenerated) as found:
        generate(standard(), group(lambda r: r.op("relu", r.input(_half(), 2))))
    assert found.value.reason is Reason.SIZE


def _half() -> object:
    from dslc.ir.scalar import apply, num

    return apply("+", dimension("K"), num(1))


@needs_compiler
def test_arrays_of_other_sizes_are_refused() -> None:
    from tests.codegen.native import NotRun, build

    text = generate(standard(), group(chain))
    library = build([text])
    good = [np.ones((3, 4), np.float32), np.ones(4, np.float32), np.ones((3, 1), np.float32)]
    library.run(text.name, good)
    with pytest.raises(NotRun):
        library.run(text.name, [good[0], np.ones(5, np.float32), good[2]])


@needs_compiler
@pytest.mark.parametrize("level", [name for name in LEVELS if runs(name)])
def test_inner_loops_are_vectors(level: str, tmp_path: Path) -> None:
    """Ten times as many elements per second as without vectors would be too much to ask of a busy machine; three is not."""
    import time

    from tests.codegen.native import build

    found, x = processor(level), np.random.default_rng(0).standard_normal((64, 1024)).astype(np.float32)
    texts = [
        generate(standard(), group(lambda r: r.op("tanh", r.input(64, 1024))), Variant(width=width))
        for width in (1, found.lanes)
    ]
    library = build(texts, tmp_path, processor=found)
    best = []
    for text in texts:
        times = []
        for _ in range(15):
            start = time.perf_counter()
            library.run(text.name, [x])
            times.append(time.perf_counter() - start)
        best.append(min(times))
    assert best[0] > 3 * best[1]
