"""`dslc optimize --apply`: rules that are applied wherever they match, without measuring, until none matches any more."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import dslc
from dslc.cli.main import cli
from dslc.errors import DslcError
from dslc.match import CompiledRule, GraphIndex, Match, find_matches
from dslc.onnx.exporter import export
from dslc.onnx.importer import import_model
from dslc.onnx.runtime import run
from dslc.search.candidates.candidate import Candidate
from dslc.search.phases.application import Bounds, applied
from dslc.search.runs.selection import applied_rules
from dslc.semantics.library import load_many, standard

RULES = standard()
HEADER = '<ir_version: 8, opset_import: ["": 17]> '
LOOPS = """dslc 1
import std (neg, sub, mul)
substitution up(X: T[*S]) -> Y {
  Y = neg(X)
  =>
  Y = sub(0, X)
}
substitution down(X: T[*S]) -> Y {
  Y = sub(0, X)
  =>
  Y = neg(X)
}
substitution grow(X: T[*S]) -> Y {
  Y = neg(X)
  =>
  Y = neg(mul(X, 1))
}
"""
NEGATED = HEADER + "g (float[2,6] x) => (float[2,6] y) { a = Neg(x) b = Relu(a) y = Neg(b) }"


def model_of(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def types(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def mine(folder: Path, sets: str = "") -> Path:
    path = folder / "mine.rules"
    path.write_text(LOOPS + sets)
    return path


def norms(count: int, rng: np.random.Generator, pairs: int = 0) -> onnx.ModelProto:
    """Convolutions without a bias, a batch norm and an activation after each; then two negations and an activation, so many times."""
    nodes, weights, at = [], [], "x"
    for k in range(count):
        weights.append(numpy_helper.from_array(rng.standard_normal((4, 4, 1, 1)).astype(np.float32), f"k{k}"))
        weights += [numpy_helper.from_array(rng.uniform(0.5, 1, 4).astype(np.float32), f"{name}{k}") for name in "sbmv"]
        nodes.append(helper.make_node("Conv", [at, f"k{k}"], [f"c{k}"], name=f"conv{k}"))
        nodes.append(
            helper.make_node("BatchNormalization", [f"c{k}", *(f"{n}{k}" for n in "sbmv")], [f"n{k}"], name=f"norm{k}")
        )
        nodes.append(helper.make_node("Relu", [f"n{k}"], [f"r{k}"]))
        at = f"r{k}"
    for k in range(pairs):
        for operator, name in (("Neg", f"p{k}"), ("Neg", f"q{k}"), ("Exp", f"e{k}")):
            nodes.append(helper.make_node(operator, [at], [name]))
            at = name
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 3, 3]) for name in ("x", at)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_batch_norms_are_folded() -> None:
    model = norms(3, np.random.default_rng(0))
    result = dslc.optimize(model, apply=True)
    assert types(result.model) == {"Conv": 3, "Relu": 3}
    report = result.report
    assert not report.kept_original and report.budget == 0 and report.before_ms is None
    assert report.before is not None and report.after is not None
    assert (report.before.operators, report.after.operators) == (9, 6)
    assert [(step.rule, step.count, step.status) for step in report.steps] == [("std.fold_batch_norm", 3, "proved")]
    assert report.max_rel_error is not None and report.max_rel_error < 1e-5


def test_the_report_says_where_infinities_may_become_something_else() -> None:
    """The logarithm of a softmax is -inf where the softmax underflows, and `LogSoftmax` is a number there."""
    model = model_of(HEADER + """g (float[2,6] x) => (float[2,6] y) { a = Softmax(x) y = Log(a) }""")
    result = dslc.optimize(model, apply=["std.log_of_softmax"])
    assert types(result.model) == {"LogSoftmax": 1}
    (note,) = (note for note in result.report.notes if "infinities" in note)
    assert "std.log_of_softmax" in note and "--strict-floats" in note
    exact = dslc.optimize(
        model_of(HEADER + "g (float[2,6] x) => (float[2,6] y) { a = Neg(x) y = Neg(a) }"), apply=["std.double_neg"]
    )
    assert not exact.report.kept_original and not any("infinities" in note for note in exact.report.notes)


def test_what_does_nothing_goes() -> None:
    text = (
        HEADER
        + """g (float[2,6] x) => (float[2,6] y)
    <float one = {1.0}, float zero = {0.0}, int64[2] s = {3, 4}, int64[2] t = {2, 6}, int64[1] ax = {1}, int64[2] e = {2, 6},
     int64[1] st = {0}, int64[1] en = {6}>
    { a = Mul(x, one) b = Add(zero, a) c = Reshape(b, s) d = Reshape(c, t) f = Unsqueeze(d, ax) g1 = Squeeze(f, ax)
      h = Transpose<perm=[1,0]>(g1) i = Transpose<perm=[1,0]>(h) j = Cast<to=1>(i) k = Expand(j, e) l = Slice(k, st, en, ax)
      m = Identity(l) n = Dropout(m) o = Concat<axis=0>(n) y = Relu(o) }"""
    )
    result = dslc.optimize(model_of(text), apply="simplify")
    assert types(result.model) == {"Relu": 1}


def test_what_several_share_goes_where_all_can() -> None:
    """Each slice alone would leave the first one where it is, for the other."""
    text = (
        HEADER
        + """g (float[8,8] x) => (float[4,4] y, float[4,4] z)
    <int64[1] zero = {0}, int64[1] one = {1}, int64[1] end = {8}, int64[1] two = {2}, int64[1] ax = {1}>
    { a = Slice(x, zero, end, zero, two) y = Slice(a, zero, end, ax, two) z = Slice(a, one, end, ax, two) }"""
    )
    assert types(dslc.optimize(model_of(text), apply=True).model) == {"Slice": 2}


def test_sizes_are_inferred_where_that_says_enough() -> None:
    text = (
        HEADER
        + """g (float[N,S,12] x) => (float[N,S,3,4] y)
    <int64 zero = {0}, int64 one = {1}, int64[1] ax = {0}, int64[2] rest = {3, 4}>
    { s = Shape(x) n = Gather(s, zero) m = Gather(s, one) u = Unsqueeze(n, ax) v = Unsqueeze(m, ax)
      t = Concat<axis=0>(u, v, rest) y = Reshape(x, t) }"""
    )
    model = model_of(text)
    result = dslc.optimize(model, apply=True, bind={"N": 2, "S": 5})
    assert types(result.model) == {"Reshape": 1}
    x = np.random.default_rng(0).standard_normal((3, 7, 12)).astype(np.float32)
    assert np.array_equal(run(model, {"x": x}, ["y"])[0], run(result.model, {"x": x}, ["y"])[0])


@pytest.mark.parametrize("opset", [13, 17])
def test_sizes_are_read_from_what_is_there(opset: int) -> None:
    """Downstream of a rewrite sizes are read from a shape, and not computed from the inputs' sizes again."""
    text = (
        f'<ir_version: 8, opset_import: ["": {opset}]> '
        + """g (float[N,3,H,W] x, float[1] b) => (float[N,3,P,Q] y)
    <float[3,3,3,3] k, float[3,3,3,3] k2>
    { a = Conv<strides=[2,2], pads=[1,1,1,1]>(x, k) i = Identity(a) c = Cast<to=1>(i) e = Relu(c) f = Sigmoid(c) d = Mul(e, f)
      s = Shape(a) y = Expand(b, s) }"""
    )
    text = text.replace("<float[3,3,3,3] k, float[3,3,3,3] k2>", "")
    model = model_of(text.replace("float[1] b)", "float[1] b, float[3,3,3,3] k)"))
    result = dslc.optimize(model, apply=True, bind={"N": 1, "H": 9, "W": 9})
    assert types(result.model) == {"Conv": 1, "Shape": 1, "Expand": 1}


