"""All provers together: statuses, agreement, limits of time, interruption, and `dslc verify`."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import dslc
import dslc.cli.verify
from dslc.cli.verify import command
from dslc.errors import DslcError
from dslc.prove.evidence.lock import LOCK, read_lock
from dslc.prove.run.conclusion import conclude
from dslc.prove.run.provers import replay
from dslc.prove.run.verify import verify, verify_rule
from dslc.prove.run.worker import Task
from dslc.prove.run.workers import Workers
from dslc.prove.sizes import at_sizes
from dslc.prove.verdict import Counterexample, RuleVerdict, Verdict
from dslc.semantics.library import Rules, load_many
from tests.caches import apart
from tests.pressed import press

TEXT = """dslc 1
import std (add, sub, neg, relu, exp, log, mul)

substitution swapped(A: T[*S], B: T[*S]) -> Y {
  Y = add(A, B)
  =>
  Y = add(B, A)
}
substitution wrong(A: T[*S], B: T[*S]) -> Y {
  Y = sub(A, B)
  =>
  Y = sub(B, A)
}
substitution believed(A: T[*S]) -> Y {
  Y = log(exp(A))
  =>
  Y = A
  trusted "log is the inverse of exp"
}
substitution wrongly_believed(A: T[*S]) -> Y {
  Y = exp(log(neg(A)))
  =>
  Y = A
  trusted "it looks right"
}
partial substitution nearly(A: T[*S]) -> Y {
  Y = neg(A)
  =>
  Y = A
  correct auto
}
property relu_is_linear(A: T[*S], B: T[*S]) {
  holds relu(add(A, B)) == add(relu(A), relu(B))
}
property negation(A: T[*S]) {
  holds neg(neg(A)) == A, neg(A) == mul(A, -1)
}
"""
EXPECTED = {
    "own.swapped": {"proved", "bounded"},
    "own.wrong": {"refuted"},
    "own.believed": {"trusted", "proved", "bounded"},
    "own.wrongly_believed": {"refuted"},
    "own.nearly": {"undecided"},
    "own.relu_is_linear": {"refuted"},
    "own.negation": {"proved", "bounded"},
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests have proved counts for nothing here."""
    monkeypatch.setenv("DSLC_CACHE", str(apart(tmp_path / "cache")))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verify") / "own.rules"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def rules(file: Path) -> Rules:
    return load_many([file])


@pytest.fixture(scope="module")
def verdicts(rules: Rules) -> dict[str, RuleVerdict]:
    return {one.rule: one for one in verify(rules, list(EXPECTED), 1)}


def test_statuses_follow_from_the_provers(verdicts: dict[str, RuleVerdict]) -> None:
    assert {name for name, one in verdicts.items() if one.status not in EXPECTED[name]} == set()
    assert list(verdicts) == list(EXPECTED)
    refuted = verdicts["own.wrong"].counterexample
    assert refuted is not None and int(refuted.left) == -int(refuted.right)
    assert verdicts["own.believed"].status != "trusted" or "inverse" in verdicts["own.believed"].reason
    assert "partial" in verdicts["own.nearly"].reason


def test_in_this_process_they_are_the_same(rules: Rules, verdicts: dict[str, RuleVerdict]) -> None:
    for name in ("own.wrong", "own.negation"):
        definition = rules.substitutions.get(name) or rules.laws[name]
        assert verify_rule(rules, definition).status == verdicts[name].status


def test_provers_that_disagree_stop_the_run(rules: Rules) -> None:
    example = Counterexample({"S": "[1]"}, "Y", (0,), "1", "2")
    found = [Verdict("field", "differs", counterexample=example), Verdict("exact", "equal")]
    with pytest.raises(DslcError) as problem:
        conclude(rules, rules.substitutions["own.swapped"], found)
    assert problem.value.diagnostics[0].code == "E0510"
    bounded = [Verdict("exact", "equal", scope="ranks up to 2"), Verdict("field", "differs", counterexample=example)]
    assert conclude(rules, rules.substitutions["own.swapped"], bounded).status == "refuted"


