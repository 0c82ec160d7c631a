"""Sums over windows of products as products of matrices: what becomes one, and that it gives the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dslc.codegen.factoring import factored, strided
from dslc.codegen.generate import variants
from dslc.codegen.group import parts_of
from dslc.codegen.split_reductions import outermost, separated
from dslc.codegen.text import Variant
from dslc.fuse.groups import proposals
from dslc.fuse.profile import Profiles
from dslc.ir.graph import Value
from dslc.ir.scalar import Reduce
from dslc.semantics.library import standard
from tests.codegen.groups import Case, N, Room, compare, group, needs_compiler


def transposed(x: Sequence[Any], k: Sequence[Any], behind: bool = False, **attrs: Any) -> Callable[[Room], Value]:
    """A transposed convolution, and what networks compute behind it."""

    def build(r: Room) -> Value:
        found = r.op("conv_transpose", r.input(*x), r.input(*k), **attrs)
        return r.op("relu", r.op("add", found, r.input(k[1] * attrs.get("groups", 1), 1, 1))) if behind else found

    return build


CASES = (
    Case("4 by 2", transposed((2, 9, 3, 5), (9, 6, 4, 4), True, stride=(2, 2), pads=(1, 1, 1, 1)), ({},)),
    Case(
        "3 by 2", transposed((1, 9, 4, 4), (9, 5, 3, 3), stride=(2, 2), pads=(1, 1, 0, 0), output_padding=(1, 1)), ({},)
    ),
    Case("9 by 4", transposed((1, 12, 6, 5), (12, 2, 9, 9), stride=(4, 4), pads=(4, 4, 4, 4)), ({},)),
    Case("dilated", transposed((1, 8, 5), (8, 6, 3), stride=(3,), dilation=(2,)), ({},)),
    Case("groups", transposed((1, 16, 4, 4), (16, 3, 2, 2), stride=(2, 2), groups=2), ({},)),
    Case("unknown size", transposed((N, 9, 3, 3), (9, 6, 4, 4), stride=(2, 2)), ({"N": 1}, {"N": 3})),
    Case("convolution", lambda r: r.op("conv", r.input(1, 9, 6, 7), r.input(8, 9, 3, 3), pads=(1, 1, 1, 1)), ({},)),
    Case("convolution in groups", lambda r: r.op("conv", r.input(1, 16, 6, 7), r.input(8, 8, 3, 3), groups=2), ({},)),
)


@needs_compiler
def test_as_the_interpreter_says() -> None:
    compare(CASES, (Variant(vectors=2, block=12, panels=True, windows=True),), known=False)
    # rows that are left over a block lie outside the kernel's reach
    rows = Case("rows", transposed((1, 2, 3, 6), (2, 1, 3, 3), stride=(2, 2)), ({},))
    compare([rows], (Variant(vectors=1, block=4),), known=False)
    compare(CASES[:1], (Variant(width=8, vectors=4, block=6, windows=True),), known=False)


def bodies(build: Callable[[Room], Value]) -> list[str]:
    return [str(part.scope.body) for part in factored(separated(parts_of(standard(), group(build)))).parts]


def test_a_transposed_convolution_is_a_product_and_a_sum() -> None:
    """Every product is of one element of the input and one of the kernel; what is left takes two positions of four."""
    product, rest = bodies(transposed((1, 64, 8), (64, 32, 4), stride=(2,)))
    assert product == "(sum[r0: 64] ($0[i0, r0, i1] * $1[r0, i2, i3]))"
    assert rest.startswith("(sum[r0: 2] $0[0, ") and "where" not in rest and rest.endswith("other=0])")


def test_what_has_few_terms_or_no_window_stays() -> None:
    assert len(bodies(transposed((1, 4, 8), (4, 32, 4), stride=(2,)))) == 1
    assert len(bodies(lambda r: r.op("matmul", r.input(8, 64), r.input(64, 8)))) == 1
    # a stride of 2 leaves three quarters of a product of everything with everything unused
    assert len(bodies(lambda r: r.op("conv", r.input(1, 64, 16, 16), r.input(32, 64, 3, 3), stride=(2, 2)))) == 1


def reduction(build: Callable[[Room], Value]) -> Reduce:
    (part,) = parts_of(standard(), group(build)).parts
    return next(iter(outermost(part.scope.body)))


def test_a_remainder_leaves_positions_out() -> None:
    """A kernel of 3 by strides of 2: one position or two, whose condition stays."""
    whole = reduction(transposed((1, 8, 8), (8, 8, 3), stride=(2,)))
    found = strided(whole)
    assert [str(each) for each in whole.extents] == ["8", "3"] and [str(each) for each in found.extents] == ["8", "2"]
    assert "< 3" in str(found.where) and "%" not in str(found.body).split("//")[0].split("$1")[0]
    plain = reduction(lambda r: r.op("conv", r.input(1, 8, 8), r.input(8, 8, 3)))
    assert strided(plain) is plain


def test_kernels_compute_what_runtimes_have_no_loop_for() -> None:
    """A large transposed convolution is proposed with what is behind it, a convolution is the runtime's."""
    large = group(transposed((16, 64, 8, 8), (64, 32, 4, 4), True, stride=(2, 2), pads=(1, 1, 1, 1)))
    assert max(len(one.nodes) for one in proposals(large, standard(), profiles=Profiles(standard()))) == 3
    conv = group(lambda r: r.op("conv", r.input(16, 64, 8, 8), r.input(32, 64, 3, 3)))
    assert list(proposals(conv, standard(), profiles=Profiles(standard()))) == []
    assert all(one.windows for one in variants(standard(), large))
