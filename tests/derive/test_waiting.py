"""What `dslc derive` shows where no time is left for proofs: what is known of each program, and nothing that is wrong."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from dslc.cli.derive import command
from dslc.derivation.calls import CallProgram, read_call
from dslc.derivation.programs import PricedProgram
from dslc.derivation.search import DerivationLimits, DerivationSearch
from dslc.ir.graph import Scope, scope_value
from dslc.ir.scalar import apply, num, read, traversal
from dslc.prove.derived_programs import agrees, judged
from dslc.semantics.elaborate import expand
from dslc.semantics.library import Rules
from tests.libraries import libraries

CALL = "conv(X: f32[1, 2, 5, 5], K: f32[3, 2, 3, 3], pads=[1, 1, 1, 1])"


@pytest.fixture(scope="module")
def rules() -> Rules:
    return libraries("std", "einnet")


@pytest.fixture(scope="module")
def found(rules: Rules) -> tuple[CallProgram, list[PricedProgram]]:
    called = read_call(rules, CALL)
    search = DerivationSearch(rules, list(rules.derivations.values()), DerivationLimits(max_depth=2, max_states=20))
    return called, list(search.run(*expand(rules, (called.value,))).programs)


def one_more(program: PricedProgram) -> PricedProgram:
    """A program of the same sizes that is wrong: one is added to each element."""
    shape = program.value.type.shape
    body = apply("+", read(0, tuple(traversal(k) for k in range(len(shape)))), num(1))
    return replace(program, value=scope_value(Scope(shape, body, program.value.type.dtype), (program.value,)))


def test_what_no_time_is_left_for_is_told_apart_from_what_is_proved(
    rules: Rules, found: tuple[CallProgram, list[PricedProgram]]
) -> None:
    called, programs = found
    some, none = (judged(rules, programs, called.graph, seconds, 3) for seconds in (30.0, 0.0))
    assert len(some.proved) == 3 and not some.waiting and some.untried == 0
    assert not none.proved and len(none.waiting) == 3 and none.untried == len(programs)


def test_a_wrong_program_is_neither_proved_nor_shown(
    rules: Rules, found: tuple[CallProgram, list[PricedProgram]]
) -> None:
    called, programs = found
    wrong = [one_more(each) for each in programs[:3]]
    assert not any(agrees(rules, each, called.graph) for each in wrong)
    for seconds in (30.0, 0.0):
        known = judged(rules, wrong, called.graph, seconds, None)
        assert not known.proved and not known.waiting
        assert known.undecided + known.untried == 3


def test_what_takes_long_to_compute_is_not_shown_without_a_proof(rules: Rules) -> None:
    called = read_call(rules, "matmul(A: f32[2048, 2048], B: f32[2048, 2048])")
    program = PricedProgram(called.value, (), (), 1.0)
    assert not agrees(rules, program, called.graph)


def test_the_command_says_what_is_not_proved_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that is busy with something else for all of the budget."""
    monkeypatch.setattr("dslc.api.derivations.judged", lambda *given: judged(*given[:3], 0.0, *given[4:]))
    options = [CALL, "--max-depth", "2", "--max-states", "20"]
    text = CliRunner().invoke(command, options, catch_exceptions=False).output
    facts = json.loads(
        CliRunner().invoke(command, [*options, "--output-format", "json"], catch_exceptions=False).output
    )
    assert "No other program" not in text and "NOT PROVED in the time" in text and "no time was left to prove" in text
    assert facts["untried"] > 0 and facts["found"] >= len(facts["programs"]) == 10 and not facts["complete"]
    assert not any(program["proved"] for program in facts["programs"])
