"""Expressions of several products: each is derived by itself, and two become one (EinNet, Figures 3a and 15)."""

from __future__ import annotations

import pytest

from dslc.derivation.calls import read_call
from dslc.derivation.kinds import Kinds
from dslc.derivation.programs import PricedProgram, unlike
from dslc.derivation.search import DerivationLimits, DerivationSearch, choices, members_of, ranks
from dslc.derivation.steps import Steps
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, Value
from dslc.ir.holes import hole
from dslc.ir.text import program_text
from dslc.prove.exact.answers import Equal
from dslc.prove.exact.compare import compare
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules
from dslc.semantics.written import read_program
from tests.libraries import libraries


@pytest.fixture(scope="module")
def rules() -> Rules:
    return libraries("std", "einnet")


def expression(rules: Rules, text: str) -> Value:
    return expand(rules, (read_call(rules, text).value,))[0]


def found(rules: Rules, value: Value, depth: int, states: int) -> list[PricedProgram]:
    search = DerivationSearch(
        rules, list(rules.derivations.values()), DerivationLimits(max_depth=depth, beam=16, max_states=states)
    )
    return list(search.run(value).programs)


def steps_of(program: PricedProgram) -> set[str]:
    return {str(step).partition(".")[2] for step in program.steps}


def assert_proved(rules: Rules, program: PricedProgram, value: Value) -> None:
    (new,) = expand(rules, (program.value,))
    assert isinstance(compare((value,), (new,), seconds=120.0), Equal)


#: as many as the window of a row needs to become a product of the image as it is
STATES = 35
ROW = "conv(X: f32[1, 3, 5, 4], K: f32[2, 3, 1, 3], pads=[0, 1, 0, 1])"
COLUMN = "conv(X, L: f32[2, 3, 3, 1], pads=[1, 0, 1, 0])"


def test_an_expression_of_one_product_and_layouts_has_no_members(rules: Rules) -> None:
    steps = Steps([])
    counts = [
        len(members_of(steps.start(expression(rules, text)))) for text in (ROW, f"relu({ROW})", f"add({ROW}, {COLUMN})")
    ]
    assert counts == [0, 1, 2]


def test_figure_15_a_row_and_a_column_of_one_image_become_one_product(rules: Rules) -> None:
    value = expression(rules, f"add({ROW}, {COLUMN})")
    merged = [
        program for program in found(rules, value, 3, STATES)
        if len(program.calls) == 1 and program.calls[0].op == "std.matmul" and "expression_concatenation" in steps_of(program)
    ]  # fmt: skip
    # two windows of three, of two filters each, at every position of the image
    sizes = {tuple(sorted(arg.type.elements for arg in program.calls[0].args)) for program in merged}
    assert (2 * 2 * 3 * 3, 3 * 5 * 4) in sizes
    assert_proved(rules, merged[0], value)


def test_products_of_other_images_whose_weights_have_other_layouts_are_a_batch(rules: Rules) -> None:
    value = expression(
        rules, "add(matmul(A: f32[4, 3], B: f32[3, 5]), matmul(C: f32[4, 3], transpose(D: f32[5, 3], perm=[1, 0])))"
    )
    batches = [
        program for program in found(rules, value, 1, 40)
        if "pair_stacking" in steps_of(program) and [call.args[0].type.shape[0] for call in program.calls] == [2]
    ]  # fmt: skip
    assert batches
    assert_proved(rules, batches[0], value)


def test_what_is_shown_is_of_many_kinds_and_reads_back(rules: Rules) -> None:
    called = read_call(rules, ROW)
    programs = found(rules, *expand(rules, (called.value,)), 2, 60)
    shown = list(Kinds(rules).first(unlike(rules, programs, called.calls)))
    assert len(shown) < len(programs)
    # the cheapest comes first, and products are among the first as well as convolutions
    assert shown[0].seconds == min(program.seconds for program in shown)
    assert {program.calls[0].op for program in shown[:5]} == {"std.matmul", "std.conv"}
    for program in shown[:4]:
        graph = Graph(called.graph.inputs, (program.value,))
        assert read_program(rules, program_text(graph)).outputs == graph.outputs


def test_the_cheapest_together_come_first() -> None:
    value = hole(0, TensorType(DType.F32, ()))
    found = [
        [PricedProgram(value, (), (name,), price) for name, price in own]
        for own in ((("a", 1.0), ("b", 3.0)), (("c", 1.0), ("d", 1.5)))
    ]
    assert ["".join(each.targets[0] for each in choice) for choice in choices(found)] == ["ac", "ad", "bc", "bd"]
    assert list(ranks([["a", "b"], ["c", "d"]])) == [("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")]
