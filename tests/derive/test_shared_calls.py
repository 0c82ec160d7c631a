"""Programs of two nodes that read one tensor have one call in common: EinNet's Figures 3a and 15, at sizes of our own."""

from __future__ import annotations

import pytest

from dslc.derivation.calls import read_call
from dslc.derivation.layouts import merged
from dslc.derivation.programs import unlike
from dslc.derivation.search import DerivationLimits, DerivationSearch
from dslc.ir.graph import Call, Value, topological
from dslc.prove.exact.answers import Equal
from dslc.prove.exact.compare import compare
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules
from tests.libraries import libraries


@pytest.fixture(scope="module")
def rules() -> Rules:
    return libraries("std", "einnet")


def derived(rules: Rules, value: Value) -> list[Value]:
    (scope,) = expand(rules, (value,))
    search = DerivationSearch(rules, list(rules.derivations.values()), DerivationLimits(max_depth=3, max_states=60))
    return [each.value for each in unlike(rules, search.run(scope).programs, [value.node])]


def calls(values: tuple[Value, ...]) -> list[Call]:
    return [node for node in topological(value.node for value in values) if isinstance(node, Call)]


def both(rules: Rules, text: str) -> tuple[Value, Value]:
    one, other = read_call(rules, text).value.node.args
    return one, other


def test_figure_15_a_column_and_a_row_of_one_image_are_one_product(rules: Rules) -> None:
    text = "add(conv(X: f32[1, 4, 6, 5], K: f32[3, 4, 3, 1], pads=[1, 0, 1, 0]), conv(X, L: f32[3, 4, 1, 5], pads=[0, 2, 0, 2]))"
    given = both(rules, text)
    left, right = (derived(rules, value) for value in given)
    found = [pair for a in left for b in right for pair in merged(rules, a, b)]
    assert {(call.op, call.values[0].type.elements) for pair in found for call in calls(pair)} == {
        ("std.conv", 3 * (3 + 5) * 30), ("std.matmul", 3 * (3 + 5) * 30)
    }  # fmt: skip
    for pair in found:
        assert isinstance(compare(expand(rules, given), expand(rules, pair), seconds=120.0), Equal)


@pytest.mark.parametrize(
    "text, sizes",
    [
        ("add(matmul(X: f32[4, 5], A: f32[5, 3]), matmul(X, B: f32[5, 3]))", {(4, 6)}),
        ("mul(matmul(A: f32[3, 5], X: f32[2, 5, 4]), matmul(B: f32[3, 5], X))", {(2, 6, 4)}),
        ("add(matmul(X: f32[4, 5], A: f32[5, 3]), matmul(Z: f32[4, 5], B: f32[5, 3]))", set()),
        ("add(conv(X: f32[1, 2, 5, 5], K: f32[3, 2, 3, 3]), conv(X, L: f32[3, 2, 3, 3]))", {(1, 6, 3, 3)}),
    ],
)
def test_figure_3a_what_differs_stands_side_by_side(rules: Rules, text: str, sizes: set[tuple[int, ...]]) -> None:
    given = both(rules, text)
    found = list(merged(rules, *given))
    assert {call.values[0].type.shape for pair in found for call in calls(pair)} == sizes
    right = [
        pair for pair in found if isinstance(compare(expand(rules, given), expand(rules, pair), seconds=120.0), Equal)
    ]
    assert bool(right) == bool(sizes)
