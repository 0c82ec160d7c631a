"""Parsed files kept between runs: reading the standard library's trees back is thirty times faster than parsing it.

What dslc was installed with is read from there, all else from the user's cache folder. What another version wrote is parsed again.
"""

from __future__ import annotations

from dslc.errors import SourceText
from dslc.folders import cache_folder
from dslc.store import Store
from dslc.syntax import tree as t
from dslc.syntax.packed import pack, text_key, unpack
from dslc.syntax.parser import parse
from dslc.syntax.shipped import shipped_tree

MOST = 400  #: files; the oldest go first


def parse_kept(source: SourceText) -> t.File:
    """As `parser.parse`, from what dslc was installed with or from the cache, where the same text was parsed before.

    Raises:
        DslcError: with everything that is wrong.
    """
    found = shipped_tree(source)
    if found:
        return found
    store, key = Store(cache_folder() / "parsed", MOST), text_key(source)
    data = store.get(key)
    found = None if data is None else unpack(data, source)
    if not found:
        found = parse(source)
        store.put(key, pack(found))
    return found
