"""Mutants are found from the operators alone, corrected where they differ, and proved by inclusion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest

from benchmarks.pet_branches import joined
from dslc.interpret.floats import Floats
from dslc.interpret.run import run
from dslc.ir.dtype import DType, TensorType
from dslc.ir.facts import Fact
from dslc.ir.graph import Call, Graph, Value
from dslc.ir.holes import hole, program
from dslc.mutate.batch_tiling import overlapping
from dslc.mutate.cores import Core, CoreNumbers, choices
from dslc.mutate.correct import Corrected, corrections, differing, fact_of
from dslc.mutate.layouts import alike, gathered, identity, inverse, laid, layouts
from dslc.mutate.mutant import Argument, Mutant, MutantOptions, made
from dslc.mutate.partial import applied, compiled
from dslc.mutate.problem import problem_of, shape_of
from dslc.mutate.search import search
from dslc.prove.exact import Equal, compare
from dslc.prove.strided import Box
from dslc.search.region_rewrites.validate import validate
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules
from tests.libraries import libraries


@pytest.fixture(scope="module")
def rules() -> Rules:
    return libraries("std", "pet")


def region(rules: Rules, op: str, *shapes: tuple[int, ...], **attrs: Any) -> Graph:
    """One operator over holes."""
    holes = tuple(hole(k, TensorType(DType.F32, shape)) for k, shape in enumerate(shapes))
    return program(holes, apply(rules, op, holes, attrs))


def found(rules: Rules, over: Graph, tries: int, **options: Any) -> Iterator[tuple[Mutant, list[Value]]]:
    """Mutants, each at the sizes of the region."""
    problem = problem_of(rules, over)
    for mutant in search(rules, problem, MutantOptions(tries=tries, best=64, **options)).mutants:
        yield mutant, list(made(rules, mutant, problem.small, problem.region))


def core(value: Value) -> Mapping[str, Any]:
    """The attributes of the one operator of a mutant."""
    (call,) = (node for node in Graph((), (value,)).nodes() if isinstance(node, Call))
    return dict(call.attrs) | {"op": call.op, "shapes": [shape_of(arg) for arg in call.args]}


def error(rules: Rules, over: Graph, other: Value) -> float:
    """The largest difference of a program from a region, on random floats."""
    rng = np.random.default_rng(0)
    feeds = {value: rng.standard_normal(shape_of(value)) for value in over.inputs}
    old, new = run(rules, (*over.outputs, other), feeds, Floats())
    return float(np.abs(old - new).max())


def is_shown(rules: Rules, over: Graph, one: Corrected) -> str:
    """How a correction of a region is proved as a fact."""
    (old,) = over.outputs
    fact = fact_of("corrected", old, one, old, one.value(rules), over.inputs, lambda value: value)
    return validate(rules, [fact]).how["corrected"]


# ---- layouts ----------------------------------------------------------------------------------------------------


def test_a_layout_is_one_scope_and_what_it_gathers(rules: Rules) -> None:
    value = hole(0, TensorType(DType.F32, (4, 3, 5)))
    array = np.arange(1.0, 61.0).reshape(4, 3, 5)
    every = list(layouts((4, 3, 5), ((2, 4), (3,), (2, 5)), True))
    assert len(every) > 100 and any(one.shape == (12, 5) for one in every) and any(any(one.shifts) for one in every)
    for one in every[::7]:
        (new,) = run(rules, (laid(value, one),), {value: array}, Floats())
        assert np.array_equal(new, np.append(array.reshape(-1), 0)[gathered(one, (4, 3, 5))]), one


# ---- the paper's cases ------------------------------------------------------------------------------------------


def test_figure_3_a_dilated_convolution_is_a_dense_one_of_its_phases(rules: Rules) -> None:
    over = region(rules, "std.conv", (1, 2, 5, 7), (3, 2, 3, 3), dilation=(2, 2), pads=(2, 2, 2, 2))
    dense = {m.share: v for m, (v, *_) in found(rules, over, 425) if core(v)["dilation"] == (1, 1) and m.share < 0.3}
    # padded to 6x8 it is right everywhere; without its last row it is wrong there, and in the rows that it would reach
    assert set(dense) == {0.0, 2 / 7}
    assert core(dense[0.0])["shapes"][0] == (4, 2, 3, 4)
    assert error(rules, over, dense[0.0]) < 1e-9
    assert error(rules, over, dense[2 / 7]) > 0.1
    (old,) = over.outputs
    assert corrections(rules, old, dense[2 / 7], limit=0.25) == []
    by_guard, by_parts, *by_one_operator = corrections(rules, old, dense[2 / 7], limit=0.3)
    for one in (by_guard, by_parts, *by_one_operator):
        assert one.share == 2 / 7
        assert error(rules, over, one.value(rules)) < 1e-9
        assert is_shown(rules, over, one) == "exact"
    # the region's own operators compute the boxes, on the parts of the inputs that they read
    assert not by_guard.pieces and len(by_parts.pieces) == len(by_parts.boxes)


def test_table_3_the_dilated_convolution_at_its_size(rules: Rules) -> None:
    over = region(rules, "std.conv", (1, 512, 14, 14), (256, 512, 3, 3), dilation=(2, 2), pads=(2, 2, 2, 2))
    problem = problem_of(rules, over)
    assert problem.small_inputs[0][2:] == (14, 14) and problem.small_inputs[0][1] < 10
    best = [v for m, (v, *_) in found(rules, over, 50, share=0.0) if core(v)["dilation"] == (1, 1)]
    assert [core(v)["shapes"][0] for v in best] == [(4, 512, 7, 7)]


def test_a_strided_convolution_has_stride_one(rules: Rules) -> None:
    over = region(rules, "std.conv", (1, 2, 6, 6), (3, 2, 2, 2), stride=(2, 2))
    plain = [v for _, (v, *_) in found(rules, over, 70, share=0.0) if core(v)["stride"] == (1, 1)]
    assert plain and all(error(rules, over, v) < 1e-9 for v in plain)


def test_an_average_is_a_convolution_of_groups(rules: Rules) -> None:
    over = region(rules, "std.avg_pool", (2, 5, 6, 4), kernel=(2, 2), stride=(2, 2))
    grouped = [v for _, (v, *_) in found(rules, over, 105, share=0.0) if core(v).get("groups") == 5]
    assert grouped and error(rules, over, grouped[0]) < 1e-9


def test_a_convolution_of_groups_is_a_convolution(rules: Rules) -> None:
    over = region(rules, "std.conv", (1, 4, 4), (6, 2, 3), groups=2, pads=(1, 1))
    dense = [v for _, (v, *_) in found(rules, over, 250, share=0.0) if core(v)["groups"] == 1]
    assert dense and error(rules, over, dense[0]) < 1e-9


def test_a_depthwise_convolution_is_a_convolution_of_its_channels_as_images(rules: Rules) -> None:
    over = region(rules, "std.conv", (1, 30, 6, 5), (30, 1, 3, 3), groups=30, pads=(1, 1, 1, 1))
    # found at two channels
    dense = [v for _, (v, *_) in found(rules, over, 51, share=0.0) if core(v)["groups"] == 1]
    assert core(dense[0])["shapes"][0] == (30, 1, 6, 5)
    assert error(rules, over, dense[0]) < 1e-9


def test_the_images_of_a_batch_are_groups(rules: Rules) -> None:
    over = region(rules, "std.conv", (16, 5, 6, 5), (7, 5, 3, 3), pads=(1, 1, 1, 1))
    groups = [v for _, (v, *_) in found(rules, over, 204, share=0.0) if core(v)["groups"] == 16]
    # the weights are repeated for each
    assert core(groups[0])["shapes"] == [(1, 80, 6, 5), (112, 5, 3, 3)]
    assert error(rules, over, groups[0]) < 1e-9


@pytest.mark.parametrize("batch", [1, 16])
def test_products_of_a_batch_are_one_product(rules: Rules, batch: int) -> None:
    over = region(rules, "std.matmul", (batch, 6, 8), (8, 10))
    flat = [v for _, values in found(rules, over, 60, share=0.0) for v in values if len(core(v)["shapes"][0]) == 2]
    assert any(core(v)["shapes"] == [(6 * batch, 8), (8, 10)] for v in flat)
    assert all(error(rules, over, v) < 1e-9 for v in flat)


def test_images_are_cut_into_tiles_at_any_factor(rules: Rules) -> None:
    """Figure 1 and Table 3's convolution: tiles are images, and differ where they touch."""
    over = region(rules, "std.conv", (1, 1, 6, 9), (2, 1, 3, 3), pads=(1, 1, 1, 1))
    tiles = {core(v)["shapes"][0]: m for m, (v, *_) in found(rules, over, 300) if core(v)["shapes"][0][2:] != (6, 9)}
    assert tiles[2, 1, 3, 9].share == 2 / 6
    # nine columns are five and, padded, five
    assert tiles[4, 1, 3, 5].share == pytest.approx(1 - (4 / 6) * (7 / 9))
    # a row, sooner than an image, as three
    row = region(rules, "std.conv", (1, 1, 9), (2, 1, 3), pads=(1, 1))
    (thirds,) = [m for m, (v, *_) in found(rules, row, 260) if core(v)["shapes"][0] == (3, 1, 3)]
    assert thirds.share == pytest.approx(4 / 9)


