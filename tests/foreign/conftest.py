"""Imports keep what they decide: each test has a cache of its own, so that none depends on an earlier run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.caches import apart


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of dslc's caches during a test."""
    folder = apart(tmp_path_factory.mktemp("cache"))
    monkeypatch.setenv("DSLC_CACHE", str(folder))
    return folder
