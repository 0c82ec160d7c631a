"""The one printer: what commands show passes it, and nothing in it that a terminal acts on but dslc's own colours and bars."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Self, TextIO

from dslc.outside import in_line, in_stream

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.text import Text


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
    """Guards all that is written to the standard streams: notes, tables, help, errors, warnings of Python."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_Guarded(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def say(text: str, err: bool = False) -> None:
    """Writes a text past the guard: its maker has looked at what is in it, and coloured it."""
    stream: Any = sys.stderr if err else sys.stdout
    getattr(stream, "stream", stream).write(text)
    stream.flush()


def console(err: bool = False, **options: Any) -> Console:
    """The console of styled text and bars; a text is itself, whatever brackets, colons and control characters are in it."""
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


PIPED = 10_000  #: columns of a table that no terminal shows: as many as its cells take


def wide_console() -> Console:
    """The console of tables: as wide as the terminal, or, into a pipe or a file, as wide as what is in it."""
    return console(soft_wrap=True, width=None if sys.stdout.isatty() else PIPED)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, numbers: Collection[str] = (),
    lines: Literal["all", "head", "none"] = "all", on: Console | None = None,
) -> None:  # fmt: skip
    """Prints a table; what stands in a cell is text, whatever brackets are in it.

    Args:
        columns: their titles; a table whose titles are all empty has no head.
        numbers: titles of columns that are set to the right.
        lines: around all cells, below the head only, or nowhere.
        on: where it is printed; by default `wide_console()`.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    head = any(columns)
    boxes = {"all": box.HEAVY_HEAD, "head": box.SIMPLE, "none": None}
    table = Table(box=boxes[lines], pad_edge=lines == "all" or not head, show_edge=lines == "all", show_header=head)
    for column in columns:
        table.add_column(
            column, justify="right" if column in numbers else "left", overflow="fold" if lines != "all" else "ellipsis"
        )
    for row in rows:
        table.add_row(*(Text(in_line(cell)) if isinstance(cell, str) else cell for cell in row))
    (on or wide_console()).print(table)


def counts_text(counts: Mapping[str, int]) -> str:
    """`2 proved, 1 tested`: as many as have each name, in the order of the names."""
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


class CommandBar:
    """A bar on a terminal; `title` and `done` are what it was last told. A context manager."""

    def __init__(self, title: str, quiet: bool, stays: bool = False) -> None:
        self.title, self.done = title, 0
        self._shown: Progress | None = None
        if not quiet and sys.stderr.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            title_column, text = (
                TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[text]}")
            )
            columns = (title_column, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), text)
            # rich's stand-in for a stream would take control characters for styles
            plain: dict[str, Any] = {"redirect_stdout": False, "redirect_stderr": False}
            self._shown = Progress(*columns, console=console(err=True), transient=not stays, **plain)
            self._task = self._shown.add_task(title, total=None, text="")

    def __enter__(self) -> Self:
        if self._shown is not None:
            self._shown.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def tell(self, done: int, total: int, text: str, title: str | None = None) -> None:
        """Shows that so many are done; another title begins anew."""
        anew, self.done = title not in (None, self.title), done
        self.title = title or self.title
        if self._shown is not None:
            if anew:
                self._shown.reset(self._task, description=self.title)
            self._shown.update(self._task, completed=done, total=total or None, text=text)

    def stop(self) -> None:
        """Takes the bar away, so that something else can be said."""
        if self._shown is not None:
            self._shown.stop()
