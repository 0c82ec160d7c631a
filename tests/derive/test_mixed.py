"""Mixed programs: what is derived of a convolution, with a form of minimal filtering (Winograd's) for the convolution inside."""

from __future__ import annotations

import pytest

from dslc.derivation.calls import read_call
from dslc.derivation.programs import PricedProgram
from dslc.derivation.search import DerivationLimits, DerivationSearch
from dslc.derivation.targets import targets_of
from dslc.ir.graph import Call, Graph, Value, replace
from dslc.ir.holes import abstracted, instantiated
from dslc.match.forms import forms
from dslc.prove.exact.answers import Equal
from dslc.prove.exact.compare import compare
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules
from tests.libraries import libraries


@pytest.fixture(scope="module")
def rules() -> Rules:
    return libraries("std", "einnet")


#: the derivations of Figure 6, in their order
FIGURE_6 = ("summation_relaxing", "summation_substitution", "summation_splitting", "variable_substitution")


def found(rules: Rules, text: str, window: tuple[int, ...], names: tuple[str, ...]) -> PricedProgram:
    """The cheapest program of one dense convolution with such weights, by these derivations."""
    called = read_call(rules, text)
    (value,) = expand(rules, (called.value,))
    own = [rules.derivations[f"einnet.{name}"] for name in names]
    limits = DerivationLimits(max_depth=len(names), max_states=320)
    search = DerivationSearch(rules, own, limits, targets_of(rules, [call.op for call in called.calls]))
    for program in search.run(value).programs:
        if len(program.calls) == 1 and program.calls[0].args[-1].type.shape == window:
            attrs = dict(program.calls[0].attrs)
            if set(attrs["dilation"]) == set(attrs["stride"]) == {1} == {attrs["groups"]}:
                return program
    raise AssertionError(f"no program of {window}")


def mixed(rules: Rules, program: PricedProgram) -> tuple[str, Value]:
    """The program with the first form of its convolution in the place of it, and the form's name."""
    (call,) = program.calls
    assert isinstance(call, Call)
    alone, args = abstracted(call.values, tuple(dict.fromkeys(call.args)))
    name, form = next(iter(forms(rules, alone)))
    (made,) = instantiated(Graph(alone.inputs, form.outputs), args)
    return name, replace((program.value,), {call.values[0]: made})[0]


def assert_equal(rules: Rules, text: str, new: Value) -> None:
    left, right = expand(rules, (read_call(rules, text).value,)), expand(rules, (new,))
    assert isinstance(compare(left, right, seconds=120.0), Equal)


def test_figure_6_with_minimal_filtering_inside(rules: Rules) -> None:
    """A window of five is one of three with four times the filters, and that takes 36 products for 16 results."""
    text = "conv(X: f32[1, 2, 8, 8], K: f32[3, 2, 5, 5], pads=[2, 2, 2, 2])"
    name, new = mixed(rules, found(rules, text, (12, 2, 3, 3), FIGURE_6))
    assert name.startswith("std.winograd")
    assert_equal(rules, text, new)


def test_a_dilated_convolution_through_minimal_filtering(rules: Rules) -> None:
    """Dilated by three there is no form of its own: the dense convolution between two changes of layout has one."""
    text = "conv(X: f32[1, 2, 9, 9], K: f32[3, 2, 3, 3], pads=[3, 3, 3, 3], dilation=[3, 3])"
    name, new = mixed(rules, found(rules, text, (3, 2, 3, 3), FIGURE_6[-1:]))
    assert name.startswith("std.winograd")
    assert_equal(rules, text, new)
