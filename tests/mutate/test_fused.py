"""Corrections by the mutant's own operator (PET, section 5.3), images on sheets, and `dslc mutants`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from dslc.cli.mutants import command
from dslc.derivation.calls import read_call
from dslc.interpret.field import Field
from dslc.interpret.run import run
from dslc.ir.graph import Call, Graph, Value, topological
from dslc.mutate.batch_tiling import sheets
from dslc.mutate.correct import Corrected, corrections, differing
from dslc.mutate.partial import applied, compiled
from dslc.mutate.problem import shape_of
from dslc.prove.strided import mask_of
from dslc.semantics.library import Rules
from tests.libraries import libraries

DILATED = "conv(X: f32[1, 3, {size}, {size}], K: f32[2, 3, 3, 3], dilation=[{by}, {by}], pads=[{by}, {by}, {by}, {by}])"


@pytest.fixture(scope="module")
def rules() -> Rules:
    return libraries("std", "pet")


def fused(rules: Rules, size: int, by: int) -> tuple[Graph, list[Corrected]]:
    """A dilated convolution as its phases without the last row and column, and the corrections by its own operator."""
    region = read_call(rules, DILATED.format(size=size, by=by)).graph
    partial = compiled(rules, [rules.substitutions["pet.dilated_conv_to_dense"]])
    (mutant,) = applied(rules, partial, region)
    (old,) = region.outputs
    return region, [one for one in corrections(rules, old, mutant.value, 0.4) if one.is_fused]


def calls(value: Value) -> list[Call]:
    return [node for node in topological([value.node]) if isinstance(node, Call)]


@pytest.mark.parametrize(("size", "by"), [(17, 2), (17, 4), (25, 3)])
def test_what_differs_is_computed_by_one_convolution_with_the_mutant(rules: Rules, size: int, by: int) -> None:
    region, (one,) = fused(rules, size, by)
    (old,) = region.outputs
    made = one.value(rules)
    assert len(calls(made)) == 1 and len(one.pieces) > 1
    assert mask_of(one.boxes, shape_of(old)).any() and one.is_proved(rules)
    # the same numbers, computed by the interpreter
    domain, rng = Field(1), np.random.default_rng(0)
    feeds = {value: domain.draw(shape_of(value), rng) for value in region.inputs}
    was, now = run(rules, [old, made], feeds, domain)
    assert (was == now).all()


def test_a_strip_in_the_place_of_another_is_not_proved(rules: Rules) -> None:
    _, (one,) = fused(rules, 17, 2)
    places = {shape_of(piece): k for k, piece in enumerate(one.pieces)}
    (first, second) = next(
        (k, places[shape_of(piece)]) for k, piece in enumerate(one.pieces) if places[shape_of(piece)] != k
    )
    pieces = list(one.pieces)
    pieces[first], pieces[second] = pieces[second], pieces[first]
    assert not replace(one, pieces=tuple(pieces)).is_proved(rules)
    # nor is what leaves out a box
    assert not replace(one, boxes=one.boxes[1:], pieces=one.pieces[1:]).is_proved(rules)


@pytest.mark.parametrize(
    "call",
    [
        "conv(X: f32[6, 2, 5, 4], K: f32[2, 2, 3, 3], pads=[1, 1, 1, 1])",
        "conv(X: f32[4, 2, 5, 4], K: f32[2, 2, 3, 2], pads=[0, 1, 2, 0])",
        "conv(X: f32[4, 2, 5], K: f32[2, 2, 3], pads=[1, 1])",
        "conv(X: f32[4, 2, 7, 7], K: f32[2, 1, 3, 3], pads=[2, 2, 2, 2], dilation=[2, 2], groups=2)",
    ],
)
def test_images_with_room_between_them_are_one_image(rules: Rules, call: str) -> None:
    (old,) = read_call(rules, call).graph.outputs
    made = list(sheets(rules, old))
    assert made
    for value in made:
        (core,) = calls(value)
        assert shape_of(core.args[0])[0] == 1
        found = differing(rules, old, value)
        assert found is not None and found.proved and not found.boxes


@pytest.mark.parametrize(
    "call", ["matmul(A: f32[4, 5], B: f32[5, 6])", "conv(X: f32[4, 2, 9, 9], K: f32[2, 2, 3, 3], stride=[2, 2])"]
)
def test_what_has_no_images_side_by_side_has_no_sheet(rules: Rules, call: str) -> None:
    (old,) = read_call(rules, call).graph.outputs
    assert not list(sheets(rules, old))


def test_mutants_are_listed(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dslc.api.mutants.load_many", lambda _: rules)

    def listed(call: str, *args: str) -> list[dict[str, Any]]:
        ran = CliRunner().invoke(command, [call, "--budget", "60", "--output-format", "json", "--all", *args])
        assert ran.exit_code == 0, ran.output
        found = json.loads(ran.output)
        assert found["complete"]
        mutants: list[dict[str, Any]] = found["mutants"]
        return mutants

    # what a partial rule says and what tiles are: so few steps find nothing else
    found = listed(DILATED.format(size=17, by=2), "--depth", "1", "--rules", "pet", "--limit", "0.4")
    shares = {mutant["share"] for mutant in found if mutant["proved"]}
    # without the last rows and columns, and what is right everywhere
    assert any(share is not None and 0 < share < 0.4 for share in shares) and 0.0 in shares
    assert any(mutant["correction"] == "one operator" for mutant in found)
    # two steps are one operator on a tensor in another layout, which the search finds
    found = listed("matmul(A: f32[2, 2, 3], B: f32[3, 4])", "--depth", "2")
    assert ["std.matmul"] in [mutant["operators"] for mutant in found if mutant["share"] == 0.0 and mutant["proved"]]
    assert any(mutant["correction"].startswith("more than the limit of 25") for mutant in found)


def test_what_is_not_linear_has_no_mutants() -> None:
    ran = CliRunner().invoke(command, ["relu(X: f32[4])"])
    assert ran.exit_code and "not linear" in str(ran.output) + str(ran.exception)
