"""Commands and calls that derive programs have the libraries that the tests beside them have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dslc.api import derivations
from dslc.semantics.library import Rules, load_many
from tests.libraries import libraries


@pytest.fixture(autouse=True)
def shared_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded(names: Sequence[str | Path]) -> Rules:
        shared = all(isinstance(name, str) and name.isidentifier() for name in names)
        return libraries(*map(str, names)) if shared else load_many(names)

    monkeypatch.setattr(derivations, "load_many", loaded)
