"""Parsed files kept between runs: reading the standard library's trees back is thirty times faster than parsing it.

What was written by another version is parsed again.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from importlib import resources
from pathlib import Path

from dslc.errors import SourceText
from dslc.folders import cache_folder
from dslc.syntax import store
from dslc.syntax import tree as t
from dslc.syntax.parser import parse
from dslc.version import __version__

#: files kept; the oldest go first
MOST = 400


def parse_kept(source: SourceText) -> t.File:
    """As `parser.parse`, from the cache where the same text of the same path was parsed before.

    Raises:
        DslcError: with everything that is wrong.
    """
    place = cache_folder() / "parsed" / f"{_key(source)}.pickle"
    found = store.read(place)
    if not isinstance(found, t.File):
        found = parse(source)
        store.write(place, found, MOST)
    return found


def _key(source: SourceText) -> str:
    total = hashlib.sha256(_reader().encode())
    total.update(f"{source.path}\0{source.text}".encode(errors="surrogatepass"))
    return total.hexdigest()[:40]


@functools.cache
def _reader() -> str:
    """What decides about the tree besides the text: the versions of dslc, of Python, of the grammar and of this package."""
    texts = [resources.files("dslc.grammar").joinpath("dslc.lark").read_bytes()]
    texts += [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    return f"{__version__} {sys.version_info[:3]} {hashlib.sha256(b''.join(texts)).hexdigest()}"
