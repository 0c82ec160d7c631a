"""What windows read again and again is computed once; what is known of positions is decided before there is code."""

from __future__ import annotations

from collections.abc import Callable

from dslc.codegen.generate import variants
from dslc.codegen.group import parts_of
from dslc.codegen.split_reductions import separated
from dslc.codegen.text import Variant
from dslc.fuse.groups import NodeGroup
from dslc.fuse.kernels import fold_of
from dslc.ir.dtype import DType
from dslc.ir.graph import Call, Value
from dslc.ir.scalar import Apply, Read, Scalar, walk
from dslc.semantics.library import standard
from tests.codegen.groups import Case, N, Room, compare, group, needs_compiler


def scores(heads: int, length: int, width: int, reach: int, dilation: int) -> Callable[[Room], Value]:
    """Products of each position with those around it, as exporters write them: a bias, zeros around the ends, a table of positions."""

    def build(r: Room) -> Value:
        span = 2 * reach + 1
        queries = r.op("add", r.input(heads, length, width), r.input(width))
        keys = r.op("add", r.input(heads, length, width), r.input(width))
        around = r.op("pad", keys, r.number(0.0), before=(0, reach * dilation, 0), after=(0, reach * dilation, 0))
        places = r.op("places", dtype=DType.I64, shape=(length, span), step=(1, dilation), start=0)
        windows = r.op("transpose", r.op("gather", around, places, axis=1), perm=(0, 1, 3, 2))
        return r.op("matmul", r.op("reshape", queries, shape=(heads, length, 1, width)), windows)

    return build


CASES = (
    Case("dilated by 2", scores(2, 64, 16, 8, 2), ({},)),
    Case("dilated by 3, odd sizes", scores(3, 67, 7, 8, 3), ({},)),
    Case(
        "a bias before a convolution",
        lambda r: r.op(
            "conv", r.op("add", r.input(1, 4, 12, 13), r.input(4, 1, 1)), r.input(6, 4, 3, 3), pads=(1, 1, 1, 1)
        ),
        ({},),
    ),
    Case("unknown sizes", lambda r: r.op("matmul", r.op("relu", r.input(5, N)), r.input(N, 9)), ({"N": 7}, {"N": 1})),
)


@needs_compiler
def test_as_the_interpreter_says() -> None:
    compare(
        CASES,
        (
            Variant(keep=True),
            Variant(keep=True, fuse=False),
            Variant(vectors=1, block=1, unroll=2, keep=True, fuse=False),
        ),
    )


def bodies(build: Callable[[Room], Value], keep: bool) -> list[Scalar]:
    return [part.scope.body for part in separated(parts_of(standard(), group(build), keep=keep)).parts]


def test_what_is_read_many_times_is_computed_once() -> None:
    """A bias and zeros are added once for each element, and not once for each window that it is in."""
    build = scores(2, 64, 16, 8, 2)
    assert len(bodies(build, keep=False)) == 1
    *once, products = bodies(build, keep=True)
    assert len(once) == 2
    # nothing is added to what the products read, and positions are no tensor
    assert sorted(each.operand for each in walk(products) if isinstance(each, Read)) == [0, 1]
    assert not any(isinstance(each, Apply) and each.name == "select" for each in walk(products))


def test_it_comes_first_where_it_is_another_one() -> None:
    first, *_ = variants(standard(), group(scores(2, 64, 16, 8, 2)))
    assert first.keep and not first.fuse
    plain = group(lambda r: r.op("relu", r.op("matmul", r.input(8, 16), r.input(16, 24))))
    assert not any(each.keep for each in variants(standard(), plain))


def test_a_position_that_cannot_be_negative_is_not_asked_about() -> None:
    """ONNX counts negative positions from the end; where iterators say that there are none, the index is affine."""
    (body,) = bodies(scores(2, 64, 16, 8, 2), keep=False)
    indices = [part for each in walk(body) if isinstance(each, Read) for index in each.index for part in walk(index)]
    assert not any(isinstance(part, Apply) and part.name in {"select", "<"} for part in indices)


def test_positions_are_a_part_of_every_kernel_that_reads_them() -> None:
    """As numbers are: in memory they would be data, of which nothing is known."""
    (end,) = group(scores(2, 64, 16, 8, 2)).outputs
    nodes = [node for node in group(scores(2, 64, 16, 8, 2)).nodes() if isinstance(node, Call) and node.args]
    fold = fold_of(NodeGroup(tuple(nodes), (nodes[-1].values[0],)))
    kernel = fold.kernel
    assert len(kernel.args) == 4 and any(getattr(node, "op", "") == "std.places" for node in kernel.group.nodes())
    assert end.type == kernel.types[0]
