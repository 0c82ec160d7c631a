"""What a contender is expected to take: as it was timed, or as it was predicted beside what was timed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dslc.cost.clock import Clock
from dslc.cost.process import ModelFile
from dslc.ir.graph import Graph
from dslc.search.candidates.candidate import Candidate
from dslc.search.runs.contenders import Contender
from dslc.search.runs.state import RunState


def contender(cost: float) -> Contender:
    return Contender(Candidate(Graph((), ()), cost), None, ModelFile(b""), 0.0)


@pytest.mark.parametrize(
    ("ratio", "seconds"),
    [
        # predicted to be 1.25 times as fast, and 4 times: the others are expected to be so much faster, too
        (4.0, 0.5 * 0.25 / 0.8),
        # slower than predicted: that says nothing about others
        (1.1, 0.5),
    ],
)
def test_predictions_are_worth_what_was_timed_of_another_one(ratio: float, seconds: float) -> None:
    run: Any = RunState(Clock(60.0))
    timed, other = contender(0.8), contender(0.5)
    assert run.expected(other) == 0.5
    run.start = Candidate(Graph((), ()), 1.0)
    run.checked = [timed, other]
    verdict = SimpleNamespace(ratio=SimpleNamespace(ratio=ratio))
    run.referenced = SimpleNamespace(benchmark=SimpleNamespace(so_far=lambda one: verdict if one is timed else None))
    assert run.expected(timed) == pytest.approx(1 / ratio)
    assert run.expected(other) == pytest.approx(seconds)
