"""Loops that quotients are taken of, elements that lie a few apart, types of one byte, and rows that are joined with what needs all."""

from __future__ import annotations

from dslc.codegen.generate import generate, variants
from dslc.codegen.text import Variant
from dslc.ir.dtype import DType
from dslc.ir.graph import Value
from dslc.semantics.library import standard
from tests.codegen.groups import Case, M, N, Room, compare, group, needs_compiler

AT = ({"N": 1, "M": 1}, {"N": 3, "M": 37})


def shuffled(r: Room) -> Value:
    """Pixels out of channels, and their channels at the end, as bytes."""
    y = r.op("depth_to_space_crd", r.input(1, 18, N, M), block=3)
    return r.op("cast", r.op("transpose", r.op("mul", y, r.number(40)), perm=(0, 2, 3, 1)), to=DType.U8)


def channels_first(r: Room) -> Value:
    return r.op("cast", r.op("transpose", r.input(N, M, 3, dtype=DType.U8), perm=(2, 0, 1)), to=DType.F32)


def turned_pairs(r: Room) -> Value:
    """Every second element, and the other ones."""
    x = r.input(N, 40)
    even, odd = (r.op("slice", x, start=(0, k), size=(r.size(N), 20), step=(1, 2)) for k in (0, 1))
    return r.op("sub", r.op("mul", even, odd), odd)


def excited(r: Room) -> Value:
    """A mean of each channel, a product over channels, and all positions times its result."""
    x = r.input(1, 20, N, M)
    mean = r.op("reduce_mean", r.op("hard_swish", x), axes=(2, 3), keepdims=True)
    return r.op("mul", x, r.op("sigmoid", r.op("conv", mean, r.input(20, 20, 1, 1))))


def requantized(r: Room) -> Value:
    x = r.op("dequantize", r.input(N, M, dtype=DType.I8), r.number(0.25), r.input(dtype=DType.I8))
    return r.op("quantize", x, r.number(0.5), r.input(dtype=DType.U8))


def joined(r: Room) -> Value:
    pieces = r.op("concat", r.input(N, 2), r.input(N, 1), axis=1)
    return r.op("softmax", r.op("concat", r.input(N, 1), pieces, axis=1))


CASES = (
    Case("pixels", shuffled, AT, draw={0: lambda rng, shape: rng.random(shape)}),
    Case("channels first", channels_first, AT),
    Case("pairs", turned_pairs, AT),
    Case("joined pieces", joined, AT),
    Case("excited", excited, AT),
    Case("requantized", requantized, AT),
)


@needs_compiler
def test_as_the_interpreter_says() -> None:
    compare(CASES, (Variant(), Variant(width=8, apart=True)), known=False)


def code(build: object, variant: Variant) -> str:
    text = generate(standard(), group(build), variant).text  # type: ignore[arg-type]
    return text[text.index("_stage0(const") :]


def test_a_quotient_of_a_loop_is_a_loop() -> None:
    """Where pixels come out of channels no vector of positions is divided: not at unknown sizes either."""
    assert "k_gather" in code(shuffled, Variant())
    assert "k_gather" not in code(shuffled, Variant(apart=True))
    assert variants(standard(), group(shuffled))[0].apart


def test_what_vanishes_in_a_position_cuts_no_loop() -> None:
    """Both axes of a half that lies side by side are one loop, which is not cut at the end of each row of 33."""

    def half(r: Room) -> Value:
        low, high = r.ops("split", r.input(N, 8, 33), axis=1, sizes=(4, 4))
        return r.op("mul", r.op("tanh", low), r.op("sigmoid", high))

    assert "k_cut" not in code(half, Variant())


def test_pieces_that_are_known_need_no_branches() -> None:
    assert "k_cut" not in code(joined, Variant())


def test_a_long_reduction_of_few_rows_keeps_its_lanes() -> None:
    """Positions of a channel lie side by side; those of different channels do not."""
    assert "k_load_step" not in code(excited, Variant()).partition("_stage1(const")[0]
