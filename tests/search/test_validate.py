"""Translation validation: rewrites of a program are proved again at its real shapes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import dslc
from dslc.deadline import OVER
from dslc.ir.constants import array_value
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, Value, input_value
from dslc.match import GraphIndex, compile_directions, find_matches, replacements
from dslc.prove.verdict import RuleVerdict
from dslc.search.candidates.candidate import Candidate, disjoint, rewritten
from dslc.search.region_rewrites.validate import Claim, Known, Rewrite, Validated, claims_of, validate
from dslc.search.runs import selection as statuses
from dslc.semantics.apply import apply
from dslc.semantics.library import Rules, load_many, standard


def tensor(name: str, *shape: int) -> Value:
    return input_value(name, TensorType(DType.F32, shape))


def op(name: str, *args: Any, **attrs: Any) -> Value:
    return apply(standard(), f"std.{name}", args, attrs)[0]


def applied(rules: Rules, graph: Graph, name: str) -> Candidate:
    """The graph with one direction of a rule applied wherever it matches."""
    rule = next(one for one in compile_directions(rules, rules.substitutions[name]) if not one.reverse)
    found = [replacements(match) for match in find_matches(rule, GraphIndex(graph), limit=50)]
    assert found
    return Candidate(rewritten(graph, disjoint(found)), 1.0, Candidate(graph, 2.0), name, len(found))


def graph_of(outputs: Sequence[Value], *inputs: Value) -> Graph:
    return Graph(inputs, tuple(outputs))


def own(tmp_path: Path, text: str) -> Rules:
    file = tmp_path / "own.rules"
    file.write_text("dslc 1\nimport std (add, sub, mul, neg, relu, matmul, pow, sigmoid)\n" + text)
    return load_many([file, "std"])


def test_a_merge_at_real_shapes_is_proved_exactly() -> None:
    a, b, c = tensor("a", 64, 256), tensor("b", 256, 128), tensor("c", 256, 384)
    graph = graph_of([op("relu", op("matmul", a, b)), op("matmul", a, c)], a, b, c)
    found = validate(standard(), claims_of(applied(standard(), graph, "std.merge_matmuls")))
    assert not found.failed and found.how == {"std.merge_matmuls": "exact"} and found.rewrites == 2


def test_rewrites_inside_rewrites_are_proved_one_by_one() -> None:
    """Every layer of a chain at once: each replacement reads what another one replaces."""
    value = x = tensor("x", 4, 64)
    for _ in range(6):
        value = op("relu", op("relu", op("add", op("neg", op("neg", value)), x)))
    found = validate(standard(), claims_of(applied(standard(), graph_of([value], x), "std.double_neg")))
    assert not found.failed and found.how == {"std.double_neg": "exact"} and found.rewrites == 6


def test_what_rests_on_a_constant_is_proved_with_it() -> None:
    x = tensor("x", 8, 8)
    half = array_value(np.array(0.5, np.float32))
    found = validate(standard(), claims_of(applied(standard(), graph_of([op("pow", x, half)], x), "std.pow_half")))
    assert not found.failed and found.how["std.pow_half"] in {"exact", "field"}


def test_a_threshold_that_the_graph_has_already_is_known_to_be_zero() -> None:
    """Two prelus one after the other, with a pooling between: the second takes its 0 from what the first became."""
    x = tensor("x", 4, 64, 11, 11)
    slope, other = (array_value(np.random.default_rng(k).random((64, 1, 1), np.float32)) for k in range(2))
    pooled = op("max_pool", op("prelu", x, slope), kernel=(3, 3), stride=(2, 2))
    rules, graph = standard(), graph_of([op("prelu", pooled, other)], x)
    rule = next(one for one in compile_directions(rules, rules.substitutions["std.prelu_by_relu"]) if not one.reverse)
    last = Candidate(graph, 3.0)
    for _ in range(2):
        match = next(iter(find_matches(rule, GraphIndex(last.graph), limit=1)))
        last = Candidate(rewritten(last.graph, replacements(match)), last.cost - 1, last, rule.name, 1)
    found = validate(rules, claims_of(last))
    assert not found.failed and found.how == {"std.prelu_by_relu": "exact"} and found.rewrites == 2


def test_what_a_neighbour_made_of_the_same_operands_is_known() -> None:
    """The second sum of products takes the joined operands that the first one was rewritten to."""
    x, y = tensor("x", 1, 64), tensor("y", 1, 64)
    weights = [tensor(f"w{k}", 64, 64) for k in range(4)]
    joined = op("concat", x, y, axis=1)
    one = op("matmul", joined, op("concat", *weights[:2], axis=0))
    sums = [op("add", op("matmul", x, a), op("matmul", y, b)) for a, b in (weights[:2], weights[2:])]
    before = Graph((x, y, *weights), (one, sums[1]))
    after = rewritten(before, {sums[1]: op("matmul", joined, op("concat", *weights[2:], axis=0))})
    found = validate(standard(), claims_of(Candidate(after, 1.0, Candidate(before, 2.0), "own.join", 1)))
    assert not found.failed and found.how == {"own.join": "exact"}


X = tensor("x", 4, 6)


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("relu_of_relu", op("relu", op("relu", X))),
        ("abs_of_abs", op("abs", op("abs", X))),
        ("relu_of_sigmoid", op("relu", op("sigmoid", X))),
        ("relu_of_exp", op("relu", op("exp", op("mul", X, X)))),
        ("relu_of_clip", op("relu", op("clip", X, 0.25, 2))),
        ("clip_of_clip", op("clip", op("clip", X, -1, 2), -3, 5)),
        ("transpose_into_gemm", op("matmul", X, op("transpose", X, perm=(1, 0)))),
        ("add_of_neg", op("add", X, op("neg", op("neg", X)))),
    ],
)
def test_what_is_taken_keeps_its_relation_to_what_is_replaced(rule: str, value: Value) -> None:
    """The new side is a value, or holds values, of which the old side reads others: neither is just any tensor."""
    found = validate(standard(), claims_of(applied(standard(), graph_of([value], X), f"std.{rule}")))
    assert not found.failed and found.how == {f"std.{rule}": "exact"}


@pytest.mark.parametrize("slope", [0.1, 0.2, 0.01, 1 / 3])
def test_a_weight_is_the_decimal_that_it_was_written_as(slope: float) -> None:
    """0.1 as a 32-bit float has many digits, of which a proof would have to know the sign and the size."""
    value = op("maximum", X, op("mul", X, array_value(np.array(slope, np.float32))))
    found = validate(standard(), claims_of(applied(standard(), graph_of([value], X), "std.leaky_relu_recognized")))
    assert found.how == {"std.leaky_relu_recognized": "exact"}


def test_a_slice_of_joined_parts_of_a_split_is_proved() -> None:
    parts = apply(standard(), "std.split", [X], {"axis": 1, "sizes": (2, 4)})
    value = op("slice", op("concat", *parts, axis=1), start=(0, 0), size=(4, 2))
    found = validate(standard(), claims_of(applied(standard(), graph_of([value], X), "std.slice_of_concat")))
    assert not found.failed and found.how == {"std.slice_of_concat": "exact"}


@pytest.mark.parametrize("below", ["tanh", "neg", "exp"])
def test_a_relation_excuses_no_wrong_rewrite(tmp_path: Path, below: str) -> None:
    """`Relu` vanishes above values that are not negative, and above no others."""
    text = """