def test_table_3_a_convolution_of_which_53_percent_differ_is_refused_unless_the_limit_allows_it(rules: Rules) -> None:
    """[1, c, 38, 38] -> [16, c, 10, 10]: 38 is padded to 40, which four tiles divide; two positions beside each seam are wrong."""
    over = region(rules, "std.conv", (1, 1, 38, 38), (2, 1, 5, 5), pads=(2, 2, 2, 2))
    (old,) = over.outputs
    tiles = [v for _, (v, *_) in found(rules, over, 425) if core(v)["shapes"][0] == (16, 1, 10, 10)]
    where = differing(rules, old, tiles[0])
    assert where is not None and where.proved and where.share == pytest.approx(1 - (26 / 38) ** 2)
    assert corrections(rules, old, tiles[0]) == []
    by_guard, *_ = corrections(rules, old, tiles[0], limit=0.54)
    assert error(rules, over, by_guard.value(rules)) < 1e-9


def test_space_to_depth_is_found(rules: Rules) -> None:
    over = region(rules, "std.conv", (16, 20, 14, 14), (30, 20, 3, 3), stride=(2, 2), pads=(1, 1, 1, 1))
    cheap = [v for m, (v, *_) in found(rules, over, 225, share=0.0, operations=2.0) if core(v)["stride"] == (1, 1)]
    # 16 products for 9
    assert [(16, 80, 7, 7), (30, 80, 2, 2)] in [core(v)["shapes"] for v in cheap]
    assert error(rules, over, cheap[0]) < 1e-9


