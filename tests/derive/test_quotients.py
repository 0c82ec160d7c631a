"""What is read at a quotient or a remainder: fewer products, and lookups of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from shown import derived, names

from dslc.derivation.pieces import reduced
from dslc.ir.scalar import apply, iterator, num


@pytest.mark.parametrize("factor, window", [(2, 3), (3, 3)])
def test_an_image_that_was_enlarged_is_convolved_with_a_smaller_window_for_each_phase(factor: int, window: int) -> None:
    """Of a window of three over pixels that stand twice each there are two: four phases of 2x2 for one window of 3x3."""
    size, pad = [2, 4, 5 * factor, 6 * factor], [window // 2] * 4
    text = f"conv(resize_nearest(X: f32[2, 4, 5, 6], size={size}), K: f32[3, 4, {window}, {window}], pads={pad})"
    programs = derived(text, "--max-states", "75")
    found = [call for each in programs if len(each["calls"]) == 1 for call in each["calls"]]
    less = (window + factor - 2) // factor + 1
    wanted = [[2, 4, 5, 6], [3 * factor * factor, 4, less, less]]
    assert [wanted] == [call["shapes"] for call in found if call["operator"] == "std.conv" and call["shapes"] == wanted]


@pytest.mark.parametrize("groups", [1, 2])
def test_a_transposed_window_as_long_as_its_strides_is_one_product(groups: int) -> None:
    """Eight parts of the window, each for one of eight pixels: a product and a lookup, after few expressions."""
    channels = 4 // groups
    text = f"conv_transpose(X: f32[1, 4, 2, 3, 4], K: f32[4, 2, 2, 2, 2], stride=[2, 2, 2], groups={groups})"
    programs = derived(text, "--max-states", "45")
    products = [call["shapes"] for each in programs if names(each) == ["std.matmul"] for call in each["calls"]]
    batch = [groups] * (groups > 1)
    assert [[*batch, 24, channels], [*batch, channels, 16]] in products


def test_a_transposed_window_is_one_product_and_a_selective_sum() -> None:
    """Strides of 3 and 2, and a window that neither divides: all of it by each pixel, and of that what meets is added."""
    text = "conv_transpose(X: f32[1, 6, 3, 4], K: f32[6, 2, 4, 3], stride=[3, 2], output_padding=[1, 1])"
    programs = derived(text, "--max-states", "195", "--max-depth", "3")
    products = [call["shapes"] for each in programs if names(each) == ["std.matmul"] for call in each["calls"]]
    assert [[12, 6], [6, 24]] in products


@pytest.mark.parametrize(
    "index, count", [("(i + j) % 6", 6), ("(i + j) // 7", 6), ("j // 5", 4), ("(j - i + 20) % 4", 4)]
)
def test_rows_that_stand_several_times_are_multiplied_once(tmp_path: Path, index: str, count: int) -> None:
    """As many columns as there are remainders (or quotients), and a lookup."""
    file = tmp_path / "rows.rules"
    file.write_text(
        "dslc 1\nlibrary rows 0.1.0\noperator rows(A: f32[20, 24], W: f32[6, 24]) -> Y: f32[20, 19] {\n"
        f'  """Rows."""\n  Y[i, j: 19] = sum[k] A[i, k] * W[{index}, k]\n}}\n'
    )
    programs = derived(f"{file}::rows", "--max-depth", "2", "--max-states", "20")
    products = [call["shapes"] for each in programs if names(each) == ["std.matmul"] for call in each["calls"]]
    assert any(np.prod([size for shape in sizes for size in shape]) == 20 * 24 * 24 * count for sizes in products)


def test_quotients_lose_common_factors() -> None:
    i, j = iterator("i"), iterator("j")
    whole = apply("//", apply("+", apply("*", num(6), i), apply("*", num(-9), j)), num(12))
    assert reduced(whole) == apply("//", apply("+", apply("*", num(2), i), apply("*", num(-3), j)), num(4))
    for node in (apply("//", i, num(2)), apply("%", apply("*", num(6), i), num(12))):
        assert reduced(node) is node
