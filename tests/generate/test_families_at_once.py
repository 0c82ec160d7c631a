"""All families enumerated at once, and rules proved while others are looked for: the result is the same."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from handmade import add, matrices, taso

from dslc.generate.enumeration import processes
from dslc.generate.enumeration.processes import FamilyEquations, enumerated, enumerations
from dslc.generate.general.rules import GeneralRule, generalise
from dslc.generate.proofs import Proofs
from dslc.generate.settings import GenerationSettings
from dslc.generate.terms.inputs import Family, InputSizes, families
from dslc.generate.terms.term import Conjecture
from dslc.processes.forked import Fork
from dslc.prove.verdict import RuleVerdict

SETTINGS = GenerationSettings(max_operators=2, workers=2)


def some_families() -> tuple[Family, ...]:
    rules = taso()
    names = ("ewadd", "transpose", "relu")
    sizes = (InputSizes(count=2), InputSizes(count=1))
    return tuple(families(rules, [rules.operators[f"taso.{name}"] for name in names], one)[0] for one in sizes)


def by_processes(settings: GenerationSettings = SETTINGS) -> list[FamilyEquations]:
    told: list[int] = []
    with enumerations(taso(), settings, some_families()) as wanted:
        return [wanted(family, lambda level, done: told.append(done)) for family in some_families()]


def test_processes_find_what_this_one_does() -> None:
    here = [
        enumerated(taso(), replace(SETTINGS, workers=1), family, lambda level, done: None) for family in some_families()
    ]
    there = by_processes()
    assert [one.kept for one in there] == [one.kept for one in here]
    assert [(one.terms, one.equations) for one in there] == [(one.terms, one.equations) for one in here]
    assert all(one.kept and one.seconds > 0 for one in there)
    assert [one.kept for one in by_processes(replace(SETTINGS, workers=1))] == [one.kept for one in here]


def test_where_a_process_dies_the_enumeration_is_made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = by_processes()
    monkeypatch.setattr(processes, "_serve", lambda *_: os._exit(1))
    assert [one.kept for one in by_processes()] == [one.kept for one in whole]


def test_nothing_runs_on_where_the_rest_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Fork] = []
    ended = processes._ended
    monkeypatch.setattr(processes, "_ended", lambda fork: (started.append(fork), ended(fork))[0])
    with pytest.raises(KeyboardInterrupt), enumerations(taso(), SETTINGS, some_families()):
        raise KeyboardInterrupt
    assert len(started) == 2
    assert all(fork.code is not None for fork in started)


def test_a_rule_is_proved_meanwhile() -> None:
    a, b, c, _, _ = matrices()
    rules = [
        generalise(taso(), Conjecture((add(a, b),), (add(b, a),))),
        generalise(taso(), Conjecture((add(add(a, b), c),), (add(a, add(b, c)),))),
    ]
    found: list[dict[GeneralRule, RuleVerdict]] = [{}, {}]
    for begun, out in zip((True, False), found, strict=True):
        with Proofs(taso(), 1) as proofs:
            for rule in rules if begun else ():
                proofs.begin(rule)
                proofs.look()
            counted: list[int] = []
            proofs.of(rules, out, counted.append)
            assert counted == [1, 2]
    assert (
        [found[0][rule].status for rule in rules] == [found[1][rule].status for rule in rules] == ["proved", "proved"]
    )