def test_space_to_depth_is_found_at_odd_sizes(rules: Rules) -> None:
    """Four layouts of the image for each at even sizes, as each dimension may be padded or cut: what leaves nothing out takes turns."""
    over = region(rules, "std.conv", (1, 20, 27, 31), (30, 20, 3, 3), stride=(2, 2), pads=(1, 1, 1, 1))
    cheap = [v for m, (v, *_) in found(rules, over, 315, share=0.0, operations=2.0) if core(v)["stride"] == (1, 1)]
    assert [(1, 80, 14, 16), (30, 80, 2, 2)] in [core(v)["shapes"] for v in cheap]
    assert error(rules, over, cheap[0]) < 1e-9


def test_figure_1_what_is_mostly_wrong_comes_last(rules: Rules) -> None:
    """Four images, two of which side by side are a wide one: what would be corrected comes before what is cheaper and too wrong."""
    over = region(rules, "std.conv", (4, 2, 4, 5), (2, 2, 3, 3), pads=(1, 1, 1, 1))
    every = search(rules, problem_of(rules, over), MutantOptions(tries=1275)).mutants
    right = [mutant.share <= 0.25 for mutant in every]
    assert right == sorted(right, reverse=True) and 2 < sum(right) < len(right)
    assert {0.2, 0.25} <= {round(mutant.share, 9) for mutant in every[: sum(right)]}
    few = min(mutant.operations for mutant in every[sum(right) :])
    assert any(few < mutant.operations for mutant in every[: sum(right)])


def test_a_strided_convolution_of_three_positions_has_stride_one(rules: Rules) -> None:
    """Space to depth: a window of three is padded to four positions, two of which become channels."""
    over = region(rules, "std.conv", (1, 2, 10, 10), (3, 2, 3, 3), stride=(2, 2), pads=(1, 1, 1, 1))
    problem = problem_of(rules, over)
    # the image begins before its first block, and the operator's attributes say so
    one_side = Core("std.conv", (("pads", (1, 1, 0, 0)),), 2)
    assert one_side in choices(rules.operator("std.conv"), CoreNumbers(problem))
    # of all pairs of layouts those that cut and move both tensors alike are tried first
    ways = [list(layouts(shape, [(2, size) for size in shape])) for shape in problem.small_inputs]
    early = islice(alike(ways), 400)
    pairs = [pair for pair in early if [layout.shape for layout in pair] == [(1, 8, 5, 5), (3, 8, 2, 2)]]
    (wanted,) = [shape_of(value) for value in over.outputs]
    right = []
    for pair in pairs:
        arguments = tuple(Argument(k, layout) for k, layout in enumerate(pair))
        (value,) = made(
            rules, Mutant(arguments, one_side, identity(wanted), False, 0.0, 1.0), problem.small, problem.region
        )
        if error(rules, over, value) < 1e-9:
            right.append(value)
    assert right and core(right[0])["stride"] == (1, 1)


