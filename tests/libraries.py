"""Libraries that are loaded once for all tests of a process, with all that is computed from them."""

from __future__ import annotations

from functools import cache

from dslc.semantics.library import Rules, load_many


@cache
def libraries(*names: str) -> Rules:
    """Libraries of the house by their names, for tests that add nothing to them."""
    return load_many(list(names))
