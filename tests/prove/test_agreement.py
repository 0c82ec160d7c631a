"""The provers agree: on the libraries' rules, and on mutants, where what the interpreter tells apart is never called proved."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from benchmarks.agreement import Row, row, subjects_of, table
from dslc.prove.lock import LOCK, read_lock
from dslc.prove.mutants import KINDS, mutants, sampled
from dslc.prove.provers import exact_verdict
from dslc.prove.verdict import ProverName, Verdict
from dslc.semantics.definitions import SubstitutionDef
from dslc.semantics.library import Rules, find_library, load

# files most of whose rules have few symbolic instances
FAST = ("arithmetic_rules", "activation_rules", "layout_rules", "join_rules", "reduce_rules", "softmax")


@pytest.fixture(scope="module")
def taso() -> Rules:
    return load("taso")


def rows(rules: Rules, subs: list[SubstitutionDef], count: int, provers: tuple[ProverName, ...], seconds: float) -> list[Row]:
    found = sampled(rules, subs, count, np.random.default_rng(5))
    assert len(found) == count
    return [row(rules, m.sub, m.kind, m.edit, provers, seconds, 3, trials=3) for m in found]


def assert_agreement(found: list[Row]) -> None:
    wrong = [f"{each.name} ({each.kind}: {each.edit}): {each.claimed}, but\n{each.shown}" for each in found if each.wrong]
    assert not wrong, "\n\n".join(wrong)


def answers(found: list[Row], prover: ProverName) -> Counter[str]:
    return Counter(one.answer for each in found for one in each.verdicts if one.prover == prover)


def test_mutants_are_other_rules_of_every_kind(std: Rules) -> None:
    kinds: Counter[str] = Counter()
    for sub in std.substitutions.values():
        made = list(mutants(std, sub))
        assert all(mutant.sub.syntax != sub.syntax for mutant in made)
        kinds.update(mutant.kind for mutant in made)
    assert set(kinds) == set(KINDS)
    assert sum(kinds.values()) > 2000


def test_a_rule_that_the_interpreter_tells_apart_is_not_called_proved(std: Rules) -> None:
    subs = [sub for sub in std.substitutions.values() if sub.module.name.rpartition(".")[2] in FAST]
    found = rows(std, subs, 180, ("exact",), 0.08)
    assert_agreement(found)
    # the test can fail: most mutants are wrong rules, and the prover refutes many of them and proves others
    assert sum(each.interpreter == "differs" for each in found) > 60
    assert answers(found, "exact")["differs"] >= 1
    assert answers(found, "exact")["equal"] >= 1


def test_a_size_as_an_operand_is_looked_at_in_every_rank(std: Rules) -> None:
    """Without its axes this sum is over all, which differs from rank 2 on."""
    made = mutants(std, std.substitutions["std.mean_is_scaled_sum"])
    (mutant,) = (each for each in made if each.edit.endswith("-> reduce_sum(X, keepdims=k)"))
    assert exact_verdict(std, mutant.sub).answer != "equal"


def test_mutants_of_laws_are_told_apart_by_all_provers(taso: Rules) -> None:
    found = rows(taso, subjects_of(taso, "taso"), 24, ("field", "exact", "axioms"), 0.08)
    assert_agreement(found)
    assert sum(each.interpreter == "differs" for each in found) >= 3
    assert answers(found, "exact")["differs"] + answers(found, "field")["differs"] >= 1


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
        # the axioms are asked where the exact prover is undecided, and where laws say something of every operator
        assert {one.prover for one in verdict.verdicts} >= {"field", "exact"}, name
    assert any(one.prover == "axioms" for name in own for one in lock.verdicts[name].verdicts) or library == "taso"


def test_the_table_counts_what_is_called_proved_and_differs() -> None:
    equal, differs = Verdict("exact", "equal"), Verdict("exact", "differs")
    unknown = Verdict("axioms", "unknown")
    said = Verdict("field", "equal")
    made = [
        Row("a'", KINDS[0], "", "differs", (said, equal, unknown)),
        Row("b'", KINDS[0], "", "differs", (said, differs, unknown)),
        Row("c'", KINDS[0], "", "agrees", (said, equal, unknown)),
        Row("d'", KINDS[0], "", "none", (said, unknown, unknown)),
    ]
    assert [each.wrong for each in made] == [True, False, False, False]
    assert table(made).splitlines()[-1].split() == ["all", "4", "2", "1", "1", "1"]
