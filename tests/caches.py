"""Caches of one's own: nothing that was measured, proved or built elsewhere decides."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache, partial
from pathlib import Path

from dslc.folders import cache_folder


def apart(folder: Path, kernels: bool = False) -> Path:
    """A new folder for `DSLC_CACHE`. What was parsed is shared: a text has one tree, and processes that start would parse std again.

    With `kernels` it has the object of what is around kernels, which is the same for all libraries.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("grammar", "parsed"):
        kept = cache_folder().resolve() / part
        kept.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / part).symlink_to(kept)
    if kernels and (objects := around_kernels()):
        for place in (folder / "kernels", folder / "kernels" / "objects"):
            place.mkdir(mode=0o700)
        for name, content in objects.items():
            (folder / "kernels" / "objects" / name).write_bytes(content)
    return folder


@cache
def around_kernels() -> dict[str, bytes]:
    """The files of the object of what is around kernels, compiled once in this process; none without a compiler."""
    from dslc.codegen.host import library
    from dslc.codegen.host.compiler import COMPILER_MEMORY, COMPILER_SECONDS, NotBuilt, compiler, objects

    place = Path(tempfile.mkdtemp(prefix="dslc-tests-"))
    try:
        used = compiler(None)
        texts = {"around": library._source({}, [], True)}
        objects(used, texts, partial(library._digest, used), place, place, COMPILER_SECONDS, COMPILER_MEMORY)
        return {one.name: one.read_bytes() for one in (place / "objects").glob("*.o")}
    except NotBuilt:
        return {}
    finally:
        shutil.rmtree(place, ignore_errors=True)
