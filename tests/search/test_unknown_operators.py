"""Models with nodes that ONNX Runtime does not know: rules are applied around them, and what can be run is compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import onnx
import pytest
from onnx import NodeProto, TensorProto, helper

import dslc

node = helper.make_node


def model(nodes: Sequence[NodeProto]) -> onnx.ModelProto:
    """-(-x), what a plugin makes of it as `e`, and -(-e)."""
    before = [node("Neg", ["X"], ["a"]), node("Neg", ["a"], ["b"])]
    after = [node("Neg", ["e"], ["f"]), node("Neg", ["f"], ["g"]), node("Neg", ["g"], ["Y"])]
    value = helper.make_tensor_value_info
    flags = value("flag", TensorProto.BOOL, [])
    graph = helper.make_graph([*before, *nodes, *after], "g", [value("X", 1, [2, 3]), flags], [value("Y", 1, None)])
    versions = [helper.make_opsetid("", 13), helper.make_opsetid("my.own", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=8)


def branch(name: str, op: str, domain: str = "") -> onnx.GraphProto:
    return helper.make_graph(
        [node(op, ["b"], [name], domain=domain)], name, [], [helper.make_tensor_value_info(name, 1, [2, 3])]
    )


PLUGINS = {
    "of a domain of its own": [node("plugin", ["b"], ["e"], domain="my.own")],
    "in ONNX's domain": [node("Plugin_TRT", ["b"], ["e"])],
    "with results that are left out": [node("plugin", ["b", ""], ["", "e", "other"], domain="my.own")],
    "after each other": [node("plugin", ["b"], ["d"], domain="my.own"), node("plugin", ["d"], ["e"], domain="my.own")],
    "beside each other": [
        node("plugin", ["b"], ["c"], domain="my.own"),
        node("other", ["b"], ["d"], domain="my.own"),
        node("Add", ["c", "d"], ["e"]),
    ],
    "in a branch": [
        node("If", ["flag"], ["e"], then_branch=branch("t", "plugin", "my.own"), else_branch=branch("o", "Abs"))
    ],
    "of a result of another shape": [
        node("plugin", ["b"], ["d"], domain="my.own"),
        node("GlobalAveragePool", ["d"], ["e"]),
    ],
    "nodes of one name": [node("Abs", ["b"], ["d"], name="twice"), node("Ceil", ["d"], ["e"], name="twice")],
}


@pytest.mark.parametrize("nodes", PLUGINS.values(), ids=PLUGINS)
def test_rules_are_applied_around_them(nodes: Sequence[NodeProto]) -> None:
    given = model(nodes)
    found = dslc.optimize(given, apply=True, budget=0)
    types = Counter(one.op_type for one in found.model.graph.node)
    assert types["Neg"] < 5 and all(types[one.op_type] == 1 or one.op_type == "plugin" for one in nodes)
    assert any("part by part" in note for note in found.report.notes)
    assert found.report.ratio is None and not found.report.after_ms


def test_nothing_is_called_faster() -> None:
    """With a budget, too, and where no rules are to be applied the original is kept."""
    given = model(PLUGINS["of a domain of its own"])
    found = dslc.optimize(given, apply=True, budget=20)
    assert "not timed" in found.report.reason and not found.report.kept_original
    kept = dslc.optimize(given, budget=20)
    assert "--apply" in kept.report.reason and kept.report.kept_original
