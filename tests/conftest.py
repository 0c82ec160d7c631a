"""Shared by all tests."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from dslc.semantics.library import Rules

# Tests report nothing to anyone, and must not depend on luck or on the machine's mood.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
# Libraries that are loaded again and again make many objects and little cyclic garbage: looking for it took half of the time.
gc.set_threshold(200_000, 20, 20)
settings.register_profile("dslc", deadline=None, derandomize=True)
settings.load_profile("dslc")


@pytest.fixture(scope="session")
def std() -> Rules:
    """The standard library."""
    from dslc.semantics.library import standard

    return standard()