def test_own_rules_are_applied_where_somebody_says_so(tmp_path: Path) -> None:
    model = model_of(NEGATED)
    gated = mine(tmp_path, "ruleset gated { include up, down }\n")
    result = dslc.optimize(model, apply="gated", rules=gated)
    assert result.report.kept_original
    assert any("mine.up matches at 2" in note and "`always`" in note for note in result.report.notes)
    assert types(dslc.optimize(model, apply="up", rules=gated).model) == {"Sub": 2, "Relu": 1}
    assert types(dslc.optimize(model, apply=True, rules=gated).model) == types(model)
    always = mine(tmp_path, "ruleset mine { always up }\n")
    assert types(dslc.optimize(model, apply=True, rules=always).model) == {"Sub": 2, "Relu": 1}
    assert types(dslc.optimize(model, apply="std.simplify", rules=always).model) == types(model)


@pytest.mark.parametrize(
    ("names", "said"), [("up,down", "mine.up -> mine.down"), ("grow", "go on for ever: mine.grow")]
)
def test_rules_that_go_on_for_ever_are_named(tmp_path: Path, names: str, said: str) -> None:
    with pytest.raises(DslcError) as raised:
        dslc.optimize(model_of(NEGATED), apply=names, rules=mine(tmp_path))
    assert raised.value.diagnostics[0].code == "E0915" and said in raised.value.diagnostics[0].message


