"""The figures of EinNet (OSDI 2023) that take several products, each by its name, at sizes of our own and through `dslc derive`."""

from __future__ import annotations

import pytest
from shown import derived, names, shapes


def test_figure_4_of_three_matrices_the_last_two_are_multiplied_first() -> None:
    """(A B) C takes 2 * 40 * 50 * (4 + 3) operations, A (B C) 2 * 4 * 3 * (40 + 50)."""
    programs = derived("matmul(matmul(A: f32[40, 4], B: f32[4, 50]), C: f32[50, 3])", "--max-states", "200")
    wanted = sorted([sorted([[4, 50], [3, 50]]), sorted([[4, 40], [3, 4]])])
    found = [each for each in programs if shapes(each) == wanted]
    assert any(names(each) == ["std.matmul", "std.matmul"] for each in found)
    assert {"einnet.product_merging", "einnet.factor_hoisting"} <= set(found[0]["steps"])


@pytest.mark.parametrize("joined, filters", [("concat({}, {}, axis=1)", 5), ("add({}, {})", 6)])
def test_figure_3a_windows_of_one_and_of_nine_positions_are_one_product(joined: str, filters: int) -> None:
    """One product of the image by all weights, 6 of them and 9 times as many as the other filters, and a selective sum."""
    one, nine = "conv(X: f32[1, 4, 6, 6], K: f32[6, 4, 1, 1])", f"conv(X, L: f32[{filters}, 4, 3, 3], pads=[1, 1, 1, 1])"
    programs = derived(joined.format(one, nine), "--max-states", "60", "--max-depth", "3")
    found = [each for each in programs if names(each) == ["std.matmul"] and "einnet.flat_concatenation" in each["steps"]]
    assert [sorted([[4, 6 + 9 * filters], [4, 36]])] in map(shapes, found)
