"""Doors for text from outside (names, metadata, paths, rule files): into C++, and to whoever reads a message."""

from __future__ import annotations

import re

_NO_CODE = re.compile(r"[^A-Za-z0-9_ ]")
#: what a terminal acts on, or shows in another order than it is written in; and what no encoding has
_ACTS = "\0-\b\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
_ACTS += "\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
_STREAM = re.compile(f"[{_ACTS}]|\r(?!\n)")
_LINE = re.compile(f"[{_ACTS}\r\n\t]")


def in_code(text: str) -> str:
    """Text as a comment or a string of C++, CUDA or a command may hold it: letters, digits, `_` and spaces; others are spaces."""
    return _NO_CODE.sub(" ", text)


def in_stream(text: str) -> str:
    """Text of several lines that may be shown: what a terminal would act on is a replacement character."""
    return _STREAM.sub("\N{REPLACEMENT CHARACTER}", text)


def in_line(text: str) -> str:
    """Text that may be shown as a part of a line."""
    return _LINE.sub("\N{REPLACEMENT CHARACTER}", text)