# ---- corrections ------------------------------------------------------------------------------------------------


def test_a_partial_substitution_by_hand_is_corrected(rules: Rules) -> None:
    every = compiled(rules, rules.substitutions.values())
    even = region(rules, "std.conv", (4, 2, 5, 8), (3, 2, 3, 3), pads=(1, 1, 1, 1))
    (pairs,) = (one for one in applied(rules, every, even) if one.rule == "pet.pair_images")
    (old,) = even.outputs
    # the seam is the last column of every first image, and the first of every second one
    one = corrections(rules, old, pairs.value, pairs.limit)[0]
    assert one.share == 1 / 8 and error(rules, even, one.value(rules)) < 1e-9 and is_shown(rules, even, one) == "exact"
    odd = region(rules, "std.conv", (3, 2, 5, 8), (3, 2, 3, 3), pads=(1, 1, 1, 1))
    assert list(applied(rules, every, odd)) == []


def test_a_limit_refuses_what_differs_too_much(rules: Rules) -> None:
    every = compiled(rules, rules.substitutions.values())
    over = region(rules, "std.conv", (1, 2, 11, 13), (3, 2, 3, 3), dilation=(2, 2), pads=(2, 2, 2, 2))
    (one,) = applied(rules, every, over)
    found = differing(rules, over.outputs[0], one.value)
    assert found is not None and found.share == pytest.approx(0.3077, abs=1e-4) and one.limit == 0.25
    assert corrections(rules, over.outputs[0], one.value, one.limit) == []


def test_a_correction_that_leaves_something_out_is_not_proved(rules: Rules) -> None:
    every = compiled(rules, rules.substitutions.values())
    over = region(rules, "std.conv", (2, 1, 4, 6), (1, 1, 3, 3), pads=(1, 1, 1, 1))
    (pairs,) = applied(rules, every, over)
    (old,) = over.outputs
    right = corrections(rules, old, pairs.value, 1.0)[0]
    assert is_shown(rules, over, right) == "exact"
    less = replace(right, boxes=right.boxes[1:])
    assert is_shown(rules, over, less) == "rule" and error(rules, over, less.value(rules)) > 1e-3
    more = replace(right, boxes=(Box((0, 0, 0, 0), shape_of(old), (1, 1, 1, 1)),))
    assert is_shown(rules, over, more) == "exact"


def test_a_proof_is_of_its_own_fact(rules: Rules) -> None:
    every = compiled(rules, rules.substitutions.values())
    over = region(rules, "std.conv", (2, 1, 4, 6), (1, 1, 3, 3), pads=(1, 1, 1, 1))
    (pairs,) = applied(rules, every, over)
    (old,) = over.outputs
    right = corrections(rules, old, pairs.value, 1.0)[0]
    # the mutant itself, with the proof of its correction
    assert not right.shows(rules, Fact("wrong", over, program(over.inputs, (pairs.value,)), right))


# ---- several calls ----------------------------------------------------------------------------------------------


def branches(rules: Rules, images: int, *filters: int) -> Graph:
    """Convolutions of one image, or of one each, with different numbers of filters."""
    shapes = [(1, 3, 4, 5)] * images + [(count, 3, 3, 3) for count in filters]
    holes = [hole(k, TensorType(DType.F32, shape)) for k, shape in enumerate(shapes)]
    data = holes[:images] * (1 if images > 1 else len(filters))
    made = [
        apply(rules, "std.conv", [x, k], {"pads": (1, 1, 1, 1)})[0] for x, k in zip(data, holes[images:], strict=True)
    ]
    return program(holes, made)


@pytest.mark.parametrize("images", [1, 2])
def test_figure_10_branches_are_one_convolution_of_groups(rules: Rules, images: int) -> None:
    over = branches(rules, images, 6, 4)
    every = {
        (one.axes, dict(one.core.attrs).get("groups", 1)): one.made(rules, over)
        for one in joined(rules, problem_of(rules, over))
    }
    # (a) the smaller kernel is padded with zeros, and what they give is thrown away; (b) one image is taken twice
    assert ((1, 0), 2) in every
    # one image needs no groups
    assert (((None, 0), 1) in every) == (images == 1)
    for values in every.values():
        assert values is not None
        rng = np.random.default_rng(0)
        feeds = {value: rng.standard_normal(shape_of(value)) for value in over.inputs}
        results = run(rules, (*over.outputs, *values), feeds, Floats())
        assert all(np.allclose(a, b) for a, b in zip(results[:2], results[2:], strict=True))


