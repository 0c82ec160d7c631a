"""The figures of EinNet (OSDI 2023) that take several products, each by its name, at sizes of our own and through `dslc derive`."""

from __future__ import annotations

import pytest
from shown import derived, library, names, shapes

from dslc.derivation.calls import read_call
from dslc.derivation.search import DerivationLimits, DerivationSearch
from dslc.derivation.targets import targets_of
from dslc.ir.graph import topological
from dslc.ir.scalar import Read
from dslc.prove.derived_programs import agrees, is_proved
from dslc.semantics.elaborate import expand


def test_figure_4_of_three_matrices_the_last_two_are_multiplied_first() -> None:
    """(A B) C takes 2 * 40 * 50 * (4 + 3) operations, A (B C) 2 * 4 * 3 * (40 + 50)."""
    programs = derived("matmul(matmul(A: f32[40, 4], B: f32[4, 50]), C: f32[50, 3])", "--max-states", "100")
    wanted = sorted([sorted([[4, 50], [3, 50]]), sorted([[4, 40], [3, 4]])])
    found = [each for each in programs if shapes(each) == wanted]
    assert any(names(each) == ["std.matmul", "std.matmul"] for each in found)
    assert {"einnet.product_merging", "einnet.factor_hoisting"} <= set(found[0]["steps"])


@pytest.mark.parametrize("call, shapes_", [
    ("matmul(matmul(A: f32[36, 5], B: f32[5, 44]), C: f32[44, 6])", [[[5, 44], [44, 6]], [[36, 5], [5, 6]]]),
    ("matmul(A: f32[7, 90], matmul(B: f32[90, 11], C: f32[11, 64]))", [[[7, 90], [90, 11]], [[7, 11], [11, 64]]]),
])  # fmt: skip
def test_figure_4_nothing_is_transposed_for_it(call: str, shapes_: list[list[list[int]]]) -> None:
    """Of a product and the same the other way round that is taken for which the operands are there."""
    programs = derived(call, "--max-states", "10")
    assert [[], shapes_] in [[each["generated"], [one["shapes"] for one in each["calls"]]] for each in programs]


@pytest.mark.parametrize("joined, filters", [("concat({}, {}, axis=1)", 5), ("add({}, {})", 6)])
def test_figure_3a_windows_of_one_and_of_nine_positions_are_one_product(joined: str, filters: int) -> None:
    """One product of the image by all weights, 6 of them and 9 times as many as the other filters, and a selective sum."""
    one, nine = (
        "conv(X: f32[1, 4, 6, 6], K: f32[6, 4, 1, 1])",
        f"conv(X, L: f32[{filters}, 4, 3, 3], pads=[1, 1, 1, 1])",
    )
    programs = derived(joined.format(one, nine), "--max-states", "60", "--max-depth", "3")
    found = [
        each for each in programs if names(each) == ["std.matmul"] and "einnet.flat_concatenation" in each["steps"]
    ]
    assert [sorted([[4, 6 + 9 * filters], [4, 36]])] in map(shapes, found)


BANDS = ("std.g2bmm", "std.gbmm")


def test_figure_14d_between_dense_bands_nothing_is_copied() -> None:
    """A dilated band, its softmax and what that weighs: the layout of the dense bands goes through the softmax."""
    rows, dilation = 27, 3
    band = f"g2bmm(A: f32[2, {rows}, 4], B: f32[2, {rows}, 4], width=2, dilation={dilation})"
    called = read_call(library(), f"gbmm(softmax({band}, axis=-1), C: f32[2, {rows}, 4], dilation={dilation})")
    (value,) = expand(library(), (called.value,))
    targets = targets_of(library(), [call.op for call in called.calls])
    limits = DerivationLimits(max_depth=2, max_states=60)
    found = DerivationSearch(library(), list(library().derivations.values()), limits, targets).run(value)
    dense = [
        each for each in found.programs
        if [*sorted((call.op, call.args[0].type.shape[0]) for call in each.calls)] == [(name, 2 * dilation) for name in BANDS]
    ]  # fmt: skip
    between = [node for node in dense[0].generated if dense[0].calls[0] in topological([node])]
    # the last one brings the result back
    copies = [node for node in between if isinstance(node.scope.body, Read)]
    assert [node.values[0] for node in copies] == [dense[0].value]
    assert is_proved(library(), dense[0], called.graph, 60.0)
    assert agrees(library(), dense[0], called.graph)