def test_what_only_values_show_is_tested(rules: Rules) -> None:
    swapped = rules.substitutions["own.swapped"]
    assert conclude(rules, swapped, [Verdict("field", "equal"), Verdict("exact", "unknown")]).status == "tested"
    assert conclude(rules, swapped, [Verdict("field", "unknown", reason="no instance")]).reason == "no instance"


def test_a_prover_that_takes_too_long_has_not_decided_and_the_next_is_asked(file: Path, rules: Rules) -> None:
    tasks = [Task("own.wrong", ("field", "exact")), Task("own.swapped", ("field",))]
    with Workers(rules, 1, 0.001) as pool:
        found = {task.rule: answers for task, answers in pool.run(tasks)}
    assert [(one.prover, one.answer) for one in found["own.wrong"]] == [("field", "unknown"), ("exact", "unknown")]
    assert all("stopped after 0.001 s" in one.reason for answers in found.values() for one in answers)


def test_a_process_that_dies_is_replaced(rules: Rules) -> None:
    with Workers(rules, 1, 60) as pool:
        answers = pool.run(
            [Task("own.swapped", ("field",)), Task("own.wrong", ("field",)), Task("own.negation", ("field",))]
        )
        assert next(answers)[0].rule == "own.swapped"
        pool._workers[0].child.kill()
        found = {task.rule: verdicts for task, verdicts in answers}
    assert set(found) == {"own.wrong", "own.negation"}
    assert all(
        one.answer in {"differs", "equal"} or "died" in one.reason for verdicts in found.values() for one in verdicts
    )


