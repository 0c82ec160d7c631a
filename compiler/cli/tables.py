"""Tables on the standard output."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from dslc.cli import terminal
from dslc.outside import in_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


PIPED = 10_000  #: columns of a table that no terminal shows: as many as its cells take


def console() -> Console:
    """Where a table is printed: as wide as the terminal, or, into a pipe or a file, as wide as what is in it."""
    return terminal.console(soft_wrap=True, width=None if sys.stdout.isatty() else PIPED)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, numbers: Collection[str] = (),
    lines: Literal["all", "head", "none"] = "all", on: Console | None = None,
) -> None:  # fmt: skip
    """Prints a table; what stands in a cell is text, whatever brackets are in it.

    Args:
        columns: their titles; a table whose titles are all empty has no head.
        numbers: titles of columns that are set to the right.
        lines: around all cells, below the head only, or nowhere.
        on: where it is printed; by default `console()`.
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
    (on or console()).print(table)
