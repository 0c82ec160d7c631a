"""The provers agree: on the libraries' rules, and on edited rules, where what the interpreter tells apart is never called proved."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from benchmarks.agreement import Row, row, subjects_of, table
from benchmarks.edited import KINDS, Edited, edited, sampled
from dslc.prove.evidence.lock import LOCK, read_lock
from dslc.prove.instances import exploration
from dslc.prove.run.provers import exact_verdict, prover_verdict
from dslc.prove.verdict import PROVERS, ProverName, Verdict
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.installed import find_library
from dslc.semantics.library import Rules, load

# files most of whose rules have few symbolic instances
FAST = ("arithmetic_rules", "activation_rules", "layout_rules", "product_rules", "join_rules", "reduce_rules")
# evaluations of a rule at unknown sizes, and none at smaller ranks only: of those that need more the exact prover knows nothing, on
# every machine
MOST_PATHS = {None: 40, 2: 0, 1: 0}
# of CPU time for a prover and an edited rule, several times what any of these needs
SECONDS = 10.0


@pytest.fixture(scope="module")
def taso() -> Rules:
    return load("taso")


@pytest.fixture
def few_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exploration, "_MOST_PATHS", MOST_PATHS)


def drawn(rules: Rules, subs: list[SubstitutionDef], count: int) -> list[Edited]:
    found = sampled(rules, subs, count, np.random.default_rng(5))
    assert len(found) == count
    return found


def asked(rules: Rules, rule: Edited, provers: tuple[ProverName, ...], trials: int = 3) -> Row:
    return row(rules, rule.sub, rule.kind, rule.edit, provers, SECONDS, 3, trials)


def assert_agreement(found: list[Row]) -> None:
    wrong = [
        f"{each.name} ({each.kind}: {each.edit}): {each.claimed}, but\n{each.shown}" for each in found if each.wrong
    ]
    assert not wrong, "\n\n".join(wrong)


def answers(found: list[Row], prover: ProverName) -> Counter[str]:
    return Counter(one.answer for each in found for one in each.verdicts if one.prover == prover)


def test_edited_rules_are_other_rules_of_every_kind(std: Rules) -> None:
    kinds: Counter[str] = Counter()
    for sub in std.substitutions.values():
        made = list(edited(std, sub))
        assert all(rule.sub.syntax != sub.syntax for rule in made)
        kinds.update(rule.kind for rule in made)
    assert set(kinds) == set(KINDS)
    assert sum(kinds.values()) > 2000


@pytest.mark.usefixtures("few_paths")
def test_a_rule_that_the_interpreter_tells_apart_is_not_called_proved(std: Rules) -> None:
    """The exact prover on edited rules, each of which it ends; then the others on all that it calls equal, and on some others."""
    subs = [sub for sub in std.substitutions.values() if sub.module.name.rpartition(".")[2] in FAST]
    claims: list[Edited] = []
    others: list[Edited] = []
    answered: Counter[str] = Counter()
    for rule in drawn(std, subs, 16):
        verdict = prover_verdict(std, rule.sub, "exact", small=False)
        answered[verdict.answer] += 1
        (claims if verdict.answer == "equal" else others).append(rule)
    # most edited rules are wrong rules: more would be refuted if sizes that differ were a difference
    assert answered["equal"] >= 2
    assert answered["differs"] >= 5
    found = [asked(std, rule, ("exact", "field")) for rule in claims]
    assert all(each.claimed for each in found)
    assert_agreement(found)
    told = [asked(std, rule, ("field",)) for rule in others[3::4]]
    print("exact:", dict(answered), "of the others, field:", dict(answers(told, "field")))
    assert sum(each.interpreter == "differs" for each in told) >= len(told) // 3
    assert answers(told, "field")["differs"] >= len(told) // 3


def test_a_size_as_an_operand_is_looked_at_in_every_rank(std: Rules) -> None:
    """Without its axes this sum is over all, which differs from rank 2 on."""
    made = edited(std, std.substitutions["std.mean_is_scaled_sum"])
    (rule,) = (each for each in made if each.edit.endswith("-> reduce_sum(X, keepdims=k)"))
    assert exact_verdict(std, rule.sub).answer != "equal"


@pytest.mark.usefixtures("few_paths")
def test_edited_laws_are_told_apart_by_all_provers(taso: Rules) -> None:
    # laws about windows take the exact prover seconds each
    laws = [law for law in subjects_of(taso, "taso") if "conv" not in law.name and "pool" not in law.name]
    found = [asked(taso, rule, PROVERS) for rule in drawn(taso, laws, 8)]
    assert_agreement(found)
    print({prover: dict(answers(found, prover)) for prover in PROVERS})
    assert sum(each.interpreter == "differs" for each in found) >= 3
    assert answers(found, "field")["differs"] >= 3
    assert answers(found, "exact")["differs"] >= 2


@pytest.mark.parametrize("library", ["std", "taso"])
def test_no_prover_contradicts_another_on_the_shipped_rules(library: str) -> None:
    """What the locks say, which are checked to be current by `dslc verify`."""
    rules = load(library)
    folder, _ = find_library(library)
    assert folder is not None
    lock = read_lock(folder / LOCK)
    assert not lock.problem
    own = {one.name for one in (*rules.substitutions.values(), *rules.laws.values()) if one.module.library == library}
    assert own <= set(lock.verdicts)
    for name in own:
        verdict = lock.verdicts[name]
        assert verdict.status != "refuted", name
        assert all(one.answer != "differs" for one in verdict.verdicts), name
        assert {one.prover for one in verdict.verdicts} == set(PROVERS), name


def test_the_table_counts_what_is_called_proved_and_differs() -> None:
    equal, differs = Verdict("exact", "equal"), Verdict("exact", "differs")
    unknown, said = Verdict("exact", "unknown"), Verdict("field", "equal")
    made = [
        Row("a'", KINDS[0], "", "differs", (said, equal)),
        Row("b'", KINDS[0], "", "differs", (said, differs)),
        Row("c'", KINDS[0], "", "agrees", (said, equal)),
        Row("d'", KINDS[0], "", "none", (said, unknown)),
    ]
    assert [each.wrong for each in made] == [True, False, False, False]
    assert table(made).splitlines()[-1].split() == ["all", "4", "2", "1", "1", "1"]
