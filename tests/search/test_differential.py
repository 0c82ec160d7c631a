"""Differential testing of the standard library: random models, random walks over all its rules, and ONNX Runtime on both ends.

`python -m benchmarks.differential` is the longer run.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, checker

from benchmarks.differ.judge import Judge
from benchmarks.differ.models import random_model
from benchmarks.differ.walk import seeded_model, walk
from benchmarks.differential import Record, Table, main, one, text
from dslc.cost.process import Worker
from dslc.match import CompiledRule, compile_all
from dslc.onnx.importer import import_model
from dslc.semantics.library import Rules, load_many, standard

MODELS = 90


@functools.cache
def compiled() -> tuple[CompiledRule, ...]:
    return compile_all(standard())


def records(indexes: Sequence[int], seed: int) -> list[Record]:
    with Worker(1) as worker:
        return [one(standard(), compiled(), worker, seed, index) for index in indexes]


def test_no_rule_changes_what_a_model_gives() -> None:
    table = Table(records(range(MODELS), seed=7))
    assert table.wrong() == []
    walked = [record for record in table.records if not record.skipped]
    assert len(walked) > MODELS / 2 and sum(len(record.applied) for record in walked) > 2 * len(walked)


def test_walks_are_the_same_for_the_same_seed() -> None:
    assert records([3, 4], seed=11) == records([3, 4], seed=11)


def test_random_models_are_valid_and_of_many_kinds() -> None:
    models = [random_model(np.random.default_rng(k))[0] for k in range(80)]
    for model in models:
        checker.check_model(model)
    operators = {node.op_type for model in models for node in model.graph.node}
    assert len(operators) > 50
    types = {value.type.tensor_type.elem_type for model in models for value in model.graph.input}
    ranks = {len(value.type.tensor_type.shape.dim) for model in models for value in model.graph.input}
    assert len(types) >= 5 and {0, 1, 2, 3, 4} <= ranks


WRONG = """dslc 1
import std (add, sub, neg, relu, maximum)
substitution swapped(A: T[*S], B: T[*R]) -> Y {
  Y = sub(A, B)
  =>
  Y = sub(B, A)
}
substitution overflows(X: T[*S]) -> Y {
  Y = maximum(X, 0)
  =>
  Y = relu(add(X, 1e30))
}
"""


@pytest.fixture
def wrong(tmp_path: Path) -> Rules:
    file = tmp_path / "wrong.rules"
    file.write_text(WRONG)
    return load_many([file, "std"])


def found(rules: Rules, model: ModelProto, name: str) -> tuple[str, str]:
    """The rule that is blamed for a walk of three steps that begins with another one, and what it did."""
    imported = import_model(model, rules)
    chosen = [rule for rule in compile_all(rules) if rule.name == name]
    with Worker(1) as worker:
        judge = Judge(worker, rules, imported, {}, 0)
        steps = walk(rules, chosen, imported.context, imported.graph, np.random.default_rng(0), 1)
        what, problem = judge.look(steps.steps[-1].model)
        finding = judge.blame(steps.steps, what, problem)
    return finding.rule, finding.found


def test_a_wrong_rule_is_found_and_blamed(wrong: Rules) -> None:
    rules = {rule.name: rule for rule in compile_all(wrong)}
    for name in ("wrong.swapped", "wrong.overflows"):
        model = seeded_model(wrong, rules[name], np.random.default_rng(1), 17)
        assert model is not None
        assert found(wrong, model, name) == (name, "differs")


def test_a_run_ends_with_the_exit_code_of_what_it_found(
    wrong: Rules, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, kept = tmp_path / "wrong.rules", tmp_path / "done.jsonl"
    arguments = [
        "--library",
        str(file),
        "--library",
        "std",
        "--only",
        "wrong.swapped",
        "--models",
        "4",
        "--out",
        str(kept),
    ]
    assert main(arguments) == 1
    assert "wrong.swapped differs" in capsys.readouterr().out
    before = kept.read_text()
    assert main(arguments) == 1 and kept.read_text() == before, "what was done is not done again"
    assert main(["--models", "4", "--only", "std.double_neg"]) == 0


def test_the_table_says_what_was_not_exercised() -> None:
    shown = text(Table([Record(0, "", ("std.double_neg",))]), compiled(), 1.0)
    assert "1 models, 1 walks, 1 applications of 1 of" in shown and "  std.relu_of_relu" in shown
    assert "  std.double_neg" not in shown