substitution bold(A: T[*S]) -> Y {
  Y = relu(A)
  =>
  Y = A
}
"""
    rules = own(tmp_path, text)
    found = validate(rules, claims_of(applied(rules, graph_of([op("relu", op(below, X))], X), "own.bold")))
    assert (found.failed == "own.bold") == (below != "exp")


def test_a_rule_without_a_proof_for_every_shape_needs_one_here(tmp_path: Path) -> None:
    """Random inputs that agree are no proof: here nothing is known of the two sums but that they are equal in floating point."""
    text = """
substitution turned(A: T[*S]) -> Y {
  Y = sin(A)
  =>
  Y = cos(sub(A, pi / 2))
}
"""
    rules = own(tmp_path, text.replace("substitution", "import std (sin, cos)\n\nsubstitution", 1))
    candidate = applied(rules, graph_of([op("sin", X)], X), "own.turned")
    found = validate(rules, claims_of(candidate))
    assert found.usable and found.how == {"own.turned": "floats"}
    strict = validate(rules, claims_of(candidate), needed=lambda name: name == "own.turned")
    assert not strict.usable and strict.unproved == ("own.turned",) and not strict.failed
    # after the deadline nothing is proved here, and such a rule rests on nothing
    late = validate(standard(), claims_of(applied(standard(), graph_of([op("relu", op("relu", X))], X), "std.relu_of_relu")), OVER,
                    needed=lambda _: True)  # fmt: skip
    assert late.unproved == ("std.relu_of_relu",)


def test_a_wrong_rewrite_is_found_with_its_rule(tmp_path: Path) -> None:
    text = """
