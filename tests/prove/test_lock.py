"""`dslc.lock`: what is kept is not proved again, what changed is, and a lock that cannot be used is set aside."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest

from dslc.prove.evidence.digest import PROVER_VERSION, rule_digest
from dslc.prove.evidence.lock import LOCK, ProofCache, read_lock, write_lock
from dslc.prove.run.verify import verify
from dslc.prove.verdict import Counterexample, RuleVerdict, Verdict
from dslc.semantics.library import Rules, load_many
from tests.caches import apart

TEXT = """dslc 1
import std (neg)

operator add(A: T[*S], B: T[*S]) -> Y: T[*S] {
  \"\"\"The sum.\"\"\"
  Y[*s] = A[*s] + B[*s]
}
operator twice(A: T[*S]) -> Y: T[*S] {
  \"\"\"Two of it.\"\"\"
  Y[*s] = 2 * A[*s]
}
substitution twice_of_neg(A: T[*S]) -> Y {
  Y = twice(neg(A))
  =>
  Y = neg(twice(A))
}
substitution swapped(A: T[*S], B: T[*S]) -> Y {
  Y = add(A, B)
  =>
  Y = add(B, A)
}
"""
NAMES = ("own.twice_of_neg", "own.swapped")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests have proved counts for nothing here."""
    monkeypatch.setenv("DSLC_CACHE", str(apart(tmp_path / "cache")))


def library(tmp_path: Path, text: str = TEXT) -> Rules:
    file = tmp_path / "own.rules"
    file.write_text(text)
    return load_many([file])


def proved_anew(rules: Rules, notes: list[str] | None = None) -> list[str]:
    """The rules that a run with the lock beside the library proves."""
    new: list[str] = []
    found = verify(rules, NAMES, 0, "beside", lambda _done, _total, one: new.append(one.rule), notes=notes)
    assert [one.rule for one in found] == list(NAMES)
    return new


def test_what_is_unchanged_is_not_proved_again(tmp_path: Path) -> None:
    assert proved_anew(library(tmp_path)) == list(NAMES)
    written = (tmp_path / LOCK).read_text()
    (tmp_path / LOCK).unlink()
    assert proved_anew(library(tmp_path)) == []
    assert (tmp_path / LOCK).read_text() == written
    # a line for each rule, sorted
    lines = [line.split(":")[0].strip(' "') for line in written.splitlines() if line.startswith("  ")]
    assert lines == sorted(NAMES)


def test_a_change_is_proved_again_also_in_an_operator(tmp_path: Path) -> None:
    before = library(tmp_path)
    digests = [rule_digest(before, before.substitutions[name]) for name in NAMES]
    proved_anew(before)
    assert proved_anew(library(tmp_path, TEXT.replace("Two of it", "Doubled"))) == []
    assert proved_anew(library(tmp_path, TEXT.replace("add(B, A)", "add(B, neg(neg(A)))"))) == ["own.swapped"]
    changed = library(tmp_path, TEXT.replace("2 * A", "3 * A"))
    assert rule_digest(changed, changed.substitutions[NAMES[0]]) != digests[0]
    assert rule_digest(changed, changed.substitutions[NAMES[1]]) == digests[1]
    assert "own.twice_of_neg" in proved_anew(changed)


@pytest.mark.parametrize(
    "text",
    ["not json", '{"format": 1}', "[]", '{"format": 1, "prover": 0, "rules": {}}', '{"format": 9, "prover": 1, "rules": {}}',
     f'{{"format": 1, "prover": {PROVER_VERSION}, "rules": {{"own.swapped": {{"status": "certain"}}}}}}', "\0\x01"],
)  # fmt: skip
def test_a_lock_that_cannot_be_used_is_set_aside(tmp_path: Path, text: str) -> None:
    rules = library(tmp_path)
    (tmp_path / LOCK).write_text(text)
    notes: list[str] = []
    assert proved_anew(rules, notes) == list(NAMES)
    assert len(notes) == 2 and "set aside" in notes[1]
    assert (tmp_path / f"{LOCK}.old").read_text() == text
    assert set(read_lock(tmp_path / LOCK).verdicts) == set(NAMES)


def forged(tmp_path: Path, rules: Rules) -> None:
    """A lock that says of every rule that it is proved, with the right digests."""
    saying = {
        name: RuleVerdict(name, "proved", (), rule_digest(rules, rules.substitutions[name]))
        for name in rules.substitutions
    }
    write_lock(tmp_path / LOCK, saying)


WRONG = TEXT.replace("Y = neg(twice(A))", "Y = twice(A)")


