"""Who gets which part of the budget: whoever promises most for a second is asked, and what costs more to find takes nothing away."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_budget import Hands
from test_optimize import powers

from dslc.cost.clock import Clock
from dslc.cost.measure import Measured, Measurer, Sample
from dslc.cost.process import ModelFile
from dslc.deadline import TimeUp
from dslc.ir.graph import Graph
from dslc.match import GraphIndex, find_matches, replacements
from dslc.report import Asked
from dslc.search.candidates.candidate import Candidate, rewritten
from dslc.search.generators import scheduler
from dslc.search.generators.protocol import Generator, Proposal, SearchContext
from dslc.search.generators.rules import Rules
from dslc.search.options.settings import Settings
from dslc.search.phases.acceptance import affordable
from dslc.search.pipeline import optimize
from dslc.search.runs.contenders import Contender
from dslc.search.runs.selection import chosen_rules
from dslc.search.runs.state import RunState
from dslc.semantics.library import standard

RULES = standard()


class Fixed(Measurer):
    """Everything takes a microsecond, and measuring it no time."""

    def measured(self, sample: Sample, turn: str = "") -> Measured:
        return Measured(1e-6)


@dataclass(frozen=True)
class Fake(Generator):
    """A generator on a clock that is set by hand: each unit of work takes some seconds, and after so many it proposes a candidate at
    some part of the original's cost, if any; then it has nothing left."""

    name: str
    hands: Hands
    takes: float
    units: int
    cost: float | None = None
    _: KW_ONLY
    gain: float = 0.3
    seconds: float = 5.0
    phase: str = "building"
    reported_if_skipped: bool = True

    def promise(self, context: SearchContext, base: Candidate) -> float:
        return 1.0 if base is context.start else 0.0

    def propose(self, context: SearchContext, base: Candidate) -> Iterator[Proposal]:
        (rule,) = chosen_rules(RULES, ["std.pow_half"])
        for _ in range(self.units):
            self.hands.time += self.takes
            yield Proposal()
        if self.cost is not None:
            made = [rewritten(base.graph, replacements(one)) for one in find_matches(rule, GraphIndex(base.graph))]
            yield Proposal([Candidate(one, self.cost * base.cost, base, "own.generator", 1) for one in made])


def run(cache: Path, monkeypatch: pytest.MonkeyPatch, hands: Hands, budget: float, *fakes: Fake) -> Any:
    """The report of a run with some generators beside rules that find nothing."""
    monkeypatch.setattr("dslc.cost.targets.Measurer", Fixed)
    monkeypatch.setattr(scheduler, "GENERATORS", (Rules(), *fakes))
    settings = Settings(budget=budget, threads=1, cache=cache, timing=False, only=("std.double_neg",))
    return optimize(powers(), settings, Clock(budget, hands)).report


def asked(report: Any, name: str) -> Asked:
    (found,) = [one for one in report.asked if one.name == name]
    return found


def test_who_finds_nothing_takes_nothing_from_what_is_found_without_him(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for k, idle in enumerate(((), ("idle", 3.0, 1000))):
        hands = Hands()
        finds = Fake("finds", hands, 2.0, 8, 0.5)
        report = run(
            tmp_path / str(k), monkeypatch, hands, 60.0, finds, *([Fake(idle[0], hands, *idle[1:])] if idle else [])
        )
        assert [step.rule for step in report.steps] == ["own.generator"]
        assert asked(report, "finds").done and asked(report, "finds").gained == 0.5
        assert hands.time - 100 <= 60


def test_more_time_does_not_find_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    for budget in (10.0, 40.0, 240.0):
        hands = Hands()
        report = run(tmp_path / str(budget), monkeypatch, hands, budget, Fake("finds", hands, 2.0, 10, 0.5))
        kept.append(report.kept_original)
    assert kept == [True, False, False]


def test_who_promises_more_for_a_second_is_asked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hands = Hands()
    quick = Fake("quick", hands, 1.0, 3, None, gain=0.3, seconds=2.0)
    slow = Fake("slow", hands, 1.0, 1000, None, gain=0.3, seconds=20.0)
    report = run(tmp_path, monkeypatch, hands, 30.0, slow, quick)
    assert asked(report, "quick").done and asked(report, "quick").seconds == 3.0
    assert not asked(report, "slow").done and asked(report, "slow").turns > 0
    # what there was no time for is told
    assert "building" in report.cut


def test_who_was_asked_long_in_vain_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hands = Hands()
    fakes = [Fake(name, hands, 1.0, 1000) for name in ("one", "another")]
    report = run(tmp_path, monkeypatch, hands, 60.0, *fakes)
    seconds = [asked(report, name).seconds for name in ("one", "another")]
    assert min(seconds) > 0.4 * max(seconds)


@dataclass(frozen=True)
class Late(Fake):
    """Has no time for what it began, before anything is there."""

    def propose(self, context: SearchContext, base: Candidate) -> Iterator[Proposal]:
        self.hands.time += self.takes
        raise TimeUp
        yield Proposal()


def test_who_had_no_time_takes_nothing_from_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hands = Hands()
    late = Late("late", hands, 5.0, 1, None, gain=0.9, seconds=1.0, phase="searching")
    report = run(tmp_path, monkeypatch, hands, 60.0, late, Fake("finds", hands, 2.0, 4, 0.5))
    assert [step.rule for step in report.steps] == ["own.generator"]


def test_what_is_needed_at_the_end_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hands = Hands()
    report = run(tmp_path, monkeypatch, hands, 100.0, Fake("idle", hands, 1.0, 1000))
    # nothing was found: what is kept is little
    assert 85 <= asked(report, "idle").seconds <= 96


# ---- the last word ------------------------------------------------------------------------------------------------------


def contender(cost: float, parent: Candidate | None = None) -> Contender:
    model: Any = SimpleNamespace(functions=[])
    return Contender(Candidate(Graph((), ()), cost, parent), model, ModelFile(b""), 0.0)


@pytest.mark.parametrize(("seconds", "count"), [(3.0, 1), (80.0, 2), (1000.0, 4)])
def test_what_is_there_without_mutants_and_derivations_is_always_timed(seconds: float, count: int) -> None:
    """Those are predicted to be faster, and more of them than there is time for."""
    run: Any = RunState(Clock(seconds, Hands()))
    much = [contender(cost) for cost in (0.1, 0.2, 0.3)]
    run.costly.update(one.candidate for one in much)
    simple = contender(0.5, Candidate(Graph((), ()), 1.0))

    task = SimpleNamespace(writing=0.5, settings=SimpleNamespace(timing=False))
    referenced: Any = SimpleNamespace(task=task, load=1.0, seconds=0.0)
    found = affordable(referenced, [*much, simple], run)
    assert simple in found and len(found) == count
    # a slow model has time for fewer pairs of runs
    referenced.seconds = 1.0
    assert len(affordable(referenced, [*much, simple], run)) == (count if seconds > 100 else 1)
    # what is built on them rests on them, too
    assert run.is_costly(Candidate(Graph((), ()), 0.1, much[0].candidate))
