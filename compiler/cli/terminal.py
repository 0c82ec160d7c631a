"""The one printer: what commands show passes it, and nothing in it that a terminal acts on but dslc's own colours and bars."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

from dslc.outside import in_stream

if TYPE_CHECKING:
    from rich.console import Console


class _Guarded:
    """A stream into which no control characters are written."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(in_stream(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        self.write("".join(lines))

    @property
    def buffer(self) -> None:
        raise AttributeError("bytes would pass by the guard")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def guarded() -> Iterator[None]:
    """Whatever is written to the standard streams passes a guard: notes, tables, help, errors, warnings of Python."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_Guarded(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def say(text: str, err: bool = False) -> None:
    """Writes a text past the guard: whoever made it has looked at what is in it, and coloured it."""
    stream: Any = sys.stderr if err else sys.stdout
    getattr(stream, "stream", stream).write(text)
    stream.flush()


def console(err: bool = False, **options: Any) -> Console:
    """Where styled text and bars are printed; a text is itself, whatever brackets, colons and control characters are in it."""
    stream: Any = sys.stderr if err else sys.stdout
    options = {
        "file": getattr(stream, "stream", stream),
        "highlight": False,
        "markup": False,
        "emoji": False,
        **options,
    }
    made: Console = _plain()(**options)
    return made


@cache
def _plain() -> Any:
    from rich.console import Console

    class Plain(Console):
        """A console of text without control characters; rich's own are segments apart."""

        def render(self, renderable: Any, options: Any = None) -> Iterator[Any]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else segment._replace(text=in_stream(segment.text))

    return Plain