def test_bounds_count_passes(tmp_path: Path) -> None:
    rules = load_many(["std", mine(tmp_path)])
    read = import_model(model_of(NEGATED), rules, {})
    with pytest.raises(DslcError, match="for ever"):
        applied(Candidate(read.graph, 0.0), applied_rules(rules, ["grow"]), rules, read.context, Bounds(passes=3))


def test_what_applies_to_its_own_work_is_soon_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pass takes one place of a chain that grows by a node: a thousand of them take a minute."""
    passes: list[str] = []

    def counted(rule: CompiledRule, index: GraphIndex) -> Iterable[Match]:
        passes.append(rule.name)
        return find_matches(rule, index)

    monkeypatch.setattr("dslc.search.phases.application.find_matches", counted)
    rules = load_many(["std", mine(tmp_path)])
    read = import_model(model_of(NEGATED), rules, {})
    with pytest.raises(DslcError, match="for ever"):
        applied(Candidate(read.graph, 0.0), applied_rules(rules, ["grow"]), rules, read.context)
    assert len(passes) < 100


def test_a_name_that_nothing_has() -> None:
    with pytest.raises(DslcError) as raised:
        dslc.optimize(model_of(NEGATED), apply="nothing")
    assert raised.value.diagnostics[0].code == "E0909"


def test_a_wrong_rule_is_left_out(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.rules"
    wrong.write_text(
        "dslc 1\nimport std (neg, relu)\nsubstitution bad(X: T[*S]) -> Y {\n  Y = neg(relu(X))\n  =>\n  Y = neg(X)\n"
        '  trusted "it is not"\n}\n'
    )
    model = model_of(HEADER + "g (float[2,6] x) => (float[2,6] y) { b = Relu(x) y = Neg(b) }")
    result = dslc.optimize(model, apply="bad", rules=wrong, allow="trusted,undecided,tested")
    assert result.report.kept_original
    assert any("wrong.bad" in text for text in result.report.warnings)


def test_the_command_tells_a_model_from_a_name(tmp_path: Path) -> None:
    onnx.save(norms(1, np.random.default_rng(0)), tmp_path / "m.onnx")
    for before in (
        ["--apply"],
        ["--apply", "simplify"],
        ["--apply=std.simplify"],
        ["--apply", "fold_batch_norm,simplify"],
    ):
        done = CliRunner().invoke(
            cli,
            [
                "optimize",
                *before,
                str(tmp_path / "m.onnx"),
                "-o",
                str(tmp_path / "o.onnx"),
                "--report",
                str(tmp_path / "r.json"),
            ],
        )
        assert done.exit_code == 0, done.output
        assert "3 -> 2 operators" in done.output and "gain" not in done.output
        assert types(onnx.load(tmp_path / "o.onnx")) == {"Conv": 1, "Relu": 1}
        assert json.loads((tmp_path / "r.json").read_text())["budget"] == 0


def test_a_search_goes_on_from_there(tmp_path: Path) -> None:
    """Where it finds nothing faster, what rules made is written."""
    model = norms(2, np.random.default_rng(0))
    result = dslc.optimize(model, apply=True, budget=20, steps=3, on="ort_cpu", timing=False, cache=tmp_path)
    assert not result.report.kept_original
    assert "BatchNormalization" not in types(result.model)
    assert any(step.rule == "std.fold_batch_norm" for step in result.report.steps)


def test_names_of_weights_stay() -> None:
    """Lists of sizes and axes are attributes to a search, and weights of the file with names of their own."""
    text = (
        HEADER
        + """g (float[2,6] x) => (float[3,4] y, float[2,3] z)
    <int64[2] s0 = {3, 4}, int64[2] s1 = {3, 4}, int64[1] st = {0}, int64[1] en = {3}, int64[1] ax = {1}>
    { a = Reshape(x, s0) b = Cast<to=1>(a) c = Exp(b) y = Reshape(c, s1) w = Cast<to=1>(x) v = Neg(w) z = Slice(v, st, en, ax) }"""
    )
    model = model_of(text)
    for result in (dslc.optimize(model, apply=True), dslc.optimize(model, budget=0)):
        assert {one.name for one in result.model.graph.initializer} <= {"s0", "s1", "st", "en", "ax"}


def test_a_node_of_the_file_is_alike_only_where_its_operands_are_as_equal() -> None:
    """x x is written as a node of the file, y z is not that one."""
    text = (
        HEADER
        + """g (float[2,6] x, float[2,6] z) => (float[2,6] y, float[2,6] w)
    { a = Cast<to=1>(x) b = Cast<to=1>(z) y = Mul(a, a) w = Mul(a, b) }"""
    )
    model = model_of(text)
    result = dslc.optimize(model, apply=True)
    feeds = {name: np.random.default_rng(k).standard_normal((2, 6)).astype(np.float32) for k, name in enumerate("xz")}
    assert types(result.model) == {"Mul": 2}
    for before, after in zip(run(model, feeds, ["y", "w"]), run(result.model, feeds, ["y", "w"]), strict=True):
        assert np.array_equal(before, after)


def test_the_canonical_form_never_has_more_nodes() -> None:
    """A fill of sizes that the file computes takes them from there."""
    text = (
        HEADER
        + """g (float[N,3,H,W] x) => (float[P,1] y)
    <int64 two = {2}, int64 three = {3}, int64[1] zero = {0}, int64[1] one = {1}>
    { a = Relu(x) s = Shape(a) h = Gather(s, two) w = Gather(s, three) p = Mul(h, w) u = Unsqueeze(p, zero)
      t = Concat<axis=0>(u, one) y = ConstantOfShape(t) }"""
    )
    model = model_of(text)
    assert len(dslc.optimize(model, budget=0).model.graph.node) <= len(model.graph.node)


def test_ten_thousand_nodes_in_seconds() -> None:
    """What is computed of weights takes most of the time of a norm, so few of them are among the nodes."""
    read = import_model(norms(60, np.random.default_rng(0), pairs=3274), RULES, {})
    began = time.process_time()
    found = applied(Candidate(read.graph, 0.0), applied_rules(RULES, ()), RULES, read.context).candidate
    assert time.process_time() - began < 10
    counts = {step.rule: step.count for step in found.path()[1:]}
    assert counts == {"std.fold_batch_norm": 60, "std.double_neg": 3274}


OPEN_SIZES = {
    "crops": "t = Slice (x, one, long, one) y = Slice (t, zero, less, one)",
    "the last step of the last steps": "t = Slice (x, less, long, one) y = Slice (t, zero, one, one)",
    "strides": "t = Slice (x, one, long, one, two) y = Slice (t, one, long, one, two)",
    "halves": "s = Shape <start = 1, end = 2> (x) h = Div (s, two) p = Slice (x, zero, h, one) q = Slice (x, h, long, one)"
    " y = Concat <axis = 1> (p, q)",
    "flips": "t = Slice (x, less, least, one, less) y = Slice (t, less, least, one, less)",
    "pads": "t = Pad (x, pads) y = Pad (t, pads)",
    "crops of pads": "t = Pad (x, pads) y = Slice (t, one, less, one)",
    "shapes": "s = Shape (x) f = Reshape (x, flat) t = Reshape (f, s) y = Reshape (t, flat)",
}
WEIGHTS = """int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] less = {-1}, int64[1] long = {9223372036854775807},
    int64[1] least = {-9223372036854775807}, int64[4] pads = {0, 1, 0, 1}, int64[1] flat = {-1}"""


@pytest.mark.parametrize("text", OPEN_SIZES.values(), ids=OPEN_SIZES)
def test_nodes_that_compute_sizes_count(text: str) -> None:
    """A slice of a slice is one slice, whose ends ten nodes compute where sizes are open: the model stays as small as it was."""
    read = import_model(model_of(f"{HEADER} g (float[n, h] x) => (float y) <{WEIGHTS}> {{ {text} }}"), RULES)
    start = Candidate(read.graph, 0.0)
    before, after = (
        len(export(read.context, one.graph, RULES).graph.node)
        for one in (start, applied(start, applied_rules(RULES, ()), RULES, read.context).candidate)
    )
    assert after <= before
