"""Which rules a search may use: what their locks and the cache say, and what is proved where nobody knows."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, save

from dslc.cli.main import cli
from dslc.ir.constants import fill
from dslc.ir.dtype import DType, TensorType
from dslc.ir.graph import Graph, input_value
from dslc.match import GraphIndex, compile_directions, find_matches
from dslc.prove.evidence import dependencies as resting
from dslc.prove.evidence.dependencies import believed_lock, proved_traits, settle_traits, trust_locks
from dslc.prove.evidence.digest import rule_digest
from dslc.prove.evidence.lock import LOCK, write_lock
from dslc.prove.verdict import RuleVerdict
from dslc.search.rewrites.associative_flattening import flattened
from dslc.search.runs.selection import chosen_rules, statuses, usable
from dslc.semantics.apply import apply
from dslc.semantics.library import load_many, standard
from tests.libraries import libraries


def test_a_rule_with_a_mode_chosen_has_the_verdict_of_its_lock(tmp_path: Path) -> None:
    def told(_done: int, _total: int) -> None:
        raise AssertionError("a rule of the library is proved again")

    rules = libraries("std", "taso_generated")
    own = [name for name, sub in rules.substitutions.items() if sub.module.library == "taso_generated"]
    chosen = chosen_rules(rules, own)
    definitions = list(dict.fromkeys(rule.definition for rule in chosen))
    # a padding or an activation is chosen in some: these are definitions of their own
    assert len(definitions) > len(own)
    found = statuses(rules, definitions, tmp_path, told=told)
    assert set(found) == set(own)
    assert not usable(chosen, found, ())[1]
    assert not list(tmp_path.iterdir())


def test_strict_floats_leaves_out_rules_that_say_that_they_change_infinities() -> None:
    """`log(exp(x))` is x but where `exp` overflows; data movement changes no number at all."""
    every, strict = ({rule.name for rule in chosen_rules(standard(), strict_floats=strict)} for strict in (False, True))
    for name in ("log_of_exp", "reassociate_matmul", "reassociate_matmul^-1", "div_distributes", "max_pools_in_chain"):
        assert f"std.{name}" in every - strict
    for name in ("double_neg", "transpose_of_transpose", "merge_matmuls", "relu_of_relu"):
        assert f"std.{name}" in strict


#: rounding twice is not rounding once
TWICE = """dslc 1
import std (cast)
substitution twice(X: f64[*S]) -> Y {
  Y = cast(cast(X, to=f32), to=f16)
  =>
  Y = cast(X, to=f16)
}
operator minus(A: T[*S], B: T[*S]) -> Y: T[*S] { Y[*i] = A[*i] - B[*i] }
property minus is commutative
"""


@pytest.fixture
def forged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library whose lock says of everything that it is proved, and nobody has proved anything of it."""
    monkeypatch.setenv("DSLC_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "stranger"
    folder.mkdir()
    path = folder / "stranger.rules"
    path.write_text(TWICE)
    rules = load_many(["std", path])
    mine = [one for one in (*rules.substitutions.values(), *rules.laws.values()) if one.module.library == "stranger"]
    assert len(mine) == 2
    assert (
        write_lock(
            folder / LOCK, {one.name: RuleVerdict(one.name, "proved", (), rule_digest(rules, one)) for one in mine}
        )
        == ""
    )
    return path


def test_a_lock_of_somebody_else_is_not_believed(forged: Path, tmp_path: Path) -> None:
    rules = load_many(["std", forged])
    (rule,) = (one for one in rules.substitutions.values() if one.module.library == "stranger")
    assert (
        not believed_lock(rules, rule).verdicts and believed_lock(rules, rules.substitutions["std.double_neg"]).verdicts
    )
    assert statuses(rules, [rule], tmp_path / "cache")[rule.name].status == "tested"
    trust_locks(rules, True)
    assert statuses(rules, [rule], tmp_path / "cache")[rule.name].status == "proved"
    assert proved_traits(rules, "stranger.minus").commutative
    trust_locks(rules, False)
    assert statuses(rules, [rule], tmp_path / "cache")[rule.name].status == "tested"
    assert not proved_traits(rules, "stranger.minus").commutative


def test_commands_say_what_is_known_here(forged: Path, tmp_path: Path) -> None:
    """`why-not`, `explain` and `optimize` take a lock for what it is; `--trust-lock` believes it."""
    steps = (("x", "s", TensorProto.FLOAT), ("s", "y", TensorProto.FLOAT16))
    nodes = [helper.make_node("Cast", [source], [target], to=to) for source, target, to in steps]
    x, y = (
        helper.make_tensor_value_info("x", TensorProto.DOUBLE, [4]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT16, [4]),
    )
    model, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    save(
        helper.make_model(
            helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        ),
        model,
    )
    runner = CliRunner()
    asked = ["why-not", "twice", str(model), "--rules", str(forged), "--steps", "0"]
    assert "its status is tested" in runner.invoke(cli, asked).output
    assert "its status" not in runner.invoke(cli, [*asked, "--trust-lock"]).output
    asked = [
        "optimize",
        str(model),
        "-o",
        str(out),
        "--rules",
        str(forged),
        "--only",
        "stranger.twice",
        "--budget",
        "3s",
    ]
    assert "stranger.twice was left out: it is tested" in runner.invoke(cli, asked).output
    assert "left out" not in runner.invoke(cli, [*asked, "--trust-lock"]).output


def test_explain_says_whose_word_a_status_is(forged: Path) -> None:
    from dslc.cli.explain_rule import explain_rule

    assert "nobody here" in explain_rule("stranger.twice", [str(forged)])
    assert "nobody here" not in explain_rule("std.double_neg")


def test_traits_are_looked_up_in_a_match_and_proved_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No prover is asked by what flattens, writes or matches; those of the standard library are known from its lock."""
    monkeypatch.setenv("DSLC_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "own.rules"
    path.write_text(
        "dslc 1\nimport std (add)\noperator plus(A: T[*S], B: T[*S]) -> Y: T[*S] { Y[*i] = A[*i] + B[*i] }\n"
        "property plus is commutative, associative\n"
        "substitution zero(X: f32[*S]) -> Y {\n  Y = plus(X, 0)\n  =>\n  Y = X\n}\n"
    )

    def asked(*_args: object) -> RuleVerdict:
        raise AssertionError("a match begins a proof")

    rules, proved = load_many(["std", path]), resting.answered
    x, zero = input_value("x", TensorType(DType.F32, (2,))), fill(0, TensorType(DType.F32, (2,)))
    graph = Graph((x,), apply(rules, "own.plus", [*apply(rules, "own.plus", [zero, x]), x]))
    monkeypatch.setattr(resting, "answered", asked)
    assert flattened(rules, graph) is graph
    assert not proved_traits(rules, "own.plus").commutative and proved_traits(rules, "std.add").commutative
    monkeypatch.setattr(resting, "answered", proved)
    settle_traits(rules)
    (rule,) = compile_directions(rules, rules.substitutions["own.zero"])
    monkeypatch.setattr(resting, "answered", asked)
    assert proved_traits(rules, "own.plus").commutative and proved_traits(rules, "own.plus").associative
    assert list(find_matches(rule, GraphIndex(graph)))
    # this user has proved it: another look at the same library is a look-up, too
    again = load_many(["std", path])
    settle_traits(again)
    assert proved_traits(again, "own.plus").commutative
