"""Syntax trees as bytes: without the text and the path of their file, which whoever reads them back has.

Only classes of the syntax tree are made of such bytes, so that damaged or foreign ones give no tree, and run nothing.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import io
import pickle
from importlib import resources
from pathlib import Path
from typing import Any

from dslc import errors
from dslc.errors import SourceText, Span
from dslc.syntax import tree as t
from dslc.version import __version__


class _Packer(pickle.Pickler):
    def persistent_id(self, obj: Any) -> str | None:
        return "source" if type(obj) is SourceText else None


class _Unpacker(pickle.Unpickler):
    def __init__(self, data: bytes, source: SourceText) -> None:
        super().__init__(io.BytesIO(data))
        self._source = source

    def persistent_load(self, pid: Any) -> SourceText:
        return self._source

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (Span.__module__, Span.__name__):
            return Span
        found = getattr(t, name, None)
        if isinstance(found, type) and issubclass(found, t.Node) and found.__module__ == module:
            return found
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a syntax tree")


def pack(file: t.File) -> bytes:
    """A file's tree as bytes."""
    out = io.BytesIO()
    _Packer(out, protocol=5).dump(file)
    return out.getvalue()


def unpack(data: bytes, source: SourceText) -> t.File | None:
    """The tree that was packed, of a file with the same text; None where these are no such bytes."""
    collecting = gc.isenabled()
    gc.disable()  # ten thousands of small objects at once would set it off again and again
    try:
        found = _Unpacker(data, source).load()
    except Exception:  # damaged bytes may raise anything
        return None
    finally:
        if collecting:
            gc.enable()
    return found if isinstance(found, t.File) else None


def text_key(source: SourceText) -> str:
    """A digest of a text and of what reads it, under which its tree may be kept."""
    return hashlib.sha256(f"{reader()}\0{source.text}".encode(errors="surrogatepass")).hexdigest()[:40]


@functools.cache
def reader() -> str:
    """A digest of what decides about trees besides the text: the versions of dslc, of the grammar and of this package."""
    texts = [resources.files("dslc.grammar").joinpath("dslc.lark").read_bytes(), Path(errors.__file__).read_bytes()]
    texts += [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    return f"{__version__} {hashlib.sha256(b''.join(texts)).hexdigest()}"
