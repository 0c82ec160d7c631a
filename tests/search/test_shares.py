"""Who gets which part of the budget: what is cheap and pays comes first, and what costs more to find never takes its time away."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_budget import Hands
from test_optimize import powers

from dslc.cost.clock import Clock, TimeUp
from dslc.cost.measure import Measured, Measurer, Sample
from dslc.cost.process import ModelFile
from dslc.fuse.fused import Fused, Story
from dslc.ir.graph import Graph
from dslc.match import GraphIndex, find_matches, replacements
from dslc.search import offers
from dslc.search.branches import Branches
from dslc.search.candidate import KERNELS, Candidate
from dslc.search.contenders import Contender
from dslc.search.derivations import Derivations, Tale
from dslc.search.finish import affordable
from dslc.search.fusions import Fusions
from dslc.search.mutants import Mutants
from dslc.search.pipeline import optimize
from dslc.search.rewriting import rewritten
from dslc.search.rulesets import chosen_rules
from dslc.search.run import Run
from dslc.search.settings import Settings
from dslc.search.siblings import Siblings
from dslc.semantics.library import standard

RULES = standard()


class Fixed(Measurer):
    """Everything takes a microsecond, and measuring it no time."""

    def measured(self, sample: Sample, turn: str = "") -> Measured:
        return Measured(1e-6)


class Costly:
    """A run by a clock that is set by hand, on which building kernels takes some seconds, and whoever looks for mutants or derivations
    all that he is given, and finds nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, building: float, budget: float) -> None:
        self.hands, self.budget, self.building = Hands(), budget, building
        self.looked: list[str] = []
        self.built: dict[Candidate, float] = {}
        (self.rule,) = chosen_rules(RULES, ["std.pow_half"])
        monkeypatch.setattr("dslc.search.explore.Measurer", Fixed)
        monkeypatch.setattr(offers, "with_kernels", lambda settings: True)
        monkeypatch.setattr(offers, "no_compiler", lambda: "")
        monkeypatch.setattr(Fusions, "of", lambda _, base, seconds, hurried=False: self.fused(base, seconds))
        for looked in (Derivations, Siblings, Mutants, Branches):
            monkeypatch.setattr(looked, "of", lambda looked, _: self.nothing(looked))

    def fused(self, base: Candidate, seconds: float) -> tuple[list[Candidate], Fused]:
        # what was begun goes on where it ended
        left = self.building - self.built.get(base, 0.0)
        took = min(seconds, left)
        self.hands.time += took
        self.built[base] = self.built.get(base, 0.0) + took
        if took < left:
            raise TimeUp
        found = Fused((), None, Story(0, 0))
        matches = find_matches(self.rule, GraphIndex(base.graph))
        return [Candidate(rewritten(base.graph, replacements(one)), 0.5 * base.cost, base, KERNELS, 1) for one in matches], found

    def nothing(self, looked: Derivations) -> tuple[list[Candidate], Tale]:
        self.looked.append(type(looked).__name__)
        while looked.left() > 0 or (looked.longer is not None and looked.longer() > 0):
            self.hands.time += 0.5
        return [], Tale(late=True)

    def run(self, cache: Path, **options: Any) -> Any:
        settings = Settings(
            budget=self.budget, threads=1, cache=cache, timing=False, only=("std.double_neg",), **options
        )  # fmt: skip
        return optimize(powers(), settings, Clock(self.budget, self.hands))


@pytest.mark.kernels
@pytest.mark.parametrize("building", [5.0, 30.0])
def test_who_finds_nothing_takes_nothing_from_what_is_found_without_him(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, building: float
) -> None:
    found = []
    for k, options in enumerate(({"derive": False, "mutate": False}, {})):
        costly = Costly(monkeypatch, building, 60.0)
        result = costly.run(tmp_path / str(k), **options)
        found.append((result.report.kept_original, [step.rule for step in result.report.steps], result.model.graph.node))
        assert costly.hands.time - 100 <= 60
        # with time left, everybody who is not switched off is asked
        wants = {"Derivations": options.get("derive", True), "Mutants": options.get("mutate", True)}
        assert building > 5 or {name for name in costly.looked if name in wants} == {name for name, on in wants.items() if on}
    assert found[0][:2] == (False, [KERNELS])
    assert all(one == found[0] for one in found)


@pytest.mark.kernels
def test_more_time_does_not_find_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [Costly(monkeypatch, 20.0, budget).run(tmp_path / str(budget)).report.kept_original for budget in (10.0, 30.0, 240.0)]
    assert kept == [True, False, False]


# ---- the last word ------------------------------------------------------------------------------------------------------


def contender(cost: float, parent: Candidate | None = None) -> Contender:
    return Contender(Candidate(Graph((), ()), cost, parent), None, ModelFile(b""), 0.0)


@pytest.mark.parametrize(("seconds", "count"), [(3.0, 1), (25.0, 2), (1000.0, 4)])
def test_what_is_there_without_mutants_and_derivations_is_always_timed(seconds: float, count: int) -> None:
    """Those are predicted to be faster, and more of them than there is time for."""
    run: Any = Run(Clock(seconds, Hands()))
    much = [contender(cost) for cost in (0.1, 0.2, 0.3)]
    run.much.update(one.candidate for one in much)
    simple = contender(0.5, Candidate(Graph((), ()), 1.0))

    explored: Any = SimpleNamespace(referenced=SimpleNamespace(task=SimpleNamespace(writing=0.5), load=1.0))
    found = affordable(explored, [*much, simple], run)
    assert simple in found and len(found) == count
    # what is built on them rests on them, too
    assert run.rests_on_much(Candidate(Graph((), ()), 0.1, much[0].candidate))