substitution wrong(A: T[*S], B: T[*S]) -> Y {
  Y = sub(A, B)
  =>
  Y = sub(B, A)
}
"""
    rules = own(tmp_path, text)
    a, b = tensor("a", 16, 16), tensor("b", 16, 16)
    found = validate(
        rules, claims_of(applied(rules, graph_of([op("relu", op("sub", op("neg", a), b))], a, b), "own.wrong"))
    )
    assert found.failed == "own.wrong" and "left" in found.problem and "right" in found.problem


def test_what_is_too_large_or_too_late_rests_on_the_rule() -> None:
    a, b, c = tensor("a", 64, 256), tensor("b", 256, 128), tensor("c", 256, 384)
    graph = graph_of([op("matmul", a, b), op("matmul", a, c)], a, b, c)
    found = validate(standard(), claims_of(applied(standard(), graph, "std.merge_matmuls")), until=OVER)
    assert not found.failed and found.how == {"std.merge_matmuls": "rule"}
    # a step that does not say what it replaced
    unknown = Candidate(Graph(graph.inputs, graph.outputs[::-1]), 1.0, Candidate(graph, 2.0), "some.rule", 1)
    assert validate(standard(), claims_of(unknown)).how == {"some.rule": "rule"}


def test_the_pipeline_leaves_out_a_rule_that_is_wrong_at_its_shapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outputs are not looked at here (any error is tolerated): only the validation tells."""
    from test_optimize import powers

    file = tmp_path / "own.rules"
    file.write_text(
        """dslc 1
import std (pow, sqrt, neg)

substitution careless(A: T[*S]) -> Y {
  Y = pow(A, 0.5)
  =>
  Y = neg(A)
}
"""
    )
    proved = lambda name: RuleVerdict(name, "proved", (), "")  # noqa: E731
    monkeypatch.setattr(
        "dslc.search.phases.reading.statuses",
        lambda _rules, definitions, *_: {d.name: proved(d.name) for d in definitions},
    )
    options: dict[str, Any] = {"budget": 60.0, "threads": 1, "cache": tmp_path / "cache", "timing": False}
    found = dslc.optimize(powers(), **options, rules=[file], only=["own.careless"], tolerance=1e9)
    assert found.report.kept_original
    assert any("own.careless was left out" in one and "shapes" in one for one in found.report.warnings)
    right = dslc.optimize(powers(), **options, only=["std.pow_half"])
    (step,) = right.report.steps
    assert step.status == "proved" and step.validated in {"exact", "field"}


def test_the_pipeline_leaves_out_a_bounded_rule_that_is_not_proved_at_its_shapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from test_optimize import powers

    asked: list[bool] = []

    def undecided(rules: Rules, claims: Iterable[Claim], *_: Any, needed: Any) -> Validated:
        asked.append(needed("std.pow_half"))
        used = any(isinstance(claim, Rewrite) and claim.rule == "std.pow_half" for claim in claims)
        return Validated({"std.pow_half": "field"}, 1, unproved=("std.pow_half",) if used and asked[-1] else ())

    options: dict[str, Any] = {"budget": 60.0, "threads": 1, "cache": tmp_path / "cache", "timing": False}
    monkeypatch.setattr("dslc.search.runs.proving.validate", undecided)
    for status in ("bounded", "proved"):
        found_as = lambda name, status=status: RuleVerdict(name, status, (), "")  # noqa: E731
        monkeypatch.setattr(
            "dslc.search.phases.reading.statuses",
            lambda _rules, definitions, *_, verdict=found_as: {d.name: verdict(d.name) for d in definitions},
        )
        found = dslc.optimize(powers(), **options, only=["std.pow_half"])
        assert found.report.kept_original == (status == "bounded")
        assert any("bounded, and a rewrite is not proved" in one for one in found.report.warnings) == (
            status == "bounded"
        )
        assert asked[-1] == (status == "bounded")
    (step,) = found.report.steps
    assert step.proof == "rule, field agrees"


