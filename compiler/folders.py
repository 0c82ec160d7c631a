"""Folders of caches."""

from __future__ import annotations

import functools
import hashlib
import os
import stat
import tempfile
from pathlib import Path

ROOM = 1 << 16  #: bytes that must fit into a folder that is written


def cache_folder(chosen: str | Path | None = None) -> Path:
    """The folder of dslc's caches: the one chosen, `$DSLC_CACHE`, or `dslc` in the system's folder of caches."""
    # compilers run in other folders
    if chosen:
        return Path(chosen).absolute()
    if found := os.environ.get("DSLC_CACHE"):
        return Path(found).absolute()
    from platformdirs import user_cache_path

    return user_cache_path("dslc", appauthor=False)


def stand_in(folder: Path) -> Path:
    """A folder of this user's for temporary files, the same for every process, that takes what a folder of caches cannot.

    Where others could write to it, the folder itself: whoever writes there finds out that it cannot.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    name = hashlib.sha256(os.fsencode(Path(folder).absolute())).hexdigest()[:16]
    place = Path(tempfile.gettempdir()) / f"dslc-{user}"
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        state = place.lstat()
    except OSError:
        return folder
    if not stat.S_ISDIR(state.st_mode) or (hasattr(os, "getuid") and (state.st_uid != user or state.st_mode & 0o077)):
        return folder
    return place / name


@functools.cache
def unwritable(folder: Path) -> str:
    """The reason why a folder cannot be made or written, in the system's words; empty where it can."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(ROOM))
    except OSError as problem:
        return problem.strerror or str(problem)
    return ""
