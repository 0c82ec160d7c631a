"""Products that read beyond the ends of an operand: a copy with its surroundings, and what is not worth one."""

from __future__ import annotations

from collections.abc import Callable

from dslc.codegen.generate import variants
from dslc.codegen.group import parts_of
from dslc.codegen.halo import padded
from dslc.codegen.split_reductions import separated
from dslc.codegen.text import Variant
from dslc.fuse.groups import proposals
from dslc.fuse.profile import Profiles
from dslc.ir.graph import Value
from dslc.semantics.library import standard
from tests.codegen.groups import Case, M, N, Room, compare, group, needs_compiler


def convolution(x: tuple[int, ...], k: tuple[int, ...], **attrs: object) -> Callable[[Room], Value]:
    return lambda r: r.op("relu", r.op("conv", r.input(*x), r.input(*k), **attrs))


CASES = (
    Case("groups of 4", convolution((1, 16, 9, 19), (16, 4, 3, 3), groups=4, pads=(1, 1, 1, 1)), ({},)),
    Case(
        "unknown sizes",
        convolution((1, 8, N, M), (8, 4, 3, 3), groups=2, pads=(1, 1, 1, 1)),
        ({"N": 9, "M": 19}, {"N": 1, "M": 1}),
    ),
    Case(
        "strides and dilation",
        convolution((2, 6, 17, 14), (5, 6, 3, 3), stride=(2, 1), dilation=(1, 2), pads=(2, 0, 0, 3)),
        ({},),
    ),
    Case("band", lambda r: r.op("g2bmm", r.input(2, 40, 24), r.input(2, 40, 24), width=8), ({},)),
    Case("one dimension", convolution((2, 8, 40), (24, 4, 5), groups=2, pads=(2, 2)), ({},)),
)


@needs_compiler
def test_as_the_interpreter_says() -> None:
    compare(CASES, (Variant(block=8, padded=True),), known=False)


def bodies(build: Callable[[Room], Value]) -> list[str]:
    return [str(part.scope) for part in padded(separated(parts_of(standard(), group(build)))).parts]


def test_the_copy_is_as_large_as_what_is_read() -> None:
    """A window of 3 around each of 9 positions reads 11; what reads it asks nothing any more."""
    copy, rest = bodies(convolution((1, 16, 9, 19), (16, 4, 3, 3), groups=4, pads=(1, 1, 1, 1)))
    assert "11" in copy and "21" in copy and "other=0" in copy
    assert "other" not in rest
    copy, rest = bodies(convolution((1, 16, N, 19), (16, 4, 3, 3), groups=4, pads=(1, 1, 1, 1)))
    assert "2 + N" in copy and "21" in copy and "other" not in rest


def test_along_the_last_loop_a_copy_lies_side_by_side() -> None:
    """The positions of a band are those of an axis that is not the last one; every so many of them would be no better off."""
    copy, rest = bodies(lambda r: r.op("g2bmm", r.input(2, 40, 24), r.input(2, 40, 24), width=8))
    assert "[i0, -8 + i2, i1, other=0]" in copy and "[i0, r0, i1 + i2]" in rest
    assert len(bodies(lambda r: r.op("g2bmm", r.input(2, 40, 24), r.input(2, 40, 24), width=8, dilation=2))) == 1


def test_what_is_inside_or_read_once_is_not_copied() -> None:
    assert len(bodies(convolution((1, 16, 9, 19), (16, 4, 3, 3), groups=4))) == 1
    assert len(bodies(lambda r: r.op("relu", r.input(N, 9)))) == 1


def test_few_channels_are_worth_a_kernel() -> None:
    """A runtime's blocks are not filled by 4 channels; of 64 they are."""
    few = group(convolution((1, 128, 56, 56), (128, 4, 3, 3), groups=32, pads=(1, 1, 1, 1)))
    many = group(convolution((1, 128, 56, 56), (128, 64, 3, 3), groups=2, pads=(1, 1, 1, 1)))
    assert max(len(one.nodes) for one in proposals(few, standard(), profiles=Profiles(standard()))) == 2
    assert all(len(one.nodes) == 1 for one in proposals(many, standard(), profiles=Profiles(standard())))
    assert variants(standard(), few)[0].padded
