"""Where dslc keeps what it may lose."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path


def cache_folder(chosen: str | Path | None = None) -> Path:
    """The folder of dslc's caches: the one chosen, `$DSLC_CACHE`, or `dslc` in the system's folder of caches."""
    if chosen:
        return Path(chosen)
    if found := os.environ.get("DSLC_CACHE"):
        return Path(found)
    return user_cache_path("dslc", appauthor=False)
