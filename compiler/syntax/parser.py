"""Reading `.rules` text into the syntax tree."""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any

from lark import Lark, Token, UnexpectedInput

from dslc.errors import Source, Span, error
from dslc.syntax import tree as t
from dslc.syntax.build import Builder


@functools.cache
def grammar(strict: bool = False) -> Lark:
    """The LALR parser; `strict` also refuses grammars whose terminals or rules collide (used by a test)."""
    text = resources.files("dslc.grammar").joinpath("dslc.lark").read_text(encoding="utf-8")
    return Lark(text, parser="lalr", propagate_positions=True, maybe_placeholders=True, strict=strict)


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


__all__ = ["Any", "Token", "grammar", "parse"]