def test_a_transposed_convolution_has_mutants(rules: Rules) -> None:
    """Layouts of results that span more than the result: one layout is another map for each shape."""
    over = region(rules, "std.conv_transpose", (2, 4, 2, 2), (4, 3, 4, 4), stride=(2, 2), pads=(1, 1, 1, 1))
    every = [v for _, values in found(rules, over, 60, share=0.0) for v in values]
    assert all(error(rules, over, v) < 1e-9 for v in every)


# ---- sizes that do not divide -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(37,), (13, 11), (2, 7, 5), (1, 3, 11, 13)])
def test_what_is_padded_and_cut_again_is_what_there_was(rules: Rules, shape: tuple[int, ...]) -> None:
    """Padding is exact whatever does not divide: primes, other ranks, two dimensions at once."""
    value = hole(0, TensorType(DType.F32, shape))
    array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    padded = [
        one for one in layouts(shape, [(2, 3, 4)] * len(shape))
        if one.keeps(shape) and not any(one.shifts) and one.taken != shape
    ]  # fmt: skip
    assert len(padded) > 2
    for one in padded[::5]:
        back = laid(laid(value, one), inverse(one), shape)
        (new,) = run(rules, (back,), {value: array}, Floats())
        assert np.array_equal(new, array), one
    # and that is proved
    back = laid(laid(value, padded[-1]), inverse(padded[-1]), shape)
    assert isinstance(compare((laid(value, identity(shape)),), (back,), seconds=120.0), Equal)


#: an operator, its inputs, the shape that is looked for, and within how many tries
PADDED: dict[str, tuple[str, list[tuple[int, ...]], dict[str, Any], tuple[int, ...], int]] = {
    "a row of 37 positions": ("conv", [(1, 2, 37), (3, 2, 3)], {"pads": (1, 1)}, (2, 2, 19), 90),
    "13x11 with windows of 5x3": ("conv", [(1, 1, 13, 11), (2, 1, 5, 3)], {"pads": (2, 1, 2, 1)}, (4, 1, 7, 6), 315),
    "a product of seven rows": ("matmul", [(7, 3), (3, 5)], {}, (2, 4, 3), 160),
    "seven images, of 5x4": ("conv", [(7, 1, 5, 4), (2, 1, 3, 1)], {"pads": (1, 0, 1, 0)}, (4, 1, 5, 8), 160),
}


@pytest.mark.parametrize("name", PADDED)
def test_sizes_that_do_not_divide_have_mutants(rules: Rules, name: str) -> None:
    op, shapes, attrs, wanted, tries = PADDED[name]
    over = region(rules, f"std.{op}", *shapes, **attrs)
    (old,) = over.outputs
    one = next(v for _, values in found(rules, over, tries) for v in values if core(v)["shapes"][0] == wanted)
    # what is wrong is wrong at the seams alone, and corrected
    where = differing(rules, old, one)
    assert where is not None and where.proved and where.share < 0.5
    assert error(rules, over, corrections(rules, old, one, limit=0.5)[0].value(rules)) < 1e-9


@pytest.mark.parametrize("shape", [(1, 3, 38, 38), (2, 2, 13, 7)])
def test_tiles_that_overlap_are_right_everywhere(rules: Rules, shape: tuple[int, ...]) -> None:
    over = region(rules, "std.conv", shape, (4, shape[1], 5, 5), pads=(2, 2, 2, 2))
    (old,) = over.outputs
    tiles = {core(v)["shapes"][0]: v for v in overlapping(rules, old) if core(v).get("stride") == (1, 1)}
    parts = [-(-size // 4) + 4 for size in shape[2:]]
    one = tiles[16 * shape[0], shape[1], parts[0], parts[1]]
    assert error(rules, over, one) < 1e-9
    where = differing(rules, old, one)
    assert where is not None and where.proved and not where.boxes


def test_what_takes_longer_to_compute_than_there_is_time_is_left_alone(rules: Rules) -> None:
    """FSRCNN's last layer: 300 million products, whose elements would be gathered to gigabytes."""
    over = region(
        rules, "conv_transpose", (1, 56, 64, 64), (56, 1, 9, 9), stride=(4, 4), pads=(4, 4, 4, 4), output_padding=(3, 3)
    )
    found = search(rules, problem_of(rules, over), MutantOptions(seconds=0.5))
    assert not found.mutants and not found.complete
