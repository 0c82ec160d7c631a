"""Where dslc keeps what it may lose."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(chosen: str | Path | None = None) -> Path:
    """The folder of dslc's caches: the one chosen, `$DSLC_CACHE`, `$XDG_CACHE_HOME/dslc`, or `~/.cache/dslc`."""
    if chosen:
        return Path(chosen)
    if found := os.environ.get("DSLC_CACHE"):
        return Path(found)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dslc"