def test_where_no_process_starts_this_one_proves(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dslc.processes.child.sys.executable", "/bin/false")
    tasks = [Task("own.swapped", ("field",)), Task("own.wrong", ("field",))]
    with Workers(rules, 1, 60) as workers:
        assert workers.parallel and not workers.answers(wait=False)
        found = {task.rule: verdicts[0].answer for task, verdicts in workers.run(tasks)}
        assert not workers.parallel
    assert found == {"own.swapped": "equal", "own.wrong": "differs"}


def test_files_that_change_meanwhile_end_the_run(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(rules), "digest", "another digest")
    with pytest.raises(DslcError) as problem:
        verify(rules, ["own.swapped"], 1, provers=("field",))
    assert [each.code for each in problem.value.diagnostics] == ["E0519"]


def test_an_interrupted_run_keeps_what_is_done(file: Path, rules: Rules) -> None:
    def stop(done: int, _total: int, _verdict: RuleVerdict) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify(rules, list(EXPECTED), 0, "beside", stop)
    assert set(read_lock(file.parent / LOCK).verdicts) == {"own.swapped", "own.wrong"}
    (file.parent / LOCK).unlink()


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_leaves_whole_json(
    file: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, times: int
) -> None:
    """What was proved by then, and the names of what was not."""
    done: list[str] = []

    def ended(*given: Any, **more: Any) -> RuleVerdict:
        found = conclude(*given, **more)
        done.append(found.rule)
        if len(done) == 3:
            press(number)
        return found

    def told(*given: Any) -> None:
        if times > 1:
            press(number)
        tell(*given)

    tell = dslc.cli.verify._tell
    monkeypatch.setattr("dslc.prove.run.verify.conclude", ended)
    monkeypatch.setattr("dslc.cli.verify._tell", told)
    asked = [str(file), "--output-format", "json", "--jobs", "0", "--no-guards", "--no-lock"]
    ran = CliRunner().invoke(command, asked, standalone_mode=False)
    assert ran.return_value == 128 + number
    found = json.loads(ran.stdout)
    assert found["interrupted"] and [one["rule"] for one in found["rules"]] == [
        name for name in EXPECTED if name in done[:2]
    ]
    assert set(found["left"]) == set(EXPECTED) - set(done[:2])


def test_sizes_of_a_symbolic_difference_are_replayed() -> None:
    from dslc.ir.dtype import DType, TensorType
    from dslc.ir.graph import input_value
    from dslc.ir.scalar import dimension
    from dslc.semantics.apply import apply
    from dslc.semantics.elaborate import expand

    std = load_many(["std"])
    a, b = (input_value(name, TensorType(DType.F32, (dimension("N"),))) for name in "ab")
    left, right = (expand(std, apply(std, "std.sub", args)) for args in ((a, b), (b, a)))
    assert at_sizes(left, {"N": 3})[0].type.shape == (3,)
    found = replay(std, left, right, ("Y",), (a, b), {"N": 3})
    assert found is not None and found.drawn == {"N": "3"} and int(found.left) == -int(found.right)
    assert replay(std, left, left, ("Y",), (a, b), {"N": 3}) is None


def test_the_command_prints_json_and_fails_where_a_rule_is_refuted(file: Path) -> None:
    quick = ["--jobs", "0", "--no-guards"]
    ran = CliRunner().invoke(command, [str(file), "--output-format", "json", *quick], standalone_mode=False)
    assert ran.return_value == 1
    found = {one["rule"]: one for one in json.loads(ran.output)["rules"]}
    assert set(found) == set(EXPECTED)
    assert found["own.wrong"]["counterexample"]["output"] == "Y"
    field = found["own.swapped"]["verdicts"][0]
    assert (
        field["prover"] == "field" and field["answer"] == "equal" and field["ms"] > 0 and field["error_bound"] < 1e-17
    )
    # again, from the lock
    ran = CliRunner().invoke(command, [str(file), "--output-format", "concise", *quick], standalone_mode=False)
    assert (
        ran.return_value == 1 and "own.wrong: refuted" in ran.output and "error" not in ran.exception.__class__.__name__
    )
    ran = CliRunner().invoke(command, [str(file), *quick], standalone_mode=False)
    assert "Y = sub(A, B)" in ran.output or "Y = sub(A, B)" in ran.stderr


def test_the_command_takes_rules_and_provers_by_name(file: Path) -> None:
    arguments = [str(file), "--rule", "swap*", "--prover", "field", "--output-format", "json", "--jobs", "0"]
    ran = CliRunner().invoke(command, arguments, standalone_mode=False)
    (found,) = json.loads(ran.output)["rules"]
    assert ran.return_value == 0 and found["status"] == "tested" and len(found["verdicts"]) == 1
    with pytest.raises(DslcError):
        CliRunner().invoke(command, [str(file), "--rule", "nothing"], standalone_mode=False, catch_exceptions=False)
    ran = CliRunner().invoke(
        command, [str(file), "--output-format", "markdown", "--jobs", "0", "--no-guards"], standalone_mode=False
    )
    assert "| own | 7 |" in ran.output


def test_from_python(file: Path) -> None:
    found = dslc.verify(file, names=["swapped", "own.wrong"], workers=0)
    assert [(one.rule, one.status == "refuted") for one in found] == [("own.swapped", False), ("own.wrong", True)]


def test_a_refuted_rule_is_shown_with_the_guard_that_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "lacking.rules"
    path.write_text(
        "dslc 1\nimport std.pointwise (mul)\nimport std.reduce (reduce_sum, reduce_mean)\n"
        "substitution square(X: T[M, N]) -> Y {\n  Y = mul(reduce_sum(X, axes=[0, 1]), 1 / (M * M))\n"
        "  =>\n  Y = reduce_mean(X, axes=[0, 1])\n}\n",
        encoding="utf-8",
    )
    arguments = [str(path), "--no-lock", "--prover", "field", "--output-format", "json", "--jobs", "0"]
    ran = CliRunner().invoke(command, arguments, standalone_mode=False)
    first, second = json.loads(ran.output)["findings"]
    assert (first["code"], second["code"]) == ("E0501", "E0511")
    assert second["fix"]["text"].strip() == "where M == N" and "proved" in second["hint"]