def test_the_comparison_sees_integers_that_overflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right for small numbers; nothing is proved here, so that the outputs alone tell."""
    from onnx import TensorProto, helper

    file = tmp_path / "own.rules"
    file.write_text("""dslc 1
import std (minimum, add)

substitution small(X: T[*S]) -> Y {
  Y = minimum(add(X, 1), X)
  =>
  Y = X
}
""")
    nodes = [helper.make_node(op, inputs, [out]) for op, inputs, out in (
        ("Add", ["x", "one"], "t"), ("Min", ["t", "x"], "u"), ("Neg", ["u"], "y"))]  # fmt: skip
    ends = [helper.make_tensor_value_info(name, TensorProto.INT64, [256, 256]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [helper.make_tensor("one", TensorProto.INT64, [], [1])])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    monkeypatch.setattr(
        "dslc.search.phases.reading.statuses",
        lambda _rules, definitions, *_: {d.name: RuleVerdict(d.name, "proved", (), "") for d in definitions},
    )
    monkeypatch.setattr("dslc.search.runs.proving.validate", lambda *_, **__: Validated({}))
    found = dslc.optimize(
        model, rules=[file], only=["own.small"], budget=60.0, threads=1, cache=tmp_path / "c", timing=False
    )
    assert found.report.kept_original and any("own.small was left out" in one for one in found.report.warnings), (
        found.report.reason
    )


def test_rules_of_users_are_proved_once_and_used_by_status(tmp_path: Path) -> None:
    from test_optimize import powers

    file = tmp_path / "own.rules"
    file.write_text(
        """dslc 1
import std (pow, sqrt, relu, neg)

substitution root(A: T[*S]) -> Y {
  Y = pow(A, 0.5)
  =>
  Y = sqrt(A)
}
substitution wrong(A: T[*S]) -> Y {
  Y = pow(A, 0.5)
  =>
  Y = neg(A)
}
"""
    )
    options: dict[str, Any] = {"budget": 60.0, "threads": 1, "cache": tmp_path / "cache", "timing": False}
    some = dslc.optimize(powers(), **options, rules=[file], only=["own.*"], allow=["tested", "trusted"])
    (step,) = some.report.steps
    assert step.rule == "own.root" and any(
        "own.wrong was left out: it is refuted" in one for one in some.report.warnings
    )
    kept = list((tmp_path / "cache" / "proofs").iterdir())
    assert len(kept) == 2
    strict = dslc.optimize(powers(), **options, rules=[file], only=["own.*"], allow=[])
    if step.status == "tested":
        assert strict.report.kept_original
        assert any(
            "own.root was left out: it is tested; `--allow tested` uses it" in one for one in strict.report.warnings
        )
    else:
        assert [one.rule for one in strict.report.steps] == ["own.root"]
    assert sorted((tmp_path / "cache" / "proofs").iterdir()) == sorted(kept)
    assert {"proved", "bounded"} == statuses.RELIABLE


def test_equal_blocks_are_proved_once() -> None:
    """Whatever lies below: a hundred layers need no hundred proofs."""
    value = x = tensor("x", 4, 8)
    for k in range(40):
        value = op("neg", op("neg", op("matmul", op("relu", value), tensor(f"w{k}", 8, 8))))
    known: Known = {}
    found = validate(standard(), claims_of(applied(standard(), graph_of([value], x), "std.double_neg")), known=known)
    assert found.how == {"std.double_neg": "exact"} and found.rewrites == 40
    assert len(known) < 5
