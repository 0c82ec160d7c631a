"""Reading `.rules` text into the syntax tree."""

from __future__ import annotations

import functools
import os
from importlib import resources
from pathlib import Path

from lark import Lark, UnexpectedInput

from dslc.errors import Diagnostic, DslcError, Source, Span, error
from dslc.syntax import tree as t
from dslc.syntax.build import Builder

#: bytes of a file that are read at most: hostile input must not take memory
MAX_BYTES = 4 * 2**20


@functools.cache
def grammar(strict: bool = False) -> Lark:
    """The LALR parser; `strict` also refuses grammars whose terminals or rules collide (used by a test)."""
    text = resources.files("dslc.grammar").joinpath("dslc.lark").read_text(encoding="utf-8")
    return Lark(text, parser="lalr", propagate_positions=True, maybe_placeholders=True, strict=strict)


def decode(data: bytes, path: str) -> Source:
    """The text of a file: UTF-8, a byte order mark is dropped, lines end in a newline.

    Raises:
        DslcError: E0107 where it is not UTF-8, E0108 where it is too large.
    """
    if len(data) > MAX_BYTES:
        hint = "split it into several files"
        raise DslcError([Diagnostic("E0108", f"the file is larger than {MAX_BYTES >> 20} MiB", path=path, hint=hint)])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        line = data.count(b"\n", 0, failure.start) + 1
        hint = "convert it, for example with `iconv -t UTF-8`"
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            hint = "it looks like UTF-16: save it as UTF-8"
        message = f"the file is not UTF-8 text: byte 0x{data[failure.start]:02x} at offset {failure.start} (line {line})"
        raise DslcError([Diagnostic("E0107", message, path=path, hint=hint)]) from None
    return Source(path, text.replace("\r\n", "\n").replace("\r", "\n"))


def read_source(path: str | os.PathLike[str]) -> Source:
    """Reads a `.rules` file.

    Raises:
        DslcError: E0902 where it cannot be read, E0107 and E0108 as `decode`.
    """
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as failure:
        raise DslcError([Diagnostic("E0902", f"cannot read {path}: {failure.strerror}", path=str(path))]) from None
    return decode(data, str(path))


def parse(source: Source) -> t.File:
    """The tree of a whole file.

    Raises:
        DslcError: with the first syntax error.
    """
    try:
        tree = grammar().parse(source.text)
    except UnexpectedInput as failure:
        at = failure.pos_in_stream or 0
        raise error("E0101", "unexpected input", Span(source, at, at + 1)) from None
    header, items = Builder(source).transform(tree)
    return t.File(source, header, items, (), span=Span(source, 0, len(source.text)))