def test_a_forged_lock_proves_nothing_unless_it_is_trusted(tmp_path: Path) -> None:
    rules = library(tmp_path, WRONG)
    forged(tmp_path, rules)
    name = "own.twice_of_neg"
    (trusting,) = verify(rules, [name], 0, "beside", trust=True)
    assert trusting.status == "proved"
    (found,) = verify(rules, [name], 0, "beside")
    assert found.status == "refuted"
    assert read_lock(tmp_path / LOCK).verdicts[name].status == "refuted"


def test_what_somebody_else_proved_is_proved_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert proved_anew(library(tmp_path)) == list(NAMES)
    monkeypatch.setenv("DSLC_CACHE", str(tmp_path / "another user"))
    assert proved_anew(library(tmp_path)) == list(NAMES)
    assert proved_anew(library(tmp_path)) == []


def test_nothing_is_written_into_an_installed_package(tmp_path: Path) -> None:
    package = tmp_path / "lib" / "site-packages" / "pet_rules"
    package.mkdir(parents=True)
    rules = library(package)
    forged(package, rules)
    before = (package / LOCK).read_bytes()
    assert proved_anew(rules) == list(NAMES)
    assert (package / LOCK).read_bytes() == before
    (package / LOCK).unlink()
    assert proved_anew(rules) == []
    assert not (package / LOCK).exists()


def test_rules_of_other_libraries_stay_and_rules_that_are_gone_go(tmp_path: Path) -> None:
    proved_anew(library(tmp_path))
    lock = read_lock(tmp_path / LOCK)
    stranger, gone = (RuleVerdict(name, "tested", (), "0" * 64) for name in ("other.rule", "own.gone"))
    write_lock(tmp_path / LOCK, {**lock.verdicts, stranger.rule: stranger, gone.rule: gone})
    assert proved_anew(library(tmp_path)) == []
    assert set(read_lock(tmp_path / LOCK).verdicts) == {*NAMES, "other.rule"}


def test_a_folder_that_cannot_be_written_is_said_and_costs_nothing_else(tmp_path: Path) -> None:
    verdict = RuleVerdict("a.b", "proved", (), "1")
    assert "cannot be written" in write_lock(tmp_path / "no folder" / LOCK, {"a.b": verdict})


def test_verdicts_come_back_as_they_were(tmp_path: Path) -> None:
    example = Counterexample({"S": "[2]"}, "Y", (0, 1), "3", "-3", "$0[i0]", "A = ...")
    verdict = RuleVerdict(
        "a.b", "refuted",
        (Verdict("field", "equal", reason="r", scope="4 random instances", error_bound=1e-18),
         Verdict("exact", "differs", counterexample=example)),
        "ab" * 32, "why",
    )  # fmt: skip
    write_lock(tmp_path / LOCK, {"a.b": verdict})
    lock = read_lock(tmp_path / LOCK)
    assert lock.verdicts == {"a.b": verdict} and not lock.problem
    assert lock.of("a.b", "ab" * 32) == verdict and lock.of("a.b", "cd" * 32) is None
    late = RuleVerdict("a.c", "tested", (Verdict("exact", "unknown", reason="stopped after 4 s"),), "1")
    write_lock(tmp_path / LOCK, {"a.c": late})
    lock = read_lock(tmp_path / LOCK)
    assert lock.of("a.c", "1") == lock.of("a.c", "1", 4.0) == late and lock.of("a.c", "1", 30.0) is None
    cache = ProofCache(tmp_path / "cache")
    assert cache.get("a.b", verdict.digest) is None
    cache.put([verdict])
    assert cache.get("a.b", verdict.digest) == verdict


@pytest.mark.parametrize("name", ["std", "taso"])
def test_the_lock_that_is_shipped_is_up_to_date(name: str) -> None:
    rules = load_many([name])
    lock = read_lock(Path(str(resources.files(f"dslc.rules.{name}"))) / LOCK)
    assert not lock.problem
    own = [one for one in (*rules.substitutions.values(), *rules.laws.values()) if one.module.library == name]
    stale = [one.name for one in own if lock.of(one.name, rule_digest(rules, one)) is None]
    assert own and not stale, "run `dslc verify std taso`"
    assert not [one.rule for one in lock.verdicts.values() if one.status == "refuted"]


def test_locks_are_package_data() -> None:
    import tomllib

    with (Path(__file__).parents[2] / "pyproject.toml").open("rb") as file:
        data = tomllib.load(file)["tool"]["setuptools"]["package-data"]
    assert all(LOCK in data[f"dslc.rules.{name}"] for name in ("std", "taso"))


def test_a_lock_is_json(tmp_path: Path) -> None:
    write_lock(tmp_path / LOCK, {})
    assert json.loads((tmp_path / LOCK).read_text())["rules"] == {}
