"""Products whose factors are brought into panels first: what becomes one, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable

from dslc.codegen.generate import generate, variants
from dslc.codegen.group import parts_of
from dslc.codegen.panels import packed_factors, panelled
from dslc.codegen.separate import separated
from dslc.codegen.variant import Variant
from dslc.ir.dtype import DType
from dslc.ir.graph import Value
from dslc.semantics.library import standard
from tests.codegen.groups import Case, M, N, Room, compare, group, needs_compiler

#: sizes that fill panels and blocks of rows, and that leave a rest of either
SIZES = ({"N": 12, "M": 64}, {"N": 31, "M": 37}, {"N": 8, "M": 130})


def epilogue(r: Room) -> Value:
    """A product with what comes before and behind it."""
    product = r.op("matmul", r.op("tanh", r.input(N, 40)), r.op("mul", r.input(40, M), r.input(40, 1)))
    return r.op("relu", r.op("add", product, r.input(M)))


CASES = (
    Case("product", lambda r: r.op("matmul", r.input(N, 40), r.input(40, M)), SIZES),
    Case("unknown terms", lambda r: r.op("matmul", r.input(33, N), r.input(N, M)), SIZES),
    Case("transposed", lambda r: r.op("matmul", r.input(N, 40), r.op("transpose", r.input(M, 40), perm=(1, 0))), SIZES),
    Case("batches", lambda r: r.op("matmul", r.input(3, N, 24), r.input(3, 24, M)), SIZES),
    Case("shared by batches", lambda r: r.op("matmul", r.input(2, N, 24), r.input(24, M)), SIZES),
    Case("before and behind", epilogue, SIZES),
    Case("half", lambda r: r.op("matmul", r.input(N, 40, dtype=DType.F16), r.input(40, M, dtype=DType.F16)), SIZES, tolerance=4e-3),
    Case("integers", lambda r: r.op("matmul", r.input(N, 40, dtype=DType.I32), r.input(40, M, dtype=DType.I32)), SIZES),
    Case("convolution by 1", lambda r: r.op("conv", r.input(2, 24, N, M), r.input(20, 24, 1, 1)), SIZES[1:2]),
)
PANELS = (Variant(vectors=2, block=12, panels=True), Variant(width=8, vectors=4, block=5, panels=True))


@needs_compiler
def test_as_the_interpreter_says() -> None:
    compare(CASES, PANELS[:1], known=False)
    compare(CASES[:2], PANELS[1:])


def factors(build: Callable[[Room], Value]) -> list[str]:
    """What is brought into panels."""
    parts = separated(parts_of(standard(), group(build)))
    return [str(found.factor) for part in parts.parts for found in packed_factors(part.scope)]


def test_the_factor_that_rows_share_is_packed() -> None:
    """The last loop whose factor others share; of an expression all that depends on it."""
    assert factors(lambda r: r.op("matmul", r.input(N, 40), r.input(40, M)))[0] == "$1[r0, i1]"
    assert factors(lambda r: r.op("matmul", r.input(N, 40), r.op("transpose", r.input(M, 40), perm=(1, 0))))[0] == "$1[i1, r0]"


def test_what_nothing_shares_is_not_packed() -> None:
    """A product with a vector reads each element of the matrix once; a sum that is short takes no time."""
    assert factors(lambda r: r.op("matmul", r.input(1, N), r.input(N, M))) == []
    assert factors(lambda r: r.op("matmul", r.input(N, 4), r.input(4, M))) == []
    assert factors(lambda r: r.op("reduce_sum", r.input(N, M), axes=(1,))) == []


def test_a_panel_is_a_part_of_its_own() -> None:
    parts = separated(parts_of(standard(), group(lambda r: r.op("matmul", r.input(30, 40), r.input(40, 100)))))
    panel, whole = panelled(parts, 32).parts
    assert panel.scope.extents == (4, 40, 32) and "32 * i0" in str(panel.scope)
    assert panel.value in whole.args


def test_products_have_variants_with_panels() -> None:
    product = group(lambda r: r.op("matmul", r.input(N, 40), r.input(40, M)))
    sums = group(lambda r: r.op("reduce_sum", r.input(N, M), axes=(1,)))
    assert any(one.panels for one in variants(standard(), product)) and not any(one.panels for one in variants(standard(), sums))
    assert generate(standard(), product, PANELS[0]).name != generate(standard(), product, Variant(vectors=2, block=12)).name
