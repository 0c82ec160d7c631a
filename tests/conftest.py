"""Shared by all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# Tests report nothing to anyone, and must not depend on luck or on the machine's mood.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
settings.register_profile("dslc", deadline=None, derandomize=True)
settings.load_profile("dslc")
