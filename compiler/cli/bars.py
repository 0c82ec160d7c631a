"""How far a command is that does many things of one kind."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from dslc.cli.terminal import console

if TYPE_CHECKING:
    from rich.progress import Progress


def counts_text(counts: Mapping[str, int]) -> str:
    """`2 proved, 1 tested`: as many as have each name, in the order of the names."""
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


class CommandBar:
    """A bar on the terminal, where somebody looks; `title` and `done` are what it was last told. A context manager."""

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
