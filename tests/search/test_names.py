"""Names survive: what was not rewritten is called what it was, what was rewritten after what it replaced."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

from test_optimize import noise

from benchmarks.models import fetch
from dslc.cli.main import cli
from dslc.ir.facts import fact_of
from dslc.ir.graph import Graph, replace
from dslc.match import GraphIndex, Refused, find_matches, replacements
from dslc.onnx.exporter import export
from dslc.onnx.importer import import_model
from dslc.onnx.runtime import run
from dslc.search.candidates.candidate import Candidate, disjoint, rewritten
from dslc.search.candidates.export import NameHistory
from dslc.search.runs.selection import chosen_rules
from dslc.semantics.library import standard

RULES = standard()
node = helper.make_node


def model_of(
    nodes: Sequence[onnx.NodeProto], weights: dict[str, Any], ir_version: int = 10, opset: int = 17
) -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 8]) for name in ("x", "y")]
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def attention(ir_version: int = 10) -> onnx.ModelProto:
    """Two products of one operand, a root that is written as a power, and a node without a name at the end."""
    nodes = [
        node("MatMul", ["x", "wq"], ["q"], name="query"),
        node("MatMul", ["x", "wk"], ["k"], name="key"),
        node("Relu", ["q"], ["rq"], name="relu_q"),
        node("Sigmoid", ["k"], ["sk"], name="gate"),
        node("Add", ["rq", "sk"], ["sum"], name="plus"),
        node("Pow", ["sum", "half"], ["root"], name="power"),
        node("Tanh", ["root"], ["t"], name="bend"),
        node("Neg", ["t"], ["y"]),
    ]
    return model_of(
        nodes, {"wq": noise(8, 8), "wk": noise(8, 8, seed=1), "half": np.array(0.5, np.float32)}, ir_version
    )


def everywhere(model: onnx.ModelProto, *names: str, most: int = 50) -> tuple[onnx.ModelProto, NameHistory, Candidate]:
    """A model with some rules applied wherever they match, one after the other, whatever that gains."""
    imported = import_model(model, RULES)
    found = Candidate(imported.graph, 1.0)
    for rule in chosen_rules(RULES, names):
        chosen = []
        for match in find_matches(rule, GraphIndex(found.graph), limit=most):
            try:
                chosen.append(replacements(match))
            except Refused:
                continue
        if chosen:
            found = Candidate(rewritten(found.graph, disjoint(chosen)), 1.0, found, rule.name, len(chosen))
    story = NameHistory(imported.context)
    return export(imported.context, found.graph, RULES, story.of(found).naming), story, found


def by_name(model: onnx.ModelProto) -> dict[str, onnx.NodeProto]:
    return {one.name: one for one in model.graph.node}


def made_by(node: onnx.NodeProto) -> str:
    return next((entry.value for entry in node.metadata_props if entry.key == "dslc.rule"), "")


def test_what_was_not_rewritten_keeps_its_names() -> None:
    """Everything behind a rewrite is built anew, and is called what it was."""
    before = attention()
    after, _, _ = everywhere(before, "std.pow_half")
    onnx.checker.check_model(after, full_check=True)
    assert [one.name for one in after.graph.node if not made_by(one)] == [
        "query",
        "relu_q",
        "key",
        "gate",
        "plus",
        "bend",
        "",
    ]
    made = by_name(after)["power/pow_half"]
    assert (made.op_type, made.input, made.output, made_by(made)) == ("Sqrt", ["sum"], ["root"], "std.pow_half")
    assert {name for one in after.graph.node for name in one.output} == {
        name for one in before.graph.node for name in one.output
    }


def test_notes_of_a_node_stay_with_it() -> None:
    """What an exporter says of a node, behind a rewrite and at it."""
    before = attention()
    for one in before.graph.node:
        one.doc_string = f"line of {one.name}"
        one.metadata_props.add(key="module", value=f"layer of {one.name}")
    after, _, _ = everywhere(before, "std.pow_half")
    notes = {
        one.name: (one.doc_string, [(each.key, each.value) for each in one.metadata_props]) for one in after.graph.node
    }
    assert notes["bend"] == ("line of bend", [("module", "layer of bend")])
    assert notes["power/pow_half"] == ("", [("dslc.rule", "std.pow_half")])


def test_nodes_that_replace_several_are_named_after_the_first() -> None:
    after, story, found = everywhere(attention(), "std.merge_matmuls")
    names = {
        one.name: (one.op_type, list(one.output)) for one in after.graph.node if made_by(one) == "std.merge_matmuls"
    }
    assert names["query/merge_matmuls"] == ("Split", ["q", "k"])
    assert names["query/merge_matmuls/MatMul"][0] == "MatMul"
    held = {one.name for one in after.graph.initializer}
    assert "half" in held and all(one.startswith("query/merge_matmuls/") for one in held - {"half"}) and len(held) == 3
    assert set(story.of(found).places) == {("std.merge_matmuls", "query"), ("std.merge_matmuls", "key")}


def test_a_node_without_a_name_is_called_by_its_result() -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Pow", ["a", "half"], ["b"]), node("Neg", ["b"], ["y"])]
    after, story, found = everywhere(model_of(nodes, {"half": np.array(0.5, np.float32)}), "std.pow_half")
    assert [one.name for one in after.graph.node] == ["", "b/pow_half", ""]
    assert story.of(found).places == (("std.pow_half", "b"),)


def test_rules_on_what_rules_made_are_placed_where_the_file_had_it() -> None:
    nodes = [node("Neg", ["x"], ["a"], name="n"), node("Neg", ["a"], ["b"], name="m"), node("Relu", ["b"], ["c"], name="r"),
             node("Relu", ["c"], ["d"], name="s"), node("Pow", ["d", "half"], ["y"], name="p")]  # fmt: skip
    model = model_of(nodes, {"half": np.array(0.5, np.float32)})
    after, story, found = everywhere(model, "std.double_neg", "std.relu_of_relu", "std.pow_half")
    assert dict(story.of(found).places) == {"std.double_neg": "m", "std.relu_of_relu": "s", "std.pow_half": "p"}
    assert [(one.op_type, one.input, one.output) for one in after.graph.node] == [
        ("Relu", ["x"], ["c"]),
        ("Sqrt", ["c"], ["y"]),
    ]


@pytest.mark.parametrize("version", [8, 9, 10, 11])
def test_nodes_have_metadata_where_the_format_knows_them(version: int) -> None:
    after, _, _ = everywhere(attention(version), "std.pow_half")
    assert any(made_by(one) for one in after.graph.node) == (version >= 10)
    assert "power/pow_half" in by_name(after)
    onnx.checker.check_model(after, full_check=True)


def test_a_graph_that_does_not_say_how_it_was_made_keeps_what_is_the_same() -> None:
    model = attention()
    imported = import_model(model, RULES)
    (match,) = find_matches(chosen_rules(RULES, ["std.pow_half"])[0], GraphIndex(imported.graph))
    ((old, new),) = replacements(match).items()
    graph = Graph(imported.graph.inputs, replace(imported.graph.outputs, {old: new}))
    fact, _ = fact_of("std.pow_half", (old,), (new,), old.node.args)
    found = Candidate(graph, 1.0, Candidate(imported.graph, 2.0), "std.pow_half", 1, (fact,))
    after = export(imported.context, graph, RULES, NameHistory(imported.context).of(found).naming)
    assert {"query", "key", "relu_q", "gate", "plus"} <= set(by_name(after)) and after.graph.node[-1].output == ["y"]


@pytest.mark.parametrize("name", ["light-squeezenet", "light-shufflenet"])
def test_a_name_of_the_file_stands_for_the_same_values_in_the_result(name: str, tmp_path: Path) -> None:
    """Of a real network, with all rules wherever they match: whatever has its old name still has its old values."""
    before = onnx.load(fetch(name, tmp_path))
    rng = np.random.default_rng(0)
    after, story, found = everywhere(before, most=10)
    assert len(found.path()) > 2 and story.of(found).places
    taken = {name for one in after.graph.node for name in one.output if name}
    common = [name for one in before.graph.node for name in one.output if name in taken]
    assert len(common) > len(before.graph.node) / 2
    shown = common[:: max(1, len(common) // 25)]
    weights = {held.name for held in before.graph.initializer}
    (given,) = [one for one in before.graph.input if one.name not in weights]
    shape = [dim.dim_value or 1 for dim in given.type.tensor_type.shape.dim]
    feeds = {given.name: rng.standard_normal(shape, dtype=np.float32)}
    for model in (before, after):
        del model.graph.output[:]
        model.graph.output.extend(helper.make_empty_tensor_value_info(one) for one in shown)
    for tensor, wanted, got in zip(shown, run(before, feeds, shown), run(after, feeds, shown), strict=True):
        np.testing.assert_allclose(
            got, wanted, rtol=1e-3, atol=1e-4 * max(1.0, float(np.abs(wanted).max())), err_msg=tensor
        )


def test_the_report_says_where_and_counts_by_type(tmp_path: Path) -> None:
    path, out, report = tmp_path / "m.onnx", tmp_path / "o.onnx", tmp_path / "r.json"
    onnx.save(attention(), path)
    arguments = ["optimize", str(path), "-o", str(out), "--no-timing", "--only", "std.pow_half", "--threads", "1", "-v", "--report",
                 str(report), "--cache", str(tmp_path / "c"), "--budget", "60s"]  # fmt: skip
    said = CliRunner().invoke(cli, arguments, standalone_mode=False)
    import json

    written = json.loads(report.read_text())
    if written["kept_original"]:
        pytest.skip("the root is not predicted to be faster here")
    (step,) = written["steps"]
    assert step["places"] == ["power"]
    assert written["before"]["types"]["Pow"] == 1 and "Pow" not in written["after"]["types"]
    assert "Pow 1 -> 0" in said.output and "std.pow_half at power" in said.output
