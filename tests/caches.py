"""Caches of one's own: nothing that was measured, proved or built elsewhere decides."""

from __future__ import annotations

from pathlib import Path

from dslc.folders import cache_folder


def apart(folder: Path) -> Path:
    """A new folder for `DSLC_CACHE`. What was parsed is shared: a text has one tree, and processes that start would parse std again."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("grammar", "parsed"):
        kept = cache_folder().resolve() / part
        kept.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / part).symlink_to(kept)
    return folder
