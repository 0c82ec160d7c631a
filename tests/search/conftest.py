"""Searches are tested without kernels, which take a compiler's time; what is marked `kernels` has them."""

from __future__ import annotations

import pytest

from dslc.search.generators import scheduler
from dslc.search.generators.neighbourhood import Neighbourhood
from dslc.search.generators.rules import Rules
from tests.tuned import tuned


@pytest.fixture(autouse=True)
def without_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("kernels") is None:
        monkeypatch.setattr(scheduler, "GENERATORS", (Rules(), Neighbourhood()))


@pytest.fixture(autouse=True)
def short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test rests on how exact the time of a group is."""
    tuned(monkeypatch, "cost.measure", longest=0.02, again=0.01, shortest=0.01)
