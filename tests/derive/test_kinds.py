"""The ten programs that are shown are of many kinds: EinNet's Figures 6 and 7, averages, and sums that run backwards."""

from __future__ import annotations

from itertools import islice

import pytest

from dslc.derivation.calls import read_call
from dslc.derivation.kinds import Kinds
from dslc.derivation.programs import PricedProgram, unlike
from dslc.derivation.search import DerivationLimits, DerivationSearch
from dslc.derivation.targets import targets_of
from dslc.ir.graph import Call
from dslc.prove.exact.answers import Equal
from dslc.prove.exact.compare import compare
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules
from tests.libraries import libraries


@pytest.fixture(scope="module")
def rules() -> Rules:
    return libraries("std", "einnet")


def shown(rules: Rules, text: str, states: int, depth: int = 7) -> list[PricedProgram]:
    """The ten that `dslc derive` shows, of a search that looks at so many expressions."""
    called = read_call(rules, text)
    (value,) = expand(rules, (called.value,))
    limits = DerivationLimits(max_depth=depth, max_states=states)
    search = DerivationSearch(
        rules, list(rules.derivations.values()), limits, targets_of(rules, [call.op for call in called.calls])
    )
    programs = [each for each in search.run(value).programs if each.calls != called.calls]
    return list(islice(Kinds(rules, called.calls).first(unlike(rules, programs, called.calls)), 10))


def only(program: PricedProgram) -> tuple[Call, tuple[int | object, ...], bool]:
    """The one call of a program, the shape of its second operand, and whether anything is added after it."""
    (call,) = program.calls
    return call, call.args[1].type.shape, any(node.scope.body.binds for node in program.generated if not node.constant)


def assert_proved(rules: Rules, program: PricedProgram, text: str) -> None:
    (value,), (new,) = expand(rules, (read_call(rules, text).value,)), expand(rules, (program.value,))
    assert isinstance(compare((value,), (new,), seconds=120.0), Equal)


def test_figure_7_one_convolution_is_computed_in_five_ways(rules: Rules) -> None:
    text = "conv(X: f32[1, 5, 7, 6], K: f32[4, 5, 3, 3], pads=[1, 1, 1, 1])"
    found = [only(program) for program in shown(rules, text, 260)]
    # im2col, and a product of which nine planes are added
    assert any(call.op == "std.matmul" and shape == (45, 4) and not added for call, shape, added in found)
    assert any(call.op == "std.matmul" and shape == (5, 36) and added for call, shape, added in found)
    # the same nine as filters of one position, and four as filters of two by two
    assert any(call.op == "std.conv" and shape == (36, 5, 1, 1) and added for call, shape, added in found)
    assert any(call.op == "std.conv" and shape == (16, 5, 2, 2) and added for call, shape, added in found)
    # groups over inputs that are read several times
    assert any(call.op == "std.conv" and dict(call.attrs)["groups"] != 1 for call, _, _ in found)


def test_a_long_window_is_one_of_three_with_more_filters(rules: Rules) -> None:
    text = "conv(X: f32[1, 2, 24], K: f32[3, 2, 9])"
    own = [each for each in shown(rules, text, 160) if only(each)[1] == (9, 2, 3)]
    assert own
    assert_proved(rules, own[0], text)


def test_a_transposed_convolution_is_one_that_runs_the_other_way_round(rules: Rules) -> None:
    text = "conv_transpose(X: f32[1, 2, 5, 4], K: f32[2, 3, 3, 3], pads=[1, 1, 1, 1])"
    own = [
        each
        for each in shown(rules, text, 1, depth=0)
        if each.calls[0].op == "std.conv" and only(each)[1] == (3, 2, 3, 3)
    ]
    assert own
    assert_proved(rules, own[0], text)


def test_a_strided_transposed_convolution_is_one_of_a_smaller_window_at_every_phase(rules: Rules) -> None:
    text = "conv_transpose(X: f32[1, 4, 5], K: f32[4, 2, 6], stride=[2], pads=[2, 2])"
    own = [each for each in shown(rules, text, 260) if each.calls[0].op == "std.conv" and only(each)[1] == (4, 4, 3)]
    assert own
    assert_proved(rules, own[0], text)


