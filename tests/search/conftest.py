"""Searches are tested without kernels, which take a compiler's time; what is marked `kernels` has them."""

from __future__ import annotations

import pytest

from dslc.search import explore, offers

KERNELS = (offers.mutants, offers.derivations, offers.further_derivations, offers.fusions, offers.fused_again)


@pytest.fixture(autouse=True)
def without_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("kernels") is None:
        monkeypatch.setattr(explore, "FIRST_OFFERS", ())
        monkeypatch.setattr(explore, "OFFERS", tuple(offer for offer in explore.OFFERS if offer not in KERNELS))
