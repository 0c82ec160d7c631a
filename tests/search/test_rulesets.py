"""Which rules a search uses where nobody names any, and what is said of those that it cannot use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dslc
from dslc.search.runs.selection import chosen_rules, left_out
from dslc.semantics.library import load_many, standard
from tests.libraries import libraries

OWN = """dslc 1
library own 1.0.0
import std.activation (relu, sigmoid)
import std.pointwise (mul, add)
operator far(X: T[*S]) -> Y: T[*S] {
  \"\"\"What no runtime here has.\"\"\"
  Y[*i] = max(X[*i], 0)
  onnx org.nowhere.Far(X) since 1
}
substitution to_far(X: T[*S]) -> Y {
  Y = relu(X)
  =>
  Y = far(X)
}
substitution stone(X: T[*S], Z: T[*S]) -> Y {
  Y = mul(X, Z)
  =>
  Y = mul(Z, X)
}
ruleset default {
  include own.*
  exclude own.stone
}
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.rules"
    path.write_text(OWN, "utf-8")
    return path


def names(rules: list[Any]) -> set[str]:
    return {rule.definition.name for rule in rules}


def test_the_default_rule_set_of_each_library_is_searched_with(own: Path) -> None:
    std = standard()
    assert set(std.substitutions) - names(chosen_rules(std)) == {
        "std.strassen", "std.conv_by_im2col", "std.attention_whole", "std.attention_online",
        "std.winograd", "std.winograd_dilated", "std.winograd_dilated_by_4",
        "std.winograd_of_row", "std.winograd_of_row_dilated", "std.winograd_of_row_dilated_by_4",
    }  # fmt: skip
    rules = load_many(["std", own])
    chosen = names(chosen_rules(rules))
    assert "own.to_far" in chosen and "own.stone" not in chosen and "std.strassen" not in chosen
    assert names(chosen_rules(rules, ["own.stone", "std.strassen"])) == {"own.stone", "std.strassen"}
    assert "std.strassen" in names(chosen_rules(rules, ["complete"]))


def test_what_no_search_can_run_is_counted_by_library() -> None:
    rules = libraries("std", "pet", "einnet", "targets")
    einnet, targets = left_out(rules, ["einnet", "targets"])
    assert einnet.startswith("of einnet ") and "derivations" in einnet and "lowerings" in targets
    assert len(left_out(rules, ["einnet", "targets"], derived=True)) == 1
    # partial substitutions are corrected
    assert left_out(rules, ["std", "pet"]) == []


def model() -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Relu", ["t"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64]) for name in ("x", "y")]
    weight = numpy_helper.from_array(np.eye(64, dtype=np.float32), "w")
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_rule_that_builds_what_cannot_be_run_is_named_in_the_report(own: Path, tmp_path: Path) -> None:
    report = dslc.optimize(
        model(),
        rules=[own, "einnet"],
        only="own.to_far",
        budget="60s",
        cache=tmp_path / "cache",
        threads=1,
        timing=False,
        derive=False,
    ).report
    said = [text for text in report.warnings if text.startswith("own.to_far was not used")]
    assert len(said) == 1 and "cannot run" in said[0]
    assert any(text.startswith("of einnet ") for text in report.warnings)


@pytest.mark.parametrize("budget", ["soon", -1, "-5s", float("inf"), float("nan"), None])
def test_a_budget_that_is_no_time_is_an_error(budget: Any) -> None:
    with pytest.raises(dslc.DslcError, match="E0906"):
        dslc.optimize(model(), budget=budget)


def test_one_name_is_a_name_and_not_its_letters(tmp_path: Path) -> None:
    with pytest.raises(dslc.DslcError, match=r"`std\.nothing`"):
        dslc.optimize(model(), only="std.nothing", budget="0s")
    with pytest.raises(dslc.DslcError, match=r"`std\.nothing`"):
        dslc.optimize(model(), disable="std.nothing", budget=0)


def test_a_result_is_a_session_without_a_file() -> None:
    result = dslc.optimize(model(), budget="0s")
    given = np.ones((64, 64), np.float32)
    assert np.array_equal(dslc.session(result.model, threads=1).run(None, {"x": given})[0], given)