@pytest.mark.parametrize(
    "text, shape",
    [
        ("conv_transpose(X: f32[1, 4, 3, 3], K: f32[4, 2, 2, 2], stride=[2, 2])", (8, 4, 1, 1)),
        ("conv_transpose(X: f32[1, 3, 6], K: f32[3, 2, 6], stride=[3], pads=[1, 2])", (6, 3, 2)),
    ],
)
def test_of_a_strided_transposed_convolution_nothing_is_left_to_add(
    rules: Rules, text: str, shape: tuple[int, ...]
) -> None:
    """Each phase of the result has its own part of the window, and what follows the convolution is a change of layout."""
    own = [each for each in shown(rules, text, 120) if only(each)[1:] == (shape, False)]
    assert own
    assert_proved(rules, own[0], text)


def test_a_depthwise_convolution_is_one_of_a_single_group(rules: Rules) -> None:
    text = "conv(X: f32[2, 4, 6, 6], K: f32[4, 1, 3, 3], pads=[1, 1, 1, 1], groups=4)"
    own = [each for each in shown(rules, text, 40, depth=1) if only(each)[1] == (4, 4, 3, 3)]
    assert own and dict(own[0].calls[0].attrs)["groups"] == 1
    assert_proved(rules, own[0], text)


def test_groups_of_several_filters_are_a_batch_of_one_group(rules: Rules) -> None:
    """The channels of a group are a merged dimension, and no window that does not overlap; either way there is an operator."""
    text = "conv(X: f32[1, 6, 5, 5], K: f32[9, 2, 3, 3], pads=[1, 1, 1, 1], groups=3)"
    own = [each for each in shown(rules, text, 20, depth=1) if dict(each.calls[0].attrs).get("groups") == 1]
    assert {tuple(arg.type.shape for arg in each.calls[0].args) for each in own} >= {((3, 2, 5, 5), (9, 2, 3, 3))}
    assert_proved(rules, own[0], text)


def test_a_pad_before_a_convolution_is_its_padding(rules: Rules) -> None:
    text = "conv(pad(X: f32[1, 2, 5, 5], before=[0, 0, 1, 1], after=[0, 0, 1, 2]), K: f32[3, 2, 3, 3])"
    own = [each for each in shown(rules, text, 1, depth=0) if dict(each.calls[0].attrs).get("pads") == (1, 1, 1, 2)]
    assert own and not own[0].generated
    assert_proved(rules, own[0], text)


def test_a_strided_convolution_is_one_product_at_every_position_of_which_some_are_added(rules: Rules) -> None:
    text = "conv(X: f32[1, 5, 9, 7], K: f32[4, 5, 3, 3], stride=[2, 2])"
    own = [each for each in shown(rules, text, 60, depth=3) if only(each)[1:] == ((5, 36), True)]
    assert [each.calls[0].args[0].type.shape for each in own] == [(63, 5)]
    assert_proved(rules, own[0], text)


@pytest.mark.parametrize(
    "text", ["avg_pool(X: f32[1, 3, 6, 6], kernel=[2, 2], stride=[2, 2])", "global_avg_pool(X: f32[1, 3, 4, 4])"]
)
def test_an_average_is_a_product_with_ones(rules: Rules, text: str) -> None:
    found = shown(rules, text, 1, depth=0)
    assert {"std.conv", "std.matmul"} <= {call.op for each in found for call in each.calls}
    for each in found:
        assert_proved(rules, each, text)


def test_a_dilated_convolution_of_three_dimensions_is_a_dense_one_of_a_batch(rules: Rules) -> None:
    text = "conv(X: f32[1, 2, 6, 6, 6], K: f32[3, 2, 2, 2, 2], dilation=[2, 2, 2])"
    own = [each for each in shown(rules, text, 40, depth=1) if dict(each.calls[0].attrs).get("dilation") == (1, 1, 1)]
    assert [each.calls[0].args[0].type.shape for each in own] == [(8, 2, 3, 3, 3)]
    assert_proved(rules, own[0], text)
