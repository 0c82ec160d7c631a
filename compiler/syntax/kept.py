"""Parsed files kept between runs: reading the standard library's trees back is thirty times faster than parsing it.

The trees are pickled into the user's own cache folder, as Python keeps its compiled modules: a folder that others may write to
is not used. What cannot be read, or was written by another version, is parsed again.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import os
import pickle
import sys
import tempfile
from importlib import resources
from pathlib import Path

from dslc.errors import Source
from dslc.folders import cache_folder
from dslc.syntax import tree as t
from dslc.syntax.parser import parse
from dslc.version import __version__

#: files kept; the oldest go first
MOST = 400


def parse_kept(source: Source) -> t.File:
    """As `parser.parse`, from the cache where the same text of the same path was parsed before.

    Raises:
        DslcError: with everything that is wrong.
    """
    folder = cache_folder() / "parsed"
    place = folder / f"{_key(source)}.pickle"
    found = _read(place)
    if found is None:
        found = parse(source)
        _write(place, found)
    return found


def _key(source: Source) -> str:
    total = hashlib.sha256(_reader().encode())
    total.update(f"{source.path}\0{source.text}".encode(errors="surrogatepass"))
    return total.hexdigest()[:40]


@functools.cache
def _reader() -> str:
    """What decides about the tree besides the text: the versions of dslc, of Python, of the grammar and of this package."""
    texts = [resources.files("dslc.grammar").joinpath("dslc.lark").read_bytes()]
    texts += [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    return f"{__version__} {sys.version_info[:3]} {hashlib.sha256(b''.join(texts)).hexdigest()}"


def _private(path: Path) -> bool:
    if not hasattr(os, "getuid"):
        return True
    state = path.stat()
    return state.st_uid == os.getuid() and not state.st_mode & 0o022


def _read(place: Path) -> t.File | None:
    collecting = gc.isenabled()
    try:
        if not (_private(place.parent) and _private(place)):
            return None
        data = place.read_bytes()
        gc.disable()  # ten thousands of small objects at once would set it off again and again
        found = pickle.loads(data)
    except Exception:  # a damaged pickle may raise anything
        return None
    finally:
        if collecting:
            gc.enable()
    return found if isinstance(found, t.File) else None


def _write(place: Path, file: t.File) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not _private(place.parent):
            return
        handle, temporary = tempfile.mkstemp(dir=place.parent)
        with os.fdopen(handle, "wb") as out:
            pickle.dump(file, out, protocol=5)
        Path(temporary).replace(place)
        kept = sorted(place.parent.glob("*.pickle"), key=lambda path: path.stat().st_mtime)
        for old in kept[:-MOST]:
            old.unlink(missing_ok=True)
    except (OSError, RecursionError):
        return
